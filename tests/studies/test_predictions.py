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
    ("num_low", "outcome"), [(0, "agrees"), (1, "agrees"), (2, "undecided"), (8, "undecided"), (9, "disagrees")]
)
def test_nine_tenths_of_the_pairs_of_runs_decide_and_a_ratio_that_is_just_reached_counts(
    num_low: int, outcome: str
) -> None:
    """The committed page holds the outcomes where all pairs agree, and where loads are at an end of the ladder."""
    loads = [1.4 * 3.0] * (10 - num_low) + [2.0] * num_low

    assert study.judge(LADDER, 1.4, loads, [3.0] * 10) == outcome


@given(loads=loads_of_runs, other_loads=loads_of_runs, ratio=st.floats(1.1, 16))
def test_two_mechanisms_never_both_cope_with_more(loads: list[float], other_loads: list[float], ratio: float) -> None:
    if study.judge(LADDER, ratio, loads, other_loads) == "agrees":
        assert study.judge(LADDER, ratio, other_loads, loads) == "disagrees"
