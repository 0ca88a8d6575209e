"""Learning curves of many runs, averaged over seeds."""

import pandas as pd

from synthbench.reports.cells import Cells


def mean_curves(cells: Cells, curves: pd.DataFrame) -> pd.DataFrame:
    """Average the learning curves of each mechanism on each task over seeds.

    If a run stopped early, its curve is continued with its last value, up to the last step of the longest run.
    Otherwise, the mean would fall whenever a run stops because it has learned the task.

    Args:
        cells: The cells of a report (mechanism × task), which name the runs.
        curves: Learning curves, one row per point, with columns run_id, step, split, metric and value. Runs outside the
            report are ignored.

    Returns:
        One row per task, mechanism, split, metric and step, in the order of the report. Columns mean and std (sample
        standard deviation) have the unit of the metric. Column n counts the seeds with a value at this step or an
        earlier step.
    """
    owners = pd.DataFrame(
        [
            (row["run_id"], row["seed"], task_rank, mechanism_rank)
            for task_rank, task in enumerate(cells.tasks)
            for mechanism_rank, cell in enumerate(cells.cells_of(task))
            for row in cell.rows
            if row["status"] == "ok"
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
