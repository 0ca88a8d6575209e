"""Predictions of the literature beside what was measured."""

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from synthbench.mechanisms import MECHANISMS
from synthbench.reports.against.predictions import (
    CLASSES,
    Agreement,
    agreement,
    compare,
    prediction_table,
    predictions,
    summary,
)
from synthbench.reports.cells import grid
from synthbench.sources import bibtex
from synthbench.tasks import TASKS

MakeFrame = Callable[..., pd.DataFrame]


def cells(make_frame: MakeFrame, *made: tuple[str, str, list[float], dict[str, Any]]) -> pd.DataFrame:
    """Rows of some tasks and mechanisms, each with scores by seed and other changes."""
    frames = [make_frame({mech: scores}, task=task, **changes) for task, mech, scores, changes in made]
    rows = pd.concat(frames, ignore_index=True)
    return rows.assign(run_id=[str(number) for number in range(len(rows))])


def test_predictions_name_tasks_mechanisms_and_papers_that_exist() -> None:
    assert {prediction.task for prediction in predictions()} <= set(TASKS)
    assert set(CLASSES) <= set(MECHANISMS)
    assert bibtex({prediction.source for prediction in predictions()})


def test_a_measurement_agrees_half_agrees_or_disagrees(make_frame: MakeFrame) -> None:
    rows = cells(
        make_frame,
        ("s5_words", "softmax", [0.2, 0.4], {}),  # predicted: fail
        ("s5_words", "lstm", [0.3, 0.2], {}),  # predicted: pass
        ("overwrite_recall", "gla", [0.9, 1.0], {}),  # predicted: partly
        ("overwrite_recall", "yat", [0.9, 1.0], {}),  # nothing is predicted
        ("copy", "softmax", [1.0, 1.0], {}),  # nor here
    )
    found = {(one.prediction.task, one.mechanism.name): (one.verdict, one.agreement) for one in compare(grid(rows))}

    assert found == {
        ("overwrite_recall", "gla"): ("pass", "half"),
        ("s5_words", "softmax"): ("fail", "agrees"),
        ("s5_words", "lstm"): ("fail", "disagrees"),
    }


def test_out_of_range_predictions_are_judged_out_of_range(make_frame: MakeFrame) -> None:
    metrics = json.dumps({"x4.skill": 0.1})
    rows = cells(make_frame, ("parity_final", "softmax", [1.0, 1.0], {"metrics": metrics}))
    (one,) = compare(grid(rows))

    assert (one.prediction.factor, one.agreement) == (4, "agrees")
    assert one.skill.value == pytest.approx(0.1)
    without = compare(grid(cells(make_frame, ("parity_final", "softmax", [1.0, 1.0], {}))))
    assert [one.verdict for one in without] == [None]


def test_signed_eigenvalues_make_a_class_of_their_own(make_frame: MakeFrame) -> None:
    signed = {"mech_args": json.dumps({"eigenvalues": "signed"})}
    rows = cells(make_frame, ("s5_swaps", "deltanet", [1.0, 1.0], signed))

    assert [(one.prediction.of_class, one.agreement) for one in compare(grid(rows))] == [("signed", "agrees")]


def test_the_table_counts_what_agrees(make_frame: MakeFrame) -> None:
    rows = cells(make_frame, ("s5_words", "softmax", [0.2, 0.4], {}), ("s5_words", "lstm", [0.3, 0.2], {}))
    table = prediction_table(grid(rows))

    assert table is not None
    assert table.outcome.startswith(
        "At the length or load of the training 1 of 2 agree, Cohen's κ 0.00; predicting “fail” of everything would "
        "agree with 2."
    )
    assert [line.cells[-2].value for line in table.lines] == ["agrees", "disagrees"]
    assert "merrill2024illusion" in table.sources
    assert prediction_table(grid(cells(make_frame, ("copy", "softmax", [1.0], {})))) is None


def test_predictions_in_range_and_beyond_it_are_counted_apart(make_frame: MakeFrame) -> None:
    beyond = {"metrics": json.dumps({"x4.skill": 0.1})}
    rows = cells(
        make_frame,
        ("parity_final", "softmax", [1.0, 1.0], beyond),  # predicted at 4×: fail
        ("parity_final", "lstm", [1.0, 1.0], beyond),  # pass
        ("s5_words", "softmax", [0.2, 0.2], {}),  # fail
        ("s5_words", "lstm", [1.0, 1.0], {}),  # pass
    )
    found = compare(grid(rows))
    within = agreement([one for one in found if one.prediction.factor == 1])
    out_of_range = agreement([one for one in found if one.prediction.factor > 1])

    assert within == Agreement(2, 2, 1.0, "fail", 1)
    assert (out_of_range.num_agreeing, out_of_range.num_guessed, out_of_range.kappa) == (1, 2, 0.0)
    assert "2 of 2 agree, Cohen's κ 1.00" in summary(found)
    assert "Beyond it 1 of 2 agree, Cohen's κ 0.00; predicting “fail” of everything would agree with 2" in summary(
        found
    )


def test_kappa_is_that_of_the_example_worked_by_hand(make_frame: MakeFrame) -> None:
    """Three of four agree; by chance (2 · 3 + 2 · 1) / 16 = 0.5 do: κ = (0.75 - 0.5) / (1 - 0.5)."""
    rows = cells(
        make_frame,
        ("s5_words", "softmax", [0.2, 0.2], {}),  # fail, fails
        ("s5_words", "linear", [0.2, 0.2], {}),  # fail, fails
        ("s5_words", "lstm", [1.0, 1.0], {}),  # pass, passes
        ("a5_words", "lstm", [0.2, 0.2], {}),  # pass, fails
    )

    assert agreement(compare(grid(rows))).kappa == pytest.approx(0.5)


def test_a_disagreement_within_the_interval_is_open(make_frame: MakeFrame) -> None:
    """Learned with three of five seeds: a mean of 0.67 is no proof that it does not pass."""
    rows = cells(
        make_frame,
        ("overwrite_recall", "softmax", [0.26, 0.86, 0.99, 0.26, 0.96], {}),  # predicted: pass
        ("s5_words", "lstm", [0.21, 0.2, 0.22, 0.2, 0.21], {}),  # predicted: pass
    )

    assert [(one.agreement, one.is_open) for one in compare(grid(rows))] == [("half", True), ("disagrees", False)]
