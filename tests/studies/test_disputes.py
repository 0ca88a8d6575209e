"""The page on disputes, for made-up rows and states that it counts."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from studies.disputes import page as disputes
from studies.disputes.page import SUITE
from tests.studies._made import NUM_LEVELS, cells_in, ladder_row

LOW, HIGH = SUITE.training.learning_rates


def rows_at(mech: str, rate: float, height: Callable[[int], float], **changes: Any) -> pd.DataFrame:
    """Rows of one mechanism with every seed, at one rate, from its height on each task."""
    return pd.DataFrame(
        ladder_row(task, mech, seed, height(number), lr=rate, tuning_trials=2, **changes,
                   run_id=f"{task}-{mech}-{seed}-{rate}-{changes}")
        for number, task in enumerate(SUITE.tasks)
        for seed in SUITE.seeds
    )  # fmt: skip


def test_what_a_single_rate_loses() -> None:
    num_tasks = len(SUITE.tasks)
    rows = pd.concat(
        [
            rows_at("linear", LOW, lambda _task: 4.0),
            rows_at("linear", HIGH, lambda _task: 3.0),
            rows_at("gla", LOW, lambda task: 4.0 if task == 0 else 2.0),
            rows_at("gla", HIGH, lambda task: 2.0 if task == 0 else 2.2),
        ]
    )
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


def test_what_a_doubling_of_the_state_adds_is_told_by_category() -> None:
    def of_size(mech: str, place: int, levels: float) -> pd.DataFrame:
        # Only recall, which stands first in the suite, gains from the state.
        state, match = 100 * 4**place, f"state={place} of {mech}" if place else None
        rows = rows_at(mech, LOW, lambda task: levels if task == 0 else 3.0, state_size=state, match=match)
        return rows[rows["task"].isin(["mqar", "parity_running"])] if place else rows

    rows = [
        of_size(mech, place, levels + place)
        for mech, levels in {"linear": 1.0, "gla": 2.0}.items()
        for place in range(3)
    ]
    beside = rows_at("linear", LOW, lambda _task: 8.0, state_size=200, block="transformer:conv=4")
    linear, gla = disputes._all_sizes(pd.concat([*rows, beside]))

    assert (linear.states, gla.mechanism) == ([100, 400, 1600], "gla")
    assert linear.skills["recall"] == pytest.approx([1 / 8, 2 / 8, 3 / 8])
    # A level of eight for each factor of four.
    assert gla.slope("recall") == pytest.approx(1 / 16)


def test_states_are_counted_by_the_mechanisms() -> None:
    _, _, table, _ = disputes._states()
    cells = cells_in(table)[1:]

    # The last token, of width 128 beside two states of 64 × 64, is counted too.
    assert [(row[0], row[6]) for row in cells[:2]] == [("rwkv7", "3.9 ×"), ("rwkv7", "16 ×")]
    # Two heads of 64 × 64, and three inputs of three convolutions of width 128.
    assert cells[4][5] == str(2 * 64 * 64 + 3 * 3 * 128)
