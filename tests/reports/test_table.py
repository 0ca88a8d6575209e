import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.reports.cells import grid
from synthbench.reports.table import (
    NOTHING,
    Cell,
    Table,
    category_table,
    fixed,
    full_table,
    percent,
    steps_table,
)
from synthbench.reports.verdicts import judge

MakeFrame = Callable[..., pd.DataFrame]


def table_of(rows: pd.DataFrame, category: str) -> Table:
    """The table of one category."""
    return category_table(grid(rows), judge(grid(rows)), category)


def basic(rows: pd.DataFrame) -> Table:
    """The table of the category that made rows have unless they say otherwise."""
    return table_of(rows, "basic")


def full(rows: pd.DataFrame) -> Table:
    """The table of all tasks."""
    return full_table(grid(rows), judge(grid(rows)))


def column(table: Table, number: int = 0) -> dict[str, Cell]:
    """One column of a table by the last label of its lines."""
    return {line.labels[-1]: line.cells[number] for line in table.lines}


def marks(table: Table) -> Mapping[str, str]:
    """The marks of the first column, where there are any."""
    return {label: cell.mark for label, cell in column(table).items() if cell.mark}


@given(st.floats(-1e6, 1e6))
def test_a_printed_number_is_the_rounded_one_and_never_a_negative_zero(number: float) -> None:
    text = fixed(number, 1)

    assert float(text.replace("−", "-")) == round(number, 1)
    assert text != "−0.0"


def test_signs_are_printed_where_asked_for_but_not_before_zero() -> None:
    assert [fixed(number, 1, is_signed=True) for number in (1.0, -1.0, -0.01)] == ["+1.0", "−1.0", "0.0"]
    assert percent(math.nan) == fixed(math.nan, 2) == NOTHING


def test_best_and_second_are_marked(make_frame: MakeFrame) -> None:
    rows = make_frame({"slay": [0.9] * 3, "linear": [0.5] * 3, "performer": [0.8] * 3})

    assert marks(basic(rows)) == {"SLAY": "best", "Performer": "second"}
    assert [cell.mark for cell in full(rows).lines[0].cells] == ["", "", "second", "", "best"]


def test_means_that_print_alike_share_their_mark(make_frame: MakeFrame) -> None:
    means = {"softmax": 0.9001, "slay": 0.9004, "linear": 0.5001, "performer": 0.4999, "yat": 0.1}
    rows = make_frame({mech: [mean] * 3 for mech, mean in means.items()})

    assert marks(basic(rows)) == {
        "Softmax": "best", "SLAY": "best", "Linear": "second", "Performer": "second",
    }  # fmt: skip


@pytest.mark.parametrize(
    "scores",
    [
        {"slay": [0.5, 0.6]},
        {"slay": [0.50001], "linear": [0.5]},
        {"slay": [0.9], "linear": [0.1]},  # one seed says nothing of chance
        {"slay": [0.5, 0.7, 0.3], "linear": [0.4, 0.6, 0.2]},
    ],
)
def test_a_task_that_does_not_separate_has_no_marks(make_frame: MakeFrame, scores: Any) -> None:
    table = basic(make_frame(scores))

    assert not marks(table)
    assert not any(cell.is_tied for cell in column(table).values())


def test_a_dagger_stands_where_a_mechanism_is_not_shown_to_differ_from_the_best(make_frame: MakeFrame) -> None:
    rows = make_frame(
        {"slay": [0.9, 0.8, 0.7, 0.95], "softmax": [0.8, 0.9, 0.75, 0.85], "linear": [0.3, 0.2, 0.1, 0.35]}
    )
    cells = column(basic(rows))

    assert {label for label, cell in cells.items() if cell.mark == "best"} == {"SLAY"}
    assert {label for label, cell in cells.items() if cell.is_tied} == {"Softmax"}


def test_a_control_has_no_mark_however_good_it_is(make_frame: MakeFrame) -> None:
    rows = make_frame({"slay": [0.9, 0.91] * 3, "linear": [0.5, 0.51] * 3, "mean": [0.95, 0.96] * 3})
    rows["mech_family"] = rows["mech_family"].mask(rows["mech"] == "mean", "control")
    cells = column(basic(rows))

    assert cells["SLAY"].mark == "best"
    assert (cells["mean"].mark, cells["mean"].is_tied) == ("", False)


def test_n_stands_in_the_caption_if_it_is_common_and_in_the_cells_if_not(make_frame: MakeFrame) -> None:
    common = basic(make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.1, 0.2, 0.3]}))
    mixed = basic(make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.1, 0.2]}))

    assert "n = 3 seeds" in common.caption
    assert not any(cell.remarks for cell in column(common).values())
    assert "over n seeds" in mixed.caption
    assert column(mixed)["SLAY"].remarks == ("n = 3",)
    assert column(mixed)["Linear"].remarks == ("n = 2",)


def test_failures_are_counted_and_what_is_missing_is_a_dash(make_frame: MakeFrame) -> None:
    rows = make_frame({"slay": [0.1, 0.2, None], "linear": [None, None], "performer": [0.1, 0.3]})
    cells = column(basic(rows))

    assert cells["SLAY"].remarks == ("1 failed",)
    assert (cells["Linear"].value, cells["Linear"].std, cells["Linear"].remarks) == ("--", "", ("2 failed",))
    other = make_frame({"yat": [0.5]}, task_category="memory", task="kv_recall")
    assert column(table_of(pd.concat([rows, other]), "memory"))["SLAY"] == Cell("--")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([10, 30, 20], Cell("20", remarks=("3 of 3",))),
        ([10, 30, None], Cell("30", remarks=("2 of 3",))),
        ([10, None, None], Cell("> 200", remarks=("1 of 3",))),
        ([10, None], Cell("> 200", remarks=("1 of 2",))),
    ],
)
def test_a_seed_that_never_reached_the_threshold_counts_as_the_last(
    make_frame: MakeFrame, steps: list[int | None], expected: Cell
) -> None:
    rows = make_frame({"slay": [0.5] * len(steps)})
    rows["steps_to_threshold"] = pd.array(steps, dtype="Int64")
    table = steps_table(grid(rows))

    assert table is not None
    assert table.lines[0].cells == (expected,)


def test_there_are_no_steps_where_nothing_reached_the_threshold(make_frame: MakeFrame) -> None:
    assert steps_table(grid(make_frame({"slay": [0.5, 0.6]}))) is None
