"""Suite ``peers`` beside what other suites published of the same tasks at the same lengths of training."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
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
    mechanism_key,
    task_key,
)
from synthbench.reports.statistics import spread
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, grouped, interval_cell, sources_of

SUITE = "peers"
NEAR = 0.03
"""Distance from a published number that is called near."""
Measure = Literal["score", "skill"]


class PublishedNumber(NamedTuple):
    """A number that another suite published."""

    task: str
    mechanism: str
    arguments: dict[str, object]
    """Arguments that the mechanism has; others may be anything."""
    factors: tuple[int, ...]
    """Multiples of the length of the training, over which our mean is taken; theirs is over lengths in their range."""
    measure: Measure
    """Accuracy, or accuracy scaled so that chance is 0 and perfect is 1."""
    value: float
    """A fraction, as printed."""
    source: str
    setting: str
    """What the published protocol does otherwise than the suite."""
    cause: str
    """The likely cause of a difference; empty where there is hardly one."""


class Comparison(NamedTuple):
    """A published number and ours."""

    published: PublishedNumber
    task: TaskFacts
    mechanism: MechanismFacts
    ours: Estimate
    """Scores by seed of the same measure, means over the multiples; nothing else of it is filled."""
    trained: Estimate
    """The same at the length of the training: what is low there was not learned, rather than not extended."""


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


def compare(of: Cells, records: Sequence[Row]) -> list[Comparison]:
    """Every published number whose task and mechanism are in the rows, tested at all its lengths.

    Args:
        of: The cells of a report on suite ``peers``.
        records: Their rows.
    """
    scored = [row for row in records if row["status"] == "ok"]
    found = []
    for number in published_numbers():
        for task in of.tasks:
            for mechanism in of.mechanisms:
                if not _is_of(number, task, mechanism):
                    continue
                own = [row for row in scored if (task_key(row), mechanism_key(row)) == (task.key, mechanism.key)]
                ours = _estimate(number, own)
                if ours.n:
                    trained = _estimate(number._replace(factors=(1,)), own)
                    found.append(Comparison(number, task, mechanism, ours, trained))
    return found


def peers_table(of: Cells, records: Sequence[Row]) -> Table | None:
    """Published numbers beside ours, one line each; None if there is nothing to compare.

    Args:
        of: As for :func:`compare`.
        records: As there.
    """
    compared = compare(of, records)
    if not compared:
        return None
    num_near = sum(abs(one.ours.mean - one.published.value) <= NEAR for one in compared)
    return Table(
        name="peers",
        title="Against other suites",
        caption=(
            "Numbers that other suites published beside ours at the same lengths of training: accuracy, or skill where "
            "theirs is scaled so that chance is 0. Ours: mean over seeds at the lengths named, a multiple of the "
            "training's each, with its 95 % t interval for other seeds, too narrow where some seeds learn and some "
            "fail; theirs often the best of many runs. At 1×: ours at the length of the training. What is high there "
            "and low beyond was learned and not extended; what is low there was not learned in our steps."
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
                (one.task.label, one.mechanism.label),
                (
                    Cell(", ".join(f"{factor}×" for factor in one.published.factors)),
                    Cell({"score": "accuracy", "skill": "skill"}[one.published.measure]),
                    Cell(fixed(one.published.value, 3)),
                    _ours(one.ours),
                    Cell(fixed(one.ours.mean - one.published.value, 3, is_signed=True)),
                    Cell(fixed(one.trained.mean, 3)),
                    Cell(one.published.cause or NOTHING),
                    Cell(one.published.setting),
                    Cell(one.published.source),
                ),
            )
            for one in compared
        ),
        sources=sources_of(
            (one.task for one in compared),
            (one.mechanism for one in compared),
            (one.published.source for one in compared),
        ),
        outcome=f"{num_near} of {len(compared)} published numbers lie within {NEAR:g} of ours.",
    )


def _is_of(number: PublishedNumber, task: TaskFacts, mechanism: MechanismFacts) -> bool:
    return (task.name, mechanism.name) == (number.task, number.mechanism) and number.arguments.items() <= json.loads(
        mechanism.arguments
    ).items()


def _estimate(number: PublishedNumber, rows: Sequence[Row]) -> Estimate:
    """The mean over the multiples of a number, by seed; of a run that was not tested at all of them there is none."""
    values = {int(row["seed"]): _values(number, json.loads(row["metrics"]), row) for row in rows}
    means = {seed: float(np.mean(found)) for seed, found in values.items() if len(found) == len(number.factors)}
    return replace(NO_ROWS, scores=means)


def _values(number: PublishedNumber, metrics: dict[str, float], row: Row) -> list[float]:
    """What one run has at the multiples of the number, those that it was not tested at left out."""
    found: list[Any] = [
        row[number.measure] if factor == 1 else metrics.get(f"x{factor}.{number.measure}") for factor in number.factors
    ]
    return [float(value) for value in found if is_known(value)]


def _ours(cell: Estimate) -> Cell:
    variance, _, dof = spread(np.array([[list(cell.scores.values())]], dtype=float))
    interval = t_interval(cell.mean, math.sqrt(variance[0, 0] / cell.n), float(dof[0, 0]), low=-math.inf)
    return interval_cell(interval, show=lambda number: fixed(number, 3))


def _measure(text: str) -> Measure:
    if text not in get_args(Measure):
        raise ValueError(f"measure is {text!r}; allowed: {', '.join(get_args(Measure))}")
    return "skill" if text == "skill" else "score"
