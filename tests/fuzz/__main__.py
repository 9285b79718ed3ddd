"""Fuzzes one target: `make fuzz`, or `python -m tests.fuzz TARGET [libFuzzer's switches]`.

libFuzzer watches which branches of Roost an input reaches, keeps those that reach new ones in
`build/fuzz/TARGET`, and ends with the first input that breaks a promise, takes too long, or takes
too much memory; the input lies beside that folder then. Without a target, their names are printed.
"""

import resource
import sys
from pathlib import Path
from random import Random

import atheris

SECONDS_MAX = 10
MEMORY_MIB_MAX = 256
"""How much more than at the beginning may ever be allocated."""
INPUT_BYTES_MAX = 8192

with atheris.instrument_imports(include=["roost"]):
    from tests.fuzz.targets import TARGETS, Target


def main() -> None:
    """Hand over to libFuzzer, which never returns."""
    targets = {target.name: target for target in TARGETS}
    if len(sys.argv) < 2:
        print(*targets, sep="\n")  # noqa: T201 (that is what is asked for)
        return
    target = targets[sys.argv[1]]
    corpus = Path("build") / "fuzz" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    switches = [
        f"-timeout={SECONDS_MAX}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-artifact_prefix={corpus}-",
        "-print_final_stats=1",
        *sys.argv[2:],
    ]
    _fuzz(target, [sys.argv[0], *switches, str(corpus)])


def _fuzz(target: Target, arguments: list[str]) -> None:
    def mutated(raw: bytes, size_max: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.getrandbits(1):
            changed: bytes = atheris.Mutate(raw, size_max)
        else:
            changed = target.mutate(raw, rng)
        return changed[:size_max]

    atheris.Setup(arguments, target.check, custom_mutator=mutated)
    _limit_memory()
    atheris.Fuzz()


def _limit_memory() -> None:
    """Let allocations beyond the limit raise `MemoryError`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_MIB_MAX * (1 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
