"""Predictions of load ratios beside what was measured."""

import math
from collections.abc import Callable
from typing import get_args

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.reports.against.published import lines_of
from synthbench.reports.against.ratios import Class, compare, judge, predictions, ratio_table, summary
from synthbench.reports.cells import grid
from synthbench.sources import bibtex
from synthbench.suites import load_suite
from tests.reports._ladders import PAIRS

Climbed = Callable[..., pd.DataFrame]

TOP = math.inf
loads_of_runs = st.lists(st.just(0.0) | st.floats(2, 64) | st.just(TOP), min_size=2, max_size=5)


def test_predictions_name_tasks_of_the_suite_classes_and_papers_that_exist() -> None:
    assert {comparison.task for comparison in predictions()} <= set(load_suite("core-large").tasks)
    named = " ".join(f"{line['more']} {line['less']}" for line in lines_of("load_ratios.csv"))
    assert set(named.split()) <= set(get_args(Class))
    for comparison in predictions():
        assert bibtex({comparison.source})
        assert comparison.place
        assert comparison.ratio > 1
        assert comparison.more != comparison.less


@pytest.mark.parametrize(
    ("loads", "other_loads", "outcome"),
    [
        ([12, 13, 14], [3, 3.1, 2.9], "agrees"),
        ([3, 3.1, 2.9], [12, 13, 14], "disagrees"),
        ([5, 5, 5], [4, 4, 4], "disagrees"),  # more, but not by enough
        ([12, 13, 3], [3, 3.1, 2.9], "undecided"),
        ([12], [3, 3.1, 2.9], "undecided"),
        ([TOP] * 3, [6, 6, 6], "agrees"),
        ([TOP] * 3, [60, 60, 60], "undecided"),
        ([TOP] * 3, [TOP] * 3, "undecided"),
        ([6, 6, 6], [TOP] * 3, "disagrees"),
        ([0, 0, 0], [0, 0, 0], "undecided"),
        ([3, 3, 3], [0, 0, 0], "agrees"),  # below 2
        ([2.2, 2.2, 2.2], [0, 0, 0], "undecided"),
        ([0, 0, 0], [3, 3, 3], "disagrees"),
        ([12] * 9 + [2], [3] * 10, "agrees"),
        ([12] * 8 + [2] * 2, [3] * 10, "undecided"),
    ],
)
def test_a_ratio_agrees_disagrees_or_is_left_open(loads: list[float], other_loads: list[float], outcome: str) -> None:
    assert judge(PAIRS, 1.4, [*map(float, loads)], [*map(float, other_loads)]) == outcome


@given(loads=loads_of_runs, other_loads=loads_of_runs, ratio=st.floats(1.1, 16))
def test_two_mechanisms_never_both_cope_with_more(loads: list[float], other_loads: list[float], ratio: float) -> None:
    if judge(PAIRS, ratio, loads, other_loads) == "agrees":
        assert judge(PAIRS, ratio, other_loads, loads) == "disagrees"


def test_the_table_counts_apart_what_is_on_the_ladder(climbed: Climbed) -> None:
    """Predicted of mqar: softmax copes with more than linear, slay and lstm."""
    rows = climbed(
        {
            "softmax": [6, 6.1, 6.2],
            "linear": [2, 2.1, 2.2],  # less
            "slay": [9, 9.1, 9.2],  # more
            "lstm": [0.1, 0.2, 0.3],  # below the first rung
            "yat": [1, 1, 1],  # nothing is predicted
        }
    )
    comparisons = compare(grid(rows))
    assert {comparison.less.name: (comparison.outcome, comparison.is_on_ladder) for comparison in comparisons} == {
        "linear": ("agrees", True),
        "slay": ("disagrees", True),
        "lstm": ("agrees", False),
    }
    # A coin names softmax or slay alike, and one of both is right.
    assert summary(comparisons) == (
        "With both loads on the ladder, 1 of 2 agree, 1 disagree, 0 undecided; random guesses at which of the two "
        "copes with more would agree with 1. With a load at an end of it, 1 of 1 agree, 0 disagree, 0 undecided; "
        "random guesses at which of the two copes with more would agree with 0.5."
    )
    table = ratio_table(grid(rows))
    assert table is not None
    assert table.outcome == summary(comparisons)
    assert "arora2024based" in table.sources
    assert [line.cells[2].value[:2] for line in table.lines][-1] == "≥ "


def test_without_a_ladder_no_ratio_is_predicted(climbed: Climbed) -> None:
    rows = climbed({"softmax": [6, 6.1], "linear": [2, 2.1]})

    assert compare(grid(rows))
    assert ratio_table(grid(rows.assign(task_args="{}"))) is None
    assert ratio_table(grid(rows.assign(task="copy"))) is None
