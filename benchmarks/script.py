"""Runs a benchmark script as ``synthbench`` runs a command: a mistake of the user is one line on stderr."""

import sys

import typer

from synthbench.cli.output import print_problem
from synthbench.errors import SynthbenchError


def make_app() -> typer.Typer:
    """A command line for one script."""
    return typer.Typer(pretty_exceptions_enable=False, add_completion=False)


def run(app: typer.Typer) -> None:
    """Run a script; exits with the code of the error, if there is one."""
    try:
        app()
    except SynthbenchError as problem:
        print_problem(problem, "")
        sys.exit(problem.exit_code)
