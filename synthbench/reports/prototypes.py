"""Tables of tasks with prototypes: accuracy, what inversion leaves of it, how they grew; of labels P@k and PSP@k."""

import json
import math
from collections.abc import Callable, Mapping

from synthbench.reports.aggregates import over_runs
from synthbench.reports.cells import Cells, MechanismFacts, Runs, TaskFacts, is_known
from synthbench.reports.table import Cell, Table, fixed, interval_cell, percent, ranked_table

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

Columns = dict[str, Callable[[MechanismFacts], Cell]]
"""What fills each column, by its heading."""


def prototype_tables(cells: Cells, runs: Runs) -> tuple[Table, ...]:
    """A table or two for each task: a row for each mechanism, the most often right first, then one for each reference.

    Args:
        cells: Of tasks with prototypes only.
        runs: The rows of all cells.
    """
    numbered = enumerate(cells.tasks, start=1)
    return tuple(
        table for number, task in numbered for table in _tables(cells.among([task]), task, runs, f"prototypes-{number}")
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
    gain = over_runs(list(_gains(task, best, cells, runs).values()), low=-1.0, high=1.0)
    if best.name == LINEAR or math.isnan(gain.low):
        return f"{sentence}."
    points = f"{fixed(100 * gain.value, 1)} ({fixed(100 * gain.low, 1)} to {fixed(100 * gain.high, 1)}) points"
    return f"{sentence}: {points} more than the inner product."


def _tables(cells: Cells, task: TaskFacts, runs: Runs, name: str) -> list[Table]:
    def percents(metric: str, least: float = 0.0, most: float = 1.0) -> Callable[[MechanismFacts], Cell]:
        return lambda mechanism: _percents(_numbers(task, mechanism, runs, metric), least, most)

    def numbers(metric: str) -> Callable[[MechanismFacts], Cell]:
        return lambda mechanism: interval_cell(over_runs([*_numbers(task, mechanism, runs, metric).values()]))

    def right(heading: str) -> Columns:
        return {
            heading: percents(""),
            "against the inner product": lambda one: _percents(_gains(task, one, cells, runs), least=-1.0),
        }

    of_task = [row for (key, _), of_cell in runs.items() if key == task.key for row in of_cell]
    references = {
        metric.removeprefix("reference."): percent(reached)
        for row in sorted(of_task, key=lambda row: row["finished_at"])
        for metric, reached in json.loads(row["metrics"]).items()
        if metric.startswith("reference.")
    }
    references = dict(sorted(references.items()))
    floor = percent(task.floor)
    alpha = {"alpha": numbers(_PREFIX + "alpha")}
    if not any(_numbers(task, mechanism, runs, "PSP@1") for mechanism in cells.mechanisms):
        others = {
            "inverted, %": percents(_PREFIX + "inverted_accuracy"),
            "growth, %": percents(_PREFIX + "growth", -1.0, math.inf),
        }
        columns, caption = right("accuracy, %") | others | alpha, CAPTION.format(floor=floor)
        return [ranked_table(cells, task, columns, references, name=name, title=task.label, caption=caption)]
    deeper = {f"{metric}, %": percents(metric) for metric in ("P@3", "P@5")}
    columns, caption = right("P@1, %") | deeper | alpha, PRECISION.format(floor=floor)
    normalised = {f"{metric}, %": percents(metric) for metric in ("PSP@1", "PSP@3", "PSP@5")}
    sums = {f"unnormalised PSP@{k}": numbers(f"unnormalised PSP@{k}") for k in (1, 3, 5)}
    return [
        ranked_table(cells, task, columns, references, name=name, title=task.label, caption=caption),
        ranked_table(
            cells,
            task,
            normalised | sums,
            {},
            name=f"{name}-propensity",
            title=f"{task.label}, rare labels",
            caption=PROPENSITY,
            others=[JAIN],
        ),
    ]


def _numbers(task: TaskFacts, mechanism: MechanismFacts, runs: Runs, metric: str) -> dict[int, float]:
    """A metric of the runs of a cell by seed; the score if it has no name."""
    found = {
        int(row["seed"]): json.loads(row["metrics"]).get(metric) if metric else row["score"]
        for row in runs.get((task.key, mechanism.key), ())
    }
    return {seed: float(value) for seed, value in found.items() if is_known(value)}


def _gains(task: TaskFacts, mechanism: MechanismFacts, cells: Cells, runs: Runs) -> dict[int, float]:
    """Accuracy less that of the inner product, of the seeds that both have."""
    linear = next((other for other in cells.mechanisms if other.name == LINEAR), None)
    if linear is None or linear == mechanism:
        return {}
    own, of_linear = _numbers(task, mechanism, runs, ""), _numbers(task, linear, runs, "")
    return {seed: own[seed] - of_linear[seed] for seed in own if seed in of_linear}


def _percents(numbers: Mapping[int, float], least: float = 0.0, most: float = 1.0) -> Cell:
    return interval_cell(over_runs(list(numbers.values()), low=least, high=most), percent)
