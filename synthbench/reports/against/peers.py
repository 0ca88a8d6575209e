"""Suite ``peers`` beside numbers that other suites published on the same tasks at the same training lengths."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from synthbench.reports.against.published import lines_of
from synthbench.reports.aggregates import t_interval
from synthbench.reports.cells import (
    NO_ROWS,
    Cells,
    Estimate,
    MechanismFacts,
    Row,
    TaskFacts,
    is_known,
    runs_by_cell,
)
from synthbench.reports.statistics import spread
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, grouped, interval_cell, sources_of

SUITE = "peers"
NEAR = 0.03
"""Largest distance from a published number that counts as near."""
Measure = Literal["score", "skill"]


class PublishedNumber(NamedTuple):
    """A number that another suite published."""

    task: str
    mechanism: str
    arguments: dict[str, object]
    """Arguments that the mechanism must have."""
    factors: tuple[int, ...]
    """Multiples of the training length that our mean is over; theirs is over lengths in their range."""
    measure: Measure
    """Accuracy, or accuracy scaled so that chance is 0 and perfect is 1."""
    value: float
    """A fraction, as printed."""
    source: str
    setting: str
    """How the published protocol differs from the suite."""
    cause: str
    """The likely cause of a difference; empty if the difference is small."""


class Comparison(NamedTuple):
    """A published number and ours."""

    published: PublishedNumber
    task: TaskFacts
    mechanism: MechanismFacts
    ours: Estimate
    """Only its scores by seed are filled: means of the same measure over the multiples."""
    trained: Estimate
    """The same at the training length: what is low there was not learned, rather than not extended."""

    @property
    def difference(self) -> float:
        """Our mean − the published number."""
        return self.ours.mean - self.published.value


@cache
def published_numbers() -> tuple[PublishedNumber, ...]:
    """All numbers, in the order of the data."""
    return tuple(
        PublishedNumber(
            task=line["task"],
            mechanism=line["mechanism"],
            arguments=json.loads(line["mech_args"]),
            factors=tuple(int(test.removeprefix("x")) for test in line["tests"].split()),
            measure=_measure(line["measure"]),
            value=float(line["published"]),
            source=line["source"],
            setting=line["setting"],
            cause=line["cause"],
        )
        for line in lines_of("peers.csv")
    )


def compare(cells: Cells, records: Sequence[Row]) -> list[Comparison]:
    """Every published number whose task and mechanism are in the rows (as ``records``), tested at all its lengths."""
    runs = runs_by_cell(row for row in records if row["status"] == "ok")
    comparisons = []
    for number, task, mechanism in product(published_numbers(), cells.tasks, cells.mechanisms):
        if _is_of(number, task, mechanism):
            rows = runs.get((task.key, mechanism.key), [])
            ours = _estimate(number, rows)
            if ours.n:
                trained = _estimate(number._replace(factors=(1,)), rows)
                comparisons.append(Comparison(number, task, mechanism, ours, trained))
    return comparisons


def peers_table(cells: Cells, records: Sequence[Row]) -> Table | None:
    """Published numbers beside ours, one row each; None if there is nothing to compare."""
    comparisons = compare(cells, records)
    if not comparisons:
        return None
    num_near = sum(abs(comparison.difference) <= NEAR for comparison in comparisons)
    return Table(
        name="peers",
        title="Against other suites",
        caption=(
            "Numbers that other suites published, beside ours at the same training lengths: accuracy, or skill if "
            "theirs is scaled so that chance is 0. Ours: mean over seeds at the given multiples of the training "
            "length, with its 95 % t interval for other seeds (too narrow if only some seeds learn); theirs is often "
            "the best of many runs. At 1×: ours at the training length. A score that is high there and low beyond was "
            "learned but did not extend; one that is low there was not learned in our number of steps."
        ),
        headings=("Task", "Mechanism"),
        columns=(
            Column("Test"),
            Column("Measure", "word"),
            Column("Published"),
            Column("Ours"),
            Column("Difference"),
            Column("At 1×"),
            Column("Likely cause", "text"),
            Column("Their protocol", "text"),
            Column("Source", "word"),
        ),
        lines=grouped(
            Line(
                (comparison.task.label, comparison.mechanism.label),
                (
                    Cell(", ".join(f"{factor}×" for factor in comparison.published.factors)),
                    Cell({"score": "accuracy", "skill": "skill"}[comparison.published.measure]),
                    Cell(fixed(comparison.published.value, 3)),
                    _ours(comparison.ours),
                    Cell(fixed(comparison.difference, 3, is_signed=True)),
                    Cell(fixed(comparison.trained.mean, 3)),
                    Cell(comparison.published.cause or NOTHING),
                    Cell(comparison.published.setting),
                    Cell(comparison.published.source),
                ),
            )
            for comparison in comparisons
        ),
        sources=sources_of(
            (comparison.task for comparison in comparisons),
            (comparison.mechanism for comparison in comparisons),
            (comparison.published.source for comparison in comparisons),
        ),
        outcome=f"{num_near} of {len(comparisons)} published numbers lie within {NEAR:g} of ours.",
    )


def _is_of(number: PublishedNumber, task: TaskFacts, mechanism: MechanismFacts) -> bool:
    return (task.name, mechanism.name) == (number.task, number.mechanism) and number.arguments.items() <= json.loads(
        mechanism.arguments
    ).items()


def _estimate(number: PublishedNumber, rows: Sequence[Row]) -> Estimate:
    """The mean over the multiples of a number, by seed; runs that were not tested at all of them are left out."""
    values = {int(row["seed"]): _values(number, json.loads(row["metrics"]), row) for row in rows}
    means = {seed: float(np.mean(tested)) for seed, tested in values.items() if len(tested) == len(number.factors)}
    return replace(NO_ROWS, scores=means)


def _values(number: PublishedNumber, metrics: dict[str, float], row: Row) -> list[float]:
    """The results of one run at the multiples of the number at which it was tested."""
    values: list[Any] = [
        row[number.measure] if factor == 1 else metrics.get(f"x{factor}.{number.measure}") for factor in number.factors
    ]
    return [float(value) for value in values if is_known(value)]


def _ours(cell: Estimate) -> Cell:
    variance, _, dof = spread(np.array([[list(cell.scores.values())]], dtype=float))
    interval = t_interval(cell.mean, math.sqrt(variance[0, 0] / cell.n), float(dof[0, 0]), low=-math.inf)
    return interval_cell(interval, show=lambda number: fixed(number, 3))


def _measure(text: str) -> Measure:
    if text not in get_args(Measure):
        raise ValueError(f"measure is {text!r}; allowed: {', '.join(get_args(Measure))}")
    return "skill" if text == "skill" else "score"
