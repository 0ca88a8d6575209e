"""How long a job will take: from rows that were measured, else a guess; for the order of jobs and for the ETA.

An estimate decides when a job begins and what is said of the rest, and no number in a row.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from synthbench.canonical import canonical_json
from synthbench.training.cell import Cell

KINSHIPS = (
    ("device_type", "d_model", "n_layers", "task", "task_args", "mech", "mech_args"),
    ("device_type", "seq_len", "mech"),  # with other options: a layer in another condition
    ("device_type", "seq_len", "mech_family"),
    ("device_type", "task_category", "mech_family"),
    ("device_type", "mech_family"),
    ("device_type",),
)
"""Columns that two rows share if they need equal time for equal work, from cell and mechanism to family and device."""

TRAITS = (*dict.fromkeys(name for kinship in KINSHIPS for name in kinship), "steps_planned", "batch_size")
"""Columns that decide how long a member takes."""

TIMED = (*TRAITS, "status", "ensemble_size", "wall_s")
"""Columns of the rows that an estimate is taken from."""


def traits_of(cell: Cell) -> dict[str, Any]:
    """The traits of a cell, by column of its rows."""
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


def work(traits: Mapping[str, Any] | pd.DataFrame) -> Any:
    """Work of one member, in tokens, each of which costs more in a longer sequence. Takes columns too."""
    length = traits["seq_len"]
    return traits["steps_planned"] * traits["batch_size"] * length * (1 + length / 64)


class Estimates:
    """Seconds of one member, by what is nearest among measured rows: the median seconds for as much work.

    Args:
        rows: Rows with the columns ``TIMED``, as :meth:`synthbench.results.Store.runs` gives them; those without a
            finished training do not count. None: nothing was measured.
    """

    def __init__(self, rows: pd.DataFrame | None = None) -> None:
        self._rates: dict[tuple[str, ...], dict[tuple[Any, ...], float]] = {}
        if rows is None:
            return
        trained = rows[rows["status"].isin(("ok", "diverged"))]
        # Members that train as one program share its time.
        rates = trained["wall_s"] / trained["ensemble_size"] / work(trained)
        for kinship in KINSHIPS:
            by_kin = rates.groupby([trained[name] for name in kinship], observed=True).median()
            self._rates[kinship] = {_key(kin): float(rate) for kin, rate in by_kin.items()}

    def share_s(self, traits: Mapping[str, Any]) -> float | None:
        """Seconds of one member; None if nothing was measured on such a device."""
        for kinship, rates in self._rates.items():
            kin = tuple(traits[name] for name in kinship)
            if kin in rates:
                return rates[kin] * float(work(traits))
        return None

    def cost(self, traits: Mapping[str, Any]) -> float:
        """Seconds of one member, or its work if nothing was measured on such a device: comparable on one device."""
        share_s = self.share_s(traits)
        return float(work(traits)) if share_s is None else share_s


def _key(kin: Any) -> tuple[Any, ...]:
    """What pandas calls a group of one column is no tuple."""
    return kin if isinstance(kin, tuple) else (kin,)
