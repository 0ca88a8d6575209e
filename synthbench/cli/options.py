"""The options that several commands share, and how their values are parsed."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from synthbench import plugins
from synthbench.cli.output import set_verbosity
from synthbench.errors import ContractError, UsageError
from synthbench.runner.request import EXECUTORS

WITHOUT_ARGUMENTS = ("run", "status", "leaderboard", "report", "export")
"""Commands without arguments: after an option's value only another value can follow."""
REPEATABLE = ("--mech", "--task", "--plugin")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and results only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more: file names, row ids, tracebacks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
SuiteName = Annotated[str, typer.Option("--suite", help="A suite's name, or a TOML file.")]
Results = Annotated[Path, typer.Option("--results", envvar="SYNTHBENCH_RESULTS", help="Folder of the results store.")]
TaskTerms = Annotated[
    list[str] | None,
    typer.Option("--task", help="Names or globs, comma-separated; @category, all, !name; name:length=64 sets options."),
]
MechanismTerms = Annotated[
    list[str] | None,
    typer.Option("--mech", help="Names or globs, comma-separated; @family, all, !name; slay:R=3,P=8 sets options."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
_HERE, _ELSEWHERE = (
    " or ".join(name for name, kind in EXECUTORS.items() if kind.is_elsewhere == there and name != "auto")
    for there in (False, True)
)
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor", help=f"auto, {_HERE} on this machine; {_ELSEWHERE} on others. auto stays on this machine."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes (default: one per core), or elements of a SLURM array (default: 8)."),
]
BlockTerm = Annotated[
    str | None, typer.Option("--block", help="The block; aether:norm=pre sets options. Default: the suite's.")
]
Conv = Annotated[
    int | None,
    typer.Option(
        "--conv",
        help="Tokens that a short causal convolution sums in what each mechanism reads, such as 4. --block also takes "
        "conv=4,conv_on=qkv: on queries, keys and values.",
    ),
]
Gate = Annotated[
    bool, typer.Option("--gate", help="Multiply the output of each mechanism by a sigmoid of what it reads.")
]
Condition = Annotated[
    str | None,
    typer.Option(
        "--condition",
        help="stock: each layer as its authors build it, with their positions; bare: the recurrence or the scores "
        "alone. Default: the suite's.",
    ),
]
PositionsTerm = Annotated[
    str | None,
    typer.Option(
        "--positions",
        help="The position encoding: own, none, rope, espr, ... Default: the suite's; with --condition, each "
        "mechanism's own.",
    ),
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match",
        help="params or state: change the options or width of each mechanism until it has as many parameters or state "
        "elements as the suite's first; state=4096 sets the number.",
    ),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        help="A Python file or module that registers more components; repeatable. It runs with your rights.",
    ),
]
Shard = Annotated[
    str | None,
    typer.Option("--shard", help="2/3: run the second of three parts of the plan, to share it between machines."),
]
Seeds = Annotated[str | None, typer.Option(help="Root seeds: 42-51, or 0,3,7. Default: the suite's.")]
Rates = Annotated[
    str | None,
    typer.Option(help="Learning rates, some of those of the suite: 1e-2, or 3e-3,3e-2. Default: all of them."),
]


def takes(group: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the first argument of a command a dataclass, with its fields as options of the command."""
    shared = signature(group).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own_options = signature(command).parameters.values()

        @wraps(command)
        def spelled_out(**given: Any) -> None:
            command(group(**{name: given.pop(name) for name in shared}), **given)

        spelled_out.__signature__ = Signature([*shared.values(), *own_options])  # type: ignore[attr-defined]
        return spelled_out

    return decorate


def audible(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--quiet`` and ``--verbose`` to a command; they also work before its name."""
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("quiet", Quiet), ("verbose", Verbose))
    ]

    @wraps(command)
    def spoken(*, quiet: bool, verbose: bool, **given: Any) -> None:
        if quiet or verbose:
            set_verbosity(quiet=quiet, verbose=verbose)
        command(**given)

    parameters = signature(command).parameters.values()
    spoken.__signature__ = signature(command).replace(parameters=[*parameters, *options])  # type: ignore[attr-defined]
    return spoken


def load_what_loads(named: list[str] | None) -> dict[str, str]:
    """Load the plugins; return the faults of broken ones by name, so that they do not hide the others."""
    faults = {}
    for plugin in plugins.named(named):
        try:
            plugins.load([plugin])
        except ContractError as problem:
            faults[plugin] = str(problem)
    return faults


def spread(arguments: Sequence[str]) -> list[str]:
    """Give every name of ``--mech a b`` its own option, ``--mech a --mech b``, in commands without plain arguments.

    >>> spread(["run", "--mech", "slay", "gla", "--seeds", "1"])
    ['run', '--mech', 'slay', '--mech', 'gla', '--seeds', '1']
    """
    if not arguments or arguments[0] not in WITHOUT_ARGUMENTS:
        return list(arguments)
    spelled: list[str] = []
    option, num_values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            option, num_values = argument, 0
        elif option in REPEATABLE:
            num_values += 1
            if num_values > 1:
                spelled.append(option)
        spelled.append(argument)
    return spelled


def parse_lengths(text: str) -> list[int]:
    """Read ``32,64`` as 32, 64.

    Raises:
        UsageError: If a part is not a positive whole number.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(piece.isdecimal() and int(piece) for piece in pieces):
        raise UsageError(f"lengths are {text!r}; allowed: whole numbers from 1, as in 32,64,256")
    return [int(piece) for piece in pieces]


def parse_names(text: str) -> list[str]:
    """Read ``md, tex`` as md and tex."""
    return [name for name in (piece.strip() for piece in text.split(",")) if name]
