r"""Tables as LaTeX, each in a float of its own, ready for ``\input``; they need only ``\usepackage{booktabs}``."""

import re
import unicodedata
from collections.abc import Iterable

import pandas as pd

from synthbench.reports.table import Cell, Table

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # Its own command needs an encoding that is not the default.
    '"': "{''}",
    # After the end of a line these would be read as the options of that line.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # Against the ligatures ?` and !`.
    "`": "{`}",
    "±": r"$\pm$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "†": r"$^\dagger$",
    "²": r"$^2$",
}
_ALIGNMENT = {"number": "r", "word": "l", "text": r"p{0.3\linewidth}"}
_WIDE = 8
"""Columns from which a table is set across both columns of a page, smaller and closer."""
_MARKS = {"best": "textbf:--rwrap;", "second": "underline:--rwrap;", "": ""}


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it is, on one line.

    pandas' own escape leaves ``<``, ``|`` and ``[`` alone, which print as other signs or are read as options, and any
    sign that pdflatex has no glyph for, which would stop it; such a sign is printed as its code point.
    """
    return "".join(_ESCAPES.get(sign) or _plain(sign) for sign in " ".join(text.split()))


def table(of: Table, prefix: str) -> str:
    r"""A float with caption and label.

    Args:
        of: The table.
        prefix: Begins its label, as in ``tab:paper-full``.
    """
    body = [[*_labels(of, index), *line.cells] for index, line in enumerate(of.lines)]
    # Headings may repeat, and Styler wants them distinct: the frame has numbers, and the text is put in their place.
    headings: dict[object, str] = dict(enumerate([*of.headings, *(column.label for column in of.columns)]))
    texts = pd.DataFrame([list(map(_cell, line)) for line in body], columns=range(len(headings)))
    styles = pd.DataFrame([[_MARKS[cell.mark] for cell in line] for line in body], columns=range(len(headings)))
    text = (
        texts.style.hide(axis="index")
        .format_index(lambda position: escape(headings[position]), axis="columns")
        .apply(lambda _: styles, axis=None)
        .to_latex(
            hrules=True,
            column_format="l" * len(of.headings) + "".join(_ALIGNMENT[column.kind] for column in of.columns),
            position_float="centering",
            environment="table*" if len(headings) >= _WIDE else "table",
            caption=escape(f"{of.title}. {of.caption}"),
            label=f"tab:{_label(prefix)}-{_label(of.name)}",
        )
    )
    text = _with_rules(of, text)
    if len(headings) >= _WIDE:
        text = text.replace("\\centering\n", "\\centering\n\\footnotesize\\setlength{\\tabcolsep}{3pt}\n", 1)
    return text


def document(tables: Iterable[Table], prefix: str) -> str:
    """Several tables one after the other, for one file.

    Args:
        tables: The tables.
        prefix: Begins their labels.
    """
    return "% Needs \\usepackage{booktabs}.\n" + "\n".join(table(one, prefix) for one in tables)


def _labels(of: Table, index: int) -> list[Cell]:
    """Labels of a line; a group's name is printed once, where it begins."""
    labels = of.lines[index].labels
    repeats = len(labels) > 1 and index > 0 and labels[0] == of.lines[index - 1].labels[0]
    return [Cell("" if repeats and position == 0 else label) for position, label in enumerate(labels)]


def _cell(cell: Cell) -> str:
    # Numbers stay in text mode: \textbf does not reach into mathematics.
    text = escape(cell.value)
    if cell.std:
        text += rf"\,{{\scriptsize$\pm${escape(cell.std)}}}"
    if cell.remarks:
        text += rf"\,{{\scriptsize({', '.join(map(escape, cell.remarks))})}}"
    return text + (r"$^\dagger$" if cell.is_tied else "")


def _with_rules(of: Table, text: str) -> str:
    """Draw a rule above every group but the first; Styler puts each line of the table on a line of its own."""
    lines = text.splitlines()
    first = lines.index(r"\midrule") + 1
    for index, line in reversed(list(enumerate(of.lines))):
        if index and line.is_first_of_group:
            lines.insert(first + index, r"\midrule")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", text)


def _plain(sign: str) -> str:
    """A sign that the default encoding prints, or its code point."""
    is_latin = "À" <= sign <= "ÿ" and sign not in "×÷ÐðÞþ"
    if " " <= sign <= "~" or is_latin:
        return sign
    # An accent that stands alone, a full-width digit and the like have a plain form.
    plain = unicodedata.normalize("NFKC", sign)
    return plain if plain.isascii() and plain.isalnum() else f"U+{ord(sign):04X}"
