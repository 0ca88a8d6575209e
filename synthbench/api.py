"""The Python interface: what the command line does, for a script or a notebook."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from synthbench.errors import UnknownName, UsageError
from synthbench.first_verdict import FirstVerdict
from synthbench.first_verdict import quick as first_verdict
from synthbench.options import MAIN_SUITE, check_seeds, parse_rates, parse_seeds
from synthbench.reports.aggregates import Interval, Rank
from synthbench.reports.build import build
from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard as leaderboard_of
from synthbench.reports.selection import select, suites_in
from synthbench.results import RUNS
from synthbench.runner import run as runner
from synthbench.runner.plan import Plan, plan_request
from synthbench.runner.request import Request
from synthbench.runner.run import RunReport, device_of
from synthbench.terminal import check as examination
from synthbench.trust import view


class Markdown(str):
    """Text that a notebook shows as Markdown."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


class Tables(dict[str, Markdown]):
    """Tables by name; a notebook shows all of them, each under its title."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return "\n\n".join(self.values())

    def __repr__(self) -> str:
        return f"Tables({', '.join(self)})"


def run(request: Request | None = None, /, **options: Any) -> RunReport:
    """Run what is missing and write a row for each run.

    Args:
        request: What to run. Default: a plain :class:`Request`.
        options: Its fields that differ: ``suite="smoke"``, ``tasks="@memory"``, ``mechanisms=["slay:R=3", "gla"]``.

    Returns:
        ``ok``, ``rows`` as a data frame, ``failed``.

    Raises:
        UnknownName: If an option, or what it names, does not exist.
        UsageError: If a value is not allowed.
        StoreError: If the store cannot be written.
        ContractError: If a plugin cannot be loaded.
    """
    return runner.run(_request(request, options))


def plan(request: Request | None = None, /, **options: Any) -> Plan:
    """The plan that the same call of :func:`run` would carry out.

    Raises:
        UnknownName: If an option, or what it names, does not exist.
        UsageError: If a value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    request = _request(request, options)
    return plan_request(request, device_of(request))


def quick(
    mechanism: str,
    *,
    against: str | None = None,
    suite: str = MAIN_SUITE,
    results: str | Path = "results",
    ledger: str | Path | None = None,
    minutes: float | None = None,
    plugins: str | Sequence[str] = (),
    device: str = "auto",
    executor: str = "auto",
    workers: int | None = None,
) -> FirstVerdict:
    """Give a first verdict: run one seed of a ladder's quick tasks, and compare it with what others reached there.

    Args:
        mechanism: One mechanism, with options as in ``slay:R=3,P=8``, or a plugin file that registers one.
        against: The reference, any mechanism that has rows of these tasks; the best packaged one of the same class
            (linear time, no more state) if None.
        suite: A suite with a ladder.
        results: Folder of the store.
        ledger: File that counts the comparisons of a search; ``quick.jsonl`` in ``results`` if None.
        minutes: Train for about this long at most: on fewer tasks if these take longer.
        plugins: Files and modules with further mechanisms.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        executor: ``auto``, or another that ``--executor`` of ``synthbench run`` can name.
        workers: Worker processes; one a core if None.

    Returns:
        Scores by task and category, ``combined_score`` and ``rank`` in the full suite, and ``decision``: ``keep``,
        ``discard`` or ``undecided``; ``print`` shows it as the command does.

    Raises:
        UnknownName: If the mechanism, the reference or the suite does not exist.
        UsageError: If a value is not allowed.
        StoreError: If a store or the ledger cannot be read or written.
        ContractError: If a plugin cannot be loaded, or the mechanism fails a check.
    """
    return first_verdict(
        mechanism,
        against=against,
        suite=suite,
        results=Path(results),
        ledger=None if ledger is None else Path(ledger),
        minutes=minutes,
        plugins=_listed("plugins", plugins),
        device=device,
        executor=executor,
        workers=workers,
    )


def leaderboard(rows: pd.DataFrame, suite: str | None = None) -> pd.DataFrame:
    """The ranking of the mechanisms that have a run of every task of a suite, best first.

    Args:
        rows: Rows, as :func:`load` gives them.
        suite: Its name. Default: the only one in the rows.

    Returns:
        One row a mechanism: the mean skill of every category, then mean ``skill``, interquartile mean ``iqm`` and share
        of ``solved`` runs, each with the ends of its 95 % interval for these tasks and other seeds, ``rank`` with those
        of its interval for tasks like these, and ``num_seeds``, the fewest on a task. A mechanism with one seed has an
        interval if another has more; if none has, the ends for other seeds are NaN.

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
    """The tables of a report as Markdown, by name; a notebook shows all of them, or the one that is picked.

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


def check(target: str, *, plugins: str | list[str] | None = None) -> pd.DataFrame:
    """Check the contract of a component, or of all components of a plugin; :mod:`synthbench.contract` lists it.

    Args:
        target: A component's name, with options as in ``slay:R=3``, or the file of a plugin.
        plugins: Other plugins that are loaded first.

    Returns:
        One row per promise: ``unit``, ``promise``, ``meaning``, ``state`` (kept, broken, not tried) and ``detail``.

    Raises:
        UnknownName: If nothing has this name.
        UsageError: If an argument is not allowed.
        ContractError: If a plugin cannot be loaded, or a unit cannot be built.
    """
    reports = examination.check(target, _listed("plugins", plugins or []))
    return pd.DataFrame({"unit": report["name"], **verdict} for report in reports for verdict in report["verdicts"])


def _columns(name: str, estimate: Interval | Rank) -> dict[str, float | int]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _request(request: Request | None, options: Mapping[str, Any]) -> Request:
    allowed = [field.name for field in fields(Request)]
    for option in options:
        if option not in allowed:
            raise UnknownName("option", option, allowed)
    changes = dict(options)
    for listed in {"tasks", "mechanisms", "plugins"} & changes.keys():
        changes[listed] = _listed(listed, changes[listed])
    if "seeds" in changes:
        changes["seeds"] = _seeds(changes["seeds"])
    if "rates" in changes:
        changes["rates"] = _rates(changes["rates"])
    for folder in {"results", "predictions"} & changes.keys():
        changes[folder] = changes[folder] and Path(changes[folder])
    return replace(request or Request(), **changes)


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
    """The rows as a suite shows them, and its name."""
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
