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
from tests.studies._made import ladder_row

LOADS = (1.0, 2.0, 4.0, 8.0, 16.0)
Heights = Sequence[float | None]


def rows_at(heights: Mapping[str, Heights], task: str, layers: int, **changes: Any) -> pd.DataFrame:
    """Rows of mechanisms on a task, with one height a seed; None is a run that diverged."""
    arguments = {"load": "hops", "rungs": [{"load": load, "length": 2} for load in LOADS]}
    block = "transformer" if layers == depth.MODEL.num_layers else f"transformer:layers={layers}"
    common = {"block": block, "task_args": json.dumps(arguments)} | changes
    return pd.DataFrame(
        ladder_row(task, mech, seed, height, LOADS, **common, run_id=f"{task}-{mech}-{layers}-{seed}-{changes}")
        for mech, of_mechanism in heights.items()
        for seed, height in enumerate(of_mechanism, start=1)
    )


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


@pytest.mark.parametrize(
    ("heights", "bound"),
    [
        ((2.0, 1.0), ""),
        ((2.0, 0.05), "≥ "),
        ((4.95, 1.0), "≥ "),
        ((0.05, 1.0), "≤ "),
        ((2.0, 5.0), "≤ "),
        ((5.0, 0.0), "≥ "),
        ((0.0, 0.0), "--"),
        ((5.0, 5.0), "--"),
    ],
)
def test_at_an_end_of_the_ladder_a_ratio_is_a_bound(heights: tuple[float, float], bound: str) -> None:
    assert depth.Comparison("linear", "a", 1, Ladder("hops", LOADS), {1: heights}).bound == bound


def test_a_run_that_diverged_reaches_nothing() -> None:
    heights: dict[str, Heights] = {"softmax": [2.0, 2.0], "linear": [1.0, None]}
    rows = [rows_at(heights, "khop_induction", layers) for layers in (1, 2)]
    compared = depth.comparisons(depth.depths_in(pd.concat(rows, ignore_index=True)))

    assert [each.scores for each in compared] == [{1: (2.0, 1.0), 2: (2.0, 0.0)}] * 2


def test_other_blocks_and_single_depths_are_left_out() -> None:
    both = dict.fromkeys(("softmax", "linear"), [3.0] * 3)
    rows = [
        *(rows_at(both, "khop_induction", layers) for layers in (1, 2)),
        rows_at({"softmax": [5.0] * 3}, "khop_induction", 2, block="transformer:conv=4"),
        rows_at({"softmax": [3.0] * 3}, "mqar", 2),
        rows_at({"gla": [3.0] * 3}, "khop_induction", 2),
    ]
    cells = depth.depths_in(pd.concat(rows, ignore_index=True))

    assert [task.name for task in cells.tasks] == ["khop_induction"]
    assert {name: list(by_depth) for name, by_depth in depth.by_layers(cells).items()} == {
        "softmax": [1, 2],
        "linear": [1, 2],
    }
