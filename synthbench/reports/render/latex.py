r"""Tables as LaTeX floats, ready for ``\input``; they need only ``\usepackage{booktabs}``.

A float has at most eight columns of numbers and fits on a page with margins of one inch; a larger table is split into
several floats. Widths are counted in characters. Long texts are in columns of fixed width, where LaTeX breaks lines.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from synthbench.reports.table import Cell, Column, Line, Table, printed_labels

MOST_COLUMNS = 8
"""Largest number of columns of numbers in a float; a table of tasks with more columns is transposed."""

_NEEDS = "% Needs \\usepackage{booktabs}. Fits on letter paper and A4 with margins of one inch.\n"
_MARKS = {"best": r"\textbf", "second": r"\underline"}
_RAGGED = {"number": r"\raggedleft", "word": r"\raggedright", "text": r"\raggedright"}

# In characters of \footnotesize, spaces between columns included, and in its lines.
_PAGE_WIDTH = 92
_COLUMN_WIDTH = 44
"""Characters in a column of the narrowest two-column style in common use, that of ACL."""
_WIDEST = {"number": 16, "word": 20, "text": 32}
"""Largest width of a column of each kind; longer cells are broken into lines."""
_NARROW = 14
"""Smallest width to which labels are broken so that a table fits in a column."""
_BETWEEN = 2
_PAGE_HEIGHT = 56
_CAPTION = 70
"""Characters in one line of a caption, which is as high as a line of a table."""
_LONGEST_WORD = 12
"""Largest length of a word that is never broken, in characters."""
_PIECE = re.compile(rf"(?:[^\s_\-/=,;:]{{1,{_LONGEST_WORD}}}[_\-/=,;:]?|[_\-/=,;:])\s*")
"""A part of a text after which LaTeX may break a line."""

_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "{}&%$#_"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # Its own command needs an encoding that is not the default.
    '"': "{''}",
    # After the end of a line these would be read as the options of that line; a backquote makes ligatures, ?` and !`.
    **{sign: f"{{{sign}}}" for sign in "[]*`"},
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "†": r"$^\dagger$",
    "²": r"$^2$",
    "κ": r"$\kappa$",
    "ω": r"$\omega$",
    "“": "``",
    "”": "''",
}


def document(tables: Iterable[Table], prefix: str) -> str:
    """Render tables as the text of one LaTeX file; each table is a float, or several floats if it needs several pages.

    The prefix is part of each LaTeX label: the table ``full`` gets the label ``tab:paper-full`` if the prefix is
    ``paper``. If a table has several floats, the labels after the first end in ``-2``, ``-3`` and so on.
    """
    floats = [text for table in tables for text in _floats(table.shown(MOST_COLUMNS), prefix)]
    # LaTeX stops at the 53rd float that has no page yet.
    texts = [text + "\\clearpage\n" * (number % 40 == 0) for number, text in enumerate(floats, 1)]
    return _NEEDS + "\n".join(texts)


def escape(text: str) -> str:
    r"""Escape text so that LaTeX prints it unchanged, on one line.

    A character that pdflatex cannot print is replaced by a similar plain character or by its code point.
    """
    return "".join(_ESCAPES.get(sign, sign) for sign in _printed(text))


def _printed(text: str) -> str:
    """Return a text as it will look in print, on one line, with replacements for signs that LaTeX cannot print."""
    return "".join(sign if sign in _ESCAPES else _plain(sign) for sign in " ".join(text.split()))


def _plain(sign: str) -> str:
    """Return a sign as the default encoding can print it: the sign itself, its plain form, or its code point."""
    is_latin = "À" <= sign <= "ÿ" and sign not in "×÷ÐðÞþ"
    if " " <= sign <= "~" or is_latin:
        return sign
    # An accent that stands alone, a full-width digit and the like have a plain form.
    plain = unicodedata.normalize("NFKC", sign)
    return plain if plain.isascii() and plain.isalnum() else f"U+{ord(sign):04X}"


class _Column(NamedTuple):
    """The layout of a column, the same in all floats of its table."""

    heading: str
    kind: str
    width: int
    """Width in characters."""
    is_wrapped: bool
    """True if its cells are broken into lines of that width."""

    @property
    def alignment(self) -> str:
        """The column's specification for ``tabular``; a column of fixed width has half an em per character."""
        return f"p{{{self.width / 2:g}em}}" if self.is_wrapped else "r" if self.kind == "number" else "l"


def _floats(table: Table, prefix: str) -> list[str]:
    label = "tab:" + "-".join(re.sub(r"[^A-Za-z0-9-]+", "-", text) for text in (prefix, table.name))
    parts = list(_parts(table))
    texts = []
    for number, (columns, lines) in enumerate(parts, start=1):
        title = f"{table.title}." if len(parts) == 1 else f"{table.title} (part {number} of {len(parts)})."
        if number == 1:
            texts.append(_float(columns, lines, _breakable(f"{title} {table.caption}"), label))
        else:
            caption = rf"{_breakable(title)} Legend: Table~\ref{{{label}}}."
            texts.append(_float(columns, lines, caption, f"{label}-{number}"))
    return texts


def _parts(table: Table) -> Iterator[tuple[list[_Column], Sequence[Line]]]:
    """Yield the columns and lines of each float that shows a part of the table; every float has the label columns."""
    headed = [*(Column(heading, "word") for heading in table.headings), *table.columns]
    texts = [[*line.labels, *map(_text, line.cells)] for line in table.lines]
    columns = [_column(*column, [line[place] for line in texts]) for place, column in enumerate(headed)]
    surplus = sum(column.width + _BETWEEN for column in columns) - _COLUMN_WIDTH
    if surplus > 0 and columns[0].width - surplus >= _NARROW:
        columns[0] = columns[0]._replace(width=columns[0].width - surplus, is_wrapped=True)
    labels, others = columns[: len(table.headings)], columns[len(table.headings) :]
    room = _PAGE_WIDTH - sum(column.width + _BETWEEN for column in labels)
    for across in _runs([column.width + _BETWEEN for column in others], room, MOST_COLUMNS):
        shown = [*labels, *others[across]]
        lines = [replace(line, cells=line.cells[across]) for line in table.lines]
        caption = len(table.caption) // _CAPTION if across.start == 0 else 0
        page = max(_PAGE_HEIGHT - caption - len(_heading(shown)), _PAGE_HEIGHT // 4)
        for down in _runs([_height(shown, line) for line in lines], page, len(lines)):
            yield shown, lines[down]


def _column(heading: str, kind: str, texts: Sequence[str]) -> _Column:
    widest = max(map(len, texts), default=0)
    width = max(min(widest, _WIDEST[kind]), *map(len, _PIECE.findall(heading)), 1)
    return _Column(heading, kind, width, is_wrapped=widest > width)


def _height(columns: Sequence[_Column], line: Line) -> int:
    """Estimate the height of a table line in printed lines; the rule above a group counts as one printed line."""
    texts = [*line.labels, *map(_text, line.cells)]
    broken = [
        math.ceil(1.4 * len(text) / column.width)
        for text, column in zip(texts, columns, strict=True)
        if column.is_wrapped
    ]
    return max(broken, default=1) + line.is_first_of_group


def _runs(sizes: Sequence[int], room: int, most: int) -> list[slice]:
    """Split items into as few groups of neighbours as possible, and return one slice per group.

    A group has no more than ``most`` items, whose sizes sum to no more than ``room``. An item larger than ``room`` is a
    group of its own.
    """

    def fill(most: int) -> list[slice]:
        starts = [0]
        for position in range(1, len(sizes)):
            if position - starts[-1] == most or sum(sizes[starts[-1] : position + 1]) > room:
                starts.append(position)
        return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True)]

    greedy = fill(most)
    even = fill(math.ceil(len(sizes) / len(greedy)) or 1)
    return even if len(even) == len(greedy) else greedy


def _float(columns: Sequence[_Column], lines: Sequence[Line], caption: str, label: str) -> str:
    """Render a LaTeX float; ``caption`` is LaTeX already and is not escaped."""
    is_narrow = sum(column.width + _BETWEEN for column in columns) <= _COLUMN_WIDTH
    environment = "table" if is_narrow else "table*"
    body = [_line(columns, map(Cell, row)) for row in _heading(columns)] + [r"\midrule"]
    for index, (labels, line) in enumerate(zip(printed_labels(lines), lines, strict=True)):
        if index and line.is_first_of_group:
            body.append(r"\midrule")
        body.append(_line(columns, [*map(Cell, labels), *line.cells]))
    return "\n".join(
        [
            rf"\begin{{{environment}}}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            # The article class has no space between a caption and what follows it. Names with underscores are not
            # hyphenated, so that the words of a caption may have to stand further apart.
            r"\setlength{\belowcaptionskip}{5pt}\setlength{\emergencystretch}{3em}",
            rf"\caption{{{caption}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{''.join(column.alignment for column in columns)}}}",
            r"\toprule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\end{{{environment}}}",
            "",
        ]
    )


def _heading(columns: Sequence[_Column]) -> list[tuple[str, ...]]:
    """Return the rows of the column headings; a heading with fewer rows than the others stands at the bottom."""
    broken = []
    for column in columns:
        rows = [""]
        for piece in _PIECE.findall(column.heading):
            if rows[-1] and len(rows[-1]) + len(piece.rstrip()) > column.width:
                rows.append("")
            rows[-1] += piece
        broken.append([row.strip() for row in rows])
    num_rows = max(map(len, broken))
    return list(zip(*([""] * (num_rows - len(rows)) + rows for rows in broken), strict=True))


def _line(columns: Sequence[_Column], cells: Iterable[Cell]) -> str:
    texts = [
        f"{_RAGGED[column.kind]} {_cell(cell, is_wrapped=True)}" if column.is_wrapped else _cell(cell)
        for cell, column in zip(cells, columns, strict=True)
    ]
    # In a cell set ragged, \\ would end a line of the cell.
    return " & ".join(texts) + (r" \tabularnewline" if columns[-1].is_wrapped else r" \\")


def _text(cell: Cell) -> str:
    """Return the whole printed text of a cell: its value, spread and remarks."""
    std, remarks = f"±{cell.std}" * bool(cell.std), f" ({', '.join(cell.remarks)})" * bool(cell.remarks)
    return _printed(cell.value + std + remarks)


def _cell(cell: Cell, *, is_wrapped: bool = False) -> str:
    mark = _MARKS.get(cell.mark)
    # Numbers stay in text mode: \textbf does not reach into mathematics, and LaTeX breaks no line in it.
    std = rf"\,{{\scriptsize$\pm${escape(cell.std)}}}" if cell.std else ""
    shown = _breakable(cell.value, mark) + _marked(std, mark)
    if not is_wrapped:
        shown = _marked(escape(cell.value) + std, mark)
    if cell.remarks:
        remarks = f"({', '.join(cell.remarks)})"
        shown += rf" {{\scriptsize {_breakable(remarks)}}}" if is_wrapped else rf"\,{{\scriptsize{escape(remarks)}}}"
    return shown + r"$^\dagger$" * cell.is_tied


def _breakable(text: str, mark: str | None = None) -> str:
    """Let LaTeX break long words; each piece is marked separately, since LaTeX cannot break underlined text."""
    words = [_PIECE.findall(word) if len(word) > _LONGEST_WORD else [word] for word in _printed(text).split()]
    return " ".join(r"\allowbreak{}".join(_marked(escape(piece), mark) for piece in pieces) for pieces in words)


def _marked(text: str, mark: str | None) -> str:
    return f"{mark}{{{text}}}" if text and mark else text
