"""The habits of this code base, as rules that fail.

Each rule reads the tree and lists what breaks it, and says what to do about it. Numbers are
ratchets: they may be lowered by whoever makes it possible, and are never raised.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import roost.errors

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]

# The modules and packages that act. Every other module is pure: it decides, and neither waits nor
# asks the machine for anything, not even through a seam. Which parts of the machine itself these
# may import says the contract `purity` in pyproject.toml.
IMPURE = {
    "roost.blocking": "an event loop on a thread, and who waits for it",
    "roost.channel.async_receiver": "suspends tasks until there is a message",
    "roost.channel.catalogue": "opens the segment files that readers want",
    "roost.channel.channel": "opens the folder, on the real machine unless told otherwise",
    "roost.channel.flush": "syncs files, in threads and on workers",
    "roost.channel.folder": "sees which segments a folder holds, without its lock",
    "roost.channel.handle": "what the receivers of threads and of tasks share",
    "roost.channel.machine": "one open channel, behind one lock",
    "roost.channel.outline": "describes a folder, without its lock",
    "roost.channel.positions": "stores receivers' positions in the file `offset`",
    "roost.channel.reading": "reads for one receiver",
    "roost.channel.readings": "the receiving half of an open channel, behind its lock",
    "roost.channel.receiver": "blocks threads until there is a message",
    "roost.channel.recover": "puts a folder right",
    "roost.channel.sender": "waits until a message is as durable as was asked for",
    "roost.channel.standing": "holds that lock, and says what may still be done",
    "roost.channel.stat": "asks an open channel, and a folder, how it is",
    "roost.channel.tail": "writes the growing segment",
    "roost.channel.upkeep": "compresses and removes segment files",
    "roost.channel.verify": "reads everything in a folder, without its lock",
    "roost.channel.view": "reads a channel beside the process that has it open",
    "roost.channel.wait": "blocks threads and suspends tasks",
    "roost.channel.walk": "reads what the catalogue opens",
    "roost.cli": "the entry points",
    "roost.config": "reads the file, and knows addresses",
    "roost.host.examine": "asks the machine about locks and file systems",
    "roost.host.lines": "writes events to a stream",
    "roost.host.net": "connections",
    "roost.host.posix": "the real disk",
    "roost.host.system": "the real clock, chance and workers",
    "roost.host.jobs": "lets tasks wait for workers",
    "roost.host.seams": "what a process has of its machine",
    "roost.ledger.asking": "asks nodes what they have",
    "roost.ledger.client": "all ledgers of a cluster, for one process",
    "roost.ledger.ending": "tells nodes that a ledger has ended",
    "roost.ledger.mending": "has nodes check their copies, and mend them",
    "roost.ledger.nodes": "connections to nodes",
    "roost.ledger.opening": "opens a cluster by its URL",
    "roost.ledger.reading": "reads a ledger from its nodes",
    "roost.ledger.records": "ledgers' documents in the metadata store",
    "roost.ledger.recovering": "ends a ledger for a writer that is gone",
    "roost.ledger.repairing": "has nodes copy what is missing",
    "roost.ledger.throttle": "waits, so that copies keep to their pace",
    "roost.ledger.writer": "writes a ledger to its nodes",
    "roost.master.auditing": "looks at all ledgers, and has them repaired",
    "roost.master.collecting": "has nodes forget what nobody needs",
    "roost.master.documents": "reads ledgers' documents",
    "roost.master.emptying": "counts what names a node",
    "roost.master.means": "holds what the parts of a master work with",
    "roost.master.process": "a master from its start to its end",
    "roost.master.roster": "lists the nodes",
    "roost.master.scrubbing": "has nodes read everything again",
    "roost.master.service": "the loops of an elected master",
    "roost.metadata.database": "the embedded store's file",
    "roost.metadata.drains": "marks nodes that are to be emptied",
    "roost.metadata.etcd": "asks an etcd",
    "roost.metadata.etcd_channels": "connects to an etcd",
    "roost.metadata.etcd_watch": "watches an etcd",
    "roost.metadata.gate": "waits for calls",
    "roost.metadata.address": "knows addresses",
    "roost.metadata.ids": "takes ids from a store",
    "roost.metadata.masters": "asks who the master is",
    "roost.metadata.nodes": "registers nodes, and follows them",
    "roost.metadata.opening": "opens the store that a URL names",
    "roost.metadata.keeper": "keeps an embedded store",
    "roost.metadata.local": "a store in this process",
    "roost.metadata.election": "waits to be elected",
    "roost.metadata.held": "renews leases",
    "roost.metadata.remote": "asks a served store",
    "roost.metadata.server": "a served store from its start to its end",
    "roost.metadata.service": "answers a served store's requests",
    "roost.metadata.store": "the contract, whose calls wait",
    "roost.metadata.view": "follows keys as they change",
    "roost.node.client": "asks a node",
    "roost.node.files": "opens ledgers' files",
    "roost.node.flush": "writes ledgers' files",
    "roost.node.http": "answers browsers and scrapers",
    "roost.node.identity": "makes a node's folder, and takes it",
    "roost.node.layout": "replaces files as a whole",
    "roost.node.membership": "keeps a node registered",
    "roost.node.process": "a node from its start to its end",
    "roost.node.peer": "copies from other nodes",
    "roost.node.reading": "reads ledgers' files",
    "roost.node.recovery": "puts a node together after a stop",
    "roost.node.service": "answers a node's requests",
    "roost.node.status": "asks a node how it is",
    "roost.node.store": "a node's ledgers, in the event loop",
    "roost.node.unsynced": "keeps a note in the folder",
    "roost.node.upkeep": "flushes, checkpoints and trims",
    "roost.node.verify": "reads everything in a stopped node's folder",
    "roost.node.views": "reads from memory and files, and waits",
    "roost.rpc.client": "asks over a connection",
    "roost.rpc.output": "writes to a connection",
    "roost.rpc.server": "accepts connections",
    "roost.rpc.session": "answers over a connection",
    "roost.journal.recover": "puts a journal's folder right, and reads it",
    "roost.journal.service": "one open journal, in the event loop and on its worker",
    "roost.journal.writer": "writes a journal's segment files",
    "roost.segments.file": "reads and writes segment files",
    "roost.sim": "the world that the production code runs in",
}
SEAMS = {f"roost.host.{name}" for name in ("clock", "disk", "log", "net", "tasks")}

FUNCTION_LINES_MAX = 50
FILE_LINES_P90 = 400
FILE_LINES_MAX = 700
APART_SHARE_MIN = 0.6

# Each word with one letter in brackets, so that this line does not break its own rule.
BANNED_WORDS = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X])\b")
BANNED_NAMES = {"manager", "helper", "helpers", "util", "utils", "data", "info"}
PRESCRIBED_NAMES = {"data_received"}  # asyncio's
SILENCED = re.compile(r"#\s*(type:\s*ignore(?!\[)|noqa(?!: ?[A-Z]))")
SKIPS = {"skip", "skipif", "skipIf", "skipUnless", "xfail", "importorskip", "SkipTest"}


class Source(msgspec.Struct, frozen=True):
    """One Python file: where it stands, its text and its tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The path from the repository's root, as one writes it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """The name that it is imported by; a package is named by its folder."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(*folders: str) -> list[Source]:
    """Read all Python files of some folders of the repository."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert paths, f"there is no Python in {folders}"
    return [source(path) for path in paths]


@cache
def source(path: Path) -> Source:
    """Read a file."""
    text = path.read_text()
    return Source(path, text, ast.parse(text))


def everything() -> list[Source]:
    """Read all Python that is ours."""
    return sources("src", "tests", "bench", "demo")


def verdict(advice: str, complaints: list[str]) -> None:
    """Fail with the advice and the places, if there are any."""
    assert not complaints, "\n  ".join([advice, *complaints])


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, however deep."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def docstring_lines(tree: ast.AST) -> set[int]:
    """Tell which lines belong to docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(source: Source) -> set[int]:
    """Tell which lines are neither blank nor prose."""
    lines = enumerate((line.strip() for line in source.text.splitlines()), 1)
    return {n for n, line in lines if line and line[0] != "#"} - docstring_lines(source.tree)


def imports(source: Source) -> set[str]:
    """Name every module that may be imported by a file: `from a import b` may mean `a.b`."""
    names: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def is_pure(module: str) -> bool:
    """Tell whether neither a module nor a package around it is in the table."""
    return not any(module == name or module.startswith(f"{name}.") for name in IMPURE)


def touching() -> set[str]:
    """Name the modules that import-linter lets touch the machine."""
    (purity,) = (c for c in TOOLS["importlinter"]["contracts"] if c["id"] == "purity")
    return {edge.split(" -> ")[0] for edge in purity["ignore_imports"]}


def test_functions_fit_on_one_screen() -> None:
    complaints: list[str] = []
    for source in everything():
        lines = code_lines(source)
        for function in functions(source.tree):
            span = range(function.lineno, (function.end_lineno or function.lineno) + 1)
            size = len(lines & set(span))
            if size > FUNCTION_LINES_MAX:
                complaints.append(f"{source.name}:{function.lineno} {function.name}: {size} lines")

    verdict(
        f"A function shows one idea in {FUNCTION_LINES_MAX} lines of code: keep the branching in "
        "it and move the straight lines into functions of their own.",
        complaints,
    )


def test_files_stay_readable_in_one_sitting() -> None:
    sizes = sorted((len(source.text.splitlines()), source.name) for source in everything())
    p90 = sizes[int(0.9 * len(sizes))]

    verdict(
        f"A file has at most {FILE_LINES_MAX} lines: find the second idea in it and give it a "
        "file.",
        [f"{name}: {lines} lines" for lines, name in sizes if lines > FILE_LINES_MAX],
    )
    assert p90[0] <= FILE_LINES_P90, (
        f"Nine of ten files have at most {FILE_LINES_P90} lines, but {p90[1]} has {p90[0]}: "
        "divide some of the largest."
    )


def test_pure_modules_neither_wait_nor_act_nor_import_one_that_does() -> None:
    acting = {s.module for s in sources("src") if not is_pure(s.module)} | SEAMS
    complaints: list[str] = []
    for source in sources("src"):
        if not is_pure(source.module):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.AsyncFunctionDef):
                complaints.append(f"{source.name}:{node.lineno} is asynchronous")
                break
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"open", "input", "print"}:
                complaints.append(f"{source.name}:{node.lineno} {ast.unparse(node.func)}()")
        if source.path.name != "__init__.py" and not source.module.startswith("roost.host."):
            acts = sorted(imports(source) & acting)
            complaints.extend(f"{source.name} imports {name}" for name in acts)

    verdict(
        "A module is pure unless the table IMPURE in this file lists it: move the decision into "
        "a pure class (calls in, effects out) and let a listed module carry it out, or list the "
        "module with the reason.",
        complaints,
    )


def test_the_lists_of_who_may_touch_the_machine_agree() -> None:
    ruff = TOOLS["ruff"]["lint"]["per-file-ignores"]
    paths = {name for name, codes in ruff.items() if name.startswith("src/") and "TID251" in codes}
    excused = {source.module for source in sources("src") if source.name in paths}

    assert excused == touching(), (
        "Name in the TID251 entries of [tool.ruff.lint.per-file-ignores], one by one, the modules "
        "that the contract `purity` in pyproject.toml names."
    )
    # The kernel's plain twin decides like any pure module; its lock stands for the compiled one's.
    assert {module for module in excused if is_pure(module)} == {"roost.segments.plain"}, (
        "A module that touches the machine belongs into IMPURE, too."
    )
    verdict(
        "IMPURE names a module that is gone: remove it there.",
        sorted(IMPURE.keys() - {source.module for source in sources("src")}),
    )


def test_most_code_runs_without_the_machine() -> None:
    product = [source for source in sources("src") if not source.module.startswith("roost.sim")]
    lines = {source.module: len(code_lines(source)) for source in product}

    share = sum(lines[module] for module in lines.keys() - touching()) / sum(lines.values())

    assert share >= APART_SHARE_MIN, (
        f"Only {share:.0%} of the code imports nothing of the machine, and it was "
        f"{APART_SHARE_MIN:.0%}: move decisions out of the modules that carry them out."
    )


def test_every_dependency_is_used() -> None:
    imported = {name.partition(".")[0] for source in sources("src") for name in imports(source)}
    needed = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in PROJECT["dependencies"]}

    assert needed <= imported, f"Remove from pyproject.toml: {sorted(needed - imported)}."


def test_no_module_is_dead() -> None:
    modules = sources("src")
    used = {name for source in modules for name in imports(source) - {source.module}}
    used |= {script.partition(":")[0] for script in PROJECT["scripts"].values()}
    used |= {source.module for source in modules if source.path.name == "__main__.py"}
    packages = {source.module for source in modules if source.path.name == "__init__.py"}

    verdict(
        "Every module of src is imported by another or is an entry point: use it or remove it.",
        sorted({source.module for source in modules} - used - packages),
    )


def test_every_package_says_what_lives_in_it() -> None:
    packages = {source.path.parent for source in sources("src", "bench")} - {ROOT / "src"}

    verdict(
        "A package's __init__.py says in a docstring what lives there.",
        [
            str(package.relative_to(ROOT))
            for package in sorted(packages)
            if not (init := package / "__init__.py").exists()
            or not ast.get_docstring(ast.parse(init.read_text()))
        ],
    )


def test_nothing_is_left_for_later() -> None:
    texts = [(source.name, source.text) for source in everything()]
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
    texts += [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in documents]

    verdict(
        "Finish it, or write down in the CHANGELOG or an ADR what is not there: no notes to self.",
        [
            f"{name}:{number} {line.strip()}"
            for name, text in texts
            for number, line in enumerate(text.splitlines(), 1)
            if BANNED_WORDS.search(line)
        ],
    )


def test_names_say_what_a_thing_is() -> None:
    named = [(f"{source.name}:1", source.path.stem) for source in everything()]
    named += [
        (f"{source.name}:{node.lineno}", node.name)
        for source in everything()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    ]
    named += [
        (f"{source.name}:{function.lineno}", function.name)
        for source in sources("src", "bench", "demo")  # a test's name is a sentence
        for function in functions(source.tree)
    ]

    verdict(
        f"Name it by what it is; these words say nothing: {sorted(BANNED_NAMES)}.",
        [
            f"{place} {name}"
            for place, name in named
            if name not in PRESCRIBED_NAMES
            and {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)} & BANNED_NAMES
        ],
    )


def test_every_silenced_warning_says_which() -> None:
    verdict(
        "Write `type: ignore[code]` or `noqa: CODE`, with the reason behind it.",
        [
            f"{source.name}:{number} {line.strip()}"
            for source in everything()
            for number, line in enumerate(source.text.splitlines(), 1)
            if SILENCED.search(line)
        ],
    )


def test_no_test_is_skipped() -> None:
    verdict(
        "A test runs everywhere or does not exist: choose another way in the code under test.",
        [
            f"{source.name}:{node.lineno} {ast.unparse(node)}"
            for source in sources("tests")
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Attribute) and node.attr in SKIPS
        ],
    )


def test_tests_neither_sleep_nor_mock() -> None:
    complaints: list[str] = []
    for source in sources("tests"):
        banned = re.compile(r"time\.sleep|(.*\.)?mock(\..*)?")
        imported = sorted(name for name in imports(source) if banned.fullmatch(name))
        complaints.extend(f"{source.name} imports {name}" for name in imported)
        complaints.extend(
            f"{source.name}:{node.lineno} {ast.unparse(node)}"
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Attribute)
            and ast.unparse(node) in {"time.sleep", "monkeypatch.setattr"}
        )

    verdict(
        "Wait for an event with a deadline, or drive the clock; pass a real or a simulated part "
        "in place of a mock.",
        complaints,
    )


def test_the_drawn_tree_of_errors_is_the_tree_of_classes() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (roost.errors.__doc__ or "").splitlines():
        if found := re.match(r"( {4}[ │├└─]*)([A-Z]\w+)", line):
            depth = (len(found[1]) - 4) // 3
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else "Exception"

    classes = {
        name: value.__bases__[0].__name__
        for name, value in vars(roost.errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }

    assert drawn == classes, "Draw in the docstring of roost.errors what its classes are."
