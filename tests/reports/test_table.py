from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.reports.cells import grid
from synthbench.reports.table import (
    Cell,
    Table,
    fixed,
    score_table,
    steps_table,
)
from synthbench.reports.verdicts import judge
from tests.reports._made import make_frame


def basic(rows: pd.DataFrame) -> Table:
    """The table of the category that made rows have unless they say otherwise."""
    return score_table(grid(rows), judge(grid(rows)), "basic")


def full(rows: pd.DataFrame) -> Table:
    """The table of all tasks."""
    return score_table(grid(rows), judge(grid(rows)))


def column(table: Table, number: int = 0) -> dict[str, Cell]:
    """One column of a table by the last label of its lines."""
    return {line.labels[-1]: line.cells[number] for line in table.lines}


@given(st.floats(-1e6, 1e6))
def test_a_printed_number_is_the_rounded_one_and_never_a_negative_zero(number: float) -> None:
    text = fixed(number, 1)

    assert float(text.replace("−", "-")) == round(number, 1)
    assert text != "−0.0"


@pytest.mark.parametrize(
    ("scores", "marked", "tied"),
    [
        ({"slay": [0.9] * 3, "linear": [0.5] * 3, "performer": [0.8] * 3}, {"SLAY": "best", "Performer": "second"}, []),
        # Means that print alike share their mark.
        (
            {"softmax": [0.9001] * 3, "slay": [0.9004] * 3, "linear": [0.5001] * 3, "performer": [0.4999] * 3},
            {"Softmax": "best", "SLAY": "best", "Linear": "second", "Performer": "second"},
            [],
        ),
        # Not shown to differ from the best.
        (
            {"slay": [0.9, 0.8, 0.7, 0.95], "softmax": [0.8, 0.9, 0.75, 0.85], "linear": [0.3, 0.2, 0.1, 0.35]},
            {"SLAY": "best", "Softmax": "second"},
            ["Softmax"],
        ),
        # A control has no mark, however good it is.
        (
            {"slay": [0.9, 0.91] * 3, "linear": [0.5, 0.51] * 3, "mean": [0.95, 0.96] * 3},
            {"SLAY": "best", "Linear": "second"},
            [],
        ),
        # A task that does not separate has no marks.
        ({"slay": [0.5, 0.6]}, {}, []),
        ({"slay": [0.9], "linear": [0.1]}, {}, []),  # one seed says nothing of chance
        ({"slay": [0.5, 0.7, 0.3], "linear": [0.4, 0.6, 0.2]}, {}, []),
    ],
)
def test_best_second_and_tied_are_marked(scores: Any, marked: Mapping[str, str], tied: list[str]) -> None:
    rows = make_frame(scores)
    rows["mech_family"] = rows["mech_family"].mask(rows["mech"] == "mean", "control")
    by_label = column(basic(rows))

    assert {label: cell.mark for label, cell in by_label.items() if cell.mark} == marked
    assert [label for label, cell in by_label.items() if cell.is_tied] == tied
    assert {cell.mark for cell in full(rows).lines[0].cells} == {"", *marked.values()}


def test_n_stands_in_the_caption_if_it_is_common_and_in_the_cells_if_not() -> None:
    common = basic(make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.1, 0.2, 0.3]}))
    mixed = basic(make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.1, 0.2]}))

    assert "n = 3 seeds" in common.caption
    assert not any(cell.remarks for cell in column(common).values())
    assert "over n seeds" in mixed.caption
    assert column(mixed)["SLAY"].remarks == ("n = 3",)
    assert column(mixed)["Linear"].remarks == ("n = 2",)
    both = pd.concat([make_frame({"slay": [0.1]}), make_frame({"linear": [0.2]}, task="reverse")], ignore_index=True)
    assert Cell("--") in full(both).lines[0].cells


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([10, 30, 20], Cell("20", remarks=("3 of 3",))),
        ([10, 30, None], Cell("30", remarks=("2 of 3",))),
        ([10, None, None], Cell("> 200", remarks=("1 of 3",))),
        ([10, None], Cell("> 200", remarks=("1 of 2",))),
    ],
)
def test_a_seed_that_never_reached_the_threshold_counts_as_the_last(steps: list[int | None], expected: Cell) -> None:
    rows = make_frame({"slay": [0.5] * len(steps)})
    rows["steps_to_threshold"] = pd.array(steps, dtype="Int64")
    table = steps_table(grid(rows))

    assert table is not None
    assert table.lines[0].cells == (expected,)
