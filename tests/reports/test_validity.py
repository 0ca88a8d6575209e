"""The study of validity on rows of which it is known what they should say."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthbench.bits import BITS
from synthbench.canonical import canonical_json
from synthbench.errors import UsageError
from synthbench.reports import correlation
from synthbench.reports.cells import grid
from synthbench.reports.selection import select
from synthbench.reports.validity import (
    PARAMETERS,
    STATE,
    SYNTHETIC,
    Study,
    files_of,
    predictions_of,
    studies_of,
    tables_of,
)
from synthbench.results import Store

MakeRow = Callable[..., dict[str, Any]]
TASKS = ("mqar", "in_context_recall", "selective_copying", "parity_running", "bucket_sort")
TEXTS = ("sha256-aa", "sha256-bb")
NO_CURVES = pd.DataFrame({"run_id": [], "step": [], "split": [], "metric": [], "value": []})


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correlation, "NUM_DRAWS", 200)


@pytest.fixture(scope="module")
def ladders() -> pd.DataFrame:
    """Some of the committed rows of climb."""
    rows = Store.open(Path(__file__).parents[2] / "results", create=False).runs()
    return rows[(rows["suite"] == SYNTHETIC) & rows["task"].isin(TASKS) & rows["seed"].isin([1, 2])]


@pytest.fixture(scope="module")
def heights(ladders: pd.DataFrame) -> dict[str, float]:
    """Mean height of every complete mechanism that is no control; unweighted."""
    cells = grid(select(ladders, SYNTHETIC).without_variants().rows)
    means = {one.name: [cells.cell(task, one).mean for task in cells.tasks] for one in cells.mechanisms}
    controls = {one.name for one in cells.mechanisms if one.family == "control"}
    return {
        name: float(np.mean(of_tasks))
        for name, of_tasks in means.items()
        if name not in controls and not np.isnan(of_tasks).any()
    }


def text_rows(
    make_row: MakeRow, bits: dict[str, float], *, texts: tuple[str, ...] = TEXTS, match: str | None = None
) -> pd.DataFrame:
    """Rows of a language model with about these bits; the mechanism at place n has n parameters."""
    rows = []
    for text in texts:
        for place, (name, mean) in enumerate(bits.items(), start=1):
            for seed in (1, 2):
                score = mean + 0.001 * seed
                metrics = {"repeated.bits": score - 1, "other.bits": score + 0.1, "validation_bits": score}
                rows.append(
                    make_row(
                        suite="text", task="text", task_category="real", seq_len=128, seed=seed, mech=name,
                        mech_label=name, mech_family=f"family {place % 6}", match=match and f"{match} of {name}",
                        task_args=canonical_json({"corpus": text, "length": 128}), metric_name=BITS, score=-score,
                        skill=None, floor=-4.7, ceiling=0.0, local_ceiling=None, metrics=canonical_json(metrics),
                        n_params_mixer=place, state_size=100 - place, step_ms_median=5.0, steps_planned=600,
                    )
                )  # fmt: skip
    return pd.DataFrame(rows)


def study_of(rows: pd.DataFrame, curves: pd.DataFrame = NO_CURVES) -> Study:
    return studies_of(rows, curves)[0]


def test_an_order_that_is_the_same_on_both_sides_has_rho_one(
    ladders: pd.DataFrame, heights: dict[str, float], make_row: MakeRow
) -> None:
    rows = pd.concat([ladders, text_rows(make_row, {name: 3 - height for name, height in heights.items()})])
    study = study_of(rows)
    predictions = predictions_of([study])

    assert {one.name for one in study.mechanisms} == set(heights)
    by_hand = study.predictors[f"{SYNTHETIC}, every task alike"]
    np.testing.assert_allclose(by_hand, [heights[one.name] for one in study.mechanisms])
    for outcome in study.outcomes.values():
        assert float(correlation.spearman(by_hand, outcome[""])) == pytest.approx(1)
        np.testing.assert_allclose(outcome["repeated"] - outcome["other"], 1.1)
    assert predictions[0].came_true
    assert [one.came_true for one in predictions[1:3]] == [None, None]  # no matched and no published rows
    assert not predictions[3].came_true  # both kinds of bytes have the same order


def test_the_wrong_order_and_one_text_are_said(
    ladders: pd.DataFrame, heights: dict[str, float], make_row: MakeRow
) -> None:
    reversed_order = {name: 1 + height for name, height in heights.items()}
    both = predictions_of([study_of(pd.concat([ladders, text_rows(make_row, reversed_order)]))])
    one_text = [study_of(pd.concat([ladders, text_rows(make_row, reversed_order, texts=TEXTS[:1])]))]

    assert both[0].came_true is False
    assert "−" in both[0].found
    assert {prediction.came_true for prediction in predictions_of(one_text)} == {None}


def test_what_the_number_of_parameters_explains_is_taken_out(
    ladders: pd.DataFrame, heights: dict[str, float], make_row: MakeRow
) -> None:
    ordered = dict(sorted(((name, 3 - height) for name, height in heights.items()), key=lambda one: one[1]))
    study = study_of(pd.concat([ladders, text_rows(make_row, ordered)]))
    (correlations,) = [table for table in tables_of([study]) if table.name == "correlations"]
    line = next(line for line in correlations.lines if line.labels[1] == f"{PARAMETERS} alone")

    # The n-th in bits has n parameters and a state of 100 - n, so either tells all.
    assert abs(float(line.cells[1].value.replace("−", "-"))) == 1
    assert line.cells[3].value == "--"
    np.testing.assert_allclose(study.covariates[PARAMETERS] + study.covariates[STATE], 100)


def test_matched_rows_are_a_condition_of_their_own(
    ladders: pd.DataFrame, heights: dict[str, float], make_row: MakeRow
) -> None:
    as_they_are = text_rows(make_row, {name: 3 - height for name, height in heights.items()})
    matched = text_rows(make_row, dict.fromkeys(heights, 2.0) | {"softmax": 1.0}, match="params=18816")
    studies = studies_of(pd.concat([ladders, as_they_are, matched]), NO_CURVES)
    files = files_of(studies, tables_of(studies))

    assert [study.condition for study in studies] == ["as they are", "matched in parameters"]
    assert predictions_of(studies)[1].came_true is not None
    assert str(files["README.md"]).startswith("# Validity\n\nDoes the mean height")
    assert len(str(files["mechanisms.csv"]).splitlines()) == 1 + 2 * len(heights)


def test_the_model_early_in_its_training_is_a_predictor(
    ladders: pd.DataFrame, heights: dict[str, float], make_row: MakeRow
) -> None:
    rows = text_rows(make_row, {name: 3 - height for name, height in heights.items()})
    early = {name: number for number, name in enumerate(heights)}
    points = [
        {"run_id": row["run_id"], "step": step, "split": "validation", "metric": "loss", "value": value}
        for row in rows.to_dict("records")
        for step, value in ((60, early[row["mech"]]), (120, -1.0))
    ]
    study = study_of(pd.concat([ladders, rows]), pd.DataFrame(points))

    for values in study.early.values():
        assert values.tolist() == [-early[one.name] for one in study.mechanisms]


def test_too_few_mechanisms_and_two_settings_are_refused(
    ladders: pd.DataFrame, heights: dict[str, float], make_row: MakeRow
) -> None:
    few = text_rows(make_row, dict.fromkeys(list(heights)[:3], 2.0))
    other = few.assign(mech_args=json.dumps({"R": 5}), run_id=few["run_id"].str[::-1])

    with pytest.raises(UsageError, match="3 mechanisms have all ladders of climb and rows of text"):
        studies_of(pd.concat([ladders, few]), NO_CURVES)
    with pytest.raises(UsageError, match="has two settings"):
        studies_of(pd.concat([ladders, few, other]), NO_CURVES)


def test_without_curves_it_is_not_known_how_the_model_began(
    ladders: pd.DataFrame, heights: dict[str, float], make_row: MakeRow
) -> None:
    study = study_of(pd.concat([ladders, text_rows(make_row, {name: 3 - height for name, height in heights.items()})]))

    assert all(math.isnan(value) for values in study.early.values() for value in values)
    assert predictions_of([study])[4].came_true is None
