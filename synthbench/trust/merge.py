"""Merge the result rows of one store into another, which keeps its own row if both have a row of the same run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from synthbench.errors import UsageError
from synthbench.results.store import Store, only, rows_of
from synthbench.trust.audit import faults
from synthbench.trust.bundle import opened

_OUTCOME = ("status", "score", "n_correct", "n_eval_examples", "metrics")
"""Columns in which the same run, made twice, should agree; times, hosts and versions may differ."""


@dataclass(frozen=True)
class Merged:
    """The result of merging another store into a store."""

    source: str
    num_new: int
    num_known: int
    """Number of rows that are equal in both stores, bit by bit."""
    conflicts: tuple[dict[str, Any], ...]
    """Facts of the runs whose rows differ: ``ours`` was kept, and ``theirs`` was not copied."""
    left_out: dict[str, str]
    """Reasons why files and rows were not copied, by file or run."""


def merge(store: Store, source: Path) -> Merged:
    """Copy rows and learning curves into a store from ``source``: another store, a Parquet file of rows or a bundle.

    If both have a row of the same run, the row in ``store`` is kept, even if it is older. If the two rows have
    different checksums, this is reported as a conflict. A row is left out and reported if it does not fit the schema,
    if its checksum is wrong, or if its values contradict each other. A row whose learning curve is lost is left out and
    reported too. Records of verification are not copied. ``source`` is not changed.

    Raises:
        UsageError: If ``source`` is the folder of ``store`` itself.
        StoreError: If ``source`` cannot be read, if a newer synthbench wrote it, or if ``store`` cannot be written.
    """
    if source.resolve() == store.root.resolve():
        raise UsageError(f"{source} is the store that it would be merged into")
    now = datetime.now(UTC)
    with opened(source) as (other, _manifest), store.alone():
        their_rows = rows_of(other)
        ours, theirs = ({row["run_id"]: row for row in rows.to_pylist()} for rows in (rows_of(store), their_rows))
        wrong = {name: said[0] for name, row in theirs.items() if (said := faults(row, now))}
        both = sorted(ours.keys() & theirs.keys() - wrong.keys())
        differing = [name for name in both if ours[name]["row_sha256"] != theirs[name]["row_sha256"]]
        new = only(their_rows, theirs.keys() - ours.keys() - wrong.keys())
        num_new = store.add_of(other, new)
        left_out = {report.file: report.reason for report in other.quarantined}
    return Merged(
        str(source),
        num_new,
        len(both) - len(differing),
        tuple(_conflict(source, ours[name], theirs[name]) for name in differing),
        left_out | {f"run {name}": reason for name, reason in wrong.items()},
    )


def _conflict(source: Path, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Describe two different rows of one run by its suite, task, mechanism and seed, and some facts of both rows.

    ``is_outcome`` is True if the two rows differ in their results, not only in facts such as time and host.
    """
    shown = ("status", "score", "finished_at", "host_hash", "row_sha256")
    sides = {f"{side}_{name}": row[name] for name in shown for side, row in (("our", ours), ("their", theirs))}
    is_outcome = any(ours[name] != theirs[name] for name in _OUTCOME)
    named = {name: ours[name] for name in ("run_id", "suite", "task", "mech", "seed")}
    return {**named, "theirs_in": str(source), "is_outcome": is_outcome, **sides}
