"""Join the user's own result rows with packaged rows and with the rows of another store that the user names.

Packaged rows come with synthbench. No store is changed.
"""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import pandas as pd

from synthbench.errors import StoreError, UsageError
from synthbench.reports.selection import default_suite, full_runs, version_shown
from synthbench.results import CURVES, PACKAGED, Quarantined, Store, published
from synthbench.results.schema import to_frame
from synthbench.runner.request import Request
from synthbench.training.ladder_scores import rescored
from synthbench.trust import view
from synthbench.trust.bundle import opened

NAMES = (PACKAGED, "published")
"""Names that stand for the packaged rows where a store can be named."""

_Frames = tuple[pd.DataFrame, pd.DataFrame]
"""Rows and learning curves."""
_Part = tuple[str, pd.DataFrame, pd.DataFrame]
"""Name, rows and learning curves of a store."""


@dataclass(frozen=True)
class Joined:
    """Rows of several stores, joined so that each run has one row per suite."""

    rows: pd.DataFrame
    curves: pd.DataFrame
    """Learning curves of the rows, except for packaged rows."""
    is_own: "pd.Series[bool]"
    """True for each row of the user's own store that is no copy of a packaged row."""
    origins: "pd.Series[str] | None"
    """Name of each row's store, by ``run_id``; None if all rows are from the user's own store."""
    left_out: tuple[Quarantined, ...]
    """Files and rows that were left out because they cannot be trusted."""
    beside: tuple[str, pd.DataFrame] | None = None
    """Name and rows of the other store that was named; None if none was."""

    def shown(self, suite: str | None, version: str | None) -> tuple[str, str]:
        """Return the suite and the version that a report shows.

        Args:
            suite: Name of the suite. None means the suite of the user's newest own row or, without own rows, the main
                suite.
            version: Version of the suite. None means the newest version with full (not shortened) runs among the user's
                own rows or, if there are none, among all rows.

        Raises:
            UnknownName: If there is no full run of the suite or of its version.
            UsageError: If the other store that the user named has no full run of the suite or of its version.
        """
        suite = suite or default_suite(self.rows, self.is_own)
        own = self.rows[self.is_own]
        is_mine = version is None and (full_runs(own)["suite"] == suite).any()
        version = version_shown(own if is_mine else self.rows, suite, version)
        if self.beside is not None:
            _require(*self.beside, suite, version)
        return suite, version

    def seen_from(self, suite: str | None) -> "Joined":
        """Label rows for the reports of a suite, and add rows of other suites that were made under the same protocol.

        A protocol consists of the settings of model, training and evaluation.

        Args:
            suite: Name of the suite; None is interpreted as in :meth:`shown`. If the suite is not installed, nothing
                changes.
        """
        suite = suite or default_suite(self.rows, self.is_own)
        rows = view.seen_from(self.rows.assign(is_own=self.is_own), suite)
        is_own = rows.pop("is_own").astype(bool)
        beside = self.beside and (self.beside[0], view.seen_from(self.beside[1], suite))
        return replace(self, rows=rows, is_own=is_own, beside=beside)


def join(results: Path, other: str | None = None, *, has_packaged: bool = True, has_curves: bool = False) -> Joined:
    """Read the user's own rows, another store's rows and the packaged rows; keep one row per run and suite.

    Packaged rows come with synthbench. If several stores have a row of the same run, the user's own row is kept; if
    there is none, the other store's row is kept. Scores over levels are recomputed with the shortcut baselines of this
    version of synthbench (:mod:`synthbench.training.ladder_scores`).

    Args:
        results: Folder of the user's own store. The default folder may be missing if packaged rows are included.
        other: Folder of another store, a ``.parquet`` file of rows or a ``.tar.gz`` bundle. ``packaged`` stands for
            the packaged rows; None adds no store.
        has_packaged: Whether to include the packaged rows.
        has_curves: Whether to read learning curves.

    Raises:
        StoreError: If a store is missing or cannot be read.
    """
    if other in NAMES:
        other, has_packaged = None, True
    left_out: list[Quarantined] = []
    parts: list[_Part] = []
    has_own = not has_packaged or results != Request.results or (results / "store.json").exists()
    if has_own:
        parts.append((str(results), *_read(Store.open(results, create=False), left_out, has_curves=has_curves)))
    if other is not None:
        parts.append((other, *_read_other(other, left_out, has_curves=has_curves)))
    packaged = Store.open(published(), create=False)
    run_ids, checksums = (column.to_pylist() for column in packaged.columns(("run_id", "row_sha256")).itercolumns())
    # The store of a checkout has all packaged rows; they are not read again.
    if has_packaged and not set(run_ids) <= {run_id for _, rows, _ in parts for run_id in rows["run_id"]}:
        parts.append((PACKAGED, *_read(packaged, left_out)))
    rows = rescored(_stacked([rows.assign(store=name) for name, rows, _ in parts]))
    # A run may have rows in several suites, since no suite is part of its id.
    rows = rows.drop_duplicates(["run_id", "suite", "suite_version"], ignore_index=True)
    stores = rows.pop("store")
    origins = pd.Series(stores.to_numpy(), index=rows["run_id"], dtype=str)
    origins = origins[~origins.index.duplicated()]
    curves = _stacked([curves.assign(store=name) for name, _, curves in parts])
    # A curve is taken only from the store of its row.
    is_of_row = curves["run_id"].map(origins) == curves.pop("store")
    return Joined(
        rows,
        curves[is_of_row].reset_index(drop=True),
        (stores == str(results)) & ~rows["row_sha256"].isin(checksums),
        origins if parts[1:] or not has_own else None,
        tuple(left_out),
        next(((name, rows) for name, rows, _ in parts if name == other), None),
    )


def _read(store: Store, left_out: list[Quarantined], *, has_curves: bool = False, is_checked: bool = False) -> _Frames:
    """Read the rows of a store and, if wanted, the learning curves; note unreadable files and rows in ``left_out``."""
    frames = (
        store.read(is_checked=is_checked)
        if has_curves
        else (store.runs(is_checked=is_checked), to_frame(CURVES.empty_table()))
    )
    left_out += store.quarantined
    return frames


def _read_other(other: str, left_out: list[Quarantined], *, has_curves: bool) -> _Frames:
    with opened(_path_of(other)) as (store, _manifest):
        # In a store without any curves, each row would be reported to have lost its curve.
        has_curves = has_curves and store.has_curves()
        rows, curves = _read(store, left_out, has_curves=has_curves, is_checked=True)
        if rows.empty and store.quarantined:
            raise StoreError(f"{other} has no row that can be read: {store.quarantined[0].reason}")
        return rows, curves


def _path_of(other: str) -> Path:
    if Path(other).exists():
        return Path(other)
    near = get_close_matches(other, NAMES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "allowed: a store's folder, a .parquet file, a .tar.gz bundle"
    raise StoreError(f"no rows at {other!r}: no such file or folder; {hint}")


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]  # pandas warns of joining one that is empty
    return pd.concat(filled or frames[:1], ignore_index=True)


def _require(other: str, rows: pd.DataFrame, suite: str, version: str) -> None:
    """Raise an error unless a store has full runs (not shortened ones) of the suite and version that a report shows."""
    full = full_runs(rows)
    versions = sorted(set(full.loc[full["suite"] == suite, "suite_version"]))
    if version in versions:
        return
    if versions:
        raise UsageError(
            f"{other} has suite {suite!r} in version {', '.join(versions)}, and version {version} is shown; rows of "
            "different versions cannot be compared"
        )
    has = ", ".join(sorted(set(full["suite"]))) or "none"
    raise UsageError(f"{other} has no full runs of suite {suite!r}; it has full runs of: {has}")
