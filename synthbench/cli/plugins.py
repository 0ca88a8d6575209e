"""``synthbench new`` and ``synthbench check``: write and check your own mechanisms and tasks."""

import json
from pathlib import Path
from typing import Annotated

import typer

from synthbench import plugins
from synthbench.cli.options import AsJson, Plugins
from synthbench.cli.output import say
from synthbench.errors import ContractError


def new(
    kind: Annotated[str, typer.Argument(help="mech or task.")],
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits and '_'.")],
    is_package: Annotated[
        bool, typer.Option("--package", help="Write a package with entry points instead of one file.")
    ] = False,
    is_module: Annotated[
        bool, typer.Option("--module", help="Write the mechanism as a plain nn.Module with its own layers.")
    ] = False,
) -> None:
    """Write a working mechanism or task, with its test, into the current folder as a starting point."""
    from synthbench.cli.scaffold import NEXT_STEPS, write

    for path in write(kind, name, Path.cwd(), is_package=is_package, is_module=is_module):
        say(path.relative_to(Path.cwd()))
    if not is_package and kind == "task":
        say("next:", err=True)
        for step in NEXT_STEPS:
            say(f"  {step.format(name=name)}", err=True)


def check(
    target: Annotated[str, typer.Argument(help="A component's name (slay:R=3 sets options), or a plugin's file.")],
    plugin: Plugins = None,
    device: Annotated[str, typer.Option(help="Device on which to check mechanisms: cpu, cuda or cuda:1.")] = "cpu",
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a hanging component is killed. Default: 300.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a task, mechanism, position encoding or block; exit with code 4 if a check fails.

    The component's code runs in a separate process.
    """
    from synthbench.contract.isolated import IsolatedProcess

    with IsolatedProcess([*plugins.named(plugin), *plugins.file_of(target)], timeout) as isolated:
        isolated.start()  # beside the same imports here
        from synthbench.cli import check as examination
        from synthbench.runner.environment import resolve_device

        reports = examination.check(target, isolated, (str(resolve_device(device)),))
    if as_json:
        say(json.dumps(reports, indent=1))
    else:
        say("\n\n".join("\n".join(examination.lines_of(report)) for report in reports))
    if not all(report["passed"] for report in reports):
        raise typer.Exit(ContractError.exit_code)
