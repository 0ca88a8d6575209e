"""Tables of tasks with prototypes: accuracy, what inversion leaves of it, how they grew; of labels P@k and PSP@k."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from synthbench.reports.aggregates import Interval, t_interval
from synthbench.reports.cells import Cells, MechanismFacts, Runs, TaskFacts, is_known
from synthbench.reports.table import Cell, Column, Line, Table, fixed, interval_cell, percent, sources_of

_PREFIX = "prototypes."
"""Begins the names of metrics that only such rows have."""
JAIN = "jain2016propensity"
"""Key of the paper that the propensities of labels are from."""
LINEAR = "softmax"
"""The mechanism whose kernel is an inner product."""

CAPTION = (
    "Accuracy in per cent on the test, with 95 % intervals over seeds (t distribution) for these images. Against the "
    "inner product: difference in points from the mechanism whose kernel that is, seed by seed. Inverted: accuracy "
    "with −w in the place of every prototype w. Growth: change of the mean length of the prototypes in training, in "
    "per cent. Alpha: exponent of the learned scale, 1 at first. Below the mechanisms: references. Floor: {floor} %."
)


PRECISION = (
    "Precision at k in per cent: the share of right labels among the first k, over the documents of the test, with "
    "95 % intervals over seeds (t distribution) for these documents. Against the inner product: difference of P@1 in "
    "points from the mechanism whose kernel that is, seed by seed. Alpha: exponent of the learned scale, 1 at first. "
    "Below the mechanisms: references. Floor of P@1: {floor} %."
)

PROPENSITY = (
    "Precision at k in which a right label counts as 1 over its propensity, so that rare labels count more, with the "
    "propensities of Jain et al. (2016) at A = 0.55 and B = 1.5. PSP@k: in per cent of the most that any ranking could "
    "reach. Unnormalised: not divided by that, so it can be more than 1, as in SLAY (table 4) and Neural Matter "
    "Networks (table 2)."
)

Shown = Sequence[tuple[str, Callable[[MechanismFacts], Cell]]]
"""The columns of a table: heading, and the cell of each mechanism."""


def prototype_tables(cells: Cells, runs: Runs) -> tuple[Table, ...]:
    """A table or two for each task: a row for each mechanism, the most often right first, then one for each reference.

    Args:
        cells: Of tasks with prototypes only.
        runs: The rows of all cells.
    """
    return tuple(
        replace(table, name=table.name.replace("prototypes", f"prototypes-{number}", 1))
        for number, task in enumerate(cells.tasks, start=1)
        for table in _tables(cells.among([task]), task, runs)
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


def _tables(cells: Cells, task: TaskFacts, runs: Runs) -> list[Table]:
    def percents(name: str, least: float = 0.0, most: float = 1.0) -> Callable[[MechanismFacts], Cell]:
        return lambda mechanism: _percents(_metric(task, mechanism, runs, name), least, most)

    def numbers(name: str) -> Callable[[MechanismFacts], Cell]:
        return lambda mechanism: interval_cell(_interval(_metric(task, mechanism, runs, name)))

    def right(heading: str) -> Shown:
        return (
            (heading, lambda mechanism: _percents(_scores(task, mechanism, runs))),
            (
                "against the inner product",
                lambda mechanism: _percents(_gains(task, mechanism, cells, runs), least=-1.0),
            ),
        )

    alpha = ("alpha", numbers(_PREFIX + "alpha"))
    if not any(_metric(task, mechanism, runs, "PSP@1") for mechanism in cells.mechanisms):
        others = (
            ("inverted, %", percents(_PREFIX + "inverted_accuracy")),
            ("growth, %", percents(_PREFIX + "growth", -1.0, math.inf)),
        )
        return [_table(cells, task, runs, CAPTION, (*right("accuracy, %"), *others, alpha))]
    deeper = [(f"{name}, %", percents(name)) for name in ("P@3", "P@5")]
    normalised = [(f"{name}, %", percents(name)) for name in ("PSP@1", "PSP@3", "PSP@5")]
    sums = [(name, numbers(name)) for name in ("unnormalised PSP@1", "unnormalised PSP@3", "unnormalised PSP@5")]
    precision = _table(cells, task, runs, PRECISION, (*right("P@1, %"), *deeper, alpha))
    propensity = _table(cells, task, runs, PROPENSITY, (*normalised, *sums), others=[JAIN], has_references=False)
    return [precision, replace(propensity, name="prototypes-propensity", title=f"{task.label}, rare labels")]


def _table(
    cells: Cells,
    task: TaskFacts,
    runs: Runs,
    caption: str,
    shown: Shown,
    *,
    others: Sequence[str] = (),
    has_references: bool = True,
) -> Table:
    ranked = cells.ranked(task)
    counts = {cells.cell(task, mechanism).n for mechanism in ranked} - {0}
    lines = []
    for mechanism in ranked:
        estimate = cells.cell(task, mechanism)
        first, *rest = (cell(mechanism) for _, cell in shown)
        remarks = [*first.remarks, *([f"n = {estimate.n}"] if len(counts) > 1 and estimate.n else [])]
        remarks += [f"{estimate.num_failed} failed"] if estimate.num_failed else []
        lines.append(Line((mechanism.label,), (replace(first, remarks=tuple(remarks)), *rest)))
    of_task = [row for (key, _), of_cell in runs.items() if key == task.key for row in of_cell]
    references = {
        name.removeprefix("reference."): reached
        for row in sorted(of_task, key=lambda row: row["finished_at"])
        for name, reached in json.loads(row["metrics"]).items()
        if name.startswith("reference.") and has_references
    }
    for position, (name, reached) in enumerate(sorted(references.items())):
        cell = Cell(percent(reached))
        lines.append(Line((name,), (cell, *[Cell("")] * (len(shown) - 1)), is_first_of_group=position == 0))
    return Table(
        name="prototypes",
        title=task.label,
        caption=caption.format(floor=percent(task.floor)),
        headings=("Mechanism",),
        columns=tuple(Column(label) for label, _ in shown),
        lines=tuple(lines),
        sources=sources_of([task], cells.mechanisms, others),
    )


def _scores(task: TaskFacts, mechanism: MechanismFacts, runs: Runs) -> dict[int, float]:
    rows = runs.get((task.key, mechanism.key), ())
    return {int(row["seed"]): float(row["score"]) for row in rows if is_known(row["score"])}


def _metric(task: TaskFacts, mechanism: MechanismFacts, runs: Runs, name: str) -> dict[int, float]:
    rows = runs.get((task.key, mechanism.key), ())
    found = {int(row["seed"]): json.loads(row["metrics"]).get(name) for row in rows}
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
