"""Tables of tasks with prototypes: accuracy, what is left of it when prototypes are inverted, how they grew."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from synthbench.reports.aggregates import Interval, t_interval
from synthbench.reports.cells import Cells, MechanismFacts, Runs, TaskFacts, is_known
from synthbench.reports.table import Cell, Column, Line, Table, fixed, interval_cell, percent, sources_of

_PREFIX = "prototypes."
"""Begins the names of metrics that only such rows have."""
LINEAR = "softmax"
"""The mechanism whose kernel is an inner product."""

CAPTION = (
    "Accuracy in per cent on the test, with 95 % intervals over seeds (t distribution) for these images. Against the "
    "inner product: difference in points from the mechanism whose kernel that is, seed by seed. Inverted: accuracy "
    "with −w in the place of every prototype w. Growth: change of the mean length of the prototypes in training, in "
    "per cent. Alpha: exponent of the learned scale, 1 at first. Below the mechanisms: references. Floor: {floor} %."
)


def prototype_tables(cells: Cells, runs: Runs) -> tuple[Table, ...]:
    """A table for each task: a row for each mechanism, the most often right first, then one for each reference.

    Args:
        cells: Of tasks with prototypes only.
        runs: The rows of all cells.
    """
    return tuple(
        replace(_table(cells.among([task]), task, runs), name=f"prototypes-{number}")
        for number, task in enumerate(cells.tasks, start=1)
    )


def prototype_verdict(cells: Cells, runs: Runs) -> str:
    """Who is most often right, and whether the inner product is shown to be worse, in sentences."""
    return " ".join(_verdict(cells.among([task]), task, runs) for task in cells.tasks)


def _verdict(cells: Cells, task: TaskFacts, runs: Runs) -> str:
    ranked = [mechanism for mechanism in cells.ranked(task) if cells.cell(task, mechanism).n]
    if not ranked:
        return f"No mechanism has a score on {task.label}."
    best = ranked[0]
    sentence = f"On {task.label}, {best.label} is right most often, in {percent(cells.cell(task, best).mean)} %"
    gain = _interval(_gains(task, best, cells, runs), -1.0, 1.0)
    if best.name == LINEAR or math.isnan(gain.low):
        return f"{sentence}."
    points = f"{fixed(100 * gain.value, 1)} ({fixed(100 * gain.low, 1)} to {fixed(100 * gain.high, 1)}) points"
    return f"{sentence}: {points} more than the inner product."


def _table(cells: Cells, task: TaskFacts, runs: Runs) -> Table:
    shown: tuple[tuple[str, Callable[[MechanismFacts], Cell]], ...] = (
        ("accuracy, %", lambda mechanism: _percents(_scores(task, mechanism, runs))),
        ("against the inner product", lambda mechanism: _percents(_gains(task, mechanism, cells, runs), least=-1.0)),
        ("inverted, %", lambda mechanism: _percents(_metric(task, mechanism, runs, "inverted_accuracy"))),
        ("growth, %", lambda mechanism: _percents(_metric(task, mechanism, runs, "growth"), -1.0, math.inf)),
        ("alpha", lambda mechanism: interval_cell(_interval(_metric(task, mechanism, runs, "alpha")))),
    )
    ranked = cells.ranked(task)
    counts = {cells.cell(task, mechanism).n for mechanism in ranked} - {0}
    lines = []
    for mechanism in ranked:
        estimate = cells.cell(task, mechanism)
        first, *others = (cell(mechanism) for _, cell in shown)
        remarks = [*first.remarks, *([f"n = {estimate.n}"] if len(counts) > 1 and estimate.n else [])]
        remarks += [f"{estimate.num_failed} failed"] if estimate.num_failed else []
        lines.append(Line((mechanism.label,), (replace(first, remarks=tuple(remarks)), *others)))
    of_task = [row for (key, _), of_cell in runs.items() if key == task.key for row in of_cell]
    references = {
        name.removeprefix("reference."): reached
        for row in sorted(of_task, key=lambda row: row["finished_at"])
        for name, reached in json.loads(row["metrics"]).items()
        if name.startswith("reference.")
    }
    for position, (name, reached) in enumerate(sorted(references.items())):
        cell = Cell(percent(reached))
        lines.append(Line((name,), (cell, *[Cell("")] * (len(shown) - 1)), is_first_of_group=position == 0))
    return Table(
        name="prototypes",
        title=task.label,
        caption=CAPTION.format(floor=percent(task.floor)),
        headings=("Mechanism",),
        columns=tuple(Column(label) for label, _ in shown),
        lines=tuple(lines),
        sources=sources_of([task], cells.mechanisms),
    )


def _scores(task: TaskFacts, mechanism: MechanismFacts, runs: Runs) -> dict[int, float]:
    rows = runs.get((task.key, mechanism.key), ())
    return {int(row["seed"]): float(row["score"]) for row in rows if is_known(row["score"])}


def _metric(task: TaskFacts, mechanism: MechanismFacts, runs: Runs, name: str) -> dict[int, float]:
    rows = runs.get((task.key, mechanism.key), ())
    found = {int(row["seed"]): json.loads(row["metrics"]).get(_PREFIX + name) for row in rows}
    return {seed: float(value) for seed, value in found.items() if value is not None}


def _gains(task: TaskFacts, mechanism: MechanismFacts, cells: Cells, runs: Runs) -> dict[int, float]:
    """Accuracy less that of the inner product, of the seeds that both have."""
    linear = next((other for other in cells.mechanisms if other.name == LINEAR), None)
    if linear is None or linear == mechanism:
        return {}
    own, of_linear = _scores(task, mechanism, runs), _scores(task, linear, runs)
    return {seed: own[seed] - of_linear[seed] for seed in own if seed in of_linear}


def _interval(numbers: Mapping[int, float], least: float = -math.inf, most: float = math.inf) -> Interval:
    """The mean of some runs with its 95 % interval."""
    values = np.array(list(numbers.values()))
    if not len(values):
        return Interval(math.nan, math.nan, math.nan)
    error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan
    return t_interval(float(values.mean()), error, len(values) - 1.0, low=least, high=most)


def _percents(numbers: Mapping[int, float], least: float = 0.0, most: float = 1.0) -> Cell:
    return interval_cell(_interval(numbers, least, most), percent)
