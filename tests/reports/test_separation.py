import json
import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from synthbench.reports.grid import grid
from synthbench.reports.separation import Separation, separation, separation_table, summary
from synthbench.reports.statistics import holm
from synthbench.reports.table import Cell, Table

MakeFrame = Callable[..., pd.DataFrame]


def table_of(rows: pd.DataFrame) -> Table:
    return separation_table(grid(rows), separation(grid(rows)))


def place(rows: pd.DataFrame) -> str:
    """Where the scores of the only task sit."""
    (judged,) = separation(grid(rows))
    return judged.place


def by_name(judged: Sequence[Separation]) -> dict[str, Separation]:
    """Judgements by task."""
    return {one.task.name: one for one in judged}


@pytest.mark.parametrize(
    ("scores", "bounds", "expected"),
    [
        ([0.12, 0.11], (0.1, 0.9), "at floor"),
        ([0.05, 0.06], (0.1, 0.9), "at floor"),
        ([0.88, 0.87], (0.1, 0.9), "at ceiling"),
        ([0.91, 0.90], (0.1, 0.9), "at ceiling"),
        ([0.5, 0.5], (0.1, 0.9), "between"),
        ([0.7, 0.7], (0.7, 0.7), "floor = ceiling"),
        ([0.7, 0.7], (0.695, 0.7), "gap below noise"),
    ],
)
def test_the_place_follows_from_skill(
    make_frame: MakeFrame, scores: list[float], bounds: tuple[float, float], expected: str
) -> None:
    floor, ceiling = bounds

    assert place(make_frame({"slay": scores, "linear": scores}, floor=floor, ceiling=ceiling)) == expected


def test_one_mechanism_above_the_floor_lifts_the_task_off_it(make_frame: MakeFrame) -> None:
    assert place(make_frame({"slay": [0.01, 0.01], "linear": [0.3, 0.3]})) == "between"


def test_evaluation_noise_counts_as_the_floor_but_spread_between_seeds_does_not(make_frame: MakeFrame) -> None:
    # Two seeds of 1000 sequences each: three standard errors are 3 * 0.5 / sqrt(2000), about 0.034.
    noisy = '{"score_std_over_sequences": 0.5}'
    within, beyond = {"slay": [0.07, 0.09]}, {"slay": [0.07, 0.11]}

    assert place(make_frame(within, floor=0.05, ceiling=0.25, metrics=noisy)) == "at floor"
    assert place(make_frame(within, floor=0.05, ceiling=0.25, metrics="{}")) == "between"
    assert place(make_frame(beyond, floor=0.05, ceiling=0.25, metrics=noisy)) == "between"
    assert place(make_frame({"slay": [0.0, 1.0]}, metrics="{}")) == "between"


def test_pairs_are_adjusted_within_a_task_and_over_all_tasks(make_frame: MakeFrame, paper: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    rows = pd.concat(
        [
            make_frame({mech: list(rng.random(4)) for mech in ("slay", "linear", "softmax")}, task="a", run_id="a"),
            make_frame({mech: list(rng.random(4)) for mech in ("slay", "linear")}, task="b", run_id="b"),
            make_frame({"slay": [0.9, 0.91, 0.92, 0.9], "linear": [0.1, 0.13, 0.1, 0.12]}, task="c", run_id="c"),
        ]
    )
    tasks, p = [], []
    for name, members in rows.groupby("task"):
        wide = members.pivot_table(index="seed", columns="mech", values="score")
        for first, second in combinations(wide.columns, 2):
            tasks.append(name)
            p.append(float(stats.ttest_rel(wide[first], wide[second]).pvalue))
    tested = pd.DataFrame({"task": tasks, "p": p, "of_all": holm(np.array(p))})

    found = by_name(separation(grid(rows)))
    for name, of_task in tested.groupby("task"):
        one, within = found[str(name)], holm(of_task["p"].to_numpy())
        assert one.smallest_p == pytest.approx(within.min())
        assert (one.num_pairs, one.num_separated) == (len(of_task), (within < 0.05).sum())
        assert one.num_certain == (of_task["of_all"] < 0.05).sum()
    assert [found[task].separates for task in "abc"] == [False, True, True]
    assert [found[task].num_certain for task in "abc"] == [0, 0, 1]
    assert len(separation(grid(paper))) == paper["task"].nunique()


def test_a_difference_that_is_certain_but_counts_for_nothing_separates_nothing(make_frame: MakeFrame) -> None:
    def judge(distance: float) -> Separation:
        low = [0.5, 0.52, 0.54]
        (judged,) = separation(grid(make_frame({"slay": low, "linear": [one + distance for one in low]}, ceiling=1.0)))
        return judged

    assert judge(0.04).smallest_p == judge(0.06).smallest_p == 0
    assert (judge(0.04).num_separated, judge(0.06).num_separated) == (0, 1)
    assert not judge(0.04).separates


@pytest.mark.parametrize(
    ("of_linear", "separates_at", "words"),
    [
        ({2: 0.99, 4: 0.99}, None, "does not separate; at ceiling"),
        ({2: 0.97, 4: 0.5}, 4, "does not separate; at ceiling; does at 4×"),
        ({2: 0.6, 4: 0.5}, 2, "does not separate; at ceiling; does at 2×"),
    ],
)
def test_a_task_that_all_solve_may_separate_out_of_range(
    make_frame: MakeFrame, of_linear: dict[int, float], separates_at: int | None, words: str
) -> None:
    skills = {"slay": {2: 1.0, 4: 1.0}, "linear": of_linear}
    rows = pd.concat(
        make_frame(
            {mech: [1.0, 1.0, 1.0]}, metrics=json.dumps({f"x{factor}.skill": one for factor, one in own.items()})
        )
        for mech, own in skills.items()
    )
    (judged,) = separation(grid(rows))

    assert (judged.separates_at, judged.verdict) == (separates_at, words)
    assert ("and on 1 of the others out of range" in summary([judged])) == (separates_at is not None)
    assert ("out of range" in summary([judged])) == ("Does at 2×" in table_of(rows).caption)


def test_what_separates_in_range_is_not_looked_at_out_of_range(make_frame: MakeFrame) -> None:
    (judged,) = separation(grid(make_frame({"slay": [0.9] * 3, "linear": [0.1] * 3}, metrics='{"x2.skill": 0.5}')))

    assert (judged.separates, judged.separates_at) == (True, None)


def test_ranges_agree_with_pandas(paper: pd.DataFrame) -> None:
    means = paper.groupby(["task", "mech"])[["score", "skill"]].mean()
    low, high = (getattr(means.groupby("task"), name)() for name in ("min", "max"))

    for task, one in by_name(separation(grid(paper))).items():
        assert one.means == pytest.approx((low["score"][task], high["score"][task]))
        if task == "retrieval":
            assert one.skills is None
        else:
            assert one.skills == pytest.approx((low["skill"][task], high["skill"][task]))


def test_one_mechanism_leaves_nothing_to_compare(make_frame: MakeFrame) -> None:
    (judged,) = separation(grid(make_frame({"slay": [0.5, 0.6]})))

    assert judged.verdict == "nothing to compare; between"
    assert table_of(make_frame({"slay": [0.5, 0.6]})).lines[0].cells[5].value == "--"


def test_a_summary_without_a_pair_says_that_there_is_nothing_to_compare(make_frame: MakeFrame) -> None:
    assert summary(separation(grid(make_frame({"slay": [0.5, 0.6]})))).startswith(
        "There are no two mechanisms to compare"
    )


def test_what_beats_a_control_is_not_separated_by_that(make_frame: MakeFrame) -> None:
    mechanisms = {"slay": [0.5, 0.6, 0.5], "linear": [0.6, 0.5, 0.5]}
    controlled = make_frame({**mechanisms, "mean": [0.01, 0.02, 0.01]})
    controlled["mech_family"] = controlled["mech_family"].mask(controlled["mech"] == "mean", "control")

    assert separation(grid(controlled)) == separation(grid(make_frame(mechanisms)))
    assert not separation(grid(controlled))[0].separates
    assert separation(grid(make_frame({**mechanisms, "mean": [0.01, 0.02, 0.01]})))[0].separates


def test_a_difference_below_the_margin_is_significant_and_separates_nothing(make_frame: MakeFrame) -> None:
    small = {"slay": [0.50, 0.51, 0.52], "linear": [0.52, 0.5301, 0.54]}
    (judged,) = separation(grid(make_frame(small)))

    assert judged.differs
    assert not judged.separates
    assert (
        "differs significantly on 1 of 1 tasks. By a skill of 0.05 or more, which separates it, one differs on 0"
        in summary([judged])
    )


def test_a_task_on_which_all_failed_has_no_score(make_frame: MakeFrame) -> None:
    (judged,) = separation(grid(make_frame({"slay": [None], "linear": [None]})))

    assert judged.place == "no score"
    assert (judged.means, judged.skills, judged.num_pairs) == (None, None, 0)


def test_the_summary_counts_what_the_table_says(paper: pd.DataFrame) -> None:
    judged = separation(grid(paper))
    verdicts = [line.cells[-1].value for line in table_of(paper).lines]

    separating = sum(verdict.startswith("separates") for verdict in verdicts)
    differing = sum(float(line.cells[-3].value.removeprefix("< ")) < 0.05 for line in table_of(paper).lines)
    assert separating <= differing
    assert summary(judged).startswith(
        f"At least one pair of mechanisms differs significantly on {differing} of {len(verdicts)} tasks. "
        f"By a skill of 0.05 or more, which separates it, one differs on {separating}, on "
    )
    for words, phrase in {"at floor": "at the floor", "between": "between", "at ceiling": "at the ceiling"}.items():
        assert f"{sum(verdict.endswith(words) for verdict in verdicts)} {phrase}" in summary(judged)


def test_what_can_be_had_without_mixing_has_a_column_where_it_is_known(make_frame: MakeFrame) -> None:
    scores = {"slay": [0.5, 0.6], "linear": [0.1, 0.2]}
    plain, local = (table_of(make_frame(scores, **known)) for known in ({}, {"local_ceiling": 0.4}))

    assert [column.label for column in local.columns][:3] == ["Floor", "Local", "Ceiling"]
    assert "Local" not in {column.label for column in plain.columns}
    assert local.lines[0].cells[1].value == "40.0"


def test_the_share_between_mechanisms_is_that_of_common_seeds(make_frame: MakeFrame) -> None:
    (judged,) = separation(grid(make_frame({"slay": [0.1, 0.3], "linear": [0.5, 0.7, 0.0]})))

    # Means 0.2 and 0.6 around 0.4: between 4 · 0.04, within 4 · 0.01.
    assert judged.between == pytest.approx(0.8)
    (alone,) = separation(grid(make_frame({"slay": [0.1, 0.3]})))
    assert math.isnan(alone.between)


def test_the_best_shortcut_has_a_column_where_rows_name_some(make_frame: MakeFrame) -> None:
    metrics = json.dumps({"shortcut.one hop": 0.3, "shortcut.bigram": 0.45, "score_std_over_sequences": 0.1})
    table = table_of(make_frame({"slay": [0.5, 0.6]}, metrics=metrics))

    assert [column.label for column in table.columns][:3] == ["Floor", "Shortcut", "Ceiling"]
    assert table.lines[0].cells[1] == Cell("45.0", remarks=("bigram",))


@pytest.mark.parametrize("solved", [0.0, 0.5])
def test_a_mechanism_against_itself_under_other_names_is_not_separated(make_frame: MakeFrame, solved: float) -> None:
    """Scores of four names from one distribution, in some of which half of the seeds solve the task: bimodal ones."""
    draws = np.random.default_rng(9)
    found = 0
    for _ in range(200):
        is_solved = draws.random((4, 8)) < solved
        scores = np.where(is_solved, 0.98, 0.3) + 0.02 * draws.standard_normal((4, 8))
        (judged,) = separation(
            grid(make_frame(dict(zip(["softmax", "linear", "slay", "performer"], scores, strict=True))))
        )
        found += judged.separates

    # At most 5 % by Holm's procedure; 0.1 is that and three standard errors over 200 repetitions.
    assert found / 200 <= 0.1
