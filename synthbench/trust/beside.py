"""One's own rows with those beside them: the packaged rows, and another store that is named. No store changes."""

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
"""Names of the packaged rows, where a store can be named."""

_Frames = tuple[pd.DataFrame, pd.DataFrame]
"""Rows and learning curves."""
_Part = tuple[str, pd.DataFrame, pd.DataFrame]
"""Name, rows and learning curves of a store."""


@dataclass(frozen=True)
class Joined:
    """Rows of several stores, each run once."""

    rows: pd.DataFrame
    curves: pd.DataFrame
    """Learning curves, of the stores that have them; the packaged rows come without."""
    is_own: "pd.Series[bool]"
    """True for each row of one's own store that is no copy of a packaged row."""
    origins: "pd.Series[str] | None"
    """The name of a row's store, by ``run_id``; None if all rows are of one's own store."""
    left_out: tuple[Quarantined, ...]
    """The files and rows that could not be trusted."""
    beside: tuple[str, pd.DataFrame] | None = None
    """Name and rows of the store that was named beside one's own."""

    def shown(self, suite: str | None, version: str | None) -> tuple[str, str]:
        """The suite and its version that a report shows.

        Args:
            suite: Default: that of the newest own row, or else the main one.
            version: Default: the newest of one's own rows of the suite, or else the newest.

        Raises:
            UnknownName: If no full row is of the suite or of its version.
            UsageError: If the store that was named beside one's own has none.
        """
        suite = suite or default_suite(self.rows, self.is_own)
        own = self.rows[self.is_own]
        is_mine = version is None and (full_runs(own)["suite"] == suite).any()
        version = version_shown(own if is_mine else self.rows, suite, version)
        if self.beside is not None:
            _require(*self.beside, suite, version)
        return suite, version

    def seen_from(self, suite: str | None) -> "Joined":
        """Return the same rows and those that also belong to a suite, although another suite made them.

        Args:
            suite: Default: as in :meth:`shown`. Of a suite that is not installed the rows stay as they are.
        """
        suite = suite or default_suite(self.rows, self.is_own)
        rows = view.seen_from(self.rows.assign(is_own=self.is_own), suite)
        is_own = rows.pop("is_own").astype(bool)
        beside = self.beside and (self.beside[0], view.seen_from(self.beside[1], suite))
        return replace(self, rows=rows, is_own=is_own, beside=beside)


def join(results: Path, other: str | None = None, *, has_packaged: bool = True, has_curves: bool = False) -> Joined:
    """Read one's own rows and those beside them. Of one run one's own row counts, then that of the store named.

    Scores of ladders are counted from the committed baselines (:mod:`synthbench.training.ladder_scores`).

    Args:
        results: One's own store. If it is the default one and the packaged rows are wanted, it need not exist.
        other: A store's folder, a ``.parquet`` file of rows or a ``.tar.gz`` bundle.
        has_packaged: Whether the packaged rows are wanted.
        has_curves: Whether learning curves are wanted.

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
    run_ids, checksums = (column.to_pylist() for column in packaged.outline(("run_id", "row_sha256")).itercolumns())
    # The store of a checkout has all packaged rows; they are not read again.
    if has_packaged and not set(run_ids) <= {run_id for _, rows, _ in parts for run_id in rows["run_id"]}:
        parts.append((PACKAGED, *_read(packaged, left_out)))
    rows = rescored(_stacked([rows.assign(store=name) for name, rows, _ in parts]))
    # One run may be a row of several suites, since its id names none.
    rows = rows.drop_duplicates(["run_id", "suite", "suite_version"], ignore_index=True)
    stores = rows.pop("store")
    origins = pd.Series(stores.to_numpy(), index=rows["run_id"], dtype=str)
    origins = origins[~origins.index.duplicated()]
    # Every run has the curve of its row, or none.
    curves = [curves.assign(store=name) for name, _, curves in parts if len(curves)]
    return Joined(
        rows,
        _of_their_rows(_stacked(curves), origins) if curves else parts[0][2],
        (stores == str(results)) & ~rows["row_sha256"].isin(checksums),
        origins if parts[1:] or not has_own else None,
        tuple(left_out),
        next(((name, rows) for name, rows, _ in parts if name == other), None),
    )


def _read(store: Store, left_out: list[Quarantined], *, has_curves: bool = False, is_checked: bool = False) -> _Frames:
    """Rows and curves of a store."""
    frames = (
        store.read(is_checked=is_checked)
        if has_curves
        else (store.runs(is_checked=is_checked), to_frame(CURVES.empty_table()))
    )
    left_out += store.quarantined
    return frames


def _read_other(other: str, left_out: list[Quarantined], *, has_curves: bool) -> _Frames:
    with opened(_path_of(other)) as (store, _manifest):
        # Where a store has rows only, each would be reported to have lost its curve.
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


def _of_their_rows(curves: pd.DataFrame, origins: "pd.Series[str]") -> pd.DataFrame:
    """The points of the stores whose rows count, which ``origins`` has by run id."""
    is_of_row = curves["run_id"].map(origins) == curves["store"]
    return curves[is_of_row].drop(columns="store").reset_index(drop=True)


def _require(other: str, rows: pd.DataFrame, suite: str, version: str) -> None:
    """Refuse a store that has nothing to show beside full runs of one version of a suite."""
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
