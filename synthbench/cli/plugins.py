"""``synthbench new`` and ``synthbench check``: units of your own."""

import json
from pathlib import Path
from typing import Annotated

import typer

from synthbench.cli.options import AsJson, Plugins, named_plugins
from synthbench.errors import ContractError


def new(
    kind: Annotated[str, typer.Argument(help="mech or task.")],
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits and '_'.")],
    is_package: Annotated[
        bool, typer.Option("--package", help="Write a package with entry points, not one file.")
    ] = False,
    is_module: Annotated[
        bool, typer.Option("--module", help="Write the mechanism as a plain nn.Module with layers of its own.")
    ] = False,
) -> None:
    """Write a mechanism or a task that works, with its test, into the current folder: edit it from there."""
    from synthbench.terminal.scaffold import NEXT_STEPS, write

    for path in write(kind, name, Path.cwd(), is_package=is_package, is_module=is_module):
        typer.echo(path.relative_to(Path.cwd()))
    if not is_package and kind in NEXT_STEPS:
        typer.echo("next:", err=True)
        for step in NEXT_STEPS[kind]:
            typer.echo(f"  {step.format(name=name)}", err=True)


def check(
    target: Annotated[str, typer.Argument(help="A unit's name, slay:R=3 sets arguments; or a plugin's file.")],
    plugin: Plugins = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a unit that hangs is given up; 300 if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every promise of a unit's contract; exit 4 if one is broken. The code is run, in a process of its own."""
    from synthbench.terminal import check as examination

    reports = examination.check(target, named_plugins(plugin), timeout)
    if as_json:
        typer.echo(json.dumps(reports, indent=1))
    else:
        typer.echo("\n\n".join("\n".join(examination.lines_of(report)) for report in reports))
    if not all(report["passed"] for report in reports):
        raise typer.Exit(ContractError.exit_code)
