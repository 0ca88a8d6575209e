"""Command-line options that several commands share, under the headings of the help, and parsers of their values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from synthbench import plugins
from synthbench.cli.output import set_verbosity
from synthbench.errors import ContractError, SynthbenchError, UsageError
from synthbench.options import LARGEST, MAIN_SUITE
from synthbench.runner.request import EXECUTORS

selecting, modelling, executing, reading, printing = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("What to select", "Model", "How to run", "Rows and components", "Output")
)

Quiet = Annotated[bool, printing("--quiet", "-q", help="Print errors and results only.")]
Verbose = Annotated[bool, printing("--verbose", "-v", help="Print more: file names, run ids, tracebacks.")]
AsJson = Annotated[bool, printing("--json", help="Print JSON to stdout.")]
SuiteName = Annotated[str, selecting(help="A suite's name, or a TOML file.")]
ReportedSuite = Annotated[
    str | None,
    selecting(
        help=f"The suite whose rows to read. Default: that of your newest rows, else {MAIN_SUITE} if it has some."
    ),
]
SuiteVersion = Annotated[
    str | None, selecting(help="The suite's version. Default: the newest of your own rows, else the newest.")
]
TaskTerms = Annotated[
    list[str] | None,
    selecting("--task", help="Names or globs, comma-separated; @category, all, !name; name:length=64 sets options."),
]
MechanismTerms = Annotated[
    list[str] | None,
    selecting("--mech", help="Names or globs, comma-separated; @family, all, !name; slay:R=3,P=8 sets options."),
]
Seeds = Annotated[str | None, selecting(help="Root seeds: 42-51, or 0,3,7. Default: the suite's, or all with rows.")]
BlockTerm = Annotated[str | None, modelling(help="The block; aether:norm=pre sets options. Default: the suite's.")]
Condition = Annotated[
    str | None,
    modelling(
        help="stock: each layer as its authors build it, with their positions; bare: the recurrence or the scores "
        "alone. Default: the suite's."
    ),
]
PositionsTerm = Annotated[
    str | None,
    modelling(
        help="The position encoding: own, none, rope, espr, ... Default: the suite's; with --condition, each "
        "mechanism's own."
    ),
]
Device = Annotated[str, executing(help="auto, cpu, cuda or cuda:1.")]
_HERE, _ELSEWHERE = (
    " or ".join(name for name, kind in EXECUTORS.items() if kind.is_elsewhere == there and name != "auto")
    for there in (False, True)
)
ExecutorName = Annotated[
    str, executing(help=f"{_HERE} on this machine; {_ELSEWHERE} on others. auto stays on this machine.")
]
Workers = Annotated[
    int | None, executing(help="Worker processes (default: one per core), or elements of a SLURM array (default: 8).")
]
Results = Annotated[Path, reading(envvar="SYNTHBENCH_RESULTS", help="Folder of the results store.")]
Beside = Annotated[
    str | None,
    reading(help="Another store whose rows to show: its folder, a .parquet file or a .tar.gz bundle. It is only read."),
]
Packaged = Annotated[bool, reading("--packaged/--no-packaged", help="Also read the rows that come with synthbench.")]
Plugins = Annotated[
    list[str] | None,
    reading(
        "--plugin", help="A Python file or module that registers more components; repeatable. It runs with your rights."
    ),
]


def takes(group: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a decorator that replaces a command's first parameter, of dataclass ``group``, by one option per field."""
    shared = signature(group).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own_options = signature(command).parameters.values()

        @wraps(command)
        def wrapper(**given: Any) -> None:
            command(group(**{name: given.pop(name) for name in shared}), **given)

        wrapper.__signature__ = Signature([*shared.values(), *own_options])  # type: ignore[attr-defined]
        return wrapper

    return decorate


@contextmanager
def suspected() -> Iterator[None]:
    """Turn an exception that plugins may have caused into an error of one line.

    Raises:
        ContractError: If plugins are loaded, and the ``with`` block raises an exception that is neither a
            :class:`SynthbenchError` nor raised to exit. An ``OSError`` counts only if its traceback has a line of a
            plugin.
    """
    try:
        yield
    except (SynthbenchError, typer.Exit):
        raise
    except BaseException as problem:
        plugins.raise_interrupt(problem)
        units = [unit for registry in plugins.REGISTRIES for unit in registry.registered()]
        foreign = [unit for unit in units if not plugins.is_built_in(unit)]
        place = next(filter(None, (plugins.raised_at(problem, unit) for unit in foreign)), None)
        if not foreign or (isinstance(problem, OSError) and place is None):
            raise
        where = f" ({place})" if place else f"; the fault may lie in a loaded plugin: {', '.join(plugins.loaded())}"
        raise ContractError(f"{plugins.reason(problem)}{where}") from problem


def with_verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--quiet`` and ``--verbose`` to a command; both options also work before the command's name."""
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("quiet", Quiet), ("verbose", Verbose))
    ]

    @wraps(command)
    def wrapper(*, quiet: bool, verbose: bool, **given: Any) -> None:
        if quiet or verbose:
            set_verbosity(quiet=quiet, verbose=verbose)
        with suspected():
            command(**given)

    parameters = signature(command).parameters.values()
    wrapper.__signature__ = signature(command).replace(parameters=[*parameters, *options])  # type: ignore[attr-defined]
    return wrapper


def load_what_loads(named: list[str] | None) -> dict[str, str]:
    """Load all plugins that can be loaded; return the error message of every other plugin, by plugin name."""
    faults = {}
    for plugin in plugins.named(named):
        try:
            plugins.load([plugin])
        except ContractError as problem:
            faults[plugin] = str(problem)
    return faults


def parse_sizes(option: str, text: str) -> list[int]:
    """Split an option's comma-separated numbers, such as lengths: ``32,64`` becomes the numbers 32 and 64.

    Raises:
        UsageError: If a number is not a whole number from 1 to ``LARGEST``, or if it appears twice.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    sizes = [int(piece) if piece.isdecimal() else 0 for piece in pieces]
    if not all(1 <= size <= LARGEST for size in sizes) or len(set(sizes)) < len(sizes):
        raise UsageError(
            f"{option} is {text!r}; allowed: whole numbers from 1 to {LARGEST}, each once, as in 32,64,256"
        )
    return sizes


def parse_names(option: str, text: str) -> list[str]:
    """Split an option's comma-separated names: ``md, tex`` becomes ``md`` and ``tex``.

    Raises:
        UsageError: If there is no name.
    """
    names = [name for name in (piece.strip() for piece in text.split(",")) if name]
    if not names:
        raise UsageError(f"{option} is {text!r}; allowed: one or more names, separated by commas")
    return names
