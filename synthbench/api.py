"""The commands of the command line as Python functions, for a script or a notebook."""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from synthbench.cli import check as examination
from synthbench.contract.checks import first_failure
from synthbench.contract.components import Component, check_foreign
from synthbench.contract.isolated import IsolatedProcess
from synthbench.errors import ContractError, UnknownName, UsageError
from synthbench.first_verdict import FirstVerdict
from synthbench.first_verdict import quick as first_verdict
from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.mechanisms import mechanism as register
from synthbench.mechanisms._module import class_built_by, read_by
from synthbench.mechanisms.base import mechanism_made_of
from synthbench.options import MAIN_SUITE, check_seeds, parse_rates, parse_seeds
from synthbench.plugins import STANDS_FOR, file_of
from synthbench.registry import hash_of, set_code_hash
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
"""Name of the Python module that holds the code of a notebook or script; its layers can run only in this process."""


class Markdown(str):
    """Text that a notebook shows as Markdown."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


class Tables(dict[str, Markdown]):
    """Markdown tables by name; a notebook displays all of them, each under its title."""

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
    """Train and test the requested runs that have no row in the results store yet, and add a row for each run.

    A run trains one mechanism on one task with one seed and one learning rate. ::

        synthbench.run(module=MyLayer, suite="core", tasks="@memory", mechanisms=["softmax", "gla"])

    Args:
        request: A prepared request, which has a field for each argument below except ``module``. An argument that
            differs from its default replaces the field of the request.
        module: A layer of your own, run in addition to any ``mechanisms`` given: see :func:`mechanism_of`.
        suite: A suite's name or file.
        tasks: Task names, categories (``@memory``) or patterns (``s*``), as on the command line.
        mechanisms: Mechanism names (``slay``, or ``slay:R=3`` to set an option), families (``@linear``) or patterns.
            Default: ``module`` alone if it is given, otherwise the mechanisms of the suite.
        seeds: Whole numbers, or a range such as ``42-44``. Default: the seeds of the suite.
        rates: Learning rates to use, chosen from the learning rates of the suite. Default: all rates of the suite.
        block: Name of the block (the layers around the mechanism). Default: the suite's.
        positions: Name of the position encoding. Default: the suite's.
        condition: ``stock`` (layers as their authors build them) or ``bare`` (only the recurrence or the attention
            scores). Default: the suite's.
        match: ``params`` or ``state``: rescale all mechanisms to the number of parameters or the state size of the
            suite's first mechanism, or to a given number, as in ``state=4096``. None: no rescaling.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        steps: Number of training steps; None for the suite's number. Reports omit runs with fewer steps.
        limit: Number of test sequences; None for the suite's number. Reports omit runs with fewer test sequences.
        results: Folder of the results store.
        executor: Program that starts the workers: ``auto``, or any other value that ``synthbench run --executor``
            accepts.
        address: Address of a running Ray cluster. With the executor ``slurm``, the address ``local`` runs the jobs on
            this machine, for a trial.
        workers: Number of worker processes. None: one per core, or eight with SLURM. If a layer is defined in this
            notebook or script, only this process can run it; ``workers``, ``per_gpu`` and ``timeout_s`` must then be
            None.
        per_gpu: Number of worker processes on each GPU. None: one.
        timeout_s: Time limit in seconds for a job, which is a group of runs that one worker trains. A job that exceeds
            the limit is ended. None: no limit.
        group_size: Largest number of runs to train together as one batched program. None: a number that suits the
            device and the number of tokens per step.
        rerun: Runs to repeat although they have a row: ``none``, ``failed`` or ``all``.
        predictions: Folder for the predictions of trained models on the test sequences. None: they are not saved.
        deterministic: True to use only deterministic algorithms, and to repeat runs whose rows were made without them.
        shard: Part of the requested runs to train: ``2/3`` is the second of three parts. None: all runs.
        only: Pairs (task name, mechanism name) to run. None: every task with every mechanism.
        plugins: Plugin files and Python modules that register further components.

    Returns:
        A report. ``rows`` is a data frame with the stored rows of all requested runs. ``failed`` lists the runs of this
        call that ended without a score. ``ok`` is True if every requested run has a row with a score.

    Raises:
        UnknownName: If an argument names a component, suite or option that does not exist.
        UsageError: If a value is not allowed.
        StoreError: If the store cannot be written.
        ContractError: If a plugin cannot be loaded, or if ``module`` fails a check. Nothing is run in either case.
    """
    return runner.run(_request(dict(locals())))


def plan(request: Request | None = None, /, **options: Any) -> Plan:
    """Return what :func:`run` would do with the same arguments: the runs without a stored row, grouped into jobs.

    Raises:
        UnknownName: If an argument names a component, suite or option that does not exist.
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
    """Judge a mechanism quickly: train it with one seed on a few tasks of a suite, and compare it with a reference.

    Args:
        mechanism: Name of one mechanism (options as in ``slay:R=3,P=8``), or a plugin file that registers one
            mechanism.
        module: A layer of your own, in place of ``mechanism``: see :func:`mechanism_of`.
        against: Name of the reference. Rows of the reference on the same tasks must be in ``results`` or come with
            synthbench. Default: the best mechanism of the suite. If ``mechanism`` has a state of fixed size, the
            default is the best mechanism with a fixed state of at most that size. If there is none, the default is the
            mechanism with the smallest fixed state.
        suite: Name or file of a suite whose tasks have several levels of difficulty.
        results: Folder of the results store.
        ledger: File that records every comparison with a reference. The largest p value that allows the decision
            ``keep`` depends on the comparisons already in the file. None: ``quick.jsonl`` in ``results``.
        minutes: Approximate limit on training time, in minutes. If all tasks would take longer, fewer tasks are run.
            None: no limit.
        plugins: Plugin files and Python modules that register further mechanisms.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        executor: Program that starts the workers: ``auto``, or any other value that ``synthbench run --executor``
            accepts.
        workers: Number of worker processes; one per core if None. Must be None if ``module`` is defined in this
            notebook or script.

    Returns:
        The verdict. It holds the scores by task and by category, and the ``decision``: ``keep``, ``discard`` or
        ``undecided``. Its ``combined_score`` and ``rank`` are predictions for the full suite. Printing the verdict
        gives the text that the command ``synthbench quick`` prints.

    Raises:
        UnknownName: If the mechanism, the reference or the suite does not exist.
        UsageError: If a value is not allowed.
        StoreError: If a store or the ledger cannot be read or written.
        ContractError: If a plugin cannot be loaded, or if the mechanism or module fails a check.
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
        rows: Rows of a store with all columns, as :func:`load` returns them.
        suite: Name of the suite. Default: the only suite in the rows.

    Returns:
        A data frame with one row per mechanism. The first columns hold the mean skill in each task category, from 0
        (floor) to 1 (ceiling). Then come ``skill`` (mean), ``iqm`` (interquartile mean), ``solved`` (fraction of runs
        that solved their task), ``rank`` and ``num_seeds`` (number of seeds on the task with the fewest seeds). Columns
        such as ``skill_low`` and ``skill_high`` hold the ends of 95 % intervals. The intervals of ``skill``, ``iqm``
        and ``solved`` treat the tasks as fixed and the seeds as random. The interval of ``rank`` treats the tasks as a
        random sample. If all mechanisms have only one seed, the ends for ``skill`` and ``iqm`` are NaN.

    Raises:
        UnknownName: If the rows have no run of the suite.
        UsageError: If ``suite`` is None and the rows do not belong to exactly one suite, or if the rows lack a required
            column. It is also raised if no run can be shown, for example because all runs were shortened.
    """
    board = leaderboard_of(grid(select(*_seen(rows, suite)).without_variants().rows))
    return pd.DataFrame(
        {
            "mechanism": entry.mechanism.label,
            **{name: part.skill_of(entry.mechanism).value for name, part in board.parts.items() if part.tasks},
            **_columns("skill", entry.skill),
            **_columns("iqm", entry.middle),
            **_columns("solved", entry.solved),
            **_columns("rank", entry.rank),
            "num_seeds": entry.num_seeds[0],
        }
        for entry in board.entries
    ).set_index("mechanism")


def tables(rows: pd.DataFrame, suite: str | None = None) -> Tables:
    """Return a dictionary of a report's tables in Markdown, with their names as keys; a notebook displays all of them.

    Args:
        rows: Rows of a store with all columns, as :func:`load` returns them.
        suite: Name of the suite. Default: the only suite in the rows.

    Raises:
        UnknownName: If the rows have no run of the suite.
        UsageError: If ``suite`` is None and the rows do not belong to exactly one suite, or if the rows lack a required
            column. It is also raised if no run can be shown, for example because all runs were shortened.
    """
    rows, suite = _seen(rows, suite)
    files = build(rows, None, suite, formats=["md", "pages"])
    return Tables(
        (name.removesuffix(".md"), Markdown(text))
        for name, text in files.items()
        if name.endswith(".md") and name != "README.md" and isinstance(text, str)
    )


def check(
    target: str | Module, *, plugins: str | Sequence[str] = (), device: str = "cpu", timeout_s: float | None = None
) -> pd.DataFrame:
    """Run the checks on a component (such as a mechanism), on a layer of your own, or on all components of a plugin.

    The file docs/plugins.md explains each check.

    Args:
        target: A component's name (options as in ``slay:R=3``), a plugin's file, or a layer of your own that
            :func:`mechanism_of` accepts.
        plugins: Other plugins to load first.
        device: The device on which mechanisms are checked.
        timeout_s: Time in seconds after which a component that does not return is stopped. None: 300.

    Returns:
        A data frame with one row per check and the columns ``component``, ``check``, ``meaning``, ``state`` (passed,
        warning, FAILED, not tried) and ``detail``.

    Raises:
        UnknownName: If no component is called ``target``.
        UsageError: If a value is not allowed.
        ContractError: If a plugin cannot be loaded, or if a component cannot be built.
    """
    name = target if isinstance(target, str) else mechanism_of(target)
    devices = (str(resolve_device(device)),)
    loaded = [*_listed("plugins", plugins), *(file_of(target) if isinstance(target, str) else _home_of(name))]
    with IsolatedProcess(loaded, timeout_s) as isolated:
        reports = examination.check(name, isolated, devices)
    return pd.DataFrame({"component": report["name"], **result} for report in reports for result in report["checks"])


def mechanism_of(module: Module) -> str:
    """Register a layer of your own as a mechanism until this process ends, and return the mechanism's name.

    If you define a layer again under the same name, as when a notebook cell runs again, the new layer replaces the old
    one.

    >>> mechanism_of(lambda width, groups: nn.Linear(width, width))
    Traceback (most recent call last):
    synthbench.errors.UsageError: Module cannot be built as a mechanism: its constructor requires 'groups'; ...

    Args:
        module: Class of a causal ``nn.Module`` that maps [batch, length, width] to the same shape, or a function that
            builds such a module, such as ``lambda width, num_heads: ...``. Arguments for the width, the number of heads
            and the longest sequence are filled in if they have usual names; docs/plugins.md lists these names.

    Raises:
        UsageError: If ``module`` is neither a class nor a function, or if it requires an argument that cannot be filled
            in. It is also raised if the layer's name already belongs to another mechanism, such as a built-in one.
    """
    if isinstance(module, nn.Module) or not callable(module):
        kind = f"an instance of {type(module).__name__}" if isinstance(module, nn.Module) else repr(module)
        raise UsageError(
            f"module is {kind}; allowed: a class of nn.Module or a function that builds one, since each run draws "
            "its own weights"
        )
    is_class = isinstance(module, type) and issubclass(module, nn.Module)
    layer: type[Any] = module if is_class else class_built_by(module)  # type: ignore[assignment]
    made: type[Mechanism] = vars(layer).get(STANDS_FOR, layer)
    if made not in MECHANISMS.registered():
        if issubclass(layer, Mechanism):
            made = register(type(layer.__name__, (layer,), {"__module__": SESSION}))
        else:
            made = mechanism_made_of(layer, {}, SESSION)
            MECHANISMS.register(made)
    if made.__module__ == SESSION:  # no source says what the values are now that it reads
        set_code_hash(made, hash_of(made, *(f"{name}={text}" for name, text in sorted(read_by(module).items()))))
    return made.name


def _home_of(name: str) -> list[str]:
    """List the Python module that a worker process must import for a mechanism; empty if none is needed."""
    origin = MECHANISMS[name].__module__
    return [] if origin == SESSION or "/" in name or MECHANISMS.is_built_in(name) else [origin]


def _checked(module: Module, device: str) -> str:
    """Register a layer of your own as a mechanism, check it, and return the mechanism's name.

    Raises:
        UsageError: If the layer cannot become a mechanism: see :func:`mechanism_of`.
        ContractError: If the mechanism fails a check.
    """
    name = mechanism_of(module)
    component = Component(MECHANISMS.kind, name)
    with IsolatedProcess(_home_of(name)) as isolated:
        failure = first_failure(
            check_foreign([component], isolated, devices=devices_of(resolve_device(device)))[component]
        )
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
    for option, read in {"seeds": _seeds, "rates": _rates, "results": _folder, "predictions": _folder}.items():
        if option in changes:
            changes[option] = read(changes[option])
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


def _folder(given: str | Path | None) -> Path | None:
    return Path(given) if given else None


def _seen(rows: pd.DataFrame, suite: str | None) -> tuple[pd.DataFrame, str]:
    """Return the rows that a suite's reports show, and the suite's name.

    Rows of other suites are included if they have a task and the protocol (settings of model, training and evaluation)
    of the suite.
    """
    if missing := [name for name in RUNS.names if name not in rows]:
        raise UsageError(f"the rows lack the column {missing[0]!r}; load them with all columns")
    suites = suites_in(rows) if suite is None else [suite]
    if len(suites) != 1:
        named = ", ".join(sorted(set(rows["suite"]))) or "none"
        raise UsageError(f"the rows are of the suites {named}; name one in suite")
    return view.seen_from(rows, suites[0]), suites[0]
