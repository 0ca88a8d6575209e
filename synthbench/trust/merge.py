"""Rows of one store into another: what both have once, and where they disagree neither is lost."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from synthbench.errors import UsageError
from synthbench.results.store import Store, curves_of, only, rows_of
from synthbench.trust.audit import faults
from synthbench.trust.bundle import opened

_OUTCOME = ("status", "score", "n_correct", "n_eval_examples", "metrics")
"""Columns in which the same run, made twice, should agree; times, hosts and versions may differ."""


@dataclass(frozen=True)
class Conflict:
    """Two rows of one run; ours was kept, theirs is where it was."""

    run_id: str
    theirs_in: str
    ours: dict[str, Any]
    theirs: dict[str, Any]

    @property
    def is_outcome(self) -> bool:
        """True if they disagree in how the run ended, not only in when and where it was made."""
        return any(self.ours[name] != self.theirs[name] for name in _OUTCOME)

    def as_facts(self) -> dict[str, Any]:
        """Both sides of what tells them apart, for printing."""
        shown = ("status", "score", "finished_at", "host_hash", "row_sha256")
        sides = {
            f"{side}_{name}": row[name] for name in shown for side, row in (("our", self.ours), ("their", self.theirs))
        }
        named = {name: self.ours[name] for name in ("suite", "task", "mech", "seed")}
        return {"run_id": self.run_id, **named, "theirs_in": self.theirs_in, "is_outcome": self.is_outcome, **sides}


@dataclass(frozen=True)
class Merged:
    """The result of merging another store."""

    source: str
    num_new: int
    num_known: int
    """Rows that are in both, to the last bit."""
    conflicts: tuple[Conflict, ...]
    left_out: dict[str, str]
    """Items not taken, with reasons: files that cannot be read, and rows that contradict themselves."""


def merge(store: Store, source: Path) -> Merged:
    """Take the rows and curves of another store, a Parquet file of rows or a bundle into a store.

    The same run with the same checksum counts once. With another checksum ours stays, whichever is newer, and theirs
    is named; the other store is not changed. Rows are as hostile as any input: those that fail the schema, their own
    checksum, the audit, or that lost their curve are left out and named. What the other store says of verifications
    stays there.

    Raises:
        UsageError: If it is this store.
        StoreError: If the other one cannot be read, a newer synthbench wrote it, or this one cannot be written.
    """
    if source.resolve() == store.root.resolve():
        raise UsageError(f"{source} is the store that it would be merged into")
    now = datetime.now(UTC)
    with opened(source) as (other, _manifest), store.alone():
        their_rows = rows_of(other)
        wrong = {row["run_id"]: said[0] for row in their_rows.to_pylist() if (said := faults(row, now))}
        ours, theirs = _by_run(rows_of(store)), _by_run(their_rows)
        both = sorted(ours.keys() & theirs.keys() - wrong.keys())
        differing = [name for name in both if ours[name]["row_sha256"] != theirs[name]["row_sha256"]]
        new = only(their_rows, theirs.keys() - ours.keys() - wrong.keys())
        curves, lost = curves_of(other, new)
        new = only(new, set(new["run_id"].to_pylist()) - lost)
        store.add(new, curves)
        left_out = {report.file: report.reason for report in other.quarantined}
    return Merged(
        str(source),
        new.num_rows,
        len(both) - len(differing),
        tuple(Conflict(name, str(source), ours[name], theirs[name]) for name in differing),
        left_out | {f"run {name}": reason for name, reason in wrong.items()},
    )


def _by_run(rows: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in rows.to_pylist()}
