"""``synthbench report``: from rows to tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthbench.cli.options import MechanismTerms, Results, parse_seeds

if TYPE_CHECKING:
    import pandas as pd


def report(
    suite: Annotated[str, typer.Option("--suite", help="The suite whose rows are reported.")] = "paper",
    suite_version: Annotated[str | None, typer.Option(help="Its version; the newest in the store if left out.")] = None,
    mech: MechanismTerms = None,
    seeds: Annotated[
        str | None, typer.Option(help="Root seeds to show: 42-44; all that have rows if left out.")
    ] = None,
    results: Results = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder of the report; reports/SUITE if left out.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if what is there differs from what would be written.")
    ] = False,
) -> None:
    """Regenerate the tables of a suite as Markdown and LaTeX from the rows of a store.

    It shows the mechanisms that the suite names, or those that --mech selects: --mech all is everything in the store.
    """
    from synthbench.reports.build import build, stale, write

    rows, curves = _load(results)
    files = build(
        rows,
        curves,
        suite,
        suite_version,
        mechanisms=_reported(rows, suite, mech),
        seeds=parse_seeds(seeds) if seeds is not None else None,
    )
    folder = out or Path("reports") / suite
    if check:
        differing = stale(files, folder)
        for name in differing:
            typer.echo(f"stale: {folder / name}")
        if differing:
            raise typer.Exit(1)
        typer.echo(f"{folder} is what the rows say", err=True)
        return
    write(files, folder)
    for name in sorted(files):
        typer.echo(folder / name)


def _reported(rows: "pd.DataFrame", suite: str, terms: list[str] | None) -> list[str] | None:
    """The mechanisms of a report: those that terms select, or the suite's; None is all, for a suite not at hand."""
    from synthbench.runner.selection import select
    from synthbench.suites import load_suite, suite_names

    if not terms:
        return list(load_suite(suite).mechanisms) if suite in suite_names() else None
    families = dict(zip(rows["mech"], rows["mech_family"], strict=True))
    return list(select("mechanism", terms, list(families), families.__getitem__))


def _load(results: Path) -> "tuple[pd.DataFrame, pd.DataFrame]":
    from synthbench.results import Store

    store = Store.open(results, create=False)
    rows, curves = store.runs(), store.curves()
    for file in store.quarantined:
        typer.echo(f"left out: {file.file}: {file.reason}", err=True)
    return rows, curves
