"""Differences of paired runs, and when they are a loss."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from synthbench.errors import UsageError
from synthbench.reports.compare import Comparison, Side, compare, pairwise, sides
from synthbench.reports.statistics import pair_tests
from tests.reports._made import alternating, climbed, joined, make_frame

SCORES = {"softmax": [0.5, 0.6, 0.7], "slay": [0.6, 0.65, 0.9]}


def against(rows: pd.DataFrame, first: str = "softmax", second: str = "slay", suite: str = "paper") -> Comparison:
    one, other = sides([first, second], lambda: rows, lambda _path: rows)
    return compare(one, other, suite)


def as_stores(first: pd.DataFrame, second: pd.DataFrame, **more: Any) -> Comparison:
    return compare(Side("a", "store", first), Side("b", "store", second), "paper", **more)


def test_a_difference_is_the_second_less_the_first_with_the_interval_of_its_test() -> None:
    comparison = against(make_frame(SCORES))
    (task,) = comparison.tasks
    scores = np.array([[SCORES["softmax"], SCORES["slay"]]])
    test = pair_tests(scores, is_paired=False)

    assert not comparison.is_paired  # one task does not tell
    assert [task.first, task.second] == pytest.approx([0.6, 2.15 / 3])
    assert task.difference == pytest.approx(0.35 / 3)
    half = stats.t.ppf(0.975, test.dof[0, 0]) * test.error[0, 0]
    assert [task.low, task.high] == pytest.approx([task.difference - half, task.difference + half])
    assert task.p == pytest.approx(test.p[0, 0])
    assert (task.task, task.mechanism, task.num_seeds, task.num_failed) == ("sort", "", 3, 0)


def settings_of(narrow: list[float | None], wide: list[float | None]) -> pd.DataFrame:
    """Rows of two settings of one mechanism."""
    return joined(make_frame({"slay": narrow}, mech_args='{"P":4}'), make_frame({"slay": wide}, mech_args='{"P":8}'))


def test_settings_of_one_mechanism_are_compared_by_name_and_never_mixed() -> None:
    rows = joined(settings_of([0.2, 0.3], [0.6, 0.6]), make_frame({"softmax": [0.5, 0.5]}))

    (task,) = against(rows, "slay:P=4", "slay:P=8").tasks
    assert (task.first, task.second, task.num_seeds) == pytest.approx((0.25, 0.6, 2))
    (task,) = against(rows, "softmax", "slay:P=4").tasks
    assert (task.first, task.second) == pytest.approx((0.5, 0.25))
    with pytest.raises(UsageError, match=r"'slay' has rows of 2 settings: \{\"P\":4\}, \{\"P\":8\}"):
        against(rows)


@pytest.mark.parametrize("other", [{"task": "reverse"}, {"seq_len": 999}], ids=["task", "size"])
def test_a_name_means_the_setting_with_all_tasks_where_others_have_some(other: dict[str, Any]) -> None:
    both = joined(make_frame(SCORES), make_frame(SCORES, **other))
    some = make_frame({"slay": [0.1, 0.1]}, mech_args='{"P":4}')

    assert against(joined(both, some)).tasks == against(both).tasks


def test_what_was_matched_is_compared_only_where_nothing_else_is_there() -> None:
    plain, matched = make_frame(SCORES), make_frame({"softmax": [0.1, 0.2], "slay": [0.3, 0.4]})
    matched["match"] = "state of " + matched["mech"]

    assert against(joined(plain, matched)).tasks == against(plain).tasks
    assert against(matched).tasks[0].difference == pytest.approx(0.2)


def test_the_mean_difference_lies_in_its_interval_and_is_that_of_the_pairs() -> None:
    # One task: Student's interval of the differences of the pairs.
    expected = stats.ttest_rel(SCORES["slay"], SCORES["softmax"]).confidence_interval(0.95)
    assert against(make_frame(SCORES)).mean_difference == pytest.approx((0.35 / 3, expected.low, expected.high))


def test_seeds_that_go_together_are_compared_seed_by_seed() -> None:
    """The same mechanism before and after a change that costs 0.01 on every seed of six tasks."""
    draws = np.random.default_rng(0)
    scores = 0.5 + 0.1 * draws.standard_normal((6, 5))
    first, second = (
        pd.concat([make_frame({"slay": list(one)}, task=f"task_{index}") for index, one in enumerate(after)])
        for after in (scores, scores - 0.01 + 0.001 * draws.standard_normal((6, 5)))
    )
    comparison = as_stores(first, second)

    assert comparison.is_paired
    assert all(task.p < 0.05 for task in comparison.tasks)
    assert comparison.is_below(-0.005)
    assert "they differ by 0.05 or more on 0 of the tasks" in comparison.summary()


def test_two_stores_are_paired_mechanism_by_mechanism_and_setting_by_setting() -> None:
    settings = as_stores(settings_of([0.2, 0.3], [0.6, 0.7]), settings_of([0.3, 0.4], [0.6, 0.7]))
    assert sorted(task.difference for task in settings.tasks) == pytest.approx([0.0, 0.1])
    assert settings.num_unpaired == 0

    first = make_frame(SCORES)
    second = make_frame({"softmax": [0.6, 0.7, 0.8], "slay": SCORES["slay"], "linear": [0.1] * 3})
    comparison = as_stores(first, second)

    assert {task.mechanism: round(task.difference, 9) for task in comparison.tasks} == {"slay": 0.0, "softmax": 0.1}
    assert comparison.num_unpaired == 3
    assert [task.mechanism for task in as_stores(first, second, mechanisms={"slay": {}}).tasks] == ["slay"]


def test_two_commits_of_one_store_are_compared() -> None:
    before = make_frame({"slay": [0.5, 0.6]}, git_sha="a" * 40, mech_version="1")
    after = make_frame({"slay": [0.4, 0.5]}, git_sha="b" * 40, mech_version="2")
    comparison = against(joined(before, after), "a" * 7, "b" * 8)

    assert [task.difference for task in comparison.tasks] == pytest.approx([-0.1])
    assert comparison.is_below(-0.02)
    assert not comparison.is_below(-0.11)


def test_a_run_without_a_score_counts_as_one_at_the_floor() -> None:
    (task,) = against(make_frame({"softmax": [0.5, 0.5], "slay": [0.5, None]})).tasks

    assert (task.second, task.difference, task.num_failed) == (0.25, -0.25, 1)


def test_only_seeds_that_all_tasks_have_enter_the_mean() -> None:
    shorter = {mech: scores[:2] for mech, scores in SCORES.items()}
    comparison = against(joined(make_frame(SCORES), make_frame(shorter, task="reverse")))

    assert (comparison.num_seeds, [task.num_seeds for task in comparison.tasks]) == (2, [2, 3])
    assert comparison.mean_difference is not None
    assert comparison.mean_difference.value == pytest.approx(0.075)


def test_one_seed_gives_no_interval_and_nothing_to_fail_on() -> None:
    comparison = against(make_frame({"softmax": [0.5], "slay": [0.1]}))

    assert comparison.mean_difference is None
    assert math.isnan(comparison.tasks[0].low)
    with pytest.raises(UsageError, match="1 seeds are common"):
        comparison.is_below(-0.02)


def test_a_task_without_room_between_floor_and_ceiling_is_left_out() -> None:
    flat = make_frame(SCORES, task="stack", floor=0.5, ceiling=0.5)
    comparison = against(joined(make_frame(SCORES), flat))

    assert ([task.task for task in comparison.tasks], comparison.num_left_out) == (["sort"], 1)
    with pytest.raises(UsageError, match="too near to each other"):
        against(flat)


def test_of_several_mechanisms_every_pair_is_compared_and_p_adjusted_over_the_pairs() -> None:
    rows = make_frame({**SCORES, "gla": [0.1, 0.2, 0.15]})
    several = sides(["softmax", "slay", "gla"], lambda: rows, lambda _path: rows)
    comparisons, pairs = pairwise(several, "paper")

    named = [(pair["first"], pair["second"]) for pair in pairs]
    assert named == [("softmax", "slay"), ("softmax", "gla"), ("slay", "gla")]
    for pair, alone in zip(pairs, comparisons, strict=True):
        assert alone == against(rows, pair["first"], pair["second"])
        assert alone.mean_difference == (pair["difference"], pair["low"], pair["high"])
    raw = sorted(comparison.p for comparison in comparisons)
    assert min(pair["p"] for pair in pairs) == pytest.approx(3 * raw[0])
    assert (pairs[0]["num_tasks"], pairs[0]["num_seeds"]) == (1, 3)


def test_the_p_of_a_mean_difference_is_below_a_level_where_its_interval_leaves_zero_out() -> None:
    for scores, is_apart in (([0.6, 0.65, 0.9], False), ([0.2, 0.1, 0.15], True)):
        comparison = against(make_frame({"softmax": [0.5, 0.6, 0.7], "slay": scores}))

        assert comparison.mean_difference is not None
        _value, low, high = comparison.mean_difference
        assert (comparison.p < 0.05) == (low * high > 0) == is_apart


def test_of_runs_that_do_not_scatter_p_is_what_their_number_allows() -> None:
    same = make_frame({"softmax": [0.5, 0.5, 0.5], "slay": [0.5, 0.5, 0.5], "gla": [0.7, 0.7, 0.7]})

    assert against(same).p == 1.0
    assert against(same, "softmax", "gla").p == pytest.approx(0.25)
    # Two seeds each: of six ways to shuffle them two are as clear.
    (task,) = against(make_frame({"softmax": [0.3, 0.3], "slay": [0.98, 0.98]})).tasks
    assert task.p == pytest.approx(1 / 3)


def test_on_a_ladder_scores_are_compared() -> None:
    rows = climbed({"softmax": [5.1, 5.2, 5.3], "slay": [3.8, 3.9, 4]})
    comparison = against(rows, suite="core")
    (task,) = comparison.tasks

    assert task.levels == 11
    assert task.difference == pytest.approx(-1.3 / 11)
    assert "mean difference of score -0.1182" in comparison.summary()
    assert "they differ by 0.5 levels or more on 1 of the tasks" in comparison.summary()


@pytest.mark.parametrize(("lead", "num_apart"), [(0.45, 0), (0.5, 1)])
def test_on_a_ladder_half_a_level_counts(lead: float, num_apart: int) -> None:
    """Half a level of 6 is 0.083 of skill: 0.45 levels are more than would count between accuracies."""
    rows = climbed({"softmax": [3.0, 3.01, 2.99], "slay": [3 + lead, 3.01 + lead, 2.99 + lead]}, "string_copy")
    comparison = against(rows, suite="core")

    assert comparison.tasks[0].p < 0.05
    assert sum(task.is_apart for task in comparison.tasks) == num_apart
    assert (comparison.improvement.value > 0.5) == (num_apart == 1)


@pytest.mark.parametrize(("condition", "pairs"), [("stock", True), ("bare", True), ("2026.1", False), (None, False)])
def test_layers_with_positions_of_their_own_are_compared_whatever_these_are(
    condition: str | None, *, pairs: bool
) -> None:
    gla, linear = (
        make_frame({"gla": [0.5, 0.6]}, positions="none"),
        make_frame({"linear": [0.3, 0.4]}, positions="rope"),
    )
    rows = joined(gla, linear).assign(condition=condition)

    if pairs:
        assert len(against(rows, "gla", "linear").tasks) == 1
    else:
        with pytest.raises(UsageError, match="nothing pairs: positions is none in 'gla' and rope in 'linear'"):
            against(rows, "gla", "linear")


def test_a_comparison_on_a_ladder_allows_for_the_looks() -> None:
    for count, share in ((3, 1.0), (5, 0.2), (10, 0.5)):
        rows = climbed({"softmax": alternating(4, count), "slay": alternating(3.5, count)})
        comparison, once = (against(shown, suite="core") for shown in (rows, rows.assign(task_args='{"length":32}')))

        assert comparison.tasks[0].p == pytest.approx(min(1.0, once.tasks[0].p / share))
