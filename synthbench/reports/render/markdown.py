"""Tables as GitHub-flavoured Markdown."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate

from synthbench.reports.render import visible
from synthbench.reports.table import Cell, Table, printed_labels

MOST_COLUMNS = 12
"""Largest number of mechanisms that are columns of a table; with more, mechanisms are rows."""
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {sign: "\\" + sign for sign in "\\`*_[]#|~$"})
_ALIGNMENT = {"number": "right", "word": "left", "text": "left"}


def escape(text: str) -> str:
    """Put text on one line, and escape markup, HTML and column separators."""
    return visible(" ".join(text.split())).translate(_ESCAPES)


def table(table: Table) -> str:
    """Render a table as a Markdown pipe table, without title and caption."""
    table = table.shown(MOST_COLUMNS)
    lines = [
        [*map(escape, labels), *map(_cell, line.cells)]
        for labels, line in zip(printed_labels(table.lines), table.lines, strict=True)
    ]
    headings = [escape(heading) for heading in (*table.headings, *(column.label for column in table.columns))]
    alignments = ["left"] * len(table.headings) + [_ALIGNMENT[column.kind] for column in table.columns]
    return plain_table(lines, headings, alignments)


def plain_table(
    lines: Iterable[Sequence[object]], headings: Sequence[str], alignments: Sequence[str] | None = None
) -> str:
    """Render lines of numbers and texts as a Markdown pipe table; the texts are Markdown and are not escaped."""
    # If numbers were parsed, a label like 007 would be read as one.
    return tabulate(list(lines), headings, tablefmt="github", colalign=alignments, disable_numparse=True)


def lines(text: str) -> str:
    """Escape the lines of a text, and make a Markdown list of them if there are several."""
    first, *others = map(escape, text.splitlines())
    return "\n".join(f"- {line}" for line in (first, *others)) if others else first


def document(title: str, tables: Iterable[Table], introduction: str = "") -> str:
    """Render a page: a title, an introduction, and tables with captions and sources.

    If there are several tables, each table has its own title.
    """
    shown = list(tables)
    blocks = [f"# {escape(title)}"]
    if introduction:
        blocks.append(lines(introduction))
    for each in shown:
        if len(shown) > 1:
            blocks += [f"## {escape(each.title)}", *[escape(each.outcome)] * bool(each.outcome)]
        blocks += [escape(each.caption), table(each)]
        if each.sources:
            blocks.append(f"Sources, in sources.bib: {', '.join(map(escape, each.sources))}.")
    return "\n\n".join(blocks) + "\n"


def _cell(cell: Cell) -> str:
    text = escape(cell.value)
    if cell.std:
        text += f" ± {escape(cell.std)}"
    if cell.remarks:
        text += f" ({', '.join(map(escape, cell.remarks))})"
    if cell.is_tied:
        text += " †"
    # GitHub's Markdown has no sign for underlining and lets this element pass.
    return {"best": f"**{text}**", "second": f"<ins>{text}</ins>", "": text}[cell.mark]
