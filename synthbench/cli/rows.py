"""Reading and selecting the rows of a store for commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd

    from synthbench.results import Quarantined, Store
    from synthbench.terms import Selection
    from synthbench.trust.beside import Joined

ReportedSuite = Annotated[
    str | None,
    typer.Option("--suite", help="The suite whose rows to read. Default: the only one in the store, else paper."),
]
Beside = Annotated[
    str | None,
    typer.Option(
        help="Other rows to show beside those of --results: published (the rows that come with synthbench), a "
        "store's folder, a .parquet file or a .tar.gz bundle. Neither store is changed."
    ),
]
SuiteVersion = Annotated[str | None, typer.Option(help="Its version. Default: the newest in the store.")]


def read_rows(results: Path) -> "pd.DataFrame":
    """All rows of a store; damaged ones are left out and named on stderr."""
    store = _opened(results)
    rows = store.runs()
    name_what_is_left_out(store)
    return rows


def read_rows_and_curves(results: Path) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """The same with all learning curves."""
    store = _opened(results)
    rows, curves = store.read()
    name_what_is_left_out(store)
    return rows, curves


def read_beside(results: Path, other: str | None, suite: str | None, version: str | None) -> "Joined":
    """All rows of a store, joined with those of another store if one is named."""
    from synthbench.trust.beside import Joined, join

    rows_and_curves = read_rows_and_curves(results)
    if other is None:
        return Joined(*rows_and_curves, version)
    joined = join(rows_and_curves, str(results), other, suite_of(rows_and_curves[0], suite), version)
    _name(joined.left_out)
    return joined


def suite_of(rows: "pd.DataFrame", named: str | None) -> str:
    """The named suite; if none is named, the only one in the rows, or ``paper`` if there are several."""
    from synthbench.reports.selection import only_suite

    return named or only_suite(rows) or "paper"


def selected(rows: "pd.DataFrame", kind: str, terms: Sequence[str]) -> "Selection":
    """The tasks or mechanisms in the rows that terms select, with the options that they set."""
    from synthbench.terms import select

    unit, group = ("task", "task_category") if kind == "task" else ("mech", "mech_family")
    groups = dict(zip(rows[unit], rows[group], strict=True))
    return select(kind, terms, list(groups), groups.__getitem__)


def name_what_is_left_out(store: "Store") -> None:
    """Print on stderr which files and rows the readers of a store left out, and why."""
    _name(store.quarantined)


def _name(left_out: "Sequence[Quarantined]") -> None:
    for file in left_out:
        typer.echo(f"left out: {file.file}: {file.reason}", err=True)


def _opened(results: Path) -> "Store":
    from synthbench.results import Store

    return Store.open(results, create=False)
