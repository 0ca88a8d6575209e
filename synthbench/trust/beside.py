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
        """Return the name and the version of the suite that a report shows.

        Args:
            suite: Name of the suite. None: the suite of the user's newest row or, if the user has no rows, the main
                suite.
            version: Version of the suite. None: the newest version for which the user has full (not shortened) runs or,
                if there are none, the newest in all rows.

        Raises:
            UnknownName: If there is no full run of the suite or of the version.
            UsageError: If the user named a second store, and it has no full run of the suite or of the version.
        """
        suite = suite or default_suite(self.rows, self.is_own)
        own = self.rows[self.is_own]
        is_mine = version is None and (full_runs(own)["suite"] == suite).any()
        version = version_shown(own if is_mine else self.rows, suite, version)
        if self.beside is not None:
            _require(*self.beside, suite, version)
        return suite, version

    def seen_from(self, suite: str | None) -> "Joined":
        """Prepare rows for reports of a suite: add rows of other suites with the same protocol, and label rows.

        A protocol consists of the settings of model, training and evaluation. :func:`synthbench.trust.view.seen_from`
        gives the details.

        Args:
            suite: Name of the suite; None has the same meaning as in :meth:`shown`. If the suite is not installed,
                nothing changes.
        """
        suite = suite or default_suite(self.rows, self.is_own)
        rows = view.seen_from(self.rows.assign(is_own=self.is_own), suite)
        is_own = rows.pop("is_own").astype(bool)
        beside = self.beside and (self.beside[0], view.seen_from(self.beside[1], suite))
        return replace(self, rows=rows, is_own=is_own, beside=beside)


def join(results: Path, other: str | None = None, *, has_packaged: bool = True, has_curves: bool = False) -> Joined:
    """Read the rows of the user's store, of another store and of synthbench itself; keep one row per run and suite.

    Packaged rows are those that come with synthbench. If several stores have a row of the same run, the row from the
    user's store is kept, or else the row from the other store. Scores over levels are recomputed with this version's
    shortcut baselines, the scores of rules that avoid what a task tests (:mod:`synthbench.training.ladder_scores`).

    Args:
        results: Folder of the user's store. If packaged rows are included, the default folder need not exist.
        other: Another store: its folder, a ``.parquet`` file of rows, a ``.tar.gz`` bundle, or ``packaged`` for the
            packaged rows. None: no other store.
        has_packaged: True to include packaged rows.
        has_curves: True to read learning curves too.

    Raises:
        StoreError: If a store does not exist or cannot be read.
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
