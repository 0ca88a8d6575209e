"""The Python interface: the commands, for a script or a notebook."""

import hashlib
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from synthbench.cli import check as examination
from synthbench.contract.checks import first_failure
from synthbench.contract.trial import Subject, Trial, vet
from synthbench.errors import ContractError, UnknownName, UsageError
from synthbench.first_verdict import FirstVerdict
from synthbench.first_verdict import quick as first_verdict
from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.mechanisms import mechanism as register
from synthbench.mechanisms._module import class_built_by, read_by
from synthbench.mechanisms.base import mechanism_made_of
from synthbench.options import MAIN_SUITE, check_seeds, parse_rates, parse_seeds
from synthbench.plugins import STANDS_FOR
from synthbench.registry import code_hash, set_code_hash
from synthbench.reports.aggregates import Interval, Rank
from synthbench.reports.build import build
from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard as leaderboard_of
from synthbench.reports.selection import select, suites_in
from synthbench.results import RUNS
from synthbench.runner import run as runner
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import Plan, plan_request
from synthbench.runner.request import Request
from synthbench.runner.run import RunReport, device_of, devices_of
from synthbench.trust import view

Module = type[nn.Module] | Callable[..., nn.Module]
"""A layer of your own, or a function that builds one."""

SESSION = "__main__"
"""Python module of code in a notebook or script, which runs in this process."""


class Markdown(str):
    """Text that a notebook shows as Markdown."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


class Tables(dict[str, Markdown]):
    """Tables by name; a notebook shows all, each under its title."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return "\n\n".join(self.values())

    def __repr__(self) -> str:
        return f"Tables({', '.join(self)})"


def run(
    request: Request | None = None,
    /,
    *,
    module: Module | None = None,
    suite: str = Request.suite,
    tasks: str | Sequence[str] = Request.tasks,
    mechanisms: str | Sequence[str] = Request.mechanisms,
    seeds: str | int | Sequence[int] | None = Request.seeds,
    rates: str | float | Sequence[float] | None = Request.rates,
    block: str | None = Request.block,
    positions: str | None = Request.positions,
    condition: str | None = Request.condition,
    match: str | None = Request.match,
    device: str = Request.device,
    steps: int | None = Request.steps,
    limit: int | None = Request.limit,
    results: str | Path = Request.results,
    executor: str = Request.executor,
    address: str | None = Request.address,
    workers: int | None = Request.workers,
    per_gpu: int | None = Request.per_gpu,
    timeout_s: float | None = Request.timeout_s,
    group_size: int | None = Request.group_size,
    rerun: str = Request.rerun,
    predictions: str | Path | None = Request.predictions,
    deterministic: bool = Request.deterministic,
    shard: str | None = Request.shard,
    only: Collection[tuple[str, str]] | None = Request.only,
    plugins: str | Sequence[str] = Request.plugins,
) -> RunReport:
    """Make the missing runs and write a row for each.

    ::

        synthbench.run(module=MyLayer, suite="core", tasks="@memory", mechanisms=["softmax", "gla"])

    Args:
        request: A request to begin with; options that differ from their defaults replace its own.
        module: A layer of your own, run beside ``mechanisms``: see :func:`mechanism_of`.
        suite: A suite's name or file.
        tasks: Names, categories (``@memory``) or patterns, as on the command line.
        mechanisms: The same, with options as in ``slay:R=3``. Default: those of the suite, or the module alone.
        seeds: Whole numbers, or a range such as ``42-44``. Default: those of the suite.
        rates: Some of the suite's learning rates. Default: all.
        block: The block around the mechanism. Default: the suite's.
        positions: The position encoding. Default: the suite's.
        condition: ``stock`` or ``bare``. Default: the suite's.
        match: ``params`` or ``state``: rescales mechanisms to the suite's first one, or to a number: ``state=4096``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        steps: Fewer training steps than the suite's; reports leave such rows out.
        limit: Fewer test sequences than the suite's; reports leave such rows out.
        results: Folder of the store.
        executor: ``auto``, ``inline``, ``pool``, ``ray`` or ``slurm``.
        address: Address of a running Ray cluster, or ``local`` to try out the slurm executor.
        workers: Worker processes; one per core if None. A module of this session runs in this process.
        per_gpu: Processes that share a GPU; one if None.
        timeout_s: Seconds after which a job is ended.
        group_size: Most runs to train as one program.
        rerun: Finished runs to make again: ``none``, ``failed`` or ``all``.
        predictions: Folder for each model's predictions in the test.
        deterministic: Use deterministic algorithms only.
        shard: ``2/3``: the second of three parts of the plan.
        only: Pairs of task and mechanism names to run.
        plugins: Files and Python modules with further components.

    Returns:
        ``ok``, ``rows`` as a data frame, ``failed``.

    Raises:
        UnknownName: If an option names something that does not exist.
        UsageError: If a value is not allowed.
        StoreError: If the store cannot be written.
        ContractError: If a plugin cannot be loaded, or the module fails a check; then nothing is run.
    """
    return runner.run(_request(dict(locals())))


def plan(request: Request | None = None, /, **options: Any) -> Plan:
    """Return the plan that the same call of :func:`run` would carry out.

    Raises:
        UnknownName: If an option names something that does not exist.
        UsageError: If a value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    request = _request({"request": request, **options})
    return plan_request(request, device_of(request))


# For completion, without a second list of all options.
vars(plan)["__signature__"] = inspect.signature(run).replace(return_annotation=Plan)


def quick(
    mechanism: str | None = None,
    *,
    module: Module | None = None,
    against: str | None = None,
    suite: str = MAIN_SUITE,
    results: str | Path = Request.results,
    ledger: str | Path | None = None,
    minutes: float | None = None,
    plugins: str | Sequence[str] = (),
    device: str = Request.device,
    executor: str = Request.executor,
    workers: int | None = None,
) -> FirstVerdict:
    """Give a first verdict: run one seed of a ladder's quick tasks, and compare it with other mechanisms.

    Args:
        mechanism: One mechanism, with options as in ``slay:R=3,P=8``, or a plugin file that registers one.
        module: A layer of your own instead: see :func:`mechanism_of`.
        against: The reference, any mechanism with rows of these tasks. Default: the best packaged one of the same class
            (linear time, no more state).
        suite: A suite with a ladder.
        results: Folder of the store.
        ledger: File that counts the comparisons of a search; ``quick.jsonl`` in ``results`` if None.
        minutes: Most minutes of training, roughly; fewer tasks are run if they take longer.
        plugins: Files and modules with further mechanisms.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        executor: ``auto``, or another that ``synthbench run --executor`` takes.
        workers: Worker processes; one per core if None.

    Returns:
        Scores by task and category, ``combined_score`` and ``rank`` in the full suite, and ``decision``: ``keep``,
        ``discard`` or ``undecided``; ``print`` shows it as the command does.

    Raises:
        UnknownName: If the mechanism, the reference or the suite does not exist.
        UsageError: If a value is not allowed.
        StoreError: If a store or the ledger cannot be read or written.
        ContractError: If a plugin cannot be loaded, or the mechanism or module fails a check.
    """
    if (mechanism is None) == (module is None):
        raise UsageError(f"mechanism is {mechanism!r} and module {module!r}; allowed: one of the two")
    name = mechanism if module is None else _checked(module, device)
    return first_verdict(
        str(name),
        against=against,
        suite=suite,
        results=Path(results),
        ledger=None if ledger is None else Path(ledger),
        minutes=minutes,
        plugins=[*_listed("plugins", plugins), *([] if module is None else _home_of(str(name)))],
        device=device,
        executor=executor,
        workers=workers,
    )


def leaderboard(rows: pd.DataFrame, suite: str | None = None) -> pd.DataFrame:
    """Rank the mechanisms that have a run of every task of a suite, best first.

    Args:
        rows: Rows, as :func:`load` gives them.
        suite: Its name. Default: the only one in the rows.

    Returns:
        One row per mechanism: the mean skill of every category, then ``skill`` (mean), ``iqm`` (interquartile mean),
        ``solved`` (share of solved runs), ``rank`` and ``num_seeds``, the fewest on a task. The first three have the
        ends of their 95 % intervals for these tasks and other seeds, ``rank`` those for tasks like these. A mechanism
        with one seed has an interval if another has more; if none has, the ends for other seeds are NaN.

    Raises:
        UnknownName: If the rows have no full run of the suite.
        UsageError: If the suite must be named.
    """
    board = leaderboard_of(grid(select(*_seen(rows, suite)).without_variants().rows))
    return pd.DataFrame(
        {
            "mechanism": entry.mechanism.label,
            **{category: skill.value for category, skill in entry.categories.items()},
            **_columns("skill", entry.skill),
            **_columns("iqm", entry.middle),
            **_columns("solved", entry.solved),
            **_columns("rank", entry.rank),
            "num_seeds": entry.num_seeds[0],
        }
        for entry in board.entries
    ).set_index("mechanism")


def tables(rows: pd.DataFrame, suite: str | None = None) -> Tables:
    """Write the tables of a report as Markdown, by name; a notebook shows all, or the one that is picked.

    Raises:
        UnknownName: If the rows have no full run of the suite.
        UsageError: If the suite must be named.
    """
    rows, suite = _seen(rows, suite)
    files = build(rows, None, suite, formats=["md"])
    return Tables(
        (name.removesuffix(".md"), Markdown(text))
        for name, text in files.items()
        if name.endswith(".md") and name != "README.md" and isinstance(text, str)
    )


def check(
    target: str | Module, *, plugins: str | Sequence[str] = (), device: str = "cpu", timeout_s: float | None = None
) -> pd.DataFrame:
    """Check a component, a layer of your own, or all components of a plugin; docs/plugins.md lists the checks.

    Args:
        target: A component's name, with options as in ``slay:R=3``, the file of a plugin, or what :func:`mechanism_of`
            takes.
        plugins: Other plugins, loaded first.
        device: The device on which mechanisms are checked.
        timeout_s: Seconds after which a component that hangs is given up; 300 if None.

    Returns:
        One row per check: ``component``, ``check``, ``meaning``, ``state`` (passed, warning, FAILED, not tried) and
        ``detail``.

    Raises:
        UnknownName: If nothing has this name.
        UsageError: If an argument is not allowed.
        ContractError: If a plugin cannot be loaded, or a component cannot be built.
    """
    name = target if isinstance(target, str) else mechanism_of(target)
    devices = (str(resolve_device(device)),)
    loaded = [*_listed("plugins", plugins), *([] if isinstance(target, str) else _home_of(name))]
    reports = examination.check(name, loaded, timeout_s, devices)
    return pd.DataFrame({"component": report["name"], **result} for report in reports for result in report["checks"])


def mechanism_of(module: Module) -> str:
    """Register a layer of your own as a mechanism of this session, and return its name.

    It replaces an earlier one of the same name, as when a notebook cell runs again.

    >>> mechanism_of(lambda width, groups: nn.Linear(width, width))
    Traceback (most recent call last):
    synthbench.errors.UsageError: Module cannot be built as a mechanism: its constructor requires 'groups'; ...

    Args:
        module: A class of a causal ``nn.Module`` from [batch, length, width] to the same shape, or a function that
            builds one, as ``lambda width, num_heads: ...``. Parameters with usual names of width, heads and longest
            sequence are supplied; docs/plugins.md lists them.

    Raises:
        UsageError: If it is neither, requires something else, or has the name of another mechanism.
    """
    if isinstance(module, nn.Module) or not callable(module):
        kind = f"an instance of {type(module).__name__}" if isinstance(module, nn.Module) else repr(module)
        raise UsageError(
            f"module is {kind}; allowed: a class of nn.Module or a function that builds one, since each run draws "
            "its own weights"
        )
    is_class = isinstance(module, type) and issubclass(module, nn.Module)
    layer: type[Any] = module if is_class else class_built_by(module)  # type: ignore[assignment]
    known = vars(layer).get(STANDS_FOR, layer)
    if known in MECHANISMS.registered():
        return str(known.name)
    if issubclass(layer, Mechanism):
        heir: type[Mechanism] = register(type(layer.__name__, (layer,), {"__module__": SESSION}))
        return heir.name
    made = mechanism_made_of(layer, {}, SESSION)
    MECHANISMS.register(made)
    if not is_class and (read := read_by(module)):  # no source says what these values are now
        read_in = f"{code_hash(made)} {sorted(read.items())}"
        set_code_hash(made, hashlib.sha256(read_in.encode()).hexdigest()[:12])
    return made.name


def _home_of(name: str) -> list[str]:
    """List the Python module that a worker imports for a mechanism; none for a session's or a package's."""
    origin = MECHANISMS[name].__module__
    return [] if origin == SESSION or "/" in name or MECHANISMS.is_built_in(name) else [origin]


def _checked(module: Module, device: str) -> str:
    """Check a layer of your own and return its name.

    Raises:
        ContractError: If it fails a check.
    """
    name = mechanism_of(module)
    subject = Subject(MECHANISMS.kind, name)
    with Trial(_home_of(name)) as trial:
        failure = first_failure(vet([subject], trial, devices=devices_of(resolve_device(device)))[subject])
    if failure is not None:
        raise ContractError(failure)
    return name


def _columns(name: str, estimate: Interval | Rank) -> dict[str, float | int]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _request(given: dict[str, Any]) -> Request:
    """Build the request that the arguments of :func:`run` describe."""
    request, module = given.pop("request") or Request(), given.pop("module", None)
    defaults = {field.name: field.default for field in fields(Request)}
    for option in given:
        if option not in defaults:
            raise UnknownName("option", option, defaults)
    changes = {option: value for option, value in given.items() if value is not defaults[option]}
    for listed in {"tasks", "mechanisms", "plugins"} & changes.keys():
        changes[listed] = _listed(listed, changes[listed])
    if "seeds" in changes:
        changes["seeds"] = _seeds(changes["seeds"])
    if "rates" in changes:
        changes["rates"] = _rates(changes["rates"])
    for folder in {"results", "predictions"} & changes.keys():
        changes[folder] = changes[folder] and Path(changes[folder])
    request = replace(request, **changes)
    if module is not None:
        name = _checked(module, request.device)
        plugins = [*request.plugins, *_home_of(name)]
        return replace(request, mechanisms=[name, *request.mechanisms], plugins=plugins)
    return request


def _listed(option: str, given: Any) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"{option} has {name!r}; allowed: names, as on the command line")
    return names


def _seeds(given: Any) -> tuple[int, ...]:
    if given is None:  # those of the suite
        return ()
    return parse_seeds(given) if isinstance(given, str) else check_seeds([given] if isinstance(given, int) else given)


def _rates(given: Any) -> tuple[float, ...]:
    if given is None:  # all of the suite
        return ()
    return parse_rates(given) if isinstance(given, str) else tuple([given] if isinstance(given, int | float) else given)


def _seen(rows: pd.DataFrame, suite: str | None) -> tuple[pd.DataFrame, str]:
    """Return the rows as a suite shows them, and its name."""
    name = _suite(rows, suite)
    return view.seen_from(rows, name), name


def _suite(rows: pd.DataFrame, suite: str | None) -> str:
    if missing := [name for name in RUNS.names if name not in rows]:
        raise UsageError(f"the rows lack the column {missing[0]!r}; load them with all columns")
    if suite is not None:
        return suite
    suites = suites_in(rows)
    if len(suites) != 1:
        named = ", ".join(sorted(set(rows["suite"]))) or "none"
        raise UsageError(f"the rows are of the suites {named}; name one in suite")
    return suites[0]
