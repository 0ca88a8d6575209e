"""The sections of a page: one for each mechanism and one for each task."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synthbench.reports.cells import (
    Key,
    MechanismFacts,
    Row,
    TaskFacts,
    arguments_in,
    is_known,
    mechanism_key,
    task_key,
)
from synthbench.reports.descriptions import Description
from synthbench.reports.render.page.boards import Board, BoardLine
from synthbench.reports.render.page.commands import run_command, task_terms, term
from synthbench.reports.render.page.facets import Facet, facets
from synthbench.reports.render.page.results import Result
from synthbench.reports.render.page.untrusted import anchors
from synthbench.reports.report import Report, cite
from synthbench.reports.verdicts import Verdict, best_of, needed_seeds


@dataclass(frozen=True)
class Source:
    """A paper by its key."""

    key: str
    bibtex: str
    """Empty if the key has no entry."""


@dataclass(frozen=True)
class MechanismSection:
    """The section of a mechanism."""

    facts: MechanismFacts
    anchor: str
    family: Facet
    block: Facet
    positions: Facet
    board: BoardLine
    arguments: dict[str, Any]
    statuses: dict[str, int]
    """Rows by status, ``ok`` first; ``missing``: runs that other mechanisms have."""
    badge: str
    """Whether its rows were confirmed by another run; empty if no row of the report was."""
    source: Source
    command: str | None
    results: tuple[Result, ...]
    """Of the tasks for which it has rows."""

    @property
    def drawn(self) -> tuple[Result, ...]:
        """The results that have a learning curve."""
        return tuple(result for result in self.results if result.curve)


@dataclass(frozen=True)
class TaskSection:
    """The section of a task."""

    facts: TaskFacts
    anchor: str
    category: Facet
    arguments: dict[str, Any]
    description: Description | None
    verdict: Verdict
    best: MechanismFacts | None
    """None if nothing can be called the best."""
    source: Source
    command: str | None
    results: tuple[Result, ...]
    """Best mean first."""


def mechanism_sections(
    report: Report, board: Board, results: Mapping[tuple[Key, Key], Result]
) -> tuple[MechanismSection, ...]:
    """One section for each mechanism, in the order of the suite's ranking."""
    suite, cells, records = report.selection.suite, report.cells, report.records
    lines = [*board.ranked, *board.unranked]
    ids = anchors("mech", [(line.mechanism.key, line.mechanism.name) for line in lines])
    by_mechanism: dict[Key, list[Row]] = {}
    for row in records:
        by_mechanism.setdefault(mechanism_key(row), []).append(row)
    needed = needed_seeds(cells)
    has_verified = any(_is_verified(row) for row in records)
    filters = facets(cells)
    around = Counter(name for name, *_ in {mechanism.key[:-1] for mechanism in cells.mechanisms})
    sections = []
    for line in lines:
        facts = line.mechanism
        rows = by_mechanism[facts.key]
        shown = tuple(results[task.key, facts.key] for task in cells.tasks if (task.key, facts.key) in results)
        named = term(facts.name, facts.arguments)
        is_one_of_several = around[facts.name] > 1
        command = named and run_command(
            suite,
            {int(row["seed"]) for row in rows},
            task=task_terms(suite, {str(row["task"]): str(row["task_args"]) for row in rows}),
            mechanism=named,
            match=facts.match,
            block=facts.block if is_one_of_several else None,
            positions=facts.positions if is_one_of_several else None,
        )
        sections.append(
            MechanismSection(
                facts=facts,
                anchor=ids[facts.key],
                family=filters["family"][facts.family],
                block=filters["block"][facts.block],
                positions=filters["positions"][facts.positions],
                board=line,
                arguments=arguments_in(facts.arguments),
                statuses=_with_missing(
                    statuses(rows), len(cells.tasks) * len(needed) - sum(int(row["seed"]) in needed for row in rows)
                ),
                badge=_badge(rows) if has_verified else "",
                source=_source(facts.source),
                command=command,
                results=shown,
            )
        )
    return tuple(sections)


def task_sections(report: Report, results: Mapping[tuple[Key, Key], Result]) -> tuple[TaskSection, ...]:
    """One section for each task, in printed order."""
    suite, cells = report.selection.suite, report.cells
    ids = anchors("task", [(task.key, task.name) for task in cells.tasks])
    categories = facets(cells)["category"]
    newest = {task_key(row): row for row in report.records}
    sections = []
    for task in cells.tasks:
        row = newest[task.key]
        shown = [result for result in results.values() if result.task.key == task.key]
        sections.append(
            TaskSection(
                facts=task,
                anchor=ids[task.key],
                category=categories[task.category],
                arguments=_arguments(task, row),
                description=report.describe
                and report.describe(task.name, str(row["task_version"]), str(row["task_args"])),
                verdict=report.verdicts[task.key],
                best=best_of(cells, report.verdicts[task.key]),
                source=_source(task.source),
                command=run_command(
                    suite, cells.seeds, task=task_terms(suite, {task.name: str(row["task_args"])}) or task.name
                ),
                results=tuple(sorted(shown, key=_best_first)),
            )
        )
    return tuple(sections)


def _best_first(result: Result) -> float:
    return -result.estimate.mean if result.estimate.n else math.inf


def _arguments(task: TaskFacts, row: Row) -> dict[str, Any]:
    """The arguments of a task; on a ladder only its loads, since the arguments of all rungs would fill a page."""
    if task.ladder is None:
        return arguments_in(str(row["task_args"]))
    return {"load": task.ladder.unit, "rungs": ", ".join(f"{load:g}" for load in task.ladder.loads)}


def _source(key: str) -> Source:
    bibtex, unknown = cite([key])
    return Source(key, "" if unknown else bibtex)


def _badge(rows: Sequence[Row]) -> str:
    num_verified = sum(_is_verified(row) for row in rows)
    if not num_verified:
        return "self-reported"
    return "verified" if num_verified == len(rows) else f"{num_verified} of {len(rows)} rows verified"


def _with_missing(counts: Mapping[str, int], num_missing: int) -> dict[str, int]:
    return dict(counts) | ({"missing": num_missing} if num_missing else {})


def statuses(rows: Sequence[Row]) -> dict[str, int]:
    """The number of rows with each status, ``ok`` first."""
    counts = Counter(str(row["status"]) for row in rows)
    return dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", item[0])))


def _is_verified(row: Row) -> bool:
    """Whether another run confirmed a row; older stores lack this column."""
    return is_known(row.get("verified_by"))
