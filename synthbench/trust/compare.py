"""Compare a run with its re-run: bit by bit or, where not every bit can agree, within a tolerance."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import pandas as pd

from synthbench.results import Store
from synthbench.results.schema import RUN_COLUMNS

Row = Mapping[str, Any]
STANDARD_ERRORS = 4.0
"""Tolerance on other devices or versions, in standard errors of the difference of scores on two test sets."""
SEED_DEVIATIONS = 3.0
"""Tolerance in standard deviations of a cell's scores over seeds, if larger than the ``STANDARD_ERRORS`` tolerance.

Changing every gradient by 3e-7 of its value, to imitate another device, moved scores by up to 2.7 standard deviations.
"""
LARGEST_TOLERANCE = 0.1
"""Largest difference of scores that confirms a row; a larger one within the tolerance is ``undecided``."""

SAME_NUMBERS = (
    *("device_type", "device_name", "num_threads", "dtype", "amp", "compiled", "tf32", "deterministic"),
    *("synthbench_version", "torch", "numpy", "cuda", "ensemble_size", "ensemble_index"),
)
"""If all of these columns agree, a re-run on a CPU, or with deterministic algorithms, must equal the row to the last
bit."""

RESULTS = {
    column.name: column for column in RUN_COLUMNS if column.decided_by == "training" and column.name != "metrics"
}
"""Columns decided by training, by name; ``metrics`` and the learning curve are compared separately."""

EVERYWHERE = ("status", "n_params", "n_params_mixer", "state_size", "n_eval_examples")
"""Columns of ``RESULTS`` that are equal on every device."""

Verdict = Literal["bitwise", "tolerance", "undecided", "differs", "not run"]
"""Result of a comparison. ``undecided``: device or versions differ, and scores scatter too much over seeds to tell."""


def curves_of(store: Store, run_ids: Iterable[str]) -> dict[str, pd.DataFrame]:
    """Read the learning curves of some runs, with run ids as keys; the times of the points are left out."""
    frame = store.curves(run_ids)
    return {
        str(name): points[["step", "split", "metric", "value", "tokens"]].reset_index(drop=True)
        for name, points in frame.groupby("run_id", sort=False)
    }


def tolerance_of(row: Row, deviation: float, standard_error: float | None = None) -> float:
    """Compute how far a re-run's score may be from the score in a row if the device or the versions differ.

    Different rounding changes the course of training as another seed would. So two tolerances are computed: one for the
    spread of scores over seeds, and one for the difference of one model's scores on two test sets of the same size. The
    larger one is returned, in units of the score.

    Args:
        row: The recorded row.
        deviation: Standard deviation over seeds of the scores of the same mechanism on the same task.
        standard_error: Standard error of the re-run's score if it was measured on a new test set; None if both scores
            are from the same test set.
    """
    if row["score"] is None:
        return 0.0
    if standard_error is None:
        # A score of exactly 0 or 1 has an error too: that of one target more or less.
        count = row["n_eval_examples"]
        share = min(max(row["score"], 1 / count), 1 - 1 / count) if count > 1 else 0.5
        standard_error = math.sqrt(share * (1 - share) / count)
    return max(STANDARD_ERRORS * math.sqrt(2) * standard_error, SEED_DEVIATIONS * deviation)


def judged(
    row: Row,
    again: Row | None,
    curves: tuple[pd.DataFrame | None, pd.DataFrame | None],
    tolerance: float,
    *,
    is_asked: bool = False,
) -> tuple[Verdict, str]:
    """Decide whether a re-run confirms a row; return the :data:`Verdict` and a text with the reason.

    Args:
        row: The recorded row.
        again: The row that the re-run made; None if it made no row.
        curves: Learning curves of the recorded run and of the re-run; None for a missing curve.
        tolerance: Allowed difference of the scores, if the runs cannot be expected to agree bit by bit.
        is_asked: True if the two scores are from different test sets. Only two things are then compared: the scores,
            and columns that are the same on all devices, such as the number of parameters.
    """
    if again is None:
        return "not run", "it made no row"
    if limited := [run["status"] for run in (row, again) if run["status"] in ("timeout", "oom")]:
        return "not run", f"{limited[0]}: limits differ between machines"
    if is_asked:
        fixed = [name for name in EVERYWHERE if name != "n_eval_examples" and row[name] != again[name]]
        return _judged_elsewhere(row, again, fixed, "other questions", tolerance)
    changed = _changed(row, again)
    curve, curve_again = curves
    if curve is not None and (curve_again is None or not curve.equals(curve_again)):
        changed.append("curve")
    if not changed:
        without = "" if curve is not None or row["curve_sha256"] is None else "; its learning curve is not here"
        return "bitwise", f"every number{without}"
    other = [name for name in SAME_NUMBERS if row[name] != again[name]]
    if not other and (again["device_type"] == "cpu" or again["deterministic"]):
        return "differs", f"same device and versions, other {', '.join(changed)}"
    return _judged_elsewhere(row, again, changed, f"other {', '.join(other) or 'order of sums'}", tolerance)


def _judged_elsewhere(row: Row, again: Row, changed: list[str], reason: str, tolerance: float) -> tuple[Verdict, str]:
    """Return verdict and reason for a re-run whose last bits may differ from those of the row.

    ``changed`` lists the columns that differ, and ``reason`` states why the last bits may differ.
    """
    if certain := [name for name in changed if name in EVERYWHERE]:
        return "differs", ", ".join(f"{name} is {row[name]} and now {again[name]}" for name in certain)
    distance = 0.0 if row["score"] is None or again["score"] is None else abs(row["score"] - again["score"])
    if distance > tolerance:
        return "differs", f"{reason}, which explains {tolerance:.4f}"
    return "tolerance" if distance <= LARGEST_TOLERANCE else "undecided", reason


def _changed(row: Row, again: Row) -> list[str]:
    """List the result columns and metrics that differ between a row and its re-run."""
    stated = [
        name for name, column in RESULTS.items() if row[name] is not None or column.since <= row["schema_version"]
    ]
    # The rate is chosen in training where the suite tunes.
    changed = [name for name in (*stated, "lr") if not equal(row[name], again[name])]
    metrics, metrics_again = json.loads(row["metrics"]), json.loads(again["metrics"])
    changed += [f"metrics.{name}" for name, value in metrics.items() if not equal(value, metrics_again.get(name))]
    return changed


def equal(value: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values are equal. Floats may differ by up to ``tolerance``, and NaN equals NaN."""
    if isinstance(value, float) and isinstance(other, int | float):
        return bool((math.isnan(value) and math.isnan(other)) or abs(value - other) <= tolerance or value == other)
    return bool(value == other)
