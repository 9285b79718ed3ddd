"""The documents are true: links lead somewhere, examples run, lists are whole.

A file's examples run in the order in which they stand, in one fresh folder and with one set of
Python names, as a reader would follow them: each ```python block, and in each ```console block
the lines after `$ ` that use the `roost` command. What a command prints is compared where the
block shows it; `...` stands for anything.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMAND_TIMEOUT_S = 60

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix()
)


class Example(msgspec.Struct, frozen=True):
    """One fenced block: what it is written in, where it begins, and its lines."""

    language: str
    line: int
    text: str


def examples(document: Path) -> list[Example]:
    """Read the fenced blocks of a document that can be run."""
    text = document.read_text()
    found = re.finditer(r"^```(python|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Example(m[1], text[: m.start(2)].count("\n") + 1, m[2]) for m in found]


def anchors(document: Path) -> set[str]:
    """Name the headings of a document as a link does."""
    headings = re.findall(r"^#+ +(.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings}


def run_python(example: Example, document: Path, names: dict[str, object]) -> None:
    """Run a block so that a traceback shows the document's own lines."""
    code = "\n" * (example.line - 1) + example.text
    exec(compile(code, str(document), "exec"), names)  # noqa: S102 (that is what is tested)


def run_console(example: Example, document: Path, folder: Path) -> None:
    """Run a block's commands, and compare what they print with what the block shows."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for found in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", example.text, re.MULTILINE):
        command, shown = found[1], found[2]
        if not re.search(r"\broost\b", command):
            continue
        ran = subprocess.run(  # noqa: S602 (a reader would type it into a shell)
            command,
            shell=True,
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        place = f"{document.name}:{example.line + example.text[: found.start()].count(chr(10))}"
        assert not ran.returncode, f"{place} `{command}` failed:\n{ran.stdout}"
        if shown.strip():
            same = doctest.OutputChecker().check_output(shown, ran.stdout, doctest.ELLIPSIS)
            assert same, f"{place} `{command}` printed:\n{ran.stdout}"


@each_document
def test_the_examples_run_as_they_stand(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}

    for example in examples(document):
        if example.language == "python":
            run_python(example, document, names)
        else:
            run_console(example, document, tmp_path)


@each_document
def test_every_link_leads_somewhere(document: Path) -> None:
    missing = []
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", document.read_text()):
        file, _, anchor = target.partition("#")
        place = (document.parent / file).resolve() if file else document
        if not place.exists() or (anchor and anchor not in anchors(place)):
            missing.append(target)

    assert not missing, "Mend the link, or write what it leads to."


@each_document
def test_every_file_that_is_spoken_of_exists(document: Path) -> None:
    spoken = re.findall(r"`([\w.-]+/[\w./-]+\.(?:md|py|pyx|toml|txt))`", document.read_text())
    places = (ROOT, ROOT / "src", ROOT / "src" / "roost")

    missing = [file for file in spoken if not any((place / file).exists() for place in places)]

    assert not missing, "Name the file where it is now."


@each_document
def test_every_make_target_that_is_spoken_of_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    spoken = set(re.findall(r"(?:`|\$ )make ([a-z]+)", document.read_text()))

    assert spoken <= targets, f"The Makefile has no target {sorted(spoken - targets)}."


def test_every_decision_is_listed_under_its_number() -> None:
    folder = ROOT / "docs" / "adr"
    numbered = sorted(folder.glob("[0-9]*.md"))

    listed = re.findall(r"\]\((\d{4}-[^)]+)\)", (folder / "README.md").read_text())
    titles = [path.read_text().partition(". ")[0] for path in numbered]

    assert listed == [path.name for path in numbered], "docs/adr/README.md lists every ADR."
    assert titles == [f"# {int(path.name[:4])}" for path in numbered], "Title: '# 7. What'."


def test_every_word_of_the_glossary_is_in_use() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    code = " ".join(path.read_text().lower() for path in (ROOT / "src").rglob("*.py"))

    rows = re.findall(r"^\| ([a-z][^|]*?) +\|", glossary, re.MULTILINE)[1:]
    words = [word for row in rows for word in row.split(", ")]
    unused = [word for word in words if not re.search(rf"\b{re.escape(word)}", code)]

    assert words, "docs/glossary.md has a table whose first column is the word."
    assert not unused, "The glossary holds the words that the code uses: remove or use them."
    assert words == sorted(words), "Keep the glossary in alphabetical order."
