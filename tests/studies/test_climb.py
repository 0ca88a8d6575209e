"""The page on the rows of climb, for made-up rows."""

import pandas as pd
import pytest

from studies.climb import page as climb
from studies.climb.page import SUITE
from synthbench.reports.cells import grid
from tests.studies._made import LOADS, NUM_LEVELS, ladder_rows

SEEDS = (1, 2, 3)


def rows_of(heights: dict[str, float]) -> pd.DataFrame:
    """Rows of mechanisms that reach a height on every task of the suite, but for a little that depends on the run."""

    def of_seeds(height: float, number: int) -> list[float]:
        return [min(NUM_LEVELS, height + 0.02 * ((number + seed) % 3)) for seed in SEEDS]

    return pd.concat(
        ladder_rows(task, {mech: of_seeds(height, number) for mech, height in heights.items()}, LOADS, "")
        for number, task in enumerate(SUITE.tasks)
    )


def test_runs_within_a_tenth_of_a_level_of_an_end_are_there() -> None:
    rows = rows_of({"lstm": 0.0, "linear": 7.95, "softmax": 4.0, "gla": 0.2})

    for place in climb.places(grid(rows)):
        assert (place.num_levels, place.at_baseline, place.at_top, place.at_an_end) == (NUM_LEVELS, 0.25, 0.25, 0.5)
        assert place.lowest < 0.05
        assert place.highest > 7.9


@pytest.mark.end_to_end
def test_seeds_that_agree_have_the_same_order_and_others_do_not() -> None:
    rows = rows_of({"lstm": 1.0, "linear": 2.0, "softmax": 3.0, "gla": 4.0})
    agreed = climb.order(grid(rows))
    turned = rows.copy()
    is_second = turned["seed"] == SEEDS[1]
    turned.loc[is_second, "score"] = 1 - turned.loc[is_second, "score"]

    assert (agreed.tau, agreed.low, agreed.high) == (1, 1, 1)
    assert agreed[3:] == (6 * len(SUITE.tasks),) * 4
    assert climb.order(grid(turned)) == (-1, -1, -1, agreed.num_untied, 0, 0, 0)


def test_the_third_seed_is_asked_about_pairs_of_which_the_first_two_say_the_same() -> None:
    # In levels by seed: far apart for the first two seeds, near, and tied for the first.
    heights = {"lstm": (1.0, 1.0, 5.0), "linear": (3.0, 3.0, 3.0), "gla": (3.2, 3.2, 4.0), "softmax": (3.0, 7.0, 7.0)}
    found = climb.order(grid(ladder_rows("mqar", heights, LOADS, "")))

    # Seeds 1 and 2 tie one pair, and turn that of gla and softmax; seed 3 repeats one of three far pairs.
    assert found[3:] == (5, 4, 3, 1)


def test_complete_mechanisms_have_a_run_of_every_task() -> None:
    rows = rows_of({"lstm": 1.0, "linear": 2.0})

    assert set(climb.complete(rows, SEEDS)["mech"]) == {"lstm", "linear"}
    assert len(climb.complete(rows[rows["task"].isin(SUITE.quick or ())], SEEDS)) == 0
