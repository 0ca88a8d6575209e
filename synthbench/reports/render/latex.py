r"""Tables as LaTeX floats, ready for ``\input``; they need only ``\usepackage{booktabs}``.

A table is never larger than a page with margins of one inch. It is set in the largest size at which it fits; if it does
not fit at the smallest, it becomes several floats, each with some of the columns or rows. Nothing is scaled: a table in
5 points fits anywhere, but nobody can read it.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from synthbench.reports.render.typesetting import escape, pieces_of, units_of, width_of, wrapped
from synthbench.reports.table import Cell, Line, Mark, Table, printed_labels

_NEEDS = "% Needs \\usepackage{booktabs}. Fits on letter paper and A4 with margins of one inch.\n"
_MARKS = {"best": r"\textbf", "second": r"\underline"}
_RAGGED = {"number": r"\raggedleft", "word": r"\raggedright", "text": r"\raggedright"}

# Sizes of pages and print, in points. Widths are estimated and a little too large: a table must fit, and need not fill
# the line.

_PAGE_WIDTH = 450.0
"""What A4 leaves between margins of one inch is 452.9; letter paper is wider."""
_PAGE_HEIGHT = 640.0
"""What letter paper leaves is 650.4; A4 is higher."""
_AROUND = 36.0
"""Height of the rules of a table and of the space above and below its caption."""
_COLUMN_WIDTH = 219.0
"""Width of a column in the narrowest two-column style in common use, that of ACL."""
_NARROW = 90.0
"""No cell is broken into lines narrower than this: it would be a column of single words."""
_COMFORTABLE = 180.0
"""Lines of this width read well. They are tried too, since they may take fewer pages."""
_MOST_ROWS = 4
"""Lines of a heading that are tried before every piece of it has its own."""

_BOLDNESS = {"best": 1.16, "second": 1.0, "": 1.0}
"""Width of print over that of the same text in roman."""
_THIN_SPACE = 1.7
_DAGGER = 4.2
_MARK_HEIGHT = 1.5
"""What an underline and a dagger add to the height of a line."""
_LINE_SPACE = 2.0
"""Between the lines of a table that has cells of several lines."""


class _Size(NamedTuple):
    """A size of print in a document of 10 points."""

    command: str
    scale: float
    """Width of a letter over its width at 10 points."""
    separation: float
    r"""``\tabcolsep``: space on either side of a column."""
    leading: float
    """From line to line."""


_SIZES = (
    _Size("", 1.0, 6.0, 12.0),
    _Size(r"\small", 0.926, 5.0, 11.0),
    _Size(r"\footnotesize", 0.85, 4.0, 9.5),
    # The smallest that is legible in print: 7 points.
    _Size(r"\scriptsize", 0.815, 3.0, 8.0),
)
_SMALLEST = _SIZES[-1].scale


class _Extent(NamedTuple):
    """The possible widths of a column, in points, without the space beside it."""

    least: float
    """With its cells broken into lines as narrow as they may be."""
    cells: float
    """With no cell broken."""
    headings: tuple[float, ...]
    """With its heading in one line, in two and so on; last, with every piece of it in a line of its own."""

    def narrowed(self, limit: float, num_rows: int) -> float:
        """Width with a heading of a number of lines and with cells broken beyond a limit."""
        return max(self.headings[:num_rows][-1], self.least, min(self.cells, limit))


@dataclass(frozen=True)
class _Part:
    """The content of one float."""

    table: Table
    size: _Size
    widths: tuple[float, ...]
    """Of all columns, the labels' first."""
    is_wrapped: tuple[bool, ...]
    """Whether the cells of a column are broken into lines of that width."""

    @property
    def kinds(self) -> list[str]:
        """Kinds of all columns, the labels' first."""
        return ["word"] * len(self.table.headings) + [column.kind for column in self.table.columns]

    @property
    def width(self) -> float:
        """Of the whole table, in points."""
        return sum(self.widths) + 2 * self.size.separation * len(self.widths)


def document(tables: Iterable[Table], prefix: str) -> str:
    """Tables one after the other, for one file: each one float, or several if it does not fit on a page.

    Their labels begin with the prefix, as in ``tab:paper-full``. The first float of a table has its caption and its
    label; the labels of the others end in ``-2``, ``-3`` and so on.
    """
    floats = [text for table in tables for text in _floats(table, prefix)]
    # LaTeX stops at the 53rd float that has no page yet.
    texts = [text + "\\clearpage\n" * (number % 40 == 0) for number, text in enumerate(floats, 1)]
    return _NEEDS + "\n".join(texts)


def _floats(table: Table, prefix: str) -> list[str]:
    parts = _best_parts(table)
    label = "tab:" + "-".join(re.sub(r"[^A-Za-z0-9-]+", "-", text) for text in (prefix, table.name))
    if len(parts) == 1:
        return [_float(parts[0], f"{table.title}. {table.caption}", label)]
    titles = [f"{table.title} (part {number} of {len(parts)})." for number in range(1, len(parts) + 1)]
    return [
        _float(parts[0], f"{titles[0]} {table.caption}", label),
        *(
            _float(part, title, f"{label}-{number}", rf" Legend: Table~\ref{{{label}}}.")
            for number, (part, title) in enumerate(zip(parts[1:], titles[1:], strict=True), 2)
        ),
    ]


# From a table to its parts.


def _best_parts(table: Table) -> list[_Part]:
    candidates = []
    for size in _SIZES:
        for parts in _candidates(table, size):
            if _faults(parts) == (False, 1, False):
                return parts
            candidates.append(parts)
    # Among equals the first is taken: it has the largest print.
    return min(candidates, key=_faults)


def _faults(parts: Sequence[_Part]) -> tuple[bool, int, bool]:
    """The faults of a way to set a table, the worst first.

    These are: a part that is too wide (with very long words in several columns); the number of parts; labels, words or
    numbers in several lines, which read worse than the next smaller print.
    """
    is_too_wide = any(part.width > _PAGE_WIDTH for part in parts)
    breaks_words = any(
        is_wrapped and kind != "text"
        for part in parts
        for is_wrapped, kind in zip(part.is_wrapped, part.kinds, strict=True)
    )
    return is_too_wide, len(parts), breaks_words


def _candidates(table: Table, size: _Size) -> Iterator[list[_Part]]:
    """Two ways to share out a table at one size: with long cells in wide lines and in narrow ones."""
    lines = [[*map(Cell, line.labels), *line.cells] for line in table.lines]
    headings = [*table.headings, *(column.label for column in table.columns)]
    extents = [_extent(heading, [line[position] for line in lines], size) for position, heading in enumerate(headings)]
    for limit in (_COMFORTABLE, _NARROW):
        yield [*_parts(table, size, limit, extents)]


def _parts(table: Table, size: _Size, limit: float, extents: Sequence[_Extent]) -> Iterator[_Part]:
    """The parts of a table: first the columns are divided, then their rows.

    Cells wider than ``limit`` are broken into lines before a column goes to the next part.
    """
    labels, columns = extents[: len(table.headings)], extents[len(table.headings) :]
    gap = 2 * size.separation
    room = _PAGE_WIDTH - sum(gap + label.narrowed(limit, _MOST_ROWS) for label in labels)
    for across in _runs([gap + column.narrowed(limit, _MOST_ROWS) for column in columns], room):
        shown = [*labels, *columns[across]]
        widths = _shares(shown, limit, _PAGE_WIDTH - gap * len(shown))
        whole = _Part(
            table=replace(
                table,
                columns=table.columns[across],
                lines=tuple(replace(line, cells=line.cells[across]) for line in table.lines),
            ),
            size=size,
            widths=tuple(widths),
            is_wrapped=tuple(width < extent.cells for width, extent in zip(widths, shown, strict=True)),
        )
        for down in _pages(whole, has_caption=across.start == 0):
            yield replace(whole, table=replace(whole.table, lines=whole.table.lines[down]))


def _pages(part: _Part, *, has_caption: bool) -> list[slice]:
    """The lines of each float; a group stays together if that takes no more floats."""
    table, size = part.table, part.size
    short = _caption_height(f"{table.title} (part 10 of 10). Legend: Table 10.")
    # Whatever the heading takes: a name without end must not put every line on a page of its own.
    room = max(_PAGE_HEIGHT - _AROUND - short - size.leading * len(_heading(part)), _PAGE_HEIGHT / 4)
    heights = [_height(part, line) for line in table.lines]
    if heights and has_caption:
        heights[0] += max(0.0, _caption_height(f"{table.title} (part 10 of 10). {table.caption}") - short)
    single = _runs(heights, room)
    firsts = [index for index, line in enumerate(table.lines) if index and line.is_first_of_group]
    starts = [0, *firsts, len(table.lines)]
    groups = [sum(heights[start:end], 0.0) for start, end in pairwise(starts)]
    together = _runs(groups, room)
    if len(together) > len(single) or max(groups) > room:
        return single
    return [slice(starts[run.start], starts[run.stop]) for run in together]


def _caption_height(caption: str) -> float:
    return 12.0 * len(wrapped(f"Table 10: {caption}", _PAGE_WIDTH, 1.0))


def _runs(sizes: Sequence[float], room: float) -> list[slice]:
    """Split neighbours into as few runs as the room allows, all about equal; what is too large is a run of its own."""

    def fill(room: float) -> list[slice]:
        starts, used = [0], 0.0
        for position, size in enumerate(sizes):
            used += size
            if used > room and position > starts[-1]:
                starts.append(position)
                used = size
        return [slice(start, end) for start, end in pairwise([*starts, len(sizes)])]

    fewest = len(fill(room))
    # The smallest room that needs no more runs makes them as equal as they can be.
    smallest = bisect_left(range(max(int(room), 0)), x=True, key=lambda smaller: len(fill(float(smaller))) <= fewest)
    return fill(min(float(smallest), room))


def _shares(extents: Sequence[_Extent], limit: float, room: float) -> list[float]:
    """Widths of the columns of one part: headings in as few lines as fit, and what is left to the cells."""
    for num_rows in range(1, _MOST_ROWS + 1):
        narrowed = [extent.narrowed(limit, num_rows) for extent in extents]
        if sum(narrowed) <= room:
            break

    def widths(most: float) -> list[float]:
        return [max(width, min(extent.cells, most)) for width, extent in zip(narrowed, extents, strict=True)]

    return widths(bisect_right(range(int(_PAGE_WIDTH)), room, key=lambda most: sum(widths(float(most)))) - 1.0)


def _extent(heading: str, cells: Sequence[Cell], size: _Size) -> _Extent:
    widest = max((_cell_width(cell, size) for cell in cells), default=0.0)
    least = widest
    if widest > _NARROW:
        pieces = (
            size.scale * _BOLDNESS[cell.mark] * width_of(piece) for cell in cells for piece in pieces_of(_text(cell))
        )
        least = min(widest, max(_NARROW, *pieces))
    return _Extent(least, widest, tuple(size.scale * width for width in _heading_widths(heading)))


@lru_cache(maxsize=1_000)
def _heading_widths(heading: str) -> list[float]:
    """Widths at 10 points of a heading in one line, in two and so on, and in as many as it can be broken into."""
    pieces = pieces_of(heading)

    def least(num_rows: int) -> int:
        def fits(width: int) -> bool:
            return len(wrapped(heading, float(width), 1.0)) <= num_rows

        # The end of the range is a width as well: there one line is enough.
        return bisect_left(range(math.ceil(width_of(heading))), x=True, key=fits)

    widest = max((width_of(piece) for piece in pieces), default=0.0)
    widths = [max(float(least(num_rows)), widest) for num_rows in range(1, min(len(pieces), _MOST_ROWS))]
    return [*widths, widest]


def _height(part: _Part, line: Line) -> float:
    cells = [*map(Cell, line.labels), *line.cells]
    num_rows = max(
        (
            len(wrapped(_text(cell), width, part.size.scale * _BOLDNESS[cell.mark]))
            for cell, width, is_wrapped in zip(cells, part.widths, part.is_wrapped, strict=True)
            if is_wrapped
        ),
        default=1,
    )
    # Above it stands the rule of a group, or the space that tells lines of several rows apart.
    above = 0.6 * part.size.leading if line.is_first_of_group else _LINE_SPACE if any(part.is_wrapped) else 0.0
    is_marked = any(cell.mark or cell.is_tied for cell in line.cells)
    return (part.size.leading + _MARK_HEIGHT * is_marked) * num_rows + above


def _text(cell: Cell) -> str:
    """All that is printed of a cell, of one size: a little wider than what is printed."""
    std = f" ±{cell.std}" if cell.std else ""
    remarks = f" ({', '.join(cell.remarks)})" if cell.remarks else ""
    return cell.value + std + remarks + "†" * cell.is_tied


def _cell_width(cell: Cell, size: _Size) -> float:
    """Width of a cell on one line."""
    width = size.scale * width_of(cell.value)
    if cell.std:
        width += _THIN_SPACE + _SMALLEST * width_of(f"±{cell.std}")
    if cell.remarks:
        width += _THIN_SPACE + _SMALLEST * width_of(f"({', '.join(cell.remarks)})")
    return (width + _DAGGER * cell.is_tied) * _BOLDNESS[cell.mark]


# From a part to text.


def _float(part: _Part, caption: str, label: str, reference: str = "") -> str:
    """A float; the reference, which ends the caption, is LaTeX already."""
    table, size = part.table, part.size
    alignment = "".join(
        f"p{{{math.floor(width)}pt}}" if is_wrapped else "r" if kind == "number" else "l"
        for kind, width, is_wrapped in zip(part.kinds, part.widths, part.is_wrapped, strict=True)
    )
    environment = "table*" if part.width > _COLUMN_WIDTH else "table"
    lines = [rf"\begin{{{environment}}}", r"\centering"]
    if size.command:
        lines.append(rf"{size.command}\setlength{{\tabcolsep}}{{{size.separation:g}pt}}")
    lines += [
        # The article class has no space between a caption and what follows it. Names with underscores are not
        # hyphenated, so that the words of a caption may have to stand further apart.
        r"\setlength{\belowcaptionskip}{5pt}\setlength{\emergencystretch}{3em}",
        rf"\caption{{{_breakable(caption, _PAGE_WIDTH / 4, 1.0)}{reference}}}",
        rf"\label{{{label}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        *(_line(part, map(Cell, row)) for row in _heading(part)),
        r"\midrule",
    ]
    for index, (labels, line) in enumerate(zip(printed_labels(table), table.lines, strict=True)):
        if index and line.is_first_of_group:
            lines.append(r"\midrule")
        elif index and any(part.is_wrapped):
            lines.append(rf"\addlinespace[{_LINE_SPACE:g}pt]")
        lines.append(_line(part, [*map(Cell, labels), *line.cells]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", rf"\end{{{environment}}}", ""])


def _heading(part: _Part) -> list[tuple[str, ...]]:
    """The rows of the heading; a heading that needs fewer rows than others stands at the bottom."""
    headings = [*part.table.headings, *(column.label for column in part.table.columns)]
    columns = [wrapped(text, width, part.size.scale) for text, width in zip(headings, part.widths, strict=True)]
    num_rows = max(map(len, columns), default=1)
    return list(zip(*([""] * (num_rows - len(rows)) + rows for rows in columns), strict=True))


def _line(part: _Part, cells: Iterable[Cell]) -> str:
    texts = [
        _broken_cell(cell, kind, width, part.size) if is_wrapped else _cell(cell)
        for cell, kind, width, is_wrapped in zip(cells, part.kinds, part.widths, part.is_wrapped, strict=True)
    ]
    # In a cell set ragged, \\ would end a line of the cell.
    return " & ".join(texts) + (r" \tabularnewline" if part.is_wrapped and part.is_wrapped[-1] else r" \\")


def _cell(cell: Cell) -> str:
    # Numbers stay in text mode: \textbf does not reach into mathematics.
    text = escape(cell.value) + _std(cell)
    if cell.remarks:
        text += rf"\,{{\scriptsize({', '.join(map(escape, cell.remarks))})}}"
    return _marked(text + _dagger(cell), cell.mark)


def _broken_cell(cell: Cell, kind: str, width: float, size: _Size) -> str:
    """A cell in a column of a fixed width, ragged: between words that narrow, straight margins tear holes."""
    scale = size.scale * _BOLDNESS[cell.mark]
    texts = [_breakable(cell.value, width, scale, cell.mark)]
    if cell.std:
        texts[0] += rf"\allowbreak{{}}{_marked(_std(cell), cell.mark)}"
    if cell.remarks:
        remarks = _breakable(f"({', '.join(cell.remarks)})", width, scale, cell.mark)
        texts.append(rf"{{\scriptsize {remarks}}}")
    return f"{_RAGGED[kind]} {' '.join(texts)}{_dagger(cell)}"


def _breakable(text: str, width: float, scale: float, mark: Mark = "") -> str:
    """A text whose words are broken where they are wider; each piece has its mark, since LaTeX breaks no underline."""
    return "".join(
        _marked(escape(unit), mark) + (" " if unit.endswith(" ") else r"\allowbreak{}")
        for unit in units_of(text, width, scale)
    ).rstrip()


def _marked(text: str, mark: Mark) -> str:
    return f"{_MARKS[mark]}{{{text}}}" if text and mark else text


def _std(cell: Cell) -> str:
    return rf"\,{{\scriptsize$\pm${escape(cell.std)}}}" if cell.std else ""


def _dagger(cell: Cell) -> str:
    return r"$^\dagger$" if cell.is_tied else ""
