"""How commands print what they know, and how much of it."""

import json
import shutil
import sys
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from enum import Enum
from types import MappingProxyType
from typing import Any

import typer

from synthbench.errors import SynthbenchError, UsageError


class Verbosity(Enum):
    """How much a command says."""

    QUIET = "quiet"
    """Errors and results only."""
    NORMAL = "normal"
    VERBOSE = "verbose"
    """File names and ids too, and where foreign code raised what it raised."""


_verbosity: ContextVar[Verbosity] = ContextVar("verbosity", default=Verbosity.NORMAL)


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Choose how much is said until the next call.

    Raises:
        UsageError: If both are asked for.
    """
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other; allowed: one of them")
    _verbosity.set(Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL)


def is_quiet() -> bool:
    """Whether only errors and results are printed."""
    return _verbosity.get() is Verbosity.QUIET


def is_verbose() -> bool:
    """Whether more is printed than usual."""
    return _verbosity.get() is Verbosity.VERBOSE


def inert(text: str) -> str:
    """What foreign code said, with control characters as their codes: a terminal would obey them."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"U+{ord(sign):04X}" for sign in text)


def note(text: str) -> None:
    """Say on stderr what is no result; ``--quiet`` silences it."""
    if not is_quiet():
        typer.echo(text, err=True)


def print_problem(problem: SynthbenchError, hint: str = "") -> None:
    """Print an error as one line; with ``--verbose``, above it the traceback of the code that raised it."""
    if is_verbose() and problem.__cause__ is not None:
        typer.echo(inert("".join(traceback.format_exception(problem.__cause__))), nl=False, err=True)
    typer.echo(f"synthbench: {problem}{hint}", err=True)


def width_of_stdout() -> int | None:
    """Characters of a line of the terminal; None where the output is read by another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_facts(
    facts: list[dict[str, Any]],
    columns: list[str],
    *,
    as_json: bool,
    broken: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print facts as JSON with all that is known, or as a table of some columns; then what is broken, and why."""
    if as_json:
        typer.echo(json.dumps([*facts, *({"name": name, "broken": why} for name, why in broken.items())], indent=1))
        return
    from tabulate import tabulate

    rows = [[_cell(fact[column]) for column in columns] for fact in facts]
    typer.echo(tabulate(rows, headers=columns, tablefmt="plain", disable_numparse=True))
    for name, why in broken.items():
        typer.echo(f"{name}  broken: {why}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        # Parameters carry more than their default; other facts are plain.
        plain = {name: entry["default"] if isinstance(entry, dict) else entry for name, entry in value.items()}
        return " ".join(f"{name}={entry}" for name, entry in plain.items())
    return "" if value is None else str(value)
