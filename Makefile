# Everything that is done here by one command. Each target sets up what it needs by itself, from
# nothing but a Python of 3.11 or newer and the package registries; a second call is quick.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo check test bench sim power fuzz clean

UV_VERSION := 0.13.8
BIN := .venv/bin
BOOT := .venv-boot/uv-$(UV_VERSION)
SYNCED := .venv/.synced
ETCD := .venv-boot/etcd

# The first Python on the path that is new enough and can make an environment; override at will.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.14; do $$name -c \
	'import ensurepip, sys, venv; assert sys.version_info >= (3, 11); print(sys.executable)' \
	2>/dev/null && break; done)

NAME ?= channel
SCENARIO ?= $$($(BIN)/roost sim --list | cut -d ' ' -f 1)
SEED ?= 0
SEEDS ?= 1000
SEEDS_TEST := 1000
JOBS ?= $(shell nproc)
TARGET ?= $$($(BIN)/python -m tests.fuzz 2>/dev/null)
SECONDS ?= 60

# What `check` and `test` have in common, quickest first.
define HABITS
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
endef

# Plays a number of seeds of each scenario; the first failure ends it and says how to see it again.
play = for name in $(SCENARIO); do \
	$(BIN)/roost sim --scenario $$name --seed $(SEED) --seeds $(1) --jobs $(JOBS) || exit 1; done

help:  ## print this list
	@echo 'usage: make TARGET'
	@sed -n 's/^\([a-z]*\):.*  ## /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

venv: $(SYNCED) $(ETCD)  ## make .venv with everything for development

# uv lives in an environment of its own, so that `uv sync` may keep .venv exactly as locked.
$(BOOT):
	@test -n '$(PYTHON)' || { echo 'Roost needs Python 3.11 or newer, with venv; say PYTHON=...' >&2; exit 1; }
	'$(PYTHON)' -m venv --clear .venv-boot
	.venv-boot/bin/python -m pip install --quiet 'uv==$(UV_VERSION)'
	@touch $@

$(SYNCED): pyproject.toml uv.lock $(wildcard src/roost/*/*.pyx src/roost/*/*.h) | $(BOOT)
	@rm -f src/roost/*/_kernel.*.so
	UV_PYTHON_DOWNLOADS=never .venv-boot/bin/uv sync --quiet --frozen --python '$(PYTHON)' \
		--reinstall-package roost  # uv cannot tell when a kernel, which lies in src, is stale or gone
	@ls src/roost/segments/_kernel.*.so src/roost/wire/_kernel.*.so >/dev/null 2>&1 && \
	echo 'kernels: compiled' || echo \
	'kernels: plain Python, since no C compiler made them: the same, slower (make clean venv tries again)'
	@touch $@

# Tests ask a real etcd: the one on the path, or else Debian's, unpacked here and not installed, so
# that nothing is started. Where there is neither, these tests fail and say what to install.
$(ETCD): | $(BOOT)
	@mkdir -p $@.part
	@command -v etcd >/dev/null || { cd $@.part && \
		{ apt-get -qq download etcd-server || { apt-get -qq update && apt-get -qq download etcd-server; }; } \
		>/dev/null 2>&1 && dpkg -x etcd-server_*.deb . && rm etcd-server_*.deb; } || \
		{ rm -rf $@.part; echo 'etcd: none; install etcd-server, or tests that need it will fail'; }
	@test ! -d $@.part || mv $@.part $@

demo: $(SYNCED)  ## a tour of what Roost does today, on real files and real processes
	$(BIN)/python -m demo

check: $(SYNCED) $(ETCD)  ## format, lint, types, imports, tidiness, unit tests, stories, 20 seeds: 40 s
	$(HABITS)
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal -m 'not slow' --hypothesis-profile=quick \
		tests/test_tidy.py tests/unit tests/scenarios
	@$(call play,20)

test: $(SYNCED) $(ETCD)  ## everything: all tests with coverage by branch, and seeds, within 20 minutes
	$(HABITS)
	$(BIN)/pytest -n $(JOBS) --dist worksteal --cov --cov-report=term
	@$(call play,$(SEEDS_TEST))

sim: $(SYNCED)  ## play seeds of the simulator: SCENARIO=echo SEED=0 SEEDS=1000 JOBS=2
	@$(call play,$(SEEDS))

power: $(SYNCED)  ## plant bugs one by one, and see the simulator catch each
	@$(BIN)/python -m tests.power.hunt

fuzz: $(SYNCED)  ## look for bytes that break a promise: TARGET=plain_segment SECONDS=60
	@for name in $(TARGET); do \
		$(BIN)/python -m tests.fuzz $$name -max_total_time=$(SECONDS) || exit 1; done

bench: $(SYNCED)  ## measure one subject: make bench NAME=channel, QUICK=1 for a short run
	$(BIN)/python -m bench $(NAME) $(if $(QUICK),--quick)

clean:  ## remove everything that make has made, the environments too
	rm -rf .venv .venv-boot build dist src/*.egg-info src/roost/*/*.so src/roost/*/_kernel.c
	rm -rf .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
