"""Learning curves of many runs, averaged over seeds."""

from collections.abc import Sequence

import pandas as pd

from synthbench.reports.cells import Cells, Row, mechanism_key, task_key


def mean_curves(cells: Cells, records: Sequence[Row], curves: pd.DataFrame) -> pd.DataFrame:
    """Average learning curves over seeds. A run that stopped early keeps its last value to the end of its cell.

    Otherwise a mean would fall when the seeds that have learned the task stop.

    Args:
        cells: The cells of a report.
        records: Their rows, and any others.
        curves: Points of any runs in long form: run_id, step, split, metric, value.

    Returns:
        A row for each task, mechanism, split, metric and step, in printed order. It has mean and sample standard
        deviation in the metric's own unit, and n, the number of seeds that have the point or stopped before it.
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
    curve = ["task", "mechanism", "split", "metric"]
    known = curves[curves["run_id"].isin(owners["run_id"])]
    points = known.astype({"run_id": str, "split": str, "metric": str, "value": "float64"}).merge(owners, on="run_id")
    of_runs = points.pivot_table(index=[*curve, "step"], columns="seed", values="value", aggfunc="last")
    filled = of_runs.groupby(level=curve).ffill()
    averages = pd.DataFrame({"mean": filled.mean(axis=1), "std": filled.std(axis=1), "n": filled.count(axis=1)})
    averages = averages.reset_index()
    averages["task"] = [cells.tasks[rank].label for rank in averages["task"]]
    averages["mechanism"] = [cells.mechanisms[rank].label for rank in averages["mechanism"]]
    return averages
