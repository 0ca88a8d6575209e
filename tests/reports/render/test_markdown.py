import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.reports.render import markdown
from synthbench.reports.table import Cell, Column, Line, Table


def cells_of(label: str, *cells: Cell) -> list[str]:
    """The last line of a table of one line, split into its cells."""
    columns = tuple(Column(f"column {number}") for number in range(len(cells)))
    text = markdown.table(
        Table("a table", "A table", "What it shows.", ("Mechanism",), columns, (Line((label,), cells),))
    )
    assert len(text.splitlines()) == 3
    return [cell.strip() for cell in re.split(r"(?<!\\)(?:\\\\)*\|", text.splitlines()[-1])[1:-1]]


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        (r"\input{x}", r"\\input{x}"),
        ("A&B", "A&amp;B"),
        ("slay_anchor", r"slay\_anchor"),
        ("[text](javascript:x)", r"\[text\](javascript:x)"),
        ("two\n\nlines", "two lines"),
        ("\x1b[31mred", r"U+001B\[31mred"),
        ("007", "007"),
    ],
)
def test_hostile_names_are_printed_as_they_are(name: str, escaped: str) -> None:
    assert markdown.escape(name) == escaped
    assert cells_of(name, Cell(name)) == [escaped, escaped]


@given(st.text(), st.text())
def test_any_text_stays_in_its_cell(label: str, remark: str) -> None:
    cells = cells_of(label, Cell("1.0", remarks=(remark,)), Cell("2.0"))

    assert len(cells) == 3
    assert "<" not in "".join(cells)
