"""The page on disputes, for made-up rows and states that it counts."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from studies.disputes import page as disputes
from studies.disputes.page import SUITE
from tests.studies._made import LOADS, NUM_LEVELS, cells_in, ladder_rows

LOW, HIGH = SUITE.training.learning_rates or (0.0, 0.0)


def rows_at(mech: str, rate: float, height: Callable[[int], float], **changes: Any) -> pd.DataFrame:
    """Rows of one mechanism with every seed, at one rate, from its height on each task."""
    common = {"lr": rate, "tuning_trials": 2} | changes
    return pd.concat(
        ladder_rows(task, {mech: [height(number)] * len(SUITE.seeds)}, LOADS, f"{rate}-{changes}", **common)
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


def test_a_convolution_is_judged_on_what_was_run_with_it() -> None:
    names = ("linear", "gla", "deltanet")
    without = [rows_at(mech, LOW, lambda _task: 2.0) for mech in names]
    with_conv = [rows_at(mech, LOW, lambda _task: 6.0, block="transformer:conv=4") for mech in names[:2]]
    with_conv.append(rows_at("deltanet", LOW, lambda _task: 4.0, block="transformer:conv=4"))
    some = [rows[rows["task"].isin(["mqar", "parity_running"])] for rows in with_conv]
    text = "\n".join(disputes._convolution(pd.concat([*without, *some])))

    assert "changes the mean score of 3 mechanisms on 1 recall task by +0.42" in text
    assert "On recall the median over mechanisms is +0.50. 80 % of the sum comes from linear and gla." in text
    assert not [*disputes._convolution(pd.concat(without))]


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
    text = "\n".join(disputes._sizes(pd.concat([*rows, beside])))

    assert (linear.states, gla.mechanism) == ([100, 400, 1600], "gla")
    assert linear.skills["recall"] == pytest.approx([1 / 8, 2 / 8, 3 / 8])
    # A level of eight for each factor of four.
    assert gla.slope("recall") == pytest.approx(1 / 16)
    assert "+0.062 (0.062 to 0.062) to recall; 0.000 (0.000 to 0.000) to state tracking" in text
    assert not [*disputes._sizes(pd.concat(rows[:2]))]


def test_where_a_match_widened_the_model_softmax_at_the_same_widths_stands_beside() -> None:
    def at_width(mech: str, width: int, levels: float, **changes: Any) -> pd.DataFrame:
        match = None if width == 48 else f"state={width} of {mech}"
        changes = {"d_model": width, "state_size": width**2, "match": match} | changes
        changes["positions"] = SUITE.model.positions
        return rows_at(mech, LOW, lambda _task: levels, **changes)

    main = [at_width("linear", 48, 2.0), at_width("softmax", 48, 6.0), at_width("gla", 48, 3.0)]
    sized = [at_width("linear", width, levels) for width, levels in ((24, 1.0), (96, 4.0))]
    # An option gives gla its state, not the width.
    sized += [at_width("gla", width, 3.0, d_model=48) for width in (24, 96)]
    some = [rows[rows["task"].isin(["mqar", "parity_running"])] for rows in sized]
    core = {"suite": "core", "suite_version": "2026.2", "task_category": "other"}
    of_core = [at_width("softmax", width, 5.0, **core) for width in (24, 96)]
    control = [rows[(rows["task"] == "parity_running") & (rows["seed"] == 1)] for rows in of_core]
    *_, without = disputes._sizes(pd.concat([*main, *some]))
    *_, text = disputes._sizes(pd.concat([*main, *some, *control]))

    assert without == "For 1 of the 2 (linear) the width of the whole model changed."
    assert text.startswith(without)
    assert "At widths 24, 48, 96" in text
    assert "0.62, 0.75, 0.62 on 1 state tracking task (these 1 on average 0.12, 0.25, 0.50)" in text
    assert text.endswith("It has no such rows of recall.")


def test_states_are_counted_by_the_mechanisms() -> None:
    _, _, table, _ = disputes._states()
    cells = cells_in(table)[1:]

    # The last token, of width 128 beside two states of 64 × 64, is counted too.
    assert [(row[0], row[6]) for row in cells[:2]] == [("rwkv7", "3.9 ×"), ("rwkv7", "16 ×")]
    # Two heads of 64 × 64, and three inputs of three convolutions of width 128.
    assert cells[4][5] == str(2 * 64 * 64 + 3 * 3 * 128)
