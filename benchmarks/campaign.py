"""Everything worth measuring on one device, cut into steps that resume.

A step is a command of its own process. It is there when its output is, ``<step>.txt`` in the device's folder; most
write rows beside it as they go, and begin again behind the last row. So a call may end at any time, and the same call
does the rest. A step that was cut leaves what it printed in ``<step>.part.txt``, which its next attempt goes on with.

    python -m benchmarks.campaign --device cuda --dry-run
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from benchmarks.archive import RESERVED_S
from benchmarks.archive import archive as write_archives
from benchmarks.script import make_app, run
from benchmarks.steps import Step, steps_for
from synthbench import options
from synthbench.cli.options import AsJson, Device
from synthbench.cli.output import print_facts
from synthbench.errors import StoreError, UsageError
from synthbench.runner.environment import hardware, resolve_device, stated_commit

app = make_app()

MORE_TO_DO = 75
"""Exit code of a call whose time was over: what sysexits.h has for a failure that passes when tried again."""

LEAST_S = 20.0
"""A step is begun if so much time is left."""
GRACE_S = 15.0
"""Before the time is over a step is asked to end, and has so long to write what it has."""

State = Literal["there", "done", "cut", "failed", "missing"]


@dataclass(frozen=True)
class StepOutcome:
    """The result of a step in one call."""

    step: Step
    state: State
    seconds: float = 0.0


def folder_of(out: Path, device: torch.device, *, is_quick: bool) -> Path:
    """The folder for what is measured on a device, named after it: ``nvidia-h100-80gb-hbm3``."""
    name = re.sub(r"[^a-z0-9]+", "-", str(hardware(device)["device_name"]).lower()).strip("-")
    return out / (f"{name}-quick" if is_quick else name)


def select(steps: Sequence[Step], patterns: Sequence[str]) -> list[Step]:
    """Choose steps by name or glob, in their order, as ``synthbench run --task`` chooses tasks; by default all.

    Raises:
        UnknownName: If a pattern matches no step.
        UsageError: If a pattern is malformed.
    """
    chosen = options.select("step", patterns or ["all"], [step.name for step in steps], str)
    return [step for step in steps if step.name in chosen]


def is_there(step: Step, folder: Path) -> bool:
    """Return whether a step has ended well."""
    return _output(step, folder).exists()


def perform(steps: Sequence[Step], folder: Path, *, budget_s: float) -> Iterator[StepOutcome]:
    """Run the steps that are missing while there is time, those that failed before last; the result of each.

    Raises:
        StoreError: If the folder cannot be written.
    """
    deadline = time.monotonic() + budget_s
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StoreError(f"{str(folder)!r} cannot be written: {problem}") from None
    for step in sorted(steps, key=lambda step: _failure(step, folder).exists()):
        began = time.monotonic()
        if is_there(step, folder):
            yield StepOutcome(step, "there")
        elif deadline - began < LEAST_S:
            yield StepOutcome(step, "missing")
        else:
            typer.echo(f"{step.name}: begins", err=True)
            state = _run(step, folder, deadline)
            yield StepOutcome(step, state, time.monotonic() - began)


def _run(step: Step, folder: Path, deadline: float) -> State:
    """Run a step until it ends or the time is over."""
    draft = folder / f"{step.name}.part.txt"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell's background job; the step would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with draft.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            [sys.executable, *step.arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **step.environment},
            start_new_session=True,  # so that what it starts ends with it
        )
        is_cut = False
        try:
            process.wait(max(0.0, deadline - time.monotonic() - GRACE_S))
        except subprocess.TimeoutExpired:
            is_cut = True
        finally:
            _end(process)
        if is_cut and process.returncode:
            output.write("\ncut here: the time of the call was over; the same call goes on\n")
            return "cut"
    if process.returncode == 0:
        draft.replace(_output(step, folder))
        _failure(step, folder).unlink(missing_ok=True)
        return "done"
    draft.replace(_failure(step, folder))
    return "failed"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process that still runs to end, as Ctrl-C does; then end it and what it started."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _command(step: Step) -> str:
    words = *(f"{name}={value}" for name, value in step.environment.items()), "python", shlex.join(step.arguments)
    return " ".join(words)


def _output(step: Step, folder: Path) -> Path:
    return folder / f"{step.name}.txt"


def _failure(step: Step, folder: Path) -> Path:
    return folder / f"{step.name}.failed.txt"


@app.command()
def main(
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
    stated_commit()  # every step would refuse what is no commit

    # A plan may be for a GPU that is elsewhere; one of those that are here must be.
    target = resolve_device(device, must_exist=not dry_run or torch.cuda.is_available())
    folder = folder_of(out, target, is_quick=quick)
    steps = select(steps_for(target, folder, is_quick=quick), step or [])
    if dry_run:
        planned = [
            {"step": one.name, "state": "there" if is_there(one, folder) else "missing", "command": _command(one)}
            for one in steps
        ]
        print_facts(planned, list(planned[0]), as_json=as_json)
        return
    least = RESERVED_S + LEAST_S
    if not budget > least and not all(is_there(one, folder) for one in steps):
        raise UsageError(f"--budget is {budget:g}; allowed: more than {least:g} seconds, or no step would begin")
    outcomes = list(perform(steps, folder, budget_s=budget - RESERVED_S))
    archived = write_archives(folder, archive or folder)
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


if __name__ == "__main__":
    run(app)
