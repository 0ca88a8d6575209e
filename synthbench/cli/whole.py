"""``synthbench bench all`` and ``bench report``: all that can be measured on a device, and what came out of it."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from synthbench.cli.options import AsJson, Device
from synthbench.cli.output import print_facts
from synthbench.errors import UsageError

MORE_TO_DO = 75
"""Exit code of a call whose time was over: what sysexits.h has for a failure that passes when tried again."""


def everything(
    device: Device = "auto",
    budget: Annotated[float, typer.Option(help="Seconds of this call; the same call again goes on.")] = 540.0,
    step: Annotated[
        list[str] | None, typer.Option(help="Names of steps or globs, as in 'scaling*'; repeatable. All if left out.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Tiny sizes: proves in minutes that every step of a GPU runs, on any device."),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for a folder named after the device.")] = Path("results/bench"),
    archive: Annotated[
        Path | None, typer.Option(help="Folder for archives of all that there is. Default: the device's folder.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the steps and commands, and run nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure everything on one device, step by step; exit 75 if the budget ended before the steps did.

    At the end everything there is goes into archives of at most 16 MiB, named after the device.
    """
    import torch

    from synthbench.bench import archive as archives
    from synthbench.bench import everything as bench
    from synthbench.bench.steps import steps_for
    from synthbench.runner.environment import resolve_device, stated_commit

    stated_commit()  # every step would refuse what is no commit

    # A plan may be for a GPU that is elsewhere; one of those that are here must be.
    target = resolve_device(device, must_exist=not dry_run or torch.cuda.is_available())
    folder = bench.folder_of(out, target, is_quick=quick)
    steps = bench.select(steps_for(target, folder, is_quick=quick), step or [])
    if dry_run:
        planned = [
            {
                "step": one.name,
                "state": "there" if bench.is_there(one, folder) else "missing",
                "command": " ".join(
                    [
                        *(f"{name}={value}" for name, value in one.environment.items()),
                        "python",
                        shlex.join(one.arguments),
                    ]
                ),
            }
            for one in steps
        ]
        print_facts(planned, list(planned[0]), as_json=as_json)
        return
    least = archives.RESERVED_S + bench.LEAST_S
    if not budget > least and not all(bench.is_there(one, folder) for one in steps):
        raise UsageError(f"--budget is {budget:g}; allowed: more than {least:g} seconds, or no step would begin")
    outcomes = list(
        bench.perform(
            steps,
            folder,
            budget_s=budget - archives.RESERVED_S,
            on_begin=lambda one: typer.echo(f"{one.name}: begins", err=True),
        )
    )
    archived = archives.archive(folder, archive or folder)
    facts = [{"step": done.step.name, "state": done.state, "seconds": done.seconds} for done in outcomes]
    print_facts(facts, list(facts[0]), as_json=as_json)
    for name, why in archived.left_out.items():
        typer.echo(f"in no archive: {name}: {why}", err=True)
    typer.echo(f"{len(archived.files)} archives in {archive or folder}", err=True)
    for done in outcomes:
        if done.state == "cut":
            typer.echo(f"{done.step.name} was cut; what it printed is in {folder}/{done.step.name}.part.txt", err=True)
    states = {done.state for done in outcomes}
    if states & {"missing", "cut"}:
        typer.echo("there is more to do: the same call again goes on", err=True)
        raise typer.Exit(MORE_TO_DO)
    if "failed" in states:
        typer.echo(f"steps failed; what they printed is in {folder}/*.failed.txt", err=True)
        raise typer.Exit(1)


def report(
    rows: Annotated[Path, typer.Option(help="Folder with a folder of rows for each device.")] = Path("results/bench"),
    out: Annotated[Path, typer.Option(help="Folder for a report of each device.")] = Path("reports/bench"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a report is not up to date.")
    ] = False,
) -> None:
    """Write tables and figures of what was measured, one folder a device; print the files that changed."""
    from synthbench.bench import report as bench
    from synthbench.reports import folder as reports

    changed = [
        str(out / device.name / name)
        for device in bench.devices(rows)
        for name in (reports.stale if check else reports.write)(bench.build(device), out / device.name)
    ]
    for name in changed:
        typer.echo(name)
    if check and changed:
        raise typer.Exit(1)
