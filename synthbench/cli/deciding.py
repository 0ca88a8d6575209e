"""Adds seeds on a ladder until every pair of mechanisms is decided: what is to be run after each look at the rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from synthbench.errors import UsageError
from synthbench.options import MAIN_SUITE
from synthbench.reports.cells import grid
from synthbench.reports.ladder import LEAST
from synthbench.reports.looks import LOOKS
from synthbench.reports.selection import select
from synthbench.reports.verdicts import Standing, standing
from synthbench.runner.request import Request
from synthbench.runner.run import Prepared, planned_rows, prepare
from synthbench.suites import EXTRA, Suite, load_suite
from synthbench.training.cell import Run

SEEDS = [look.num_seeds or 0 for look in LOOKS]
"""At each look."""


class Looked(NamedTuple):
    """What a look at the rows says."""

    words: str
    """How many pairs are decided, in a sentence."""
    further: Request | None
    """Runs that the next look needs; None if every pair is decided, or this was the last look."""


def require_decidable(request: Request) -> None:
    """Refuse what cannot be run until pairs of mechanisms are decided.

    Raises:
        UnknownName: If there is no such suite.
        UsageError: If the suite has no ladder or begins with another number of seeds, or the request says itself which
            seeds or which part of the plan to run, or shortens runs.
    """
    suite = _suite_of(request)
    if suite.ladder is None:
        raise UsageError(
            f"suite {request.suite!r} has no ladder; allowed with --until-decided: {MAIN_SUITE}, or a suite file with "
            "[ladder]"
        )
    if len(suite.seeds) != SEEDS[0]:
        raise UsageError(
            f"suite {request.suite!r} has {len(suite.seeds)} seeds; allowed with --until-decided: {SEEDS[0]}"
        )
    for option, reason in (
        ("seeds", "the suite's, to which it adds more"),
        ("rates", "none, as every seed has all rates"),
        ("shard", "none, as every part of the plan is looked at"),
        ("steps", "none, as only full runs are looked at"),
        ("limit", "none, as only full runs are looked at"),
    ):
        if given := getattr(request, option):
            raise UsageError(f"{option} is {given!r}; allowed with --until-decided: {reason}")


def look_at(request: Request, runs: Mapping[str, Run], number: int) -> Looked:
    """Look at the rows of a request, and say what the next look needs.

    It depends on nothing but the rows of the seeds up to this look, so a run that is interrupted goes on in the same
    way. Pairs are those of the mechanisms of the request.

    Args:
        request: As :func:`require_decidable` allows.
        runs: By run id, what this and earlier looks need; all have rows.
        number: Of the look, from 0.
    """
    rows = planned_rows(runs, request.results)
    standings = [standing(grid(select(rows, suite).rows), LOOKS[: number + 1]) for suite in rows["suite"].unique()]
    words = (
        f"look at {SEEDS[number]} seeds: {_sum(standings, 'num_apart')} pairs of mechanisms apart, "
        f"{_sum(standings, 'num_within')} within {LEAST:g} levels, {_sum(standings, 'num_open')} undecided"
    )
    undecided = frozenset().union(*(each.undecided for each in standings))
    if number + 1 == len(LOOKS) or not undecided:
        return Looked(words, None)
    first = max(_suite_of(request).seeds) + 1
    added = range(first + SEEDS[number] - SEEDS[0], first + SEEDS[number + 1] - SEEDS[0])
    return Looked(words, replace(request, seeds=list(added), only=undecided))


def prepare_look(request: Request) -> Prepared:
    """What of a request is missing at the first look that lacks rows; at the last one if none does."""
    prepared = prepare(request)
    runs = dict(prepared.plan.runs)
    for number in range(len(LOOKS)):
        if prepared.plan.num_missing or (further := look_at(request, runs, number).further) is None:
            break
        prepared = prepare(further)
        runs |= prepared.plan.runs
    return prepared


def _suite_of(request: Request) -> Suite:
    return load_suite(request.suite.removesuffix(EXTRA))


def _sum(standings: list[Standing], name: str) -> int:
    return sum(getattr(each, name) for each in standings)
