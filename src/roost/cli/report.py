"""What `stat` and `verify` say to people."""

from collections.abc import Iterable, Sequence

from roost.channel.outline import Outline
from roost.channel.recover import Finding
from roost.channel.verify import Verified
from roost.cli.words import counted, size


def outline_text(outline: Outline) -> str:
    """Lay out how a channel stands."""
    facts = [
        ("channel", outline.path),
        ("durability", outline.durability),
        ("write path", outline.write_path),
        ("open in", outline.owner or "no process"),
        ("head", f"{outline.head}"),
        ("durable", f"{outline.durable} at least"),
        ("readable", f"{outline.visible}"),
        ("written", f"{outline.written}"),
        ("disk", f"{size(outline.disk_bytes)} in {counted(len(outline.segments), 'segment')}"),
    ]
    if outline.incarnation:
        facts.append(("incarnation", f"{outline.incarnation} (the system lost received messages)"))
    parts = ["\n".join(f"{name:11}  {text}" for name, text in facts)]
    if outline.receivers:
        rows = [(line.name, line.position, size(line.behind_bytes)) for line in outline.receivers]
        parts.append(table([("receiver", "position", "behind"), *rows]))
    lines = [
        (line.file, line.form, line.begin, line.end, size(line.file_bytes))
        for line in outline.segments
    ]
    parts.append(table([("segment", "form", "begin", "end", "file"), *lines]))
    if outline.salvage:
        rows_salvage = [(line.file, size(line.bytes)) for line in outline.salvage]
        parts.append(table([("salvage", "size"), *rows_salvage]))
    parts.extend(finding_text(finding) for finding in outline.findings)
    return "\n\n".join(parts)


def verified_text(verified: Verified) -> str:
    """Lay out what was found, and sum it up."""
    lines = [finding_text(finding) for finding in verified.findings]
    verdict = counted(len(verified.problems), "problem") if verified.problems else "all good"
    lines.append(
        f"{counted(verified.messages, 'message')} of {size(verified.payload_bytes)} in "
        f"{counted(verified.segments, 'segment')}, positions {verified.begin} to {verified.end}: "
        f"{verdict}"
    )
    return "\n".join(lines)


def finding_text(finding: Finding) -> str:
    """Say one finding on one line."""
    length = f", {counted(finding.size, 'byte')}" if finding.size else ""
    return f"{finding.kind}: {finding.file} offset {finding.offset}{length}: {finding.text}"


def table(rows: Iterable[Sequence[object]]) -> str:
    """Set rows in columns; numbers stand to the right."""
    cells = [[f"{cell}" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if cell.isdecimal() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    )
