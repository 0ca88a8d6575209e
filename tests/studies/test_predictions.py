"""Predictions of load ratios beside made-up loads."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.predictions import page as study
from synthbench.sources import bibtex
from synthbench.suites import load_suite

TOP = math.inf
LADDER = study.Ladder(2.0, 64.0)
loads_of_runs = st.lists(st.just(0.0) | st.floats(2, 64) | st.just(TOP), min_size=2, max_size=5)


def test_predictions_name_tasks_of_the_suite_classes_and_papers_that_exist() -> None:
    predictions = pd.read_csv(study.HERE / "ratios.csv")

    assert set(predictions["task"]) <= set(load_suite("core-large").tasks)
    assert {*" ".join(predictions["more"] + " " + predictions["less"]).split()} <= {*study.CLASSES.values(), "signed"}
    assert bibtex(set(predictions["source"]))
    assert predictions["place"].notna().all()
    assert (predictions["ratio"] > 1).all()


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
    assert study.judge(LADDER, 1.4, [*map(float, loads)], [*map(float, other_loads)]) == outcome


@given(loads=loads_of_runs, other_loads=loads_of_runs, ratio=st.floats(1.1, 16))
def test_two_mechanisms_never_both_cope_with_more(loads: list[float], other_loads: list[float], ratio: float) -> None:
    if study.judge(LADDER, ratio, loads, other_loads) == "agrees":
        assert study.judge(LADDER, ratio, other_loads, loads) == "disagrees"
