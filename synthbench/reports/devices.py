"""On what rows were made, and how long a run took there."""

from collections.abc import Iterable

import numpy as np

from synthbench.reports.grid import Row, is_known


def device_of(row: Row) -> str:
    """Type and model of what a row was made on."""
    return f"{row['device_type']} ({row['device_name']})"


def run_seconds(rows: Iterable[Row]) -> dict[str, float]:
    """Median seconds of training of one run, by device; those of a job are shared by the members that it trained."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        if is_known(row["train_s"]):
            seconds.setdefault(device_of(row), []).append(float(row["train_s"]) / int(row["ensemble_size"]))
    return {device: float(np.median(seconds[device])) for device in sorted(seconds)}
