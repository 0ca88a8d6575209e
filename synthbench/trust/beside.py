"""The rows of another store beside one's own: read together, while neither store changes."""

from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import pandas as pd

from synthbench.errors import StoreError, UsageError
from synthbench.reports.selection import full_runs, version_shown
from synthbench.results import Quarantined, published
from synthbench.trust.bundle import opened

PUBLISHED = "published"
"""What names the rows that come with synthbench."""


@dataclass(frozen=True)
class Joined:
    """Rows of one's own store and of the one beside it, each run once."""

    rows: pd.DataFrame
    curves: pd.DataFrame
    """Of the runs whose store has learning curves; the published rows come without."""
    suite_version: str | None
    """The one that both stores have full runs of."""
    origins: "pd.Series[str] | None" = None
    """Which store a run's row is from, by ``run_id``; None if there is no other store."""
    left_out: list[Quarantined] = field(default_factory=list)
    """What could not be trusted in the other store."""

    @property
    def is_own(self) -> "pd.Series[bool]":
        """Which rows are from one's own store."""
        if self.origins is None:
            return pd.Series(data=True, index=self.rows.index)
        return self.rows["run_id"].map(self.origins) == self.origins.iloc[0]


def join(own: tuple[pd.DataFrame, pd.DataFrame], name: str, other: str, suite: str, version: str | None) -> Joined:
    """Put the rows of another store beside one's own; where both have a run, one's own row counts.

    Args:
        own: Rows and learning curves, as ``Store.read`` gives them.
        name: What a report calls one's own store.
        other: The other one: a store's folder, a ``.parquet`` file of rows, a ``.tar.gz`` bundle, or ``published``.
        suite: The suite to be reported.
        version: Its version; the newest of one's own rows if None.
    """
    rows, curves = own
    version = version_shown(rows, suite, version)
    their_rows, their_curves, left_out = _read(other)
    _require(their_rows, other, suite, version, name)
    their_rows = their_rows[~their_rows["run_id"].isin(rows["run_id"])]
    their_curves = their_curves[their_curves["run_id"].isin(their_rows["run_id"])]
    return Joined(
        pd.concat([rows, their_rows], ignore_index=True),
        pd.concat([frame for frame in (curves, their_curves) if len(frame)] or [curves], ignore_index=True),
        version,
        pd.Series([name] * len(rows) + [other] * len(their_rows), [*rows["run_id"], *their_rows["run_id"]], dtype=str),
        left_out,
    )


def _read(other: str) -> tuple[pd.DataFrame, pd.DataFrame, list[Quarantined]]:
    """Rows and curves of a store; no curves where it has no file of them."""
    with opened(_path_of(other)) as (store, _manifest):
        # In the installed package there are rows only: each would be reported to have lost its curve.
        if store.folder.compact_paths("curves") or store.folder.small("curves"):
            rows, curves = store.read(is_checked=True)
        else:
            rows, curves = store.runs(is_checked=True), store.curves([])
        if rows.empty and store.quarantined:
            raise StoreError(f"{other} has no row that can be read: {store.quarantined[0].reason}")
        return rows, curves, store.quarantined


def _path_of(other: str) -> Path:
    if other == PUBLISHED:
        return published()
    if Path(other).exists():
        return Path(other)
    near = get_close_matches(other, [PUBLISHED])
    hint = f"did you mean {near[0]!r}?" if near else "allowed: a store, a .parquet file, a .tar.gz bundle, 'published'"
    raise StoreError(f"no rows at {other!r}: no such file or folder; {hint}")


def _require(rows: pd.DataFrame, other: str, suite: str, version: str, name: str) -> None:
    """Refuse a store that has nothing to show beside full runs of one version of a suite."""
    full = full_runs(rows)
    versions = sorted(set(full.loc[full["suite"] == suite, "suite_version"]))
    if version in versions:
        return
    if versions:
        raise UsageError(
            f"{other} has suite {suite!r} in version {', '.join(versions)}, the rows of {name} are of {version}; "
            "rows of different versions cannot be compared"
        )
    has = ", ".join(sorted(set(full["suite"]))) or "none"
    raise UsageError(f"{other} has no full runs of suite {suite!r}; it has full runs of: {has}")
