"""What the literature predicts of a mechanism's class, beside what was measured."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

from synthbench.reports.against.published import lines_of
from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import Cells, MechanismFacts
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, grouped, interval_cell, sources_of

Verdict = Literal["fail", "partly", "pass"]
Class = Literal["softmax", "additive", "gated", "delta", "signed", "nonlinear"]

PASSED, FAILED = 0.9, 0.5
"""Mean skills from which a mechanism passes, and below which it fails."""

CLASSES: dict[str, Class] = {
    "softmax": "softmax",
    "linear": "additive",
    "performer": "additive",
    "performer-exp": "additive",
    "slay": "additive",
    "retention": "gated",
    "gla": "gated",
    "mamba2": "gated",
    "deltanet": "delta",
    "lstm": "nonlinear",
}
"""Which class of the literature a mechanism belongs to: attention by softmax, a state that is only added to, one that
decays by gates from 0 to 1, one that is overwritten by a delta rule, and a nonlinear recurrence. A delta rule whose
eigenvalues reach -1 is a class of its own. A mechanism that is not here has no prediction."""


class Prediction(NamedTuple):
    """What is predicted of a class on a task."""

    task: str
    factor: int
    """Multiple of the length or load of the training: 1 is in range."""
    of_class: Class
    verdict: Verdict
    source: str


class Comparison(NamedTuple):
    """A prediction and what was measured."""

    prediction: Prediction
    mechanism: MechanismFacts
    skill: Interval
    """Mean over seeds at the prediction's multiple; NaN if it was not measured."""

    @property
    def verdict(self) -> Verdict | None:
        """What the skill amounts to; None if it was not measured."""
        return None if math.isnan(self.skill.value) else _verdict_of(self.skill.value)

    @property
    def agreement(self) -> str:
        """``agrees``; ``half``, where one of both is partly; ``disagrees``; or nothing if it was not measured."""
        if self.verdict is None:
            return ""
        if self.verdict == self.prediction.verdict:
            return "agrees"
        return "half" if "partly" in (self.verdict, self.prediction.verdict) else "disagrees"

    @property
    def is_open(self) -> bool:
        """Whether it does not agree, and the interval of the skill reaches into what was predicted."""
        if self.verdict is None or self.agreement == "agrees" or math.isnan(self.skill.low):
            return False
        order = get_args(Verdict)
        low, high = (order.index(_verdict_of(end)) for end in self.skill[1:])
        return low <= order.index(self.prediction.verdict) <= high


class Agreement(NamedTuple):
    """How some predictions did, beside what needs no knowledge."""

    num_predictions: int
    num_agreeing: int
    kappa: float
    """Agreement beyond chance; NaN where chance alone agrees on everything.

    Source: Cohen (1960).
    """
    guess: Verdict
    """The outcome that was measured most often."""
    num_guessed: int
    """How many predictions of that outcome, whatever the task and mechanism, would agree."""

    def __str__(self) -> str:
        kappa = "" if math.isnan(self.kappa) else f", Cohen's κ {fixed(self.kappa, 2)}"
        return (
            f"{self.num_agreeing} of {self.num_predictions} agree{kappa}; predicting “{self.guess}” of everything "
            f"would agree with {self.num_guessed}"
        )


def agreement(compared: Sequence[Comparison]) -> Agreement:
    """Count what agrees."""
    num_agreeing = sum(one.agreement == "agrees" for one in compared)
    predicted = Counter(one.prediction.verdict for one in compared)
    measured = Counter(_verdict_of(one.skill.value) for one in compared)
    by_chance = sum(predicted[verdict] * measured[verdict] for verdict in get_args(Verdict)) / len(compared) ** 2
    observed = num_agreeing / len(compared)
    guess = max(get_args(Verdict), key=measured.__getitem__)
    return Agreement(
        num_predictions=len(compared),
        num_agreeing=num_agreeing,
        kappa=(observed - by_chance) / (1 - by_chance) if by_chance < 1 else math.nan,
        guess=guess,
        num_guessed=measured[guess],
    )


def summary(compared: Sequence[Comparison]) -> str:
    """The outcome in a sentence or two, in range and out of range apart."""
    ranges = {
        "At the length or load of the training": [one for one in compared if one.prediction.factor == 1],
        "Beyond it": [one for one in compared if one.prediction.factor > 1],
    }
    found = [f"{words} {agreement(own)}." for words, own in ranges.items() if own]
    num_open = sum(one.is_open for one in compared)
    found += [f"{num_open} of the others reach the prediction with their interval."] if num_open else []
    return " ".join(found)


@cache
def predictions() -> tuple[Prediction, ...]:
    """All predictions, in the order of the data."""
    return tuple(
        Prediction(
            line["task"], int(line["test"].removeprefix("x")), of_class, _verdict(line[of_class]), line["source"]
        )
        for line in lines_of("predictions.csv")
        for of_class in get_args(Class)
        if line[of_class]
    )


def class_of(mechanism: MechanismFacts) -> Class | None:
    """The class of the literature that a mechanism belongs to; None if it is none of them."""
    of_class = CLASSES.get(mechanism.name)
    is_signed = json.loads(mechanism.arguments).get("eigenvalues") == "signed"
    return "signed" if of_class == "delta" and is_signed else of_class


def compare(of: Cells) -> list[Comparison]:
    """Every prediction on a task and mechanism that the rows have; a task at several sizes counts at each."""
    return [
        Comparison(prediction, mechanism, of.skill(task, mechanism, prediction.factor))
        for prediction in predictions()
        for task in of.tasks
        if task.name == prediction.task
        for mechanism in of.mechanisms
        if class_of(mechanism) == prediction.of_class and of.cell(task, mechanism).n
    ]


def prediction_table(of: Cells) -> Table | None:
    """What was predicted and what was measured, one line a task and mechanism; None if nothing was predicted."""
    compared = [one for one in compare(of) if one.verdict is not None]
    if not compared:
        return None
    compared.sort(key=lambda one: one.prediction.factor > 1)
    names = {one.prediction.task for one in compared}
    return Table(
        name="predictions",
        title="Predictions of the literature",
        caption=(
            f"Measured: pass from a mean skill of {PASSED:g}, fail below {FAILED:g}, else partly; "
            "half: one of both is partly. Skill with the 95 % interval for this task and other seeds. ×: multiple of "
            "the length or load of the training. The literature speaks of models that were trained longer, at larger "
            "sizes."
        ),
        headings=("Task", "Mechanism"),
        columns=(
            Column("Test"),
            Column("Predicted", "word"),
            Column("Measured", "word"),
            Column("Skill"),
            Column("Agreement", "word"),
            Column("Source", "word"),
        ),
        lines=grouped(
            Line(
                (one.prediction.task, one.mechanism.label),
                (
                    Cell(f"{one.prediction.factor}×"),
                    Cell(one.prediction.verdict),
                    Cell(one.verdict or NOTHING),
                    interval_cell(one.skill),
                    Cell(f"{one.agreement}, open" if one.is_open else one.agreement),
                    Cell(one.prediction.source),
                ),
            )
            for one in compared
        ),
        sources=sources_of(
            (task for task in of.tasks if task.name in names), (), (one.prediction.source for one in compared)
        ),
        outcome=summary(compared),
    )


def _verdict_of(skill: float) -> Verdict:
    return "pass" if skill >= PASSED else "partly" if skill >= FAILED else "fail"


def _verdict(text: str) -> Verdict:
    if text not in get_args(Verdict):
        raise ValueError(f"predictions.csv has {text!r}; allowed: {', '.join(get_args(Verdict))}")
    return "pass" if text == "pass" else "partly" if text == "partly" else "fail"
