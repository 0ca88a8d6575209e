"""Rows of a store for the commands that read them, and what of them their options select."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd

    from synthbench.results import Store
    from synthbench.runner.selection import Selection

ReportedSuite = Annotated[
    str | None,
    typer.Option("--suite", help="The suite whose rows are read; if left out the only one in the store, else paper."),
]
SuiteVersion = Annotated[str | None, typer.Option(help="Its version; the newest in the store if left out.")]


def read_rows(results: Path) -> "pd.DataFrame":
    """All rows of a store; what was damaged and left out is named on stderr.

    Raises:
        StoreError: If there is no store, or it cannot be read.
    """
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


def suite_of(rows: "pd.DataFrame", named: str | None) -> str:
    """The suite that is named; if none is, the only one that the rows are of, or ``paper`` if there are several."""
    from synthbench.reports.selection import only_suite

    return named or only_suite(rows) or "paper"


def selected(rows: "pd.DataFrame", kind: str, terms: Sequence[str]) -> "Selection":
    """What terms select of the tasks or mechanisms that have rows, with the arguments that they give.

    Raises:
        UnknownName: If a term names what has no row.
        UsageError: If a term is malformed or selects nothing.
    """
    from synthbench.runner.selection import select

    unit, group = ("task", "task_category") if kind == "task" else ("mech", "mech_family")
    groups = dict(zip(rows[unit], rows[group], strict=True))
    return select(kind, terms, list(groups), groups.__getitem__)


def name_what_is_left_out(store: "Store") -> None:
    """Say on stderr which files and rows the readers of a store have left out, and why."""
    for file in store.quarantined:
        typer.echo(f"left out: {file.file}: {file.reason}", err=True)


def _opened(results: Path) -> "Store":
    from synthbench.results import Store

    return Store.open(results, create=False)
