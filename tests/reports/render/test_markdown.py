import re
from collections.abc import Callable

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.reports.cells import grid
from synthbench.reports.render import markdown
from synthbench.reports.table import Cell, Column, Line, Table, category_table
from synthbench.reports.verdicts import judge

MakeFrame = Callable[..., pd.DataFrame]


def table_of(*cells: Cell, labels: tuple[str, ...] = ("mine",)) -> Table:
    """A table of one line."""
    return Table(
        name="a table",
        title="A table",
        caption="What it shows.",
        headings=tuple("Mechanism" for _ in labels),
        columns=tuple(Column(f"column {number}") for number in range(len(cells))),
        lines=(Line(labels, cells),),
    )


def last_line(table: Table) -> list[str]:
    """The cells of the last line, as text."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", markdown.table(table).splitlines()[-1])[1:-1]]


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        (r"\input{x}", r"\\input{x}"),
        ("A&B", "A&amp;B"),
        ("slay_anchor", r"slay\_anchor"),
        ("`code`", r"\`code\`"),
        ("[text](javascript:x)", r"\[text\](javascript:x)"),
        ("two\n\nlines", "two lines"),
        ("\x1b[31mred", r"U+001B\[31mred"),
        ("007", "007"),
    ],
)
def test_hostile_names_are_printed_as_they_are(make_frame: MakeFrame, name: str, escaped: str) -> None:
    cells = grid(make_frame({"slay": [0.5], "mine": [0.25]}, mech_label=name))
    table = category_table(cells, judge(cells), "basic")
    (line,) = (line for line in table.lines if line.labels[0].endswith("(mine)"))

    assert last_line(table_of(labels=line.labels)) == [f"{escaped} (mine)"]
    assert markdown.escape(name) == escaped


@given(st.text(), st.text())
def test_any_text_stays_in_its_cell(label: str, remark: str) -> None:
    text = markdown.table(table_of(Cell("1.0", remarks=(remark,)), Cell("2.0"), labels=(label,)))

    assert len(text.splitlines()) == 3
    assert len(re.split(r"(?<!\\)(?:\\\\)*\|", text.splitlines()[-1])) == 5
    assert "<" not in text
