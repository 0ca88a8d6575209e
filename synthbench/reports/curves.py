"""Learning curves of many runs, averaged over seeds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from synthbench.reports.cells import Cells, Row, mechanism_key, task_key


def mean_curves(cells: Cells, records: Sequence[Row], curves: pd.DataFrame) -> pd.DataFrame:
    """Learning curves averaged over seeds. A run that stopped early keeps its last value to the end of its cell.

    Otherwise a mean would fall when the seeds that have learned the task stop.

    Args:
        cells: The cells of a report.
        records: Their rows, and any others.
        curves: Points of any runs in long form: run_id, step, split, metric, value.

    Returns:
        A row for each task, mechanism, split, metric and step, in printed order: mean and sample standard deviation in
        the metric's own unit, and n, the number of seeds that have the point or stopped before it.
    """
    task_rank = {task.key: rank for rank, task in enumerate(cells.tasks)}
    mechanism_rank = {mechanism.key: rank for rank, mechanism in enumerate(cells.mechanisms)}
    owners = pd.DataFrame(
        [
            (row["run_id"], row["seed"], task_rank[task_key(row)], mechanism_rank[mechanism_key(row)])
            for row in records
            if row["status"] == "ok" and task_key(row) in task_rank
        ],
        columns=["run_id", "seed", "task", "mechanism"],
    )
    run, names = curves["run_id"].factorize()
    owner = pd.Index(owners["run_id"]).get_indexer(names)[run]
    is_owned = owner >= 0
    points = owners.iloc[owner[is_owned]].reset_index(drop=True)
    for name in ("split", "metric", "step", "value"):
        points[name] = curves[name].array[is_owned]
    points = points.astype({"split": "category", "metric": "category", "value": "float64"})
    parts = [_of_one_task(group) for _rank, group in points.groupby("task")] or [_of_one_task(points)]
    averages = pd.concat(parts, ignore_index=True)
    averages["task"] = [cells.tasks[rank].label for rank in averages["task"]]
    averages["mechanism"] = [cells.mechanisms[rank].label for rank in averages["mechanism"]]
    return averages


_CURVE = ["task", "mechanism", "split", "metric"]


def _of_one_task(points: pd.DataFrame) -> pd.DataFrame:
    """The averages of one task. Its runs have much the same steps, so the points fit a dense array."""
    curve = points.groupby(_CURVE, observed=True).ngroup().to_numpy()
    curves = points[_CURVE].iloc[np.unique(curve, return_index=True)[1]]
    (seed, seeds), (step, steps) = (pd.factorize(points[name], sort=True) for name in ("seed", "step"))
    values = np.full((len(curves), len(seeds), len(steps)), np.nan)
    values[curve, seed, step] = points["value"]
    is_there = np.zeros((len(curves), len(steps)), dtype=bool)
    is_there[curve, step] = True
    # Each gap is filled by the last value before it.
    places = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(len(steps))), axis=-1)
    values = np.take_along_axis(values, places, axis=-1)
    is_known = ~np.isnan(values)
    count = is_known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(is_known, values, 0).sum(axis=1) / count
        std = np.sqrt(np.where(is_known, (values - mean[:, None]) ** 2, 0).sum(axis=1) / (count - 1))
    of_curve, at_step = np.nonzero(is_there)
    return curves.iloc[of_curve].assign(step=steps[at_step], mean=mean[is_there], std=std[is_there], n=count[is_there])
