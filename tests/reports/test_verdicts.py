"""Verdicts of a task: significant differences, between which mechanisms, and saturation."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from synthbench.reports.cells import Cells, grid
from synthbench.reports.compare import Side, compare
from synthbench.reports.render.page import page
from synthbench.reports.separation import separation_table
from synthbench.reports.statistics import holm, pair_tests, permutation_test, pooled_std
from synthbench.reports.table import score_table
from synthbench.reports.verdicts import FAR, Verdict, judge
from tests.reports._made import joined, make_frame, report_of, scattered


def by_name(cells: Cells) -> dict[str, Verdict]:
    """Verdicts by task."""
    return {verdict.task.name: verdict for verdict in judge(cells).values()}


def only(rows: pd.DataFrame) -> Verdict:
    """The verdict on the only task."""
    (verdict,) = by_name(grid(rows)).values()
    return verdict


def test_evaluation_noise_counts_as_the_floor_but_spread_between_seeds_does_not() -> None:
    # Two seeds of 1000 sequences each: three standard errors are 3 * 0.5 / sqrt(2000), about 0.034.
    noisy = '{"score_std_over_sequences": 0.5}'
    within, beyond = {"slay": [0.07, 0.09]}, {"slay": [0.07, 0.11]}

    assert only(make_frame(within, floor=0.05, ceiling=0.25, metrics=noisy)).score_range == "at floor"
    assert only(make_frame(within, floor=0.05, ceiling=0.25, metrics="{}")).score_range == "between"
    assert only(make_frame(beyond, floor=0.05, ceiling=0.25, metrics=noisy)).score_range == "between"
    assert only(make_frame({"slay": [0.0, 1.0]}, metrics="{}")).score_range == "between"


def test_p_values_of_tasks_are_adjusted_together_and_those_of_pairs_within_a_task() -> None:
    made = {
        "a": scattered({"slay": 0.5, "linear": 0.5, "softmax": 0.5}, seed=1),
        "b": scattered({"slay": 0.5, "linear": 0.5, "softmax": 0.7}, seed=2),
        "c": scattered({"slay": 0.5, "linear": 0.52, "softmax": 0.53}, seed=3),
    }
    rows = pd.concat([make_frame(scores, task=task, run_id=task) for task, scores in made.items()])
    cells = grid(rows)
    verdicts = by_name(cells)

    raw = [permutation_test(scores, is_paired=False).p for scores in cells.scores]
    np.testing.assert_allclose([verdicts[task].p for task in "abc"], stats.false_discovery_control(raw))
    assert [verdicts[task].has_differences for task in "abc"] == [False, True, False]
    p = holm(pair_tests(cells.scores, is_paired=False).p[1])
    keys = [frozenset((first.key, second.key)) for first, second in combinations(cells.mechanisms, 2)]
    assert verdicts["b"].named == {key for key, value in zip(keys, p, strict=True) if value < 0.05}
    assert len(verdicts["b"].named) == 2
    assert verdicts["a"].named == verdicts["c"].named == set()


def test_a_difference_that_is_certain_but_counts_for_nothing_is_not_significant() -> None:
    near, far = (
        only(make_frame(scattered({"slay": 0.5, "linear": 0.5 + distance, "softmax": 0.5}, spread=1e-3), ceiling=1.0))
        for distance in (0.045, 0.055)
    )

    assert near.p == far.p < 0.01
    assert (near.has_differences, len(near.named)) == (False, 0)
    assert (far.has_differences, len(far.named)) == (True, 2)


def test_a_task_whose_bounds_are_equal_shows_no_differences() -> None:
    verdict = only(make_frame(scattered({"slay": 0.2, "linear": 0.9}), floor=0.9, ceiling=0.9))

    assert verdict.words == "no significant difference; floor = ceiling"


def test_what_learns_with_some_seeds_only_stands_out() -> None:
    """Fisher's exact test on learned or not says 0.002; no pair of means is far apart by a t test."""
    scores = scattered(dict.fromkeys(["linear", "slay", "yat-spherical", "performer", "slay-laplace"], 0.27))
    rows = make_frame({"softmax": [0.26, 0.86, 0.99, 0.26, 0.96], **scores})
    cells = grid(rows)
    (verdict,) = judge(cells).values()

    assert verdict.has_differences
    assert verdict.named == set()
    assert verdict.p_outlier < 0.05
    assert verdict.words == "significant differences; Softmax stands out"
    (pairs,) = (cell for cell in separation_table(cells, judge(cells)).lines[0].cells if cell.value == "0 of 15")
    assert pairs.remarks[0].startswith("Softmax, p = 0.0")
    shown = page(report_of(rows))
    assert "Softmax stands out · best: <bdi>Softmax</bdi></small></summary>" in shown
    assert "<dt>Stands out from all others</dt><dd><bdi>Softmax</bdi>, p = 0.0" in shown
    # It is not shown to differ from any single one: a mechanism that learns with four seeds may be its equal.
    best, *others = sorted(cells.mechanisms, key=lambda one: one.name != "softmax")

    assert verdict.best == best
    assert verdict.outlier == best
    assert not any(verdict.is_apart(one, other) for one, other in combinations([best, *others], 2))


def test_near_the_best_is_what_a_test_does_not_tell_from_it_and_what_is_not_far_below() -> None:
    scores = scattered({"slay": 0.5, "linear": 0.3, "performer": 0.1}, num_seeds=5, spread=0.02)
    near, of_luck = {"yat": [0.49]}, {"luck": [0.0, 0.0, 0.45]}
    cells = grid(make_frame({**scores, **near, **of_luck}))
    (verdict,) = judge(cells).values()
    names = {mechanism.key: mechanism.name for mechanism in cells.mechanisms}

    assert verdict.best is not None
    assert verdict.best.name == "slay"
    assert {names[key] for key in verdict.near_best} == {"yat"}
    # The runs of one scatter so much that no test tells it from the best; its mean is far below all the same.
    luck, best = (list(names.values()).index(name) for name in ("luck", "slay"))
    pair = list(combinations(range(len(names)), 2)).index((min(best, luck), max(best, luck)))
    assert pair_tests(cells.scores, is_paired=False).p[0, pair] > 0.05
    means = [estimate.mean for estimate in cells.cells_of(verdict.task)]
    assert means[best] - means[luck] > FAR * pooled_std(cells.scores[0])


def test_two_mechanisms_are_told_apart_as_compare_does() -> None:
    """Three seeds each can be shuffled in twenty ways, which shows nothing at 5 %."""
    parts = [
        make_frame(scattered({"slay": 0.5, "linear": 0.5 + lead}, num_seeds=3, seed=index), task=f"t{index}")
        for index, lead in enumerate((0.3, 0.02, 0.0))
    ]
    rows = joined(*parts)
    cells = grid(rows)
    verdicts = by_name(cells)
    first, second = (Side(name, "mechanism", rows[rows["mech"] == name]) for name in ("slay", "linear"))
    tasks = compare(first, second, "paper").tasks

    assert [verdicts[task.task].p for task in tasks] == pytest.approx([task.p for task in tasks])
    assert verdicts["t0"].has_differences
    assert [task for task, verdict in verdicts.items() if verdict.best and verdict.best.name == "linear"] == ["t0"]
    assert not verdicts["t2"].has_differences


def test_correlated_seeds_are_compared_seed_by_seed() -> None:
    """Seeds differ by 0.2, mechanisms by 0.06 on each of them."""
    seeds = 0.5 + 0.2 * np.random.default_rng(7).standard_normal(10)
    shared = {"slay": list(seeds), "linear": list(seeds + 0.06), "softmax": list(seeds)}
    shuffled = {mech: list(np.random.default_rng(n).permutation(own)) for n, (mech, own) in enumerate(shared.items())}

    assert only(make_frame(shared)).has_differences
    assert not only(make_frame(shuffled)).has_differences


def test_where_no_two_have_all_tasks_each_task_compares_what_ran_on_it_and_has_no_best() -> None:
    first, second = scattered({"slay": 0.5, "linear": 0.2}), scattered({"slay": 0.5, "yat": 0.9})
    cells = grid(joined(make_frame(first), make_frame(second, task="copy")))
    verdicts = by_name(cells)
    table = score_table(cells, judge(cells), "basic")

    assert [(verdicts[task].has_differences, verdicts[task].num_pairs) for task in ("sort", "copy")] == [(True, 1)] * 2
    assert all(verdict.best is None for verdict in verdicts.values())
    assert not any(cell.mark or cell.is_tied for line in table.lines for cell in line.cells)


def test_what_beats_a_control_is_not_separated_by_that() -> None:
    mechanisms = scattered({"slay": 0.5, "linear": 0.5})
    with_mean = make_frame({**mechanisms, **scattered({"mean": 0.01}, spread=0.001)})
    controlled = with_mean.assign(mech_family=with_mean["mech_family"].mask(with_mean["mech"] == "mean", "control"))

    assert judge(grid(controlled)) == judge(grid(make_frame(mechanisms)))
    assert not only(controlled).has_differences
    assert only(with_mean).has_differences


def test_a_task_on_which_all_failed_has_no_score() -> None:
    verdict = only(make_frame({"slay": [None, None], "linear": [None, None]}))

    assert verdict.words == "nothing to compare; no score"
    assert (verdict.means, verdict.skills, verdict.num_pairs) == (None, None, 0)


def test_a_failed_run_is_left_out_of_the_tests() -> None:
    scores = scattered({"slay": 0.5, "linear": 0.9})
    failed = make_frame({**scores, "linear": [*scores["linear"], None]})

    assert only(failed).named == only(make_frame(scores)).named != set()
