"""A first verdict on a mechanism: one seed of some tasks of a ladder, beside all mechanisms that have run them."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd
import torch

from synthbench.cli.output import aligned
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.options import MAIN_SUITE, parse_term, registered, split_terms
from synthbench.reports.aggregates import Rank
from synthbench.reports.quick import (
    RANK_CONFIDENCE,
    Decision,
    Heights,
    Rivals,
    decide,
    least_p,
    level_of,
    rows_against,
)
from synthbench.reports.selection import full_runs, select
from synthbench.reports.table import NOTHING, fixed
from synthbench.results import Store, published
from synthbench.results.queries import query_number
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.runner.run import RunReport
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.trust.beside import join


@dataclass(frozen=True)
class FirstVerdict:
    """What one seed of some tasks says of a mechanism; None stands for what cannot be said."""

    mechanism: str
    """As it was asked for: ``slay:R=3``."""
    suite: str
    suite_version: str
    seed: int
    profile: tuple[Heights, ...]
    """By category."""
    overall: Heights
    """The mean over the categories."""
    ok: bool
    """Whether every run ended well; without that nothing is compared."""
    wall_s: float
    """Seconds that the runs took; those that were there already took none."""
    is_packaged: bool
    """True if the rows come with synthbench, so that nothing was trained."""
    next_command: str
    """Runs the rest of the suite."""
    num_ranked: int = 0
    """Committed mechanisms that the rank is among."""
    rank: Rank | None = None
    """The rank that the full suite will give, 1 for the best, with 90 % confidence."""
    incumbent: str | None = None
    """As it was named, or the name of the best committed mechanism."""
    decision: Decision | None = None
    query: int | None = None
    """Number of this comparison among all with the incumbent, from 1."""
    level: float | None = None
    """The largest p value that decides at this query."""
    p_better: float | None = None
    p_worse: float | None = None


def request_of(mechanism: str, suite: str, **how: Any) -> Request:
    """The runs behind a first verdict: the first seed of a suite on its quick tasks.

    Args:
        mechanism: One mechanism, with options as in ``slay:R=3,P=8``.
        suite: A suite with a ladder.
        how: Further fields of the request: where and how it is run.

    Raises:
        UnknownName: If there is no such suite.
        UsageError: If the suite has no ladder, or the term names more than one mechanism.
    """
    terms = split_terms(mechanism)
    name = parse_term(terms[0])[0] if terms else ""
    if len(terms) != 1 or name == "all" or any(sign in name for sign in "*?[@!"):
        raise UsageError(f"mech is {mechanism!r}; allowed: one mechanism, as in softmax or slay:R=3,P=8")
    protocol = load_suite(suite)
    if protocol.ladder is None:
        raise UsageError(f"suite {suite!r} has no ladder; allowed: {MAIN_SUITE}, or a suite file with [ladder]")
    tasks = protocol.quick or tuple(protocol.tasks)
    return Request(suite=suite, tasks=tasks, mechanisms=(mechanism,), seeds=protocol.seeds[:1], **how)


def require_incumbent(request: Request, against: str | None) -> None:
    """Look before any training whether there are rows of the incumbent that is named.

    Raises:
        UnknownName: If there are none.
        UsageError: If there are none with its options.
        StoreError: If a store cannot be read.
    """
    if against is not None:
        rows_against(_known(request)[0], against)


def run_or_read(request: Request, run: Callable[[Request], RunReport]) -> RunReport:
    """The runs of a request: packaged rows if these are all there, so that nothing is trained; else ``run`` makes them.

    Args:
        request: As :func:`request_of` makes it. Packaged rows were made on a CPU; they count for device ``auto`` too.
        run: Runs what is missing in one's own store.
    """
    term = registered(request.mechanisms[0], MECHANISMS.resolve)
    if request.device in ("auto", "cpu") and MECHANISMS.is_built_in(parse_term(term)[0]):
        planned = plan_request(replace(request, device="cpu", plugins=()), torch.device("cpu"))
        ends = Store.open(published(), create=False).statuses()
        if planned.num_missing and planned.members.keys() <= ends.keys():
            num_failed = sum(ends[run_id] != "ok" for run_id in planned.members)
            return RunReport(published(), planned.members, planned.num_planned, num_failed)
    return run(request)


def judge(request: Request, report: RunReport, against: str | None = None) -> FirstVerdict:
    """What the runs of a request say beside the rows of others: those that come with synthbench and one's own.

    A comparison with an incumbent is counted in the folder of the results.

    Args:
        request: As :func:`request_of` makes it.
        report: Its result.
        against: The incumbent, by its name or with options; the committed mechanism with the best mean if None.

    Raises:
        UnknownName: If no row is of the incumbent.
        UsageError: If it lacks a run, is this mechanism, or is one of several with this name.
        StoreError: If a store or the file of the counts cannot be read or written.
    """
    rows, suite = report.rows, load_suite(request.suite)
    alone = _alone(request, report, rows)
    if not report.ok:
        return alone
    others, committed = _known(request)
    rivals = Rivals(rows, others, suite, committed)
    if len(rivals.tasks) < len(request.tasks):
        if against is not None:
            raise UsageError(
                f"against is {against!r}, whose rows are of other versions of the tasks or of the suite's protocol; "
                "allowed: one with rows of these versions"
            )
        return alone
    incumbent = rivals.best if against is None else rivals.named(against)
    *profile, overall = rivals.profile(incumbent)
    beside = replace(alone, profile=tuple(profile), overall=overall, num_ranked=len(rivals.ranked), rank=rivals.rank)
    if incumbent is None:
        return beside
    p_better, p_worse = rivals.signs(incumbent)
    query = query_number(
        Store.open(request.results, create=True),
        f"{suite.name} {suite.version}",
        " ".join(map(str, incumbent.key)),
        [*rows["run_id"], *rivals.run_ids(incumbent)],
    )
    return replace(
        beside,
        incumbent=against or incumbent.name,
        decision=decide(p_better, p_worse, query),
        query=query,
        level=level_of(query),
        p_better=p_better,
        p_worse=p_worse,
    )


def facts_of(verdict: FirstVerdict) -> dict[str, Any]:
    """A first verdict as one object of JSON."""
    return {**asdict(verdict), "rank": verdict.rank and verdict.rank._asdict()}


def lines_of(verdict: FirstVerdict) -> Iterator[str]:
    """A first verdict as text."""
    parts = (*verdict.profile, verdict.overall)
    columns = [("tasks", [str(part.num_tasks) for part in parts])]
    columns.append((verdict.mechanism, [_height_text(part.mine) for part in parts]))
    if verdict.incumbent is not None:
        columns.append((verdict.incumbent, [_height_text(part.incumbent) for part in parts]))
    if verdict.num_ranked:
        columns.append(("best", [f"{_height_text(part.best)} {part.best_mechanism}" for part in parts]))
    over_seeds = " Others: mean over seeds." * (len(columns) > 2)
    yield f"Height over rungs, suite {verdict.suite} {verdict.suite_version}, seed {verdict.seed}.{over_seeds}"
    yield from aligned(
        list(
            zip(
                *([name, *cells] for name, cells in [("category", [part.category for part in parts]), *columns]),
                strict=True,
            )
        )
    )
    yield from _comparison(verdict)
    origin = (
        "Its rows come with synthbench; nothing was trained."
        if verdict.is_packaged
        else f"It took {verdict.wall_s:.0f} s."
    )
    yield f"{origin} For all tasks and seeds: {verdict.next_command}"


def _comparison(verdict: FirstVerdict) -> Iterator[str]:
    if not verdict.ok:
        yield "Nothing is compared: not every run has ended well."
        return
    if verdict.rank is None:
        yield (
            "There is nothing to rank it with: no mechanism that comes with synthbench has all runs of these versions "
            f"of the tasks in suite {verdict.suite} {verdict.suite_version}."
        )
    else:
        low, high = verdict.rank.low, verdict.rank.high
        yield (
            f"Rank {verdict.rank.value} of {verdict.num_ranked + 1}; in the full suite "
            f"{low if low == high else f'{low} to {high}'}, with {100 * RANK_CONFIDENCE:.0f} % confidence."
        )
    if verdict.level is not None and verdict.p_better is not None and verdict.p_worse is not None:
        yield (
            f"{str(verdict.decision).capitalize()}: p is {verdict.p_better:.2g} for better and {verdict.p_worse:.2g} "
            f"for worse than {verdict.incumbent}; query {verdict.query} is decided at {verdict.level:.2g} or less."
        )
        num_tasks = verdict.overall.num_tasks
        if least_p(num_tasks) > verdict.level:
            yield f"{num_tasks} tasks are too few to decide it: no p is below {least_p(num_tasks):.2g}."


def _height_text(height: float | None) -> str:
    return NOTHING if height is None else fixed(height, 2)


def _known(request: Request) -> tuple[pd.DataFrame, frozenset[str]]:
    """Full rows on the tasks of a request, each run once, and the ids of those that come with synthbench."""
    suite = load_suite(request.suite)
    # A store that has yet to be made has no rows.
    is_there = (request.results / "store.json").exists()
    joined = join(request.results if is_there else published()).seen_from(suite.name)
    rows = full_runs(joined.rows)
    is_of_suite = (rows["suite"] == suite.name) & (rows["suite_version"] == suite.version)
    return rows[is_of_suite & rows["task"].isin(suite.tasks)], frozenset(joined.rows.loc[~joined.is_own, "run_id"])


def _alone(request: Request, report: RunReport, rows: pd.DataFrame) -> FirstVerdict:
    """What the runs say by themselves."""
    suite = load_suite(request.suite)
    done = rows[rows["status"] == "ok"]
    shown = select(done, suite.name, suite.version).rows if len(done) else done
    scores = dict(shown[["task", "score"]].itertuples(index=False, name=None))
    of_category: dict[str, list[str]] = {}
    for task in request.tasks:
        category = TASKS[task].category()
        of_category.setdefault(suite.merged.get(category, category), []).append(task)
    profile = []
    for category, tasks in of_category.items():
        heights = [scores[task] for task in tasks if task in scores]
        profile.append(Heights(category, len(tasks), fmean(heights) if heights else None))
    means = [part.mine for part in profile if part.mine is not None]
    is_complete = len(scores) == len(request.tasks)
    return FirstVerdict(
        mechanism=request.mechanisms[0],
        suite=suite.name,
        suite_version=suite.version,
        seed=suite.seeds[0],
        profile=tuple(profile),
        overall=Heights("mean", len(request.tasks), fmean(means) if is_complete else None),
        ok=report.ok,
        wall_s=report.wall_s,
        is_packaged=report.results == published(),
        next_command=_next_command(request),
    )


def _next_command(request: Request) -> str:
    """What runs all tasks and seeds; the runs of the request are among them."""
    words = ["synthbench", "run", "--suite", request.suite, "--mech", request.mechanisms[0]]
    for plugin in request.plugins:
        words += ["--plugin", plugin]
    if request.device != Request.device:
        words += ["--device", request.device]
    if request.results != Request.results:
        words += ["--results", str(request.results)]
    return shlex.join(words)
