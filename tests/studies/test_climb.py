"""The page on the rows of climb, for made-up rows."""

import pandas as pd
import pytest

from studies.climb import page as climb
from synthbench.reports.cells import grid
from tests.studies._made import NUM_LEVELS, ladder_row

SEEDS = (1, 2, 3)


def test_runs_within_a_tenth_of_a_level_of_an_end_are_there() -> None:
    heights = {"lstm": 0.0, "linear": 7.95, "softmax": 4.0, "gla": 0.2}
    rows = pd.DataFrame(ladder_row("mqar", mech, seed, height) for mech, height in heights.items() for seed in SEEDS)
    (place,) = climb.places(grid(rows))

    assert (place.num_levels, place.at_baseline, place.at_top, place.at_an_end) == (NUM_LEVELS, 0.25, 0.25, 0.5)
    assert (place.lowest, place.highest) == pytest.approx((0.0, 7.95))


def test_the_third_seed_is_asked_about_pairs_of_which_the_first_two_say_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(climb, "NUM_RESAMPLES", 2)
    # In levels by seed: far apart for the first two seeds, near, and tied for the first.
    heights = {"lstm": (1.0, 1.0, 5.0), "linear": (3.0, 3.0, 3.0), "gla": (3.2, 3.2, 4.0), "softmax": (3.0, 7.0, 7.0)}
    rows = pd.DataFrame(
        ladder_row("mqar", mech, seed, height)
        for mech, levels in heights.items()
        for seed, height in zip(SEEDS, levels, strict=True)
    )
    found = climb.order(grid(rows))

    # Seeds 1 and 2 tie one pair, and turn that of gla and softmax; seed 3 repeats one of three far pairs.
    assert found[3:] == (5, 4, 3, 1)
