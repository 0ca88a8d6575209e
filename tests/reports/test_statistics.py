import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from synthbench.reports.statistics import (
    COLUMNS,
    SIGNIFICANCE,
    combined_error,
    grid,
    holm,
    mean_curves,
    not_separable,
    paired_p,
    pairs,
)
from synthbench.results.schema import RUN_COLUMNS

MakeFrame = Callable[..., pd.DataFrame]

fractions = st.lists(st.floats(0, 1), min_size=2, max_size=8)
probabilities = st.lists(st.floats(0, 1), min_size=0, max_size=12)


def test_everything_that_is_read_is_a_column_of_the_store() -> None:
    assert set(COLUMNS) <= {column.name for column in RUN_COLUMNS}


def test_cells_agree_with_pandas(paper: pd.DataFrame) -> None:
    of = grid(paper)
    expected = paper[paper["status"] == "ok"].groupby(["task", "mech"])["score"].agg(["mean", "std", "sem", "count"])

    for row in expected.reset_index().to_dict("records"):
        task, mech = row["task"], row["mech"]
        (task_facts,) = (one for one in of.tasks if one.name == task)
        (mechanism,) = (one for one in of.mechanisms if one.name == mech)
        cell = of.cell(task_facts, mechanism)
        assert (cell.mean, cell.std, cell.standard_error) == pytest.approx((row["mean"], row["std"], row["sem"]))
        assert cell.n == row["count"]
    assert sum(cell.n for cell in of.cells.values()) == expected["count"].sum()
    assert sum(cell.num_failed for cell in of.cells.values()) == (paper["status"] != "ok").sum()


def test_the_interval_is_that_of_scipy(make_frame: MakeFrame) -> None:
    scores = [0.1, 0.4, 0.35, 0.8]
    (cell,) = grid(make_frame({"slay": scores})).cells.values()
    expected = stats.t.interval(0.95, len(scores) - 1, np.mean(scores), stats.sem(scores))

    assert cell.interval == pytest.approx(expected)


def test_one_seed_has_neither_spread_nor_interval(make_frame: MakeFrame) -> None:
    (cell,) = grid(make_frame({"slay": [0.3]})).cells.values()

    assert cell.mean == 0.3
    assert all(map(math.isnan, (cell.std, cell.standard_error, *cell.interval)))


def test_a_run_that_ended_well_without_a_score_has_failed(make_frame: MakeFrame) -> None:
    (cell,) = grid(make_frame({"slay": [0.3, None]}, status="ok")).cells.values()

    assert (cell.n, cell.num_failed) == (1, 1)


def test_evaluation_noise_is_read_from_the_metrics(make_frame: MakeFrame) -> None:
    known = make_frame({"slay": [0.3, 0.4]}, metrics='{"score_std_over_sequences": 0.2}')
    unknown = make_frame({"slay": [0.3, 0.4]}, metrics='{"score_std_over_sequences": null}')

    (cell,) = grid(known).cells.values()
    assert cell.evaluation_std == pytest.approx(0.2)
    assert cell.evaluation_error == pytest.approx(0.2 / math.sqrt(2 * 1000))
    (cell,) = grid(unknown).cells.values()
    assert math.isnan(cell.evaluation_error)


@given(scores=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), min_size=2, max_size=8))
def test_the_paired_test_is_that_of_scipy_where_differences_vary(scores: list[tuple[int, int]]) -> None:
    first, second = ({seed: pair[side] / 64 for seed, pair in enumerate(scores)} for side in (0, 1))
    differences = [a - b for a, b in scores]

    if len(set(differences)) > 1:
        expected = float(stats.ttest_rel(list(first.values()), list(second.values())).pvalue)
    else:
        expected = 1.0 if differences[0] == 0 else 0.0
    assert paired_p(first, second) == pytest.approx(expected, abs=1e-12)


def test_a_difference_that_varies_in_the_last_bits_only_is_constant() -> None:
    first = {seed: 0.1 * seed for seed in range(1, 6)}
    second = {seed: score + 0.3 for seed, score in first.items()}
    last_bits = {seed: score * (1 + 1e-15) for seed, score in first.items()}

    assert paired_p(first, second) == 0
    assert paired_p(first, last_bits) == 1


def test_only_common_seeds_are_paired() -> None:
    first, second = {1: 0.1, 2: 0.5, 3: 0.4, 9: 1.0}, {1: 0.2, 2: 0.4, 3: 0.1, 7: 0.0}
    expected = stats.ttest_rel([0.1, 0.5, 0.4], [0.2, 0.4, 0.1]).pvalue

    assert paired_p(first, second) == pytest.approx(expected)
    assert paired_p({1: 0.0, 2: 0.1}, {2: 0.9, 3: 1.0}) == 1


@given(p=probabilities)
def test_holm_rejects_what_the_step_down_procedure_rejects(p: list[float]) -> None:
    rejected = set()
    for step, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[index] * (len(p) - step) >= SIGNIFICANCE:
            break
        rejected.add(index)

    adjusted = holm(np.array(p, dtype=float))
    assert {index for index, value in enumerate(adjusted) if value < SIGNIFICANCE} == rejected
    assert all(adjusted >= np.array(p) - 1e-15)
    assert all(adjusted <= 1)


def test_holm_agrees_with_the_example_worked_by_hand() -> None:
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.03])), [0.06, 0.03, 0.06])


def test_errors_combine_by_their_squares() -> None:
    assert combined_error(3.0, 4.0) == pytest.approx(5.0)


def test_pairs_are_those_of_mechanisms_with_a_score(make_frame: MakeFrame) -> None:
    of = grid(make_frame({"slay": [0.1, 0.2], "linear": [0.3, 0.3], "yat": [None, None], "performer": [0.5]}))
    found = {(pair.first.name, pair.second.name): pair.p for pair in pairs(of)}

    assert set(found) == {("performer", "linear"), ("performer", "slay"), ("linear", "slay")}
    assert found["performer", "slay"] == 1
    assert found["linear", "slay"] == pytest.approx(stats.ttest_rel([0.1, 0.2], [0.3, 0.3]).pvalue)


def test_what_holm_leaves_open_is_not_separable_from_the_best(make_frame: MakeFrame) -> None:
    rng = np.random.default_rng(3)
    scores = {
        mech: list(mean + 0.01 * rng.standard_normal(5))
        for mech, mean in {"softmax": 0.9, "slay": 0.899, "linear": 0.5, "performer": 0.88}.items()
    }
    of = grid(make_frame(scores))
    tied = dict(zip((one.name for one in of.mechanisms), not_separable(of.cells_of(of.tasks[0])), strict=True))

    best = max(scores, key=lambda mech: float(np.mean(scores[mech])))
    others = [mech for mech in scores if mech != best]
    p = [float(stats.ttest_rel(scores[best], scores[mech]).pvalue) for mech in others]
    expected = {mech: bool(value >= 0.05) for mech, value in zip(others, holm(np.array(p)), strict=True)}
    assert tied == {best: False} | expected
    assert set(expected.values()) == {True, False}


def test_order_is_that_of_the_published_table_then_alphabetical(paper: pd.DataFrame) -> None:
    of = grid(paper.sample(frac=1, random_state=1))

    assert [one.label for one in of.mechanisms] == [
        "Standard", "Spherical-YAT", "Performer", "Linear", "SLAY", "Laplace-only", "Hadamard", "my-idea",
    ]  # fmt: skip
    assert of.categories == ("basic", "arithmetic", "memory", "patterns", "grammar")
    assert [task.name for task in of.tasks_of("basic")] == ["copy", "reverse"]


def test_labels_that_collide_name_what_differs(make_frame: MakeFrame) -> None:
    learned, espr = make_frame({"slay": [0.1]}), make_frame({"slay": [0.2], "linear": [0.3]}, positions="espr")
    impostor = make_frame({"stranger": [0.4]}, mech_label="SLAY")

    assert [one.label for one in grid(pd.concat([learned, espr])).mechanisms] == [
        "Linear", "SLAY (espr)", "SLAY (learned)",
    ]  # fmt: skip
    assert sorted(one.label for one in grid(pd.concat([learned, impostor])).mechanisms) == [
        "SLAY (slay)", "SLAY (stranger)",
    ]  # fmt: skip


def test_a_task_at_several_sizes_is_several_tasks_in_the_order_of_their_length(make_frame: MakeFrame) -> None:
    sizes = [make_frame({"slay": [size / 200]}, seq_len=size, task_args=f'{{"length":{size}}}') for size in (128, 64)]
    of = grid(pd.concat(sizes))

    assert [task.label for task in of.tasks] == ["sort (64)", "sort (128)"]
    assert [cell.mean for task in of.tasks for cell in of.cells_of(task)] == [0.32, 0.64]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suite_version": "2026.2"}, "versions of suites"),
        ({"task_version": "2+cc"}, "versions of tasks"),
        ({"mech_version": "2+cc"}, "versions of mechs"),
        ({"mech_args": '{"R":3}'}, "versions of mechs"),
        ({"run_id": "again"}, "repeat a seed"),
    ],
)
def test_rows_that_mix_versions_or_repeat_a_seed_are_refused(
    make_frame: MakeFrame, changes: dict[str, str], message: str
) -> None:
    rows = pd.concat([make_frame({"slay": [0.1]}), make_frame({"slay": [0.2]}, **changes)])

    with pytest.raises(ValueError, match=message):
        grid(rows)


def test_mean_curves_agree_with_pandas_and_forget_unknown_runs(paper: pd.DataFrame, paper_curves: pd.DataFrame) -> None:
    averages = mean_curves(paper, paper_curves)
    merged = paper_curves.merge(paper[paper["status"] == "ok"], on="run_id")
    expected = merged.groupby(["task", "mech_label", "step"])["value"].agg(["mean", "std", "count"])

    found = averages.set_index(["task", "mechanism", "step"])[["mean", "std", "n"]].sort_index()
    np.testing.assert_allclose(found.to_numpy(float), expected.sort_index().to_numpy(float), rtol=1e-5)
    assert len(averages) == 2 * len(grid(paper).cells) - 2


def test_a_run_that_stopped_early_keeps_its_last_value_in_the_mean(make_frame: MakeFrame) -> None:
    rows = make_frame({"slay": [0.5, 1.0]})
    slow, fast = rows["run_id"]
    points = [(slow, 20, 0.1), (slow, 40, 0.3), (fast, 20, 0.9)]
    curves = pd.DataFrame(points, columns=["run_id", "step", "value"]).assign(split="validation", metric="accuracy")

    averages = mean_curves(rows, curves).set_index("step")

    assert averages["mean"].to_dict() == pytest.approx({20: 0.5, 40: 0.6})
    assert averages["n"].to_dict() == {20: 2, 40: 2}
