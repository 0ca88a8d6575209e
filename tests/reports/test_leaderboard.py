"""The ranking of a suite."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest

from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard, leaderboard_tables
from tests.reports._made import make_frame, scattered

SEVERAL: dict[str, list[float | None]] = {"softmax": [0.6, 0.62, 0.64], "linear": [0.3, 0.3, 0.36]}
"""Runs of two mechanisms that scatter a little."""


def frame(tasks: Mapping[str, Mapping[str, Sequence[float | None]]], **bounds: float) -> pd.DataFrame:
    """Rows of some tasks with floor 0 and ceiling 1, or the bounds that are given."""
    made = [make_frame(scores, task=task, **bounds) for task, scores in tasks.items()]
    return pd.concat(made, ignore_index=True)


def many(means: Mapping[str, float]) -> pd.DataFrame:
    """Three runs about some means on tasks of one category."""
    return frame({f"task_{seed}": scattered(means, 3, seed=seed) for seed in range(8)})


def test_mechanisms_with_all_tasks_are_ranked_and_a_failure_counts_as_the_floor() -> None:
    tasks: dict[str, dict[str, list[float | None]]] = {
        "sort": {"softmax": [0.9, 1.0, 0.95], "linear": [0.2, 0.3, 0.25], "slay": [0.9, 0.9, 0.9]},
        "copy": {"softmax": [1.0, 1.0, 1.0], "linear": [0.5, 0.5, None]},
    }
    board = leaderboard(grid(frame(tasks)))

    assert [entry.mechanism.name for entry in board.entries] == ["softmax", "linear"]
    best, worst = board.entries
    assert (best.rank.value, worst.rank.value, best.solved.value) == (1, 2, 1)
    assert best.skill.value == pytest.approx((0.95 + 1) / 2)
    assert worst.skill.value == pytest.approx((0.25 + 1 / 3) / 2)
    # The middle half of 0, 0.2, 0.25, 0.3, 0.5, 0.5: half of the second, two whole, half of the fifth.
    assert worst.middle.value == pytest.approx((0.5 * 0.2 + 0.25 + 0.3 + 0.5 * 0.5) / 3)
    assert worst.middle.low < worst.middle.value < worst.middle.high
    assert [(row.mechanism.name, row.reason) for row in board.placed if row.reason] == [("slay", "1 of 2 tasks")]


def test_nobody_is_below_the_floor_or_above_the_ceiling() -> None:
    made = frame({"sort": {"softmax": [0.99, 0.98], "linear": [0.1, 0.6]}}, floor=0.5, ceiling=0.75)

    assert [entry.skill.value for entry in leaderboard(grid(made)).entries] == pytest.approx([1.0, 0.2])


def test_every_category_weighs_the_same() -> None:
    tasks = {"sort": (0.9, "basic"), "copy": (0.7, "basic"), "parity": (0.2, "arithmetic")}
    rows = pd.concat(
        make_frame({"slay": [score] * 2, "linear": [0.5] * 2}, task=task, task_category=category, run_id=task)
        for task, (score, category) in tasks.items()
    )
    board = leaderboard(grid(rows))
    (slay,) = (entry for entry in board.entries if entry.mechanism.name == "slay")

    assert slay.skill.value == pytest.approx((0.8 + 0.2) / 2)
    assert {name: part.skill_of(slay.mechanism).value for name, part in board.parts.items()} == pytest.approx(
        {"basic": 0.8, "arithmetic": 0.2}
    )
    assert slay.solved.value == pytest.approx(1 / 4)


def test_the_verdict_orders_mechanisms_on_these_tasks_and_says_what_others_would_change() -> None:
    clear = leaderboard(grid(many({"softmax": 0.9, "linear": 0.5, "slay": 0.4})))
    near = leaderboard(grid(many({"softmax": 0.601, "linear": 0.6, "slay": 0.3})))
    alike = leaderboard(grid(many({"softmax": 0.601, "linear": 0.6})))

    order, reading = clear.verdict().splitlines()
    assert order == "Basic: Softmax .90; next: Linear .50"
    assert reading.startswith("Each line names every mechanism that may be the best on these tasks (95 % ")
    assert reading.endswith("On a fresh set of similar tasks, Softmax would still rank first.")
    assert "single seed" not in reading
    assert near.verdict().startswith("Basic: Softmax .60 or Linear .60; next: SLAY .30\n")
    assert near.outlook.endswith(" 2 of the 3 mechanisms could rank first: Softmax and Linear.")
    assert alike.verdict().startswith("Basic: Softmax .60 or Linear .60\n")
    assert alike.outlook.startswith("On a fresh set of similar tasks, any of the 2 mechanisms could ")


def test_a_category_names_the_first_and_counts_the_rest() -> None:
    rows = many({f"m{place}": 0.9 - place / 90 for place in range(7)} | {"low": 0.1})
    (order,) = leaderboard(grid(rows)).orders.values()

    # Less than .05 is not called below, however certain.
    assert order == "m0 .90, m1 .89, m2 .88, m3 .87 or m4 .85; next: m5 .84"
    (wide,) = leaderboard(grid(many({f"m{place}": 0.9 - place / 200 for place in range(10)}))).orders.values()
    assert wide == "m0 .90, m1 .89, m2 .89, m3 .89, m4 .88, m5 .88, m6 .87, m7 .87 or 2 more"


def test_a_bare_layer_is_on_the_board_and_in_no_verdict() -> None:
    rows = many({"gla": 0.4, "linear": 0.3}).assign(condition="stock", sees_places=False)
    bare = many({"gla": 0.8}).assign(condition="bare", sees_places=False, mech_args='{"conv":4}')
    rows["mech_args"] = rows["mech_args"].mask(rows["mech"] == "linear", '{"conv_width":1}')
    board = leaderboard(grid(pd.concat([rows, bare.assign(run_id=bare["run_id"] + "-bare")], ignore_index=True)))

    assert [entry.label for entry in board.entries] == ["gla (bare)", "gla", "Linear"]
    assert board.orders["basic"] == "gla .40; next: Linear .30"
    summary = next(table for table in leaderboard_tables(board) if table.name == "leaderboard-summary")
    convolution = [column.label for column in summary.columns].index("Convolution")
    assert [line.cells[convolution].value for line in summary.lines] == ["4", "no", "no"]


def test_ones_own_mechanism_comes_first() -> None:
    board = leaderboard(grid(many({"softmax": 0.9, "linear": 0.5})))
    own = board.entries[-1].mechanism

    assert [table.lines[0].labels for table in leaderboard_tables(board, {own.key})[:2]] == [("Linear",)] * 2


def test_where_each_has_one_run_a_task_scatters_as_the_others_do() -> None:
    single: dict[str, Mapping[str, list[float | None]]] = {"single": {"softmax": [0.6], "linear": [0.3]}}
    tasks = {f"task_{index}": SEVERAL for index in range(3)} | single
    (best, _), (alone, _) = (leaderboard(grid(frame(each))).entries for each in (tasks, single))

    assert best.skill.low < best.skill.value < best.skill.high
    assert np.isnan(alone.skill.low)


def test_controls_are_not_what_a_verdict_is_about() -> None:
    rows = many({"mean": 0.9, "linear": 0.5})
    rows["mech_family"] = rows["mech_family"].mask(rows["mech"] == "mean", "control")

    assert leaderboard(grid(rows)).verdict() == "Basic: Linear .50, the only mechanism with a run of every task."
    only = leaderboard(grid(rows[rows["mech"] == "mean"]))
    assert only.verdict() == "Basic: only controls have a run of every task."
    assert only.entries[0].label == "mean (control)"


def test_one_seed_is_ranked_with_the_spread_of_the_others_and_counted_beside_the_verdict() -> None:
    scores = SEVERAL | {"path": [0.9]}
    board = leaderboard(grid(frame({f"task_{index}": scores for index in range(4)})))
    best, *others = board.entries

    assert (best.label, best.num_seeds) == ("path (1 seed)", (1, 1))
    assert [entry.few_seeds for entry in others] == ["", ""]
    # Of one run instead of three: √3 times the error, with fewer degrees of freedom.
    half, *rest = ((entry.skill.high - entry.skill.low) / 2 for entry in (best, *others))
    assert min(rest) < max(rest) < half
    assert best.skill.low < 0.9 < best.skill.high
    assert "mechanisms, 1 was run with a single seed on each task. Where a mechanism has" in board.certainty
    some = leaderboard(grid(frame({"more": SEVERAL | {"path": [0.9, 0.92]}, "task": scores})))
    assert "1 was run with a single seed on some tasks and several seeds on the others" in some.certainty


def test_a_mechanism_with_some_tasks_is_named_with_their_number_and_never_with_none() -> None:
    both: dict[str, list[float | None]] = {"softmax": [0.9, 0.8], "linear": [0.2, 0.3]}
    ranked = frame({"sort": both | {"slay": [0.9, 0.9]}, "copy": both})
    close = frame({"compression": both | {"yat": [0.6]}}, floor=0.55, ceiling=0.59)
    profile, summary, _ = leaderboard_tables(leaderboard(grid(pd.concat([ranked, close], ignore_index=True))))

    partial = [line.labels[0] for line in summary.lines if "not ranked" in line.labels[0]]
    assert partial == ["SLAY (1 of 2 tasks, not ranked)", "yat (no task that counts, not ranked)"]
    assert [line.labels[0] for line in profile.lines] == [line.labels[0] for line in summary.lines[:2]]
