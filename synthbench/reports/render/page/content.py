"""The numbers and names on the leaderboard page, without markup.

Templates read them as attributes of namespaces. Reading an attribute that a namespace lacks is an error.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd

from synthbench import sources
from synthbench.reports.cells import (
    Cells,
    Key,
    MechanismFacts,
    Row,
    TaskFacts,
    arguments_in,
    is_known,
    mechanism_key,
    task_key,
)
from synthbench.reports.leaderboard import Leaderboard, quoted
from synthbench.reports.render.page import charts
from synthbench.reports.render.page.commands import report_command, run_command, seed_ranges, task_terms, term
from synthbench.reports.render.page.untrusted import anchors
from synthbench.reports.render.page.untrusted import name as plain_name
from synthbench.reports.report import Report, cite
from synthbench.reports.table import ladder_cell, on_added_seeds
from synthbench.reports.variants import variant_tables
from synthbench.results import PACKAGED

_METRICS = (("validation", "accuracy"), ("validation", "loss"), ("train", "loss"))
"""Splits and metrics of learning curves; the first that a cell has is drawn."""
NUM_COLOURS = 7
"""Number of colours in ``levels.css``."""

Curves = dict[Any, pd.DataFrame]
"""Curves by the labels of task and mechanism, split and metric."""
Results = Mapping[tuple[Key, Key], SimpleNamespace]
"""Cells that have rows, by the keys of task and mechanism."""
Ids = Mapping[str, Mapping[str, str]]
"""Ids of the families, categories, blocks, position encodings and conditions of a page, by label."""


def content(report: Report) -> SimpleNamespace:
    """Collect everything that the HTML page of a report shows: the report, and texts and numbers made from it."""
    selection, cells, records, seeds = report.selection, report.cells, report.records, report.cells.seeds
    shown = _results(report)
    # The ranking of the suite, with a column per category; then one per category, with a column per task.
    whole, categories = report.board, (None, *cells.categories)
    ranked = [_board(report, whole, category) for category in categories] if whole else []
    mechanisms = _mechanism_sections(report, ranked[0], shown)
    tasks = _task_sections(report, shown)
    best = list(mechanisms)[:NUM_COLOURS]
    coloured = [mechanism for mechanism in cells.mechanisms if mechanism.key in best]  # as in the figures
    names = list(dict.fromkeys(mechanism.name for mechanism in cells.mechanisms))
    # One command runs one setting per mechanism; if there are more, each section has its own command.
    is_one_command = len({mechanism.key[:-1] for mechanism in cells.mechanisms}) == len(cells.mechanisms)
    return SimpleNamespace(
        report=report,
        bibtex=sources.of_suite(plain_name(selection.suite), plain_name(selection.suite_version)),
        statuses=_statuses(records),
        seeds=seed_ranges(seeds),
        on_added_seeds=on_added_seeds(cells),
        devices=sorted({f"{row['device_type']} ({row['device_name']})" for row in records}),
        versions=sorted({_code_version(row) for row in records}),
        run_command=_run_command(report, records, seeds, mechanism=",".join(names)) if is_one_command else None,
        report_command=report_command(
            selection.suite,
            selection.suite_version,
            seeds,
            names,
            [store for store in report.stores if store != PACKAGED],  # packaged rows are always shown
        ),
        boards=ranked,
        mechanisms=mechanisms,
        tasks=tasks,
        ids=_ids(cells),
        factors=[table for table in variant_tables(report.variants, report.changes) if table.name == "changes"],
        panels=_panels(cells, coloured),
        coloured=tuple(mechanism.label for mechanism in coloured),
        has_pale=len(mechanisms) > len(coloured),
    )


def _ids(cells: Cells) -> Ids:
    """Make HTML ids for the values of each filter on the page; all but the categories are in alphabetical order."""
    labels: dict[str, Sequence[str]] = {
        name: sorted({getattr(mechanism, name) or "" for mechanism in cells.mechanisms})
        for name in ("family", "block", "positions", "condition")
    }
    labels["category"] = cells.categories
    return {name: anchors(name, [(label, label) for label in of_filter]) for name, of_filter in labels.items()}


def _board(report: Report, whole: Leaderboard, category: str | None) -> SimpleNamespace:
    """Collect the ranking of one category, with a column per task, or of the suite (None), with a column per category.

    The user's mechanisms come first, then the ranked mechanisms, then all others.
    """
    cells, ranking = report.cells, whole if category is None else whole.parts[category]
    of_suite = {name: part for name, part in whole.parts.items() if part.tasks}
    capacities = quoted(cells) if category is None else []
    bodies: dict[str, list[SimpleNamespace]] = {"own": [], "ranked": [], "unranked": []}
    for placed in ranking.placed:
        one = placed.mechanism
        loads = [(task.ladder, cells.cell(task, one).load_at_half) for task in capacities]
        line = SimpleNamespace(
            **placed._asdict(),
            skill=ranking.skill_of(one),
            parts=[part.skill_of(one) for part in of_suite.values()]
            if category is None
            else [cells.skill_on(task, one) for task in ranking.tasks],
            capacities=[(ladder.sortable(load), ladder.load_text(load)) for ladder, load in loads if ladder],
        )
        bodies["own" if one.key in report.own else "ranked" if placed.entry else "unranked"].append(line)
    return SimpleNamespace(
        category=category,
        ranking=ranking,
        parts={name: part.tasks for name, part in of_suite.items()}
        if category is None
        else {task.label: (task,) for task in ranking.tasks},
        capacities=capacities,
        bodies={name: body for name, body in bodies.items() if body},
    )


def _results(report: Report) -> Results:
    """Collect what the page shows of each cell (a mechanism on a task), including its learning curve."""
    cells = report.cells
    curves: Curves = {}
    if report.averages is not None:
        curves = dict(list(report.averages.groupby(["task", "mechanism", "split", "metric"], observed=True)))
    shown = {}
    for task, mechanism, estimate in cells:
        if not estimate.rows:
            continue
        ladder, failures = task.ladder, Counter(_failure(run) for run in estimate.rows if run["status"] != "ok")
        shown[task.key, mechanism.key] = SimpleNamespace(
            task=task,
            mechanism=mechanism,
            estimate=estimate,
            interval=cells.skill_interval(task, mechanism),
            failures=", ".join(f"{count} {status}" for status, count in sorted(failures.items())),
            curve=_curve(curves, task, mechanism),
            # On a ladder, the formatted score, and the capacity for sorting.
            score=ladder_cell(cells, report.verdicts[task.key], mechanism, estimate.n) if ladder else None,
            load=ladder.sortable(estimate.load_at_half) if ladder else math.nan,
        )
    return shown


def _failure(row: Row) -> str:
    error = row["error_type"]
    return f"{row['status']} ({error})" if is_known(error) else str(row["status"])


def _curve(curves: Curves, task: TaskFacts, mechanism: MechanismFacts) -> charts.Curve | None:
    for split, metric in _METRICS:
        points = curves.get((task.label, mechanism.label, split, metric))
        bounds = (task.floor, task.ceiling) if metric == "accuracy" else None
        if points is not None and (drawn := charts.curve(points, metric=f"{split} {metric}", bounds=bounds)):
            return drawn
    return None


def _mechanism_sections(report: Report, board: SimpleNamespace, shown: Results) -> dict[Key, SimpleNamespace]:
    """Collect the content of the section of each mechanism, by its key, in the order of the suite's ranking."""
    cells = report.cells
    lines = [line for body in board.bodies.values() for line in body]
    ids = anchors("mech", [(line.mechanism.key, line.mechanism.name) for line in lines])
    by_mechanism: dict[Key, list[Row]] = {}
    for row in report.records:
        by_mechanism.setdefault(mechanism_key(row), []).append(row)
    has_verified = any(map(_is_verified, report.records))
    around = Counter(name for name, *_ in {mechanism.key[:-1] for mechanism in cells.mechanisms})
    sections = {}
    for line in lines:
        facts = line.mechanism
        rows = by_mechanism[facts.key]
        of_tasks = [shown[task.key, facts.key] for task in cells.tasks if (task.key, facts.key) in shown]
        named = term(facts.name, facts.arguments)
        is_one_of_several = around[facts.name] > 1
        num_missing = len(cells.tasks) - len(of_tasks)
        sections[facts.key] = SimpleNamespace(
            facts=facts,
            anchor=ids[facts.key],
            board=line,
            arguments=arguments_in(facts.arguments),
            statuses=_statuses(rows) | ({"tasks missing": num_missing} if num_missing else {}),
            badge=_badge(rows) if has_verified else "",
            source=_source(facts.source),
            command=named
            and _run_command(
                report,
                rows,
                {int(row["seed"]) for row in rows},
                mechanism=named,
                match=facts.match,
                block=facts.block if is_one_of_several else None,
                positions=facts.positions if is_one_of_several or facts.condition else None,
            ),
            results=of_tasks,
        )
    return sections


def _task_sections(report: Report, shown: Results) -> dict[Key, SimpleNamespace]:
    """Collect the content of the section of each task, by its key, in printed order."""
    cells = report.cells
    ids = anchors("task", [(task.key, task.name) for task in cells.tasks])
    newest = {task_key(row): row for row in report.records}
    sections = {}
    for task in cells.tasks:
        row, ladder, verdict = newest[task.key], task.ladder, report.verdicts[task.key]
        arguments = str(row["task_args"])
        of_mechanisms = [result for result in shown.values() if result.task.key == task.key]
        sections[task.key] = SimpleNamespace(
            facts=task,
            anchor=ids[task.key],
            # On a ladder only its loads, since the arguments of all levels would fill a page.
            arguments={"load": ladder.unit, "levels": ", ".join(f"{load:g}" for load in ladder.loads)}
            if ladder
            else arguments_in(arguments),
            description=report.describe and report.describe(task.name, str(row["task_version"]), arguments),
            verdict=verdict,
            source=_source(task.source),
            command=_run_command(
                report,
                report.records,
                cells.seeds,
                task=task_terms(report.selection.suite, {task.name: arguments}) or task.name,
            ),
            results=sorted(of_mechanisms, key=lambda result: result.estimate.descending),
        )
    return sections


def _panels(cells: Cells, coloured: Sequence[MechanismFacts]) -> dict[str, list[SimpleNamespace]]:
    """Draw skill over levels in one panel per task, by category; empty if tasks have no levels."""
    by_category: dict[str, list[SimpleNamespace]] = {}
    for task in cells.tasks:
        if task.ladder and (lines := _level_lines(cells, task, coloured)):
            loads = task.ladder.loads
            ticks = [(f"{load:g}", f"{100 * charts.along(loads, load):.1f}") for load in task.ladder.ticks]
            panel = SimpleNamespace(task=task, ticks=ticks, lines=lines)
            by_category.setdefault(task.category, []).append(panel)
    return by_category


def _level_lines(cells: Cells, task: TaskFacts, coloured: Sequence[MechanismFacts]) -> list[SimpleNamespace]:
    """Draw a line for each mechanism; coloured lines come last, so that they are on top of the pale ones."""
    lines = []
    for mechanism in sorted(cells.mechanisms, key=coloured.__contains__):
        if task.ladder and (drawn := cells.profile(task, mechanism)):
            look = f"l{coloured.index(mechanism)}" if mechanism in coloured else "pale"
            lines.append(SimpleNamespace(path=charts.over_loads(task.ladder.loads, drawn.mean), look=look))
    return lines


def _run_command(
    report: Report, rows: Sequence[Row], seeds: Collection[int], *, task: str | None = None, **asked: str | None
) -> str | None:
    """Write the command that makes these rows again; None if their layers are of several conditions.

    A condition is stock (as published), bare (stripped), or None for any other layer.
    """
    suite, found = report.selection.suite, (row.get("condition") for row in rows)
    conditions = {name if is_known(name) and name in ("stock", "bare") else None for name in found}
    if len(conditions) > 1:
        return None
    task = task or task_terms(suite, {str(row["task"]): str(row["task_args"]) for row in rows})
    return run_command(suite, seeds, task=task, condition=conditions.pop(), **asked)


def _source(key: str) -> dict[str, str]:
    bibtex, unknown = cite([key])
    return {"key": key, "bibtex": "" if unknown else bibtex}


def _badge(rows: Sequence[Row]) -> str:
    """Say how many of the rows (results of runs) were confirmed by another run."""
    num_verified = sum(map(_is_verified, rows))
    if not num_verified:
        return "self-reported"
    return "verified" if num_verified == len(rows) else f"{num_verified} of {len(rows)} rows verified"


def _is_verified(row: Row) -> bool:
    return is_known(row.get("verified_by"))  # older stores lack this column


def _statuses(rows: Sequence[Row]) -> dict[str, int]:
    """Count the rows (one per run) by their status, ``ok`` first."""
    counts = Counter(str(row["status"]) for row in rows)
    return dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", item[0])))


def _code_version(row: Row) -> str:
    """Return the version of the code that made a row."""
    commit = f", commit {str(row['git_sha'])[:10]}" if is_known(row["git_sha"]) else ""
    changed = ", with changes" if is_known(row["git_dirty"]) and row["git_dirty"] else ""
    return f"{row['synthbench_version']}{commit}{changed}"
