"""``synthbench doctor`` and ``synthbench store``: is everything in order."""

from pathlib import Path

import typer

from synthbench.cli.options import AsJson, Plugins, Results, load_what_loads
from synthbench.cli.output import print_facts

store_app = typer.Typer(help="Care for a results store.", no_args_is_help=True)


def doctor(results: Results = Path("results"), plugin: Plugins = None, as_json: AsJson = False) -> None:
    """Check versions, devices, threads and the results folder; exit 1 if something is broken."""
    from synthbench.terminal import doctor as checks

    findings = checks.examine(results, load_what_loads(plugin))
    print_facts(findings, ["check", "state", "detail"], as_json=as_json)
    if any(finding["state"] == "broken" for finding in findings):
        raise typer.Exit(1)


@store_app.command("compact")
def compact_store(results: Results = Path("results")) -> None:
    """Merge the rows and curves of a store, one file each, into one file of each."""
    from synthbench.results import Store

    typer.echo(f"{Store.open(results, create=True).compact()} files merged", err=True)
