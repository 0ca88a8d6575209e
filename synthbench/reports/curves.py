"""Learning curves of many runs, averaged over seeds."""

import pandas as pd

from synthbench.reports.grid import grid, mechanism_key, task_key


def mean_curves(rows: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Learning curves averaged over seeds. A run that stopped early keeps its last value to the end of its cell.

    Without that a mean would fall where the seeds that have learned the task leave it.

    Args:
        rows: Rows of a report.
        curves: Points of any runs in long form: run_id, step, split, metric, value.

    Returns:
        One line for each task, mechanism, split, metric and step (steps), in printed order: mean and sample standard
        deviation in the metric's own unit, and n, the number of seeds that have the point or stopped before it.
    """
    of = grid(rows)
    task_rank = {task.key: rank for rank, task in enumerate(of.tasks)}
    mechanism_rank = {mechanism.key: rank for rank, mechanism in enumerate(of.mechanisms)}
    finished = rows[rows["status"] == "ok"]
    owners = pd.DataFrame(
        {
            "run_id": finished["run_id"],
            "seed": finished["seed"],
            "task": [task_rank[task_key(row)] for row in finished.to_dict("records")],
            "mechanism": [mechanism_rank[mechanism_key(row)] for row in finished.to_dict("records")],
        }
    )
    points = curves.merge(owners, on="run_id").astype({"value": "float64"})
    curve = ["task", "mechanism", "split", "metric"]
    by = [*curve, "step"]
    points = points[[*by, "seed", "value"]]
    steps, members = (points[[*curve, one]].drop_duplicates() for one in ("step", "seed"))
    complete = members.merge(steps, on=curve).merge(points, on=[*by, "seed"], how="left")
    complete = complete.sort_values([*curve, "seed", "step"], kind="stable")
    complete["value"] = complete.groupby([*curve, "seed"])["value"].ffill()
    # Sorted by seed before it is summed: the last bits of a mean must not depend on the order of the files.
    grouped = complete.sort_values([*by, "seed"], kind="stable").groupby(by)["value"]
    averages = grouped.agg(["mean", "std", "count"]).reset_index().rename(columns={"count": "n"})
    averages["task"] = [of.tasks[rank].label for rank in averages["task"]]
    averages["mechanism"] = [of.mechanisms[rank].label for rank in averages["mechanism"]]
    return averages
