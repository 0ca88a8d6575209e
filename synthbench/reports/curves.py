"""Learning curves of many runs, averaged over seeds."""

from collections.abc import Sequence

import pandas as pd

from synthbench.reports.grid import Grid, Row, mechanism_key, task_key


def mean_curves(of: Grid, records: Sequence[Row], curves: pd.DataFrame) -> pd.DataFrame:
    """Learning curves averaged over seeds. A run that stopped early keeps its last value to the end of its cell.

    Without that a mean would fall where the seeds that have learned the task leave it.

    Args:
        of: The cells of a report.
        records: Their rows.
        curves: Points of any runs in long form: run_id, step, split, metric, value.

    Returns:
        One line for each task, mechanism, split, metric and step (steps), in printed order: mean and sample standard
        deviation in the metric's own unit, and n, the number of seeds that have the point or stopped before it.
    """
    task_rank = {task.key: rank for rank, task in enumerate(of.tasks)}
    mechanism_rank = {mechanism.key: rank for rank, mechanism in enumerate(of.mechanisms)}
    owners = pd.DataFrame(
        [
            (row["run_id"], row["seed"], task_rank[task_key(row)], mechanism_rank[mechanism_key(row)])
            for row in records
            if row["status"] == "ok"
        ],
        columns=["run_id", "seed", "task", "mechanism"],
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
