"""The command line: parse, call one function, print.

Results go to stdout, progress and messages to stderr. Slow imports are inside the commands, so that ``--help`` answers
at once.
"""

import io
import os
import sys
from typing import Annotated

import typer

from synthbench.distribution import conflict, is_overwritten

if is_overwritten():  # before the imports below, which may be those of the other package
    sys.stderr.write(f"synthbench: {conflict()}\n")
    sys.exit(2)

from synthbench import __version__
from synthbench.cli.bench import bench_app
from synthbench.cli.data import data
from synthbench.cli.listing import list_app, show
from synthbench.cli.options import Quiet, Verbose, audible, spread
from synthbench.cli.output import print_problem, say, set_verbosity
from synthbench.cli.plugins import check, new
from synthbench.cli.quick import quick
from synthbench.cli.reporting import export, leaderboard, report
from synthbench.cli.running import run, status
from synthbench.cli.shortcuts import shortcuts
from synthbench.cli.store import doctor, store_app
from synthbench.cli.submissions import compare, submit, verify
from synthbench.errors import StoreError, SynthbenchError, UnknownName
from synthbench.plugins import hint_for

app = typer.Typer(
    name="synthbench",
    help="Synthetic sequence tasks for attention mechanisms: a benchmark suite and a leaderboard.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(list_app, name="list")
for command in (
    *(show, run, quick, status, leaderboard, report, export, compare),
    *(verify, submit, data, doctor, new, check, shortcuts),
):
    app.command()(command)
app.add_typer(bench_app, name="bench")
app.add_typer(store_app, name="store")
for group in (app, list_app, bench_app, store_app):
    for registered in group.registered_commands:
        if registered.callback is not None:
            registered.callback = audible(registered.callback)


def main() -> None:
    """Run the command line; a user error or a full disk gives one line on stderr and the documented exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character shows its code
    try:
        app(args=spread(sys.argv[1:]))
    except SynthbenchError as problem:
        hint = hint_for(problem.name) if isinstance(problem, UnknownName) else ""
        print_problem(problem, hint)
        sys.exit(problem.exit_code)
    except OSError as problem:
        say(f"synthbench: {problem}", err=True)
        # The unwritten text is still in the buffer of stdout, and would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(StoreError.exit_code)


@app.callback(invoke_without_command=True)
def before_any_command(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Synthetic sequence tasks for attention mechanisms."""
    if version:
        say(__version__)
        raise typer.Exit
    set_verbosity(quiet=quiet, verbose=verbose)
