"""The commands, grouped by purpose, and the handling of wrong command lines, errors and full disks."""

import io
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from synthbench import __version__
from synthbench.cli.bench import bench_app
from synthbench.cli.data import data
from synthbench.cli.doctor import doctor
from synthbench.cli.listing import list_app, show
from synthbench.cli.options import Quiet, Verbose, with_verbosity
from synthbench.cli.output import note, print_problem, say, set_verbosity
from synthbench.cli.plugins import check, new
from synthbench.cli.quick import quick
from synthbench.cli.reporting import export, leaderboard, report
from synthbench.cli.running import run, status
from synthbench.cli.shortcuts import shortcuts
from synthbench.cli.store import store_app
from synthbench.cli.submissions import compare, submit, verify
from synthbench.errors import StoreError, SynthbenchError, UnknownName, UsageError
from synthbench.plugins import Interrupted, hint_for, loaded
from synthbench.process import end_at_once

OLD_NAMES: Mapping[str, str] = MappingProxyType({"--members": "--batched"})
"""Present names of renamed options, by old name; old names still work."""

GRACE_S = 1.0
"""Seconds that a thread of a plugin has to end after the command."""

_WrongLine: type[Any] = typer.BadParameter.__mro__[1]
"""The base class of typer's errors for wrong command lines, which typer does not export."""


class Command(TyperCommand):
    """A command whose options may take several values; each error message is one line and names the wrong word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the command's name.

        Raises:
            UsageError: If a word is not allowed.
        """
        if not any(isinstance(parameter, TyperArgument) for parameter in self.params):
            args = spread(args, [name for parameter in self.params if parameter.multiple for name in parameter.opts])
        args = [_current(word) for word in args]
        for before, word in pairwise(["", *args]):
            name, equals, value = word.partition("=")
            if not word or (name.startswith("--") and equals and not value):
                # Typically an unset variable of the shell; as a path, it would be the current folder.
                what = name or (before if before.startswith("-") else "an argument")
                raise UsageError(f"{self.name}: {what} is ''; allowed: any value that is not empty")
        try:
            return super().parse_args(ctx, [*args])
        except _WrongLine as problem:
            raise self._refusal(problem, args) from None

    def _refusal(self, problem: Any, args: list[str]) -> UsageError:
        if hasattr(problem, "possibilities"):
            return _unknown_option(self, problem)
        names = problem.param.opts if getattr(problem, "param", None) else []
        given = [f"{word} is {value!r}" for word, value in pairwise(args) if word in names]
        what = " ".join((problem.message if given else problem.format_message()).split()).rstrip(".")
        return UsageError(f"{self.name}: {'; '.join([*given, what[:1].lower() + what[1:]])}")


class Group(TyperGroup):
    """A group of commands; the error for a misspelt command or option suggests the nearest name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the group's name.

        Raises:
            UnknownName: If there is no such option.
        """
        try:
            return super().parse_args(ctx, args)
        except _WrongLine as problem:
            raise _unknown_option(self, problem) if hasattr(problem, "possibilities") else problem from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names.

        Raises:
            UnknownName: If there is no such command.
        """
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise UnknownName("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


def _unknown_option(command: TyperCommand | TyperGroup, problem: Any) -> UnknownName:
    names = [name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)]
    return UnknownName(f"option of {command.name!r}", problem.option_name, names)


def spread(words: Sequence[str], repeatable: Sequence[str]) -> list[str]:
    """Repeat an option before each of its values: ``--mech a b`` becomes ``--mech a --mech b``.

    >>> spread(["--mech", "slay", "gla", "--seeds", "1"], ["--mech"])
    ['--mech', 'slay', '--mech', 'gla', '--seeds', '1']

    Args:
        words: Words of the command line.
        repeatable: Options that may take several values.
    """
    spelled: list[str] = []
    option, num_values = "", 0
    for word in words:
        if word.startswith("-"):
            option, num_values = word, 0
        elif option in repeatable:
            num_values += 1
            if num_values > 1:
                spelled.append(option)
        spelled.append(word)
    return spelled


def _current(word: str) -> str:
    """Replace the old name of a renamed option by its present name, and tell the user."""
    name, equals, value = word.partition("=")
    if name not in OLD_NAMES:
        return word
    note(f"{name} is now {OLD_NAMES[name]}")
    return OLD_NAMES[name] + equals + value


app = typer.Typer(
    name="synthbench",
    help="Synthetic sequence tasks for attention mechanisms: a benchmark suite and a leaderboard.",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
for panel, commands in {
    "Use": (list_app, show, quick, run, status, check, new),
    "Report": (leaderboard, compare, report, export),
    "Share": (submit, verify),
    "Maintain": (store_app, doctor, bench_app, data, shortcuts),
}.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel, cls=Group)
            for registered in command.registered_commands:
                if registered.callback is not None:
                    registered.cls, registered.callback = Command, with_verbosity(registered.callback)
        else:
            app.command(cls=Command, rich_help_panel=panel)(with_verbosity(command))


def handle_signals() -> None:
    """Make Ctrl-C raise :class:`Interrupted`, and SIGTERM and SIGHUP call :func:`end_at_once`.

    Signals that are ignored stay ignored, such as SIGHUP after ``nohup``.
    """
    process = os.getpid()

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    def end(number: int, _frame: object) -> None:
        if os.getpid() == process:
            end_at_once(128 + number)
        os._exit(128 + number)  # a fork of the process, to which nothing belongs

    for number, handler in ((signal.SIGINT, interrupt), (signal.SIGTERM, end), (signal.SIGHUP, end)):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def run_app() -> None:
    """Run the command line, and exit; threads that a plugin has left running are not waited for."""
    try:
        _run_app()
    except SystemExit as end:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon and loaded():
                thread.join(GRACE_S)
                if thread.is_alive():
                    note(f"thread {thread.name!r}, which a plugin may have started, is still running: it is ended")
                    sys.stdout.flush()
                    end_at_once(int(end.code or 0))
        raise


def _run_app() -> None:
    """Run the command line; after a user error or a full disk, print one line to stderr and exit with an error code."""
    handle_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the terminal lacks is shown as its code
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        if not re.fullmatch("[1-9][0-9]{1,3}", os.environ.get(name, "")):  # rich prints nothing in a width of 0
            os.environ.pop(name, None)
    try:
        app()
    except SynthbenchError as problem:
        hint = hint_for(problem.name) if isinstance(problem, UnknownName) else ""
        print_problem(problem, hint)
        sys.exit(problem.exit_code)
    except OSError as problem:
        say(f"synthbench: {problem if _has_folder() else 'the current folder no longer exists'}", err=True)
        # The unwritten text is still in the buffer of stdout; writing it would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(StoreError.exit_code)


def _has_folder() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


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
    if sys.flags.optimize > 1:
        note("Python runs with -OO or PYTHONOPTIMIZE=2, which removes descriptions: some texts and matches are missing")
