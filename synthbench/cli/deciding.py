"""Add seeds until every pair of mechanisms is decided; each look, an interim analysis of the rows, plans more runs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from synthbench.errors import UsageError
from synthbench.options import MAIN_SUITE
from synthbench.reports.cells import grid
from synthbench.reports.ladder import LEAST
from synthbench.reports.looks import LOOKS
from synthbench.reports.selection import select
from synthbench.reports.verdicts import SeedPlan, seed_plan
from synthbench.runner.request import Request
from synthbench.runner.run import Prepared, planned_rows, prepare
from synthbench.suites import EXTRA, Suite, load_suite
from synthbench.training.cell import Run

SEEDS = [look.num_seeds or 0 for look in LOOKS]
"""Number of seeds per task and mechanism at each look."""


class Looked(NamedTuple):
    """The outcome of a look, an interim analysis of the rows."""

    words: str
    """A sentence with the numbers of decided and undecided pairs."""
    further: Request | None
    """Runs that the next look needs; None if every pair is decided, or this was the last look."""


def require_decidable(request: Request) -> None:
    """Refuse a request to which ``--until-decided`` cannot be applied.

    Raises:
        UnknownName: If there is no such suite.
        UsageError: If the suite has no ladder or does not have ``SEEDS[0]`` seeds, or the request sets seeds, rates, a
            shard, steps or a limit.
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
    """Analyse the rows of a request and find the runs that the next interim analysis (look) needs.

    The result depends only on rows of the seeds up to this look, so an interrupted run resumes unchanged. Only pairs of
    the request's mechanisms are compared.

    Args:
        request: A request that :func:`require_decidable` accepts.
        runs: The runs that this look and earlier ones need, by id; all of them have rows.
        number: Number of the look, from 0.
    """
    rows = planned_rows(runs, request.results)
    plans = [seed_plan(grid(select(rows, suite).rows), LOOKS[: number + 1]) for suite in rows["suite"].unique()]
    words = (
        f"look at {SEEDS[number]} seeds: {_sum(plans, 'num_apart')} pairs of mechanisms apart, "
        f"{_sum(plans, 'num_within')} within {LEAST:g} levels, {_sum(plans, 'num_open')} undecided"
    )
    undecided = frozenset().union(*(each.undecided for each in plans))
    if number + 1 == len(LOOKS) or not undecided:
        return Looked(words, None)
    first = max(_suite_of(request).seeds) + 1
    added = range(first + SEEDS[number] - SEEDS[0], first + SEEDS[number + 1] - SEEDS[0])
    return Looked(words, replace(request, seeds=list(added), only=undecided))


def prepare_look(request: Request) -> Prepared:
    """Prepare the missing runs of the first look (interim analysis) that lacks rows, or else of the last look."""
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


def _sum(plans: list[SeedPlan], name: str) -> int:
    return sum(getattr(each, name) for each in plans)
