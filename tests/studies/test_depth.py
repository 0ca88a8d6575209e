"""The page on depth, for made-up rows."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from studies.depth import page as depth
from synthbench.reports.ladder import Ladder
from tests.studies._made import cells_in, ladder_rows

LOADS = (1.0, 2.0, 4.0, 8.0, 16.0)
TASKS = ("khop_induction", "tree_compose")
Heights = Sequence[float | None]


def rows_at(heights: Mapping[str, Heights], task: str, layers: int, **changes: Any) -> pd.DataFrame:
    """Rows of mechanisms on a task, with one height a seed; None is a run that diverged."""
    arguments = {"load": "hops", "rungs": [{"load": load, "length": 2} for load in LOADS]}
    block = "transformer" if layers == depth.MODEL.num_layers else f"transformer:layers={layers}"
    common = {"block": block, "task_args": json.dumps(arguments)} | changes
    return ladder_rows(task, heights, LOADS, f"{layers}-{changes}", **common)


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
    return pd.concat([*of_hops, *trees], ignore_index=True)


def test_scores_stand_for_loads() -> None:
    ladder = Ladder("hops", (1.0, 3.0, 12.0))
    loads = np.exp(depth.log_loads(ladder, np.array([0.0, 0.5, 1.0, 2.0, 2.5, 3.0])))

    np.testing.assert_allclose(loads, [1 / 3, 1 / 3**0.5, 1.0, 3.0, 6.0, 12.0])


def test_a_ratio_is_a_geometric_mean_with_an_interval_over_seeds() -> None:
    ladder = Ladder("hops", LOADS)
    # One and two levels apart: twice and four times the load.
    near = depth.Comparison("linear", "a", 1, ladder, {1: (2.0, 1.0), 2: (2.5, 1.5), 3: (3.0, 2.0)})
    far = depth.Comparison("linear", "b", 1, ladder, {1: (3.0, 1.0), 2: (3.5, 1.0), 3: (2.5, 1.0)})
    of_near, of_far, of_both = (depth.ratio(compared) for compared in ([near], [far], [near, far]))

    assert of_near == pytest.approx((2.0, 2.0, 2.0))
    assert (of_far.value, of_both.value) == pytest.approx((4.0, 8**0.5))
    # Student's t with 2 degrees of freedom: 4.303 standard errors of half a level over the root of three.
    assert math.log2(of_far.high) - 2 == pytest.approx(4.303 * 0.5 / 3**0.5, abs=1e-3)
    assert of_far.low * of_far.high == pytest.approx(16.0)
    # Only one of the two scatters, and it has half of the weight.
    assert math.log2(of_both.high) - 1.5 == pytest.approx(4.303 * 0.25 / 3**0.5, abs=1e-3)


def test_only_seeds_of_all_comparisons_count() -> None:
    ladder = Ladder("hops", LOADS)
    first = depth.Comparison("linear", "a", 1, ladder, {1: (2.0, 1.0), 2: (4.0, 1.0)})
    second, third = (depth.Comparison("linear", "b", 1, ladder, {seed: (2.0, 1.0)}) for seed in (1, 3))

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
        compared = [depth.Comparison("linear", "a", 1, Ladder("hops", LOADS), {1: heights}) for heights in of_bound]
        assert {one.bound for one in compared} == {bound}


def test_the_page_has_every_depth_and_the_ratio(few: pd.DataFrame) -> None:
    _title, _about, verdict, _, _, reached, _, _, ratios = depth.paragraphs(few)

    assert cells_in(reached)[1:] == [
        ["khop_induction", "hops", "softmax", "2.8 (2.0)", "4.0 (2.5)", "11 (4.1)"],
        ["khop_induction", "hops", "linear", "1.4 (1.0)", "2.0 (1.5)", "2.9 (2.1)"],
        ["tree_compose", "hops", "softmax", "< 1 (0.0)", "< 1 (0.0)", ""],
        ["tree_compose", "hops", "linear", "< 1 (0.0)", "< 1 (0.0)", ""],
    ]
    of_hops, of_trees, of_all = cells_in(ratios)[1:]
    assert of_hops[2:] == of_all[2:]
    assert of_hops[:4] == ["linear", "khop_induction", *["2.00 (2.00 to 2.00)"] * 2]
    assert of_trees == ["linear", "tree_compose", *["--"] * 4]
    hops, pooled = verdict.split("\n\n")
    assert "the load of `softmax` is that of `linear` times 2.00 (2.00 to 2.00) at 1 layer, 2.00 (" in hops
    assert hops.endswith("The models here have no convolution.")  # the last interval contains 4
    assert pooled.startswith("Over 3 pairs of task and depth the geometric mean is 2.52 (2.2")
    assert pooled.endswith("left out, as both are at the same end of the ladder: 2.")


def test_the_announced_ratio_is_compared_on_its_own_task_alone(few: pd.DataFrame) -> None:
    near = few[few["block"] != "transformer:layers=4"]
    moved = near.assign(task=near["task"].replace("khop_induction", "dyck"))
    verdict, without = ([*depth.paragraphs(rows)][2] for rows in (near, moved))

    assert "The announced ratio is above all these intervals." in verdict
    assert without.startswith("Larger models")
    assert "these intervals" not in without


def test_a_run_that_diverged_reaches_nothing() -> None:
    heights: dict[str, Heights] = {"softmax": [2.0, 2.0], "linear": [1.0, None]}
    rows = [rows_at(heights, "khop_induction", layers) for layers in (1, 2)]
    compared = depth.comparisons(depth.depths_in(pd.concat(rows, ignore_index=True)))

    assert [each.scores for each in compared] == [{1: (2.0, 1.0), 2: (2.0, 0.0)}] * 2


def test_other_blocks_and_single_depths_are_left_out(few: pd.DataFrame) -> None:
    others = [
        rows_at({"softmax": [5.0] * 3}, "khop_induction", 2, block="transformer:conv=4"),
        rows_at({"softmax": [3.0] * 3}, "mqar", 2),
        rows_at({"gla": [3.0] * 3}, "khop_induction", 2),
    ]
    every = pd.concat([few, *others], ignore_index=True)

    assert [*depth.paragraphs(every)] == [*depth.paragraphs(few)]
    assert not [*depth.paragraphs(pd.concat(others, ignore_index=True))]
