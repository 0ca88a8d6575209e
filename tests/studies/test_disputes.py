"""The page on disputes, for made-up rows and states that it counts."""

from collections.abc import Callable

import pandas as pd
import pytest

from studies.disputes import page as disputes
from studies.disputes.page import SUITE
from tests.studies._made import LOADS, NUM_LEVELS, cells_in, ladder_rows

LOW, HIGH = SUITE.training.learning_rates or (0.0, 0.0)


def rows_at(mech: str, rate: float, height: Callable[[int], float]) -> pd.DataFrame:
    """Rows of one mechanism with every seed, at one rate, from its height on each task."""
    return pd.concat(
        ladder_rows(task, {mech: [height(number)] * len(SUITE.seeds)}, LOADS, f"{rate}", lr=rate, tuning_trials=2)
        for number, task in enumerate(SUITE.tasks)
    )


def test_what_a_single_rate_loses() -> None:
    num_tasks = len(SUITE.tasks)
    of_linear = [rows_at("linear", LOW, lambda _task: 4.0), rows_at("linear", HIGH, lambda _task: 3.0)]
    low_of_gla = rows_at("gla", LOW, lambda task: 4.0 if task == 0 else 2.0)
    high_of_gla = rows_at("gla", HIGH, lambda task: 2.0 if task == 0 else 2.2)
    rows = pd.concat([*of_linear, low_of_gla, high_of_gla])
    gla, linear = disputes._all_rates(rows)

    assert (linear.mechanism, linear.best, linear.num_low, linear.num_high) == ("linear", LOW, num_tasks, 0)
    assert linear.lost.value == 0
    assert linear.lost_otherwise.value == pytest.approx(1 / NUM_LEVELS)
    # 0.2 levels are less than half a level.
    assert (gla.num_low, gla.num_high) == (1, 0)
    assert 0 < gla.lost.value < gla.lost_otherwise.value
    # A mechanism without all runs is left out.
    is_third_of_gla = (rows["mech"] == "gla") & (rows["seed"] == 3) & (rows["task"] == next(iter(SUITE.tasks)))
    assert [one.mechanism for one in disputes._all_rates(rows[~is_third_of_gla])] == ["linear"]


def test_states_are_counted_by_the_mechanisms() -> None:
    _, _, table, _ = disputes._states()
    cells = cells_in(table)[1:]

    # The last token, of width 128 beside two states of 64 × 64, is counted too.
    assert [(row[0], row[6]) for row in cells[:2]] == [("rwkv7", "3.9 ×"), ("rwkv7", "16 ×")]
    # Two heads of 64 × 64, and three inputs of three convolutions of width 128.
    assert cells[4][5] == str(2 * 64 * 64 + 3 * 3 * 128)
