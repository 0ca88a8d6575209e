"""Shell commands that reproduce runs; names and arguments come from rows of results, so they are quoted or refused."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from synthbench.options import command_line
from synthbench.plugins import NAME
from synthbench.reports.selection import EXTRA
from synthbench.results.schema import TERM, split_match

_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MATCH = re.compile(r"(params|state)(=[0-9]+)?")
_VALUE = re.compile(r"[A-Za-z0-9_.+-]+")
_TERMS = re.compile(rf"{TERM.pattern}(,{TERM.pattern})*", re.ASCII)


def run_command(
    suite: str,
    seeds: Collection[int],
    *,
    task: str | None = None,
    mechanism: str | None = None,
    block: str | None = None,
    positions: str | None = None,
    match: str | None = None,
    condition: str | None = None,
) -> str | None:
    """Return the shell command that repeats runs of a report; None if a name contains characters that are not allowed.

    The command writes its results to the folder ``again``. ``task`` is a name or the result of :func:`task_terms`, and
    ``mechanism`` is the result of :func:`term`. By default, the tasks and mechanisms of the suite are run. ``match`` is
    a value of the column ``match``, such as ``state=4096 of slay:P=8``. It names the mechanism too, so ``mechanism`` is
    then ignored.
    """
    if match is not None:
        match, mechanism = split_match(match)
        if not (_MATCH.fullmatch(match) and TERM.fullmatch(mechanism)):
            return None
    around = {"block": block, "positions": positions, "condition": condition}
    if any(value is not None and not NAME.fullmatch(value) for value in (suite, *around.values())):
        return None
    if task is not None and not _TERMS.fullmatch(task):
        return None
    asked = {"mech": mechanism, "match": match, "seeds": seed_ranges(seeds), "results": "again"}
    return command_line("run", {"suite": suite, "task": task, **around, **asked})


def report_command(
    suite: str, version: str, seeds: Collection[int], mechanisms: Collection[str], stores: Sequence[str] = ()
) -> str | None:
    """Return the shell command that makes the report on the given seeds and mechanisms of a suite.

    The result is None if a name contains characters that are not allowed. ``stores`` names the user's own store and,
    optionally, a second store to show beside it. By default, the command reads the default store.
    """
    if not all(map(NAME.fullmatch, (suite, *mechanisms))):
        return None
    options = {"suite": suite, "suite-version": version, "mech": ",".join(mechanisms), "seeds": seed_ranges(seeds)}
    return command_line("report", options | dict(zip(("results", "beside"), stores, strict=False)))


def task_terms(suite: str, tasks: Mapping[str, str]) -> str | None:
    """Return the value of the command-line option ``--task`` that selects ``tasks`` (names with arguments in JSON).

    The option is needed only if ``suite`` ends with ``EXTRA``, which stands for tasks that the suite itself does not
    list. For any other suite, the result is None.
    """
    if not suite.endswith(EXTRA):
        return None
    return ",".join(term(name, arguments) or "?" for name, arguments in tasks.items())  # "?" is refused


def term(name: str, arguments: str) -> str | None:
    """Format a task or mechanism with its arguments: ``slay:R=2,P=32``.

    The result is None if the name or an argument is not allowed on a command line.
    """
    given: Any = json.loads(arguments)
    if not NAME.fullmatch(name) or not isinstance(given, dict):
        return None
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    if not all(_ARGUMENT.fullmatch(key) and _VALUE.fullmatch(text) for key, text in texts.items()):
        return None
    pieces = ",".join(f"{key}={text}" for key, text in texts.items())
    return f"{name}:{pieces}" if pieces else name


def seed_ranges(seeds: Iterable[int]) -> str:
    """Format seeds as on the command line: ``42-44,50``."""
    ranges: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
