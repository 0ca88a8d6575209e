"""The cells of a page: a mechanism on a task, with its drawings."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from synthbench.reports.cells import Estimate, Key, MechanismFacts, Row, TaskFacts, is_known
from synthbench.reports.render.page import charts
from synthbench.reports.report import Report
from synthbench.reports.table import Cell, ladder_cell

_METRICS = (("validation", "accuracy"), ("validation", "loss"), ("train", "loss"))
"""Splits and metrics of learning curves; the first that a cell has is drawn."""

Curves = dict[Any, pd.DataFrame]
"""Curves by the labels of task and mechanism, split and metric."""


@dataclass(frozen=True)
class Result:
    """One cell: a mechanism on a task."""

    task: TaskFacts
    mechanism: MechanismFacts
    estimate: Estimate
    interval: tuple[float, float]
    """Ends of the interval of the mean skill; NaN if unknown."""
    bar: charts.Bar | None
    failures: str
    """The statuses of runs without a score, with counts; empty if there are none."""
    is_tied: bool
    """True if mechanisms differ on the task, but this one is not shown to differ from the best."""
    curve: charts.Curve | None
    score: Cell | None
    """The formatted score on a ladder; None if scores are accuracies."""

    @property
    def load(self) -> float:
        """The capacity, for sorting; NaN without a ladder."""
        return self.task.ladder.sortable(self.estimate.load_at_half) if self.task.ladder else math.nan


def results(report: Report) -> dict[tuple[Key, Key], Result]:
    """Return every cell that has rows, by the keys of its task and mechanism."""
    cells = report.cells
    curves: Curves = {}
    if report.averages is not None:
        curves = dict(list(report.averages.groupby(["task", "mechanism", "split", "metric"], observed=True)))
    shown = {}
    for task, mechanism, estimate in cells:
        keys = (task.key, mechanism.key)
        if keys not in cells.estimates:
            continue
        verdict = report.verdicts[task.key]
        interval = cells.skill_interval(task, mechanism)
        failures = Counter(_failure(run) for run in estimate.rows if run["status"] != "ok")
        shown[keys] = Result(
            task=task,
            mechanism=mechanism,
            estimate=estimate,
            interval=interval,
            bar=charts.bar(estimate.skill, *interval),
            failures=", ".join(f"{count} {status}" for status, count in sorted(failures.items())),
            is_tied=mechanism.key in verdict.near_best,
            curve=_curve(curves, task, mechanism),
            score=ladder_cell(cells, verdict, mechanism, estimate.n) if task.ladder else None,
        )
    return shown


def _failure(row: Row) -> str:
    error = row["error_type"]
    return f"{row['status']} ({error})" if is_known(error) else str(row["status"])


def _curve(curves: Curves, task: TaskFacts, mechanism: MechanismFacts) -> charts.Curve | None:
    for split, metric in _METRICS:
        points = curves.get((task.label, mechanism.label, split, metric))
        bounds = (task.floor, task.ceiling) if metric == "accuracy" else None
        if points is not None and (drawn := charts.curve(points, metric=f"{split} {metric}", bounds=bounds)):
            return drawn
    return None
