"""Print facts, tables, durations and messages, depending on the verbosity."""

import io
import json
import math
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal, TextIO

import typer

from synthbench.errors import SynthbenchError, UsageError
from synthbench.reports.render import visible

_verbosity: ContextVar[Literal["quiet", "normal", "verbose"]] = ContextVar("verbosity", default="normal")
"""The amount that commands print: errors and results only, messages too, or also file names, ids and tracebacks."""
_results: ContextVar[TextIO | None] = ContextVar("results", default=None)
"""The file that results are printed to; None for stdout."""


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Choose how much is printed from now on.

    Raises:
        UsageError: If both ``quiet`` and ``verbose`` are true.
    """
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other; allowed: one of them")
    _verbosity.set("quiet" if quiet else "verbose" if verbose else "normal")


def is_quiet() -> bool:
    """Return True if commands print only errors and results."""
    return _verbosity.get() == "quiet"


def is_verbose() -> bool:
    """Return True if commands also print file names, ids and tracebacks."""
    return _verbosity.get() == "verbose"


def say(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text to stdout, or to stderr if ``err`` is True; commands print every line with this function.

    A control character is printed as its code point, such as ``U+202E``.
    """
    typer.echo(visible(str(text), keep="\n\t"), file=None if err else _results.get(), nl=nl, err=err)


@contextmanager
def results_only() -> Iterator[None]:
    """Send all output in the ``with`` block to stderr, except results, which :func:`say` prints to stdout.

    If ``sys.stdout`` was not replaced before, output after the block goes to stderr too, since a plugin may still print
    something.
    """
    results = sys.stdout
    if results is sys.__stdout__ and isinstance(results, io.TextIOWrapper):
        results.flush()
        results = os.fdopen(os.dup(1), "w", encoding=results.encoding, errors=results.errors, buffering=1)
        os.dup2(2, 1)  # for good: the process ends with its command, and a plugin may print even then
    before = _results.set(results)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results.reset(before)


def note(text: str) -> None:
    """Print to stderr a message that is not a result, unless ``--quiet`` is set."""
    if not is_quiet():
        say(text, err=True)


def print_problem(problem: SynthbenchError, hint: str = "") -> None:
    """Print an error as one line; with ``--verbose``, print the traceback of its cause first."""
    if is_verbose() and problem.__cause__ is not None:
        say("".join(traceback.format_exception(problem.__cause__)), nl=False, err=True)
    say(f"synthbench: {visible(str(problem))}{hint}", err=True)


def width_of_stdout() -> int | None:
    """Return the width of the terminal in characters; None if another program reads the output."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_facts(
    facts: list[dict[str, Any]], columns: list[str], *, as_json: bool, broken: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Print facts as JSON or as a table of ``columns``, then name the components that do not load, with reasons."""
    if as_json:
        say(json.dumps([*facts, *({"name": name, "broken": why} for name, why in broken.items())], indent=1))
        return
    from tabulate import tabulate

    rows = [[_cell(fact[column]) for column in columns] for fact in facts]
    say(tabulate(rows, headers=columns, tablefmt="plain", disable_numparse=True))
    for name, why in broken.items():
        say(f"{name}  broken: {why}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "--" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, dict):
        # Each option is a dictionary with its default; other facts are plain values.
        plain = {name: entry["default"] if isinstance(entry, dict) else entry for name, entry in value.items()}
        return " ".join(f"{name}={entry}" for name, entry in plain.items())
    return "" if value is None else visible(str(value), keep="\t")


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Format a table as aligned lines, with two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in lines)
    return ["  ".join(line).rstrip() for line in padded]


def about(seconds: float) -> str:
    """Format an estimated duration in words, without false precision.

    >>> about(20.0), about(1860.0), about(8000.0), about(200_000.0)
    ('less than a minute', 'about 31 min', 'about 2 h 10 min', 'about 2.3 days')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return "less than a minute"
    if minutes < 100:
        return f"about {minutes} min"
    if minutes < 36 * 60:
        hours, rest = divmod(round(minutes / 10) * 10, 60)
        return f"about {hours} h {rest} min" if rest else f"about {hours} h"
    return f"about {minutes / 60 / 24:.1f} days"
