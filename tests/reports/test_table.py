"""Tables of scores, steps, significant differences and skills beyond the trained length."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.reports.build import build
from synthbench.reports.cells import grid
from synthbench.reports.separation import separation_table, summary
from synthbench.reports.table import NOTHING, Cell, Table, beyond_table, fixed, score_table, steps_table
from synthbench.reports.verdicts import judge
from tests.reports._made import climbed, make_frame


def scores_in(rows: pd.DataFrame, category: str | None = None) -> Table:
    """The table of a category, or that of all tasks."""
    return score_table(grid(rows), judge(grid(rows)), category)


def column(table: Table, number: int = 0) -> dict[str, Cell]:
    """One column of a table by the last label of its lines."""
    return {line.labels[-1]: line.cells[number] for line in table.lines}


@given(st.floats(-1e6, 1e6))
def test_a_printed_number_is_the_rounded_one_and_never_a_negative_zero(number: float) -> None:
    text = fixed(number, 1)

    assert float(text.replace("−", "-")) == round(number, 1)
    assert text != "−0.0"


ALIKE = {"softmax": [0.9001] * 3, "slay": [0.9004] * 3, "linear": [0.5001] * 3, "performer": [0.4999] * 3}
"""Scores of which two and two print alike; the golden reports have other marks."""


@pytest.mark.parametrize(
    ("scores", "marked"),
    [
        (ALIKE, {"Softmax": "best", "SLAY": "best", "Linear": "second", "Performer": "second"}),
        ({"slay": [0.5, 0.6]}, {}),
        ({"slay": [0.9], "linear": [0.1]}, {}),  # one seed says nothing of chance
        ({"slay": [0.5, 0.7, 0.3], "linear": [0.4, 0.6, 0.2]}, {}),
    ],
)
def test_means_that_print_alike_share_their_mark_and_a_task_that_does_not_separate_has_none(
    scores: Any, marked: Mapping[str, str]
) -> None:
    rows = make_frame(scores)

    assert {label: cell.mark for label, cell in column(scores_in(rows, "basic")).items() if cell.mark} == marked
    assert {cell.mark for cell in scores_in(rows).lines[0].cells} == {"", *marked.values()}


def test_n_stands_in_the_caption_if_it_is_common_and_in_the_cells_if_not() -> None:
    common = scores_in(make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.1, 0.2, 0.3]}), "basic")
    mixed = scores_in(make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.1, 0.2]}), "basic")

    assert "n = 3 seeds" in common.caption
    assert not any(cell.remarks for cell in column(common).values())
    assert "over n seeds" in mixed.caption
    assert [column(mixed)[label].remarks for label in ("SLAY", "Linear")] == [("n = 3",), ("n = 2",)]
    both = pd.concat([make_frame({"slay": [0.1]}), make_frame({"linear": [0.2]}, task="reverse")], ignore_index=True)
    assert Cell("--") in scores_in(both).lines[0].cells


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


# Significant differences: what the verdicts say is printed.


def only_line_of(rows: pd.DataFrame) -> dict[str, Cell]:
    """The only line of the table of differences, by heading."""
    table = separation_table(grid(rows), judge(grid(rows)))
    assert "nan" not in str(table)
    (line,) = table.lines
    return dict(zip([column.label for column in table.columns], line.cells, strict=True))


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"slay": [0.5, 0.6]}, "Nothing can be said about differences between mechanisms"),
        ({"slay": [0.5], "linear": [0.9]}, "Nothing can be said about differences between mechanisms"),
        ({"slay": [None, None], "linear": [None, 0.5]}, "Nothing can be said about differences between mechanisms"),
        # As in suite smoke: three mechanisms of two seeds.
        (
            {"slay": [0.1, 0.11], "linear": [0.5, 0.51], "softmax": [0.9, 0.91]},
            "No task can show a significant difference: with so few runs, even the clearest one has p = 0.067.",
        ),
        ({"slay": [0.5] * 5, "linear": [0.5] * 5}, "No task shows significant differences; none is saturated."),
    ],
)
def test_where_little_can_be_told_a_sentence_says_why(scores: Any, said: str) -> None:
    rows = make_frame(scores)
    line = only_line_of(rows)

    assert summary(judge(grid(rows))).startswith(said)
    if said.startswith("Nothing"):
        assert (line["p"].value, line["Between"].value) == ("--", "--")
        assert line["Verdict"].value.startswith("nothing to compare")


def test_what_can_be_had_without_mixing_or_by_a_shortcut_has_a_column_where_it_is_known() -> None:
    metrics = json.dumps({"shortcut.one hop": 0.3, "shortcut.bigram": 0.45, "score_std_over_sequences": 0.1})
    scores = {"slay": [0.5, 0.6], "linear": [0.1, 0.2]}
    known = only_line_of(make_frame(scores, local_ceiling=0.4, metrics=metrics))

    assert list(only_line_of(make_frame(scores)))[:3] == ["Floor", "Ceiling", "Accuracy"]
    assert list(known)[:4] == ["Floor", "Local", "Shortcut", "Ceiling"]
    assert (known["Local"], known["Shortcut"]) == (Cell("40.0"), Cell("45.0", remarks=("bigram",)))


# Beyond the trained length: a table for rows that have such tests.


def with_skills(rows: pd.DataFrame, skills: list[tuple[float | None, ...]]) -> pd.DataFrame:
    """The rows with the skills of each run at 2 and 4 times the length; () where a run has no such tests."""
    names = ("x2.skill", "x4.skill", "x2.length")
    added = [dict(zip(names, (*of_run, 64.0), strict=True)) if of_run else {} for of_run in skills]
    metrics = [json.dumps(json.loads(text) | more) for text, more in zip(rows["metrics"], added, strict=True)]
    return rows.assign(metrics=metrics)


def test_skills_beyond_the_trained_length_are_averaged_over_the_seeds_that_have_them() -> None:
    rows = climbed({"softmax": [11, 11, 5], "linear": [10.5, None, 3]})
    table = beyond_table(grid(with_skills(rows, [(0.5, -0.25), (1.25, 0.5), (), (None, None), (), ()])))

    assert table is not None
    assert [column.label for column in table.columns] == ["Tasks", "longest trained", "2 x", "4 x"]
    assert {line.labels[0]: [cell.value for cell in line.cells] for line in table.lines} == {
        "Softmax": ["1", "1.00", "0.75", "0.25"],
        "Linear": ["1", "0.50", NOTHING, NOTHING],
    }
    files = build(with_skills(rows, [(0.5, 0.25), *[()] * 5]), None, "core", formats=["pages"])
    assert "| Softmax" in str(files["beyond.md"])
    assert "Beyond the trained length" in str(files["beyond.tex"])


def test_sizes_without_a_ladder_keep_their_columns() -> None:
    assert beyond_table(grid(make_frame({"softmax": [0.5]}, metrics='{"x2.length": 64.0, "x2.skill": 0.5}'))) is None
