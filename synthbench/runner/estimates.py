"""Estimates how long jobs will take, from the times in earlier rows of results or, without them, from the work.

The work of a run is the number of its tokens, weighted by the sequence length. Estimates decide only the order of jobs
and the displayed remaining time; they affect no number in a row.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from synthbench.canonical import canonical_json
from synthbench.training.cell import Cell

COST_KEYS = (
    ("device_type", "d_model", "n_layers", "task", "task_args", "mech", "mech_args"),
    ("device_type", "seq_len", "mech"),  # other options are allowed, such as another condition
    ("device_type", "seq_len", "mech_family"),
    ("device_type", "task_category", "mech_family"),
    ("device_type", "mech_family"),
    ("device_type",),
)
"""Sets of columns, most specific first; rows that agree on a set are assumed to take the same time per unit of work."""

TIMED = (
    *dict.fromkeys(name for key in COST_KEYS for name in key),
    *("steps_planned", "batch_size", "status", "ensemble_size", "wall_s"),
)
"""Columns that rows must have for estimates."""


def cost_columns(cell: Cell) -> dict[str, Any]:
    """Return the values that decide how long a run of a cell (task × mechanism) takes, by column name of a row."""
    model, training = cell.suite.model, cell.suite.training
    return {
        "device_type": cell.device_type,
        "d_model": model.model_dim,
        "n_layers": cell.num_layers,
        "task": cell.task_name,
        "task_args": canonical_json(cell.resolved_task_arguments),
        "task_category": cell.task.category(),
        "seq_len": cell.length,
        "mech": cell.mechanism_name,
        "mech_args": canonical_json(cell.resolved_mechanism_arguments),
        "mech_family": cell.mechanism.family,
        "steps_planned": training.steps,
        "batch_size": training.batch_size,
    }


def work(columns: Mapping[str, Any] | pd.DataFrame) -> Any:
    """Compute the work of one run: training tokens times ``1 + length / 64``.

    A token costs more in a long sequence.
    """
    length = columns["seq_len"]
    return columns["steps_planned"] * columns["batch_size"] * length * (1 + length / 64)


class Estimates:
    """Estimates the seconds of a run from the most similar earlier runs.

    The estimate is the run's amount of work (:func:`work`) times the median seconds per unit of work in these runs.

    Args:
        rows: Rows of results with the columns ``TIMED``, as :meth:`synthbench.results.Store.runs` returns them. Only
            rows with status ``ok`` or ``diverged`` are used. None if there are no rows.
    """

    def __init__(self, rows: pd.DataFrame | None = None) -> None:
        self._rates: dict[tuple[str, ...], Any] = {}
        if rows is None:
            return
        trained = rows[rows["status"].isin(("ok", "diverged"))]
        rates = trained["wall_s"] / trained["ensemble_size"] / work(trained)  # batched runs share their time
        for key in COST_KEYS:
            self._rates[key] = rates.groupby([trained[name] for name in key], observed=True).median().to_dict()

    def seconds(self, cell: Cell) -> float | None:
        """Estimate the seconds of one run; None if nothing was measured on this type of device."""
        columns = cost_columns(cell)
        for key, rates in self._rates.items():
            values = tuple(columns[name] for name in key)
            rate = rates.get(values if len(values) > 1 else values[0])
            if rate is not None:
                return float(rate * work(columns))
        return None

    def cost(self, cell: Cell) -> float:
        """Estimate the seconds of one run, to compare runs on one type of device.

        If no earlier run on this type of device is known, return the amount of work (:func:`work`) instead.
        """
        seconds = self.seconds(cell)
        return float(work(cost_columns(cell))) if seconds is None else seconds
