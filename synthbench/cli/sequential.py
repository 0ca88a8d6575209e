"""Add seeds until tests show for every pair of mechanisms whether they differ by at least half a level.

After each addition of seeds, an interim analysis of the rows (the results of runs) tests the pairs and plans more runs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from synthbench.errors import UsageError
from synthbench.options import MAIN_SUITE
from synthbench.reports.cells import grid
from synthbench.reports.interim import ANALYSES
from synthbench.reports.ladder import LEAST
from synthbench.reports.selection import select
from synthbench.reports.verdicts import SeedPlan, seed_plan
from synthbench.runner.request import Request
from synthbench.runner.run import Prepared, planned_rows, prepare
from synthbench.suites import EXTRA, Suite, load_suite
from synthbench.training.cell import Run

SEEDS = [analysis.num_seeds or 0 for analysis in ANALYSES]
"""Number of seeds per task and mechanism at each analysis."""


class Analysed(NamedTuple):
    """The outcome of an interim analysis, which tests the rows before all seeds have run."""

    words: str
    """A sentence with the numbers of decided and undecided pairs."""
    further: Request | None
    """Runs that the next analysis needs; None if every pair is decided, or if this was the last analysis."""


def require_decidable(request: Request) -> None:
    """Raise an error if option ``--until-decided`` does not work with a request.

    Raises:
        UnknownName: If there is no such suite.
        UsageError: If the suite's tasks have no levels, or if the suite does not have ``SEEDS[0]`` seeds. It is also
            raised if the request sets seeds, rates, a shard, steps or a limit.
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


def analyse(request: Request, runs: Mapping[str, Run], number: int) -> Analysed:
    """Test which pairs of mechanisms differ, given the results so far, and find the runs that the next such test needs.

    Such a test, an interim analysis, is repeated after seeds are added. It reads only the seeds planned for it, so
    repeating an interrupted command gives the same result.

    Args:
        request: A request for which :func:`require_decidable` raises no error.
        runs: The runs that this analysis and earlier analyses need, by run id; all of them must have stored results.
        number: Number of the analysis; 0 is the first.
    """
    rows = planned_rows(runs, request.results)
    plans = [seed_plan(grid(select(rows, suite).rows), ANALYSES[: number + 1]) for suite in rows["suite"].unique()]
    words = (
        f"analysis at {SEEDS[number]} seeds: {_sum(plans, 'num_apart')} pairs of mechanisms apart, "
        f"{_sum(plans, 'num_within')} within {LEAST:g} levels, {_sum(plans, 'num_open')} undecided"
    )
    undecided = frozenset().union(*(each.undecided for each in plans))
    if number + 1 == len(ANALYSES) or not undecided:
        return Analysed(words, None)
    first = max(_suite_of(request).seeds) + 1
    added = range(first + SEEDS[number] - SEEDS[0], first + SEEDS[number + 1] - SEEDS[0])
    return Analysed(words, replace(request, seeds=list(added), only=undecided))


def prepare_analysis(request: Request) -> Prepared:
    """Plan the missing runs of the next interim analysis, the first one that lacks results of some runs.

    An interim analysis tests pairs of mechanisms before further seeds are added. If no further analysis is needed, the
    plan has no missing runs.
    """
    prepared = prepare(request)
    runs = dict(prepared.plan.runs)
    for number in range(len(ANALYSES)):
        if prepared.plan.num_missing or (further := analyse(request, runs, number).further) is None:
            break
        prepared = prepare(further)
        runs |= prepared.plan.runs
    return prepared


def _suite_of(request: Request) -> Suite:
    return load_suite(request.suite.removesuffix(EXTRA))


def _sum(plans: list[SeedPlan], name: str) -> int:
    return sum(getattr(each, name) for each in plans)
