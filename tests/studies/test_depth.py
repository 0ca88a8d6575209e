"""The page on depth, for made-up rows."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest

from studies.climb.page import SUITE
from studies.depth import page as depth
from tests.reports._made import climbed, joined, ladder_of
from tests.studies._made import cells_in

HOPS = ladder_of("hops", 1, 2, 4, 8, 16)
Heights = Sequence[float | None]


def rows_at(heights: Mapping[str, Heights], task: str, layers: int) -> pd.DataFrame:
    """Rows of mechanisms on a task, with one height in levels a seed; None is a run that diverged."""
    block = SUITE.model.block if layers == SUITE.model.num_layers else f"transformer:layers={layers}"
    facts = {"suite": SUITE.name, "suite_version": SUITE.version, "task": task, "block": block}
    return climbed(heights, "mqar", HOPS, **facts)


@pytest.fixture
def few() -> pd.DataFrame:
    """Softmax attention is 1, 1 and 2 levels above linear attention on one task; on the other both are at an end."""
    hops = {
        1: {"softmax": [2.0, 2.2, 1.8], "linear": [1.0, 1.2, 0.8]},
        2: {"softmax": [2.5] * 3, "linear": [1.5] * 3},
        4: {"softmax": [4.0, 4.0, 4.3], "linear": [2.0, 2.2, 2.1]},
    }
    of_hops = [rows_at(heights, "khop_induction", layers) for layers, heights in hops.items()]
    trees = [rows_at(dict.fromkeys(("softmax", "linear"), [0.0] * 3), "tree_compose", layers) for layers in (1, 2)]
    return joined(*of_hops, *trees)


def test_only_seeds_of_all_comparisons_count() -> None:
    first = depth.Comparison("linear", "a", 1, HOPS, {1: (2.0, 1.0), 2: (4.0, 1.0)})
    second, third = (depth.Comparison("linear", "b", 1, HOPS, {seed: (2.0, 1.0)}) for seed in (1, 3))

    assert depth.ratio([first, second])[0] == pytest.approx(2.0)
    assert np.isnan(depth.ratio([first, second])[1:]).all()
    assert np.isnan(depth.ratio([first, third])).all()


def test_at_an_end_of_the_ladder_a_ratio_is_a_bound() -> None:
    bounds = {
        "": [(2.0, 1.0)],
        "≥ ": [(2.0, 0.05), (4.95, 1.0), (5.0, 0.0)],
        "≤ ": [(0.05, 1.0), (2.0, 5.0)],
        "--": [(0.0, 0.0), (5.0, 5.0)],
    }
    for bound, of_bound in bounds.items():
        compared = [depth.Comparison("linear", "a", 1, HOPS, {1: heights}) for heights in of_bound]
        assert {one.bound for one in compared} == {bound}


def test_what_is_at_the_same_end_for_both_is_left_out_and_counted(few: pd.DataFrame) -> None:
    """The committed page has no such pair."""
    _title, _about, verdict, *_, ratios = depth.paragraphs(few)

    of_hops, of_trees, of_all = cells_in(ratios)[1:]
    assert of_hops[2:] == of_all[2:]
    assert of_trees == ["linear", "tree_compose", *["--"] * 4]
    assert "Over 3 pairs of task and depth" in verdict
    assert verdict.endswith("left out, as both are at the same end of the ladder: 2.")


def test_a_run_that_diverged_reaches_nothing() -> None:
    heights: dict[str, Heights] = {"softmax": [2.0, 2.0], "linear": [1.0, None]}
    rows = [rows_at(heights, "khop_induction", layers) for layers in (1, 2)]
    compared = depth.comparisons(depth.depths_in(joined(*rows)))

    assert [each.scores for each in compared] == [{42: (2.0, 1.0), 43: (2.0, 0.0)}] * 2


def test_without_a_second_depth_there_is_no_page(few: pd.DataFrame) -> None:
    assert not [*depth.paragraphs(few[few["block"] == SUITE.model.block])]
