"""The ranking of a suite."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard, leaderboard_tables


def frame(make_frame: Any, tasks: Mapping[str, Mapping[str, list[float | None]]], **bounds: float) -> pd.DataFrame:
    """Rows of some tasks with floor 0 and ceiling 1, or the bounds that are given."""
    made = [make_frame(scores, task=task, **bounds) for task, scores in tasks.items()]
    whole: pd.DataFrame = pd.concat(made, ignore_index=True)
    return whole.assign(run_id=whole["run_id"] + whole["task"])


@pytest.fixture
def rows(make_frame: Any) -> pd.DataFrame:
    return frame(
        make_frame,
        {
            "sort": {"softmax": [0.9, 1.0, 0.95], "linear": [0.2, 0.3, 0.25], "slay": [0.9, 0.9, 0.9]},
            "copy": {"softmax": [1.0, 1.0, 1.0], "linear": [0.5, 0.5, None], "slay": [1.0, 1.0]},
        },
    )


def many(make_frame: Any, means: Mapping[str, float], num_tasks: int = 8, **bounds: float) -> pd.DataFrame:
    """Three runs about some means on tasks of one category."""
    draws = np.random.default_rng(0)
    tasks = {
        f"task_{index}": {mech: list(mean + 0.01 * draws.standard_normal(3)) for mech, mean in means.items()}
        for index in range(num_tasks)
    }
    return frame(make_frame, tasks, **bounds)


def test_mechanisms_with_all_runs_are_ranked_and_a_failure_counts_as_the_floor(rows: pd.DataFrame) -> None:
    board = leaderboard(grid(rows))

    assert [entry.mechanism.name for entry in board.entries] == ["softmax", "linear"]
    best, worst = board.entries
    assert [best.rank.value, worst.rank.value] == [1, 2]
    assert best.skill.value == pytest.approx((0.95 + 1) / 2)
    assert best.solved.value == 1
    assert worst.skill.value == pytest.approx((0.25 + 1 / 3) / 2)
    # The middle half of 0, 0.2, 0.25, 0.3, 0.5, 0.5: half of the second, two whole, half of the fifth.
    assert worst.middle.value == pytest.approx((0.5 * 0.2 + 0.25 + 0.3 + 0.5 * 0.5) / 3)
    assert worst.middle.low < worst.middle.value < worst.middle.high
    assert {mechanism.name: count for mechanism, count in board.partial.items()} == {"slay": 1}


def test_nobody_is_below_the_floor_or_above_the_ceiling(make_frame: Any) -> None:
    made = frame(make_frame, {"sort": {"softmax": [0.99, 0.98], "linear": [0.1, 0.6]}}, floor=0.5, ceiling=0.75)

    assert [entry.skill.value for entry in leaderboard(grid(made)).entries] == pytest.approx([1.0, 0.2])


def test_every_category_weighs_the_same(make_frame: Any) -> None:
    tasks = {"sort": (0.9, "basic"), "copy": (0.7, "basic"), "parity": (0.2, "arithmetic")}
    rows = pd.concat(
        make_frame({"slay": [score] * 2, "linear": [0.5] * 2}, task=task, task_category=category, run_id=task)
        for task, (score, category) in tasks.items()
    )
    (slay,) = (entry for entry in leaderboard(grid(rows)).entries if entry.mechanism.name == "slay")

    assert slay.skill.value == pytest.approx((0.8 + 0.2) / 2)
    assert {name: skill.value for name, skill in slay.categories.items()} == pytest.approx(
        {"basic": 0.8, "arithmetic": 0.2}
    )
    assert slay.solved.value == pytest.approx(1 / 4)


def test_a_task_whose_bounds_are_too_close_does_not_count_and_is_named(make_frame: Any, rows: pd.DataFrame) -> None:
    close = frame(make_frame, {"compression": {"softmax": [0.6] * 3, "linear": [0.5] * 3}}, floor=0.55, ceiling=0.59)
    board = leaderboard(grid(pd.concat([rows, close], ignore_index=True)))

    assert [task.name for task in board.tasks] == ["copy", "sort"]
    assert [task.name for task in board.left_out] == ["compression"]
    assert len(board.entries) == 2
    assert "points between floor and ceiling: compression." in leaderboard_tables(board)[0].caption


def test_the_verdict_names_who_else_may_be_the_best(make_frame: Any) -> None:
    clear = leaderboard(grid(many(make_frame, {"softmax": 0.9, "linear": 0.5, "slay": 0.4})))
    near = leaderboard(grid(many(make_frame, {"softmax": 0.601, "linear": 0.6, "slay": 0.3})))
    alike = leaderboard(grid(many(make_frame, {"softmax": 0.601, "linear": 0.6})))

    assert clear.verdict().startswith("Standard has the highest mean skill over 8 tasks in 1 category: 0.90 (")
    assert clear.verdict().endswith("On tasks like these it is the best of 3.")
    assert near.verdict().endswith(f"may as well be {near.entries[1].mechanism.label}.")
    assert alike.verdict().endswith("No mechanism is shown to be better than another on tasks like these.")


def test_controls_are_not_what_a_verdict_is_about(make_frame: Any) -> None:
    rows = many(make_frame, {"mean": 0.9, "linear": 0.5})
    rows["mech_family"] = rows["mech_family"].mask(rows["mech"] == "mean", "control")

    assert leaderboard(grid(rows)).verdict() == "Nothing is compared: Linear is the only mechanism with all runs."
    only = leaderboard(grid(rows[rows["mech"] == "mean"]))
    assert only.verdict() == "Nothing is compared: only controls have all runs."


def test_one_seed_is_refused(make_frame: Any) -> None:
    with pytest.raises(ValueError, match="at least two; there is 1"):
        leaderboard(grid(frame(make_frame, {"sort": {"softmax": [0.9]}})))
