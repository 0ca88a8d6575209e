"""What the leaderboard page says, from the rows: numbers and names, no markup."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from synthbench.reports.cite import cite
from synthbench.reports.leaderboard import Entry, Leaderboard, leaderboard, reach
from synthbench.reports.page import charts
from synthbench.reports.page.commands import mechanism_term, report_command, run_command, seed_ranges
from synthbench.reports.page.example import Description, describe
from synthbench.reports.page.untrusted import anchors
from synthbench.reports.selection import Selection
from synthbench.reports.separation import SMALLEST_GAP, Separation
from synthbench.reports.statistics import (
    Estimate,
    Grid,
    Key,
    MechanismFacts,
    Row,
    TaskFacts,
    grid,
    mean_curves,
    mechanism_key,
    not_separable,
    task_key,
)

_METRICS = (("validation", "accuracy"), ("validation", "loss"), ("train", "loss"))
"""Splits and metrics of a learning curve; the first that a cell has is drawn."""


@dataclass(frozen=True)
class Source:
    """A paper by its key."""

    key: str
    bibtex: str
    """Empty where the key has no entry."""


class Facet(NamedTuple):
    """One of the values that a page can be filtered by."""

    id: str
    label: str


@dataclass(frozen=True)
class Result:
    """One cell: a mechanism on a task."""

    task: TaskFacts
    mechanism: MechanismFacts
    estimate: Estimate
    interval: tuple[float, float]
    """Ends of the interval of the mean skill; NaN below two seeds."""
    bar: charts.Bar | None
    failures: str
    """Statuses of the runs without a score, with their numbers; empty if there are none."""
    is_tied: bool
    """Not separable from the best mechanism of the task."""
    reach: int
    """Largest multiple of the training up to which the task is solved; 0 if it is not even in range."""
    curve: charts.Curve | None


@dataclass(frozen=True)
class BoardLine:
    """A mechanism in a ranking."""

    mechanism: MechanismFacts
    entry: Entry | None
    """Rank and intervals; None where it is not ranked."""
    reason: str
    """Why it is not ranked; empty where it is."""
    rank_bar: charts.Bar | None
    skill_bar: charts.Bar | None
    skill: float
    """Mean over tasks and seeds, runs without a score counted as 0; NaN where some task has no run."""
    parts: tuple[float, ...]
    """Mean skill of each part of the board; NaN where some task of the part has no run."""


@dataclass(frozen=True)
class Board:
    """A ranking: of the whole suite by category, or of one category by task."""

    facet: Facet | None
    """The category; None for the whole suite."""
    parts: tuple[str, ...]
    num_tasks: int
    num_left_out: int
    """Tasks whose gap between floor and ceiling is below the noise."""
    num_seeds: int
    ranked: tuple[BoardLine, ...]
    unranked: tuple[BoardLine, ...]


@dataclass(frozen=True)
class Cost:
    """Seconds of training of one run on one device."""

    device: str
    seconds: float
    """Median over the rows; NaN where no row says."""


@dataclass(frozen=True)
class MechanismSection:
    """All that is said of a mechanism."""

    facts: MechanismFacts
    anchor: str
    family: Facet
    block: Facet
    positions: Facet
    board: BoardLine
    arguments: dict[str, Any]
    statuses: dict[str, int]
    """Rows by status, ``ok`` first; ``missing`` are runs that others have."""
    badge: str
    """Whether rows were confirmed by another run; empty where no row of the report was."""
    costs: tuple[Cost, ...]
    source: Source
    command: str | None
    results: tuple[Result, ...]
    """Of the tasks that it has rows of."""
    factors: tuple[int, ...]
    """Multiples of the training that it was tested at."""
    out_of_range: tuple[tuple[Facet, charts.Lines], ...]
    """By category, of the tasks that were tested out of range."""

    @property
    def drawn(self) -> tuple[Result, ...]:
        """The results that have a learning curve."""
        return tuple(result for result in self.results if result.curve)


@dataclass(frozen=True)
class TaskSection:
    """All that is said of a task."""

    facts: TaskFacts
    anchor: str
    category: Facet
    arguments: dict[str, Any]
    length: int
    description: Description | None
    separation: Separation
    source: Source
    command: str | None
    results: tuple[Result, ...]
    """Best mean first."""


@dataclass(frozen=True)
class Content:
    """All that a page says."""

    suite: str
    suite_version: str
    num_rows: int
    num_mechanisms: int
    num_tasks: int
    statuses: dict[str, int]
    left_out: dict[str, int]
    """Rows that no cell shows, by reason."""
    seeds: str
    devices: tuple[str, ...]
    versions: tuple[str, ...]
    """Of the code that made the rows."""
    run_command: str | None
    report_command: str | None
    boards: tuple[Board, ...]
    """The suite's, then one for each category."""
    mechanisms: tuple[MechanismSection, ...]
    """In the order of the suite's ranking."""
    tasks: tuple[TaskSection, ...]
    families: tuple[Facet, ...]
    categories: tuple[Facet, ...]
    blocks: tuple[Facet, ...]
    positions: tuple[Facet, ...]

    @property
    def has_local(self) -> bool:
        """Whether some row says what is reached without mixing positions."""
        return not all(math.isnan(section.facts.local_ceiling) for section in self.tasks)

    @property
    def mechanism_anchors(self) -> dict[Key, str]:
        """The id of each mechanism's section."""
        return {section.facts.key: section.anchor for section in self.mechanisms}

    @property
    def task_anchors(self) -> dict[Key, str]:
        """The id of each task's section."""
        return {section.facts.key: section.anchor for section in self.tasks}

    @property
    def sections(self) -> dict[Key, MechanismSection]:
        """Each mechanism's section."""
        return {section.facts.key: section for section in self.mechanisms}


def content(selection: Selection, curves: pd.DataFrame | None, judged: Sequence[Separation]) -> Content:
    """All that a page says of some rows.

    Args:
        selection: The rows of the report.
        curves: Learning curves of any runs; None if there are none.
        judged: What :func:`synthbench.reports.separation.separation` says of the rows.
    """
    rows = selection.rows.sort_values("run_id", kind="stable")
    of = grid(rows)
    records: list[Row] = rows.to_dict("records")
    boards = _boards(rows, of)
    results = _results(of, records, _drawn_curves(of, rows, curves))
    seeds = sorted({int(row["seed"]) for row in records})
    mechanisms = _mechanism_sections(selection, of, records, boards[0], results)
    names = list(dict.fromkeys(mechanism.name for mechanism in of.mechanisms))
    return Content(
        suite=selection.suite,
        suite_version=selection.suite_version,
        num_rows=len(rows),
        num_mechanisms=len(of.mechanisms),
        num_tasks=len(of.tasks),
        statuses=_ok_first(Counter(str(row["status"]) for row in records)),
        left_out={
            reason: count
            for reason, count in (
                ("of older versions or other arguments", selection.num_outdated),
                ("whose seed has a newer or a successful row", selection.num_repeated),
                ("of learning rates that did worse in validation", selection.num_other_rates),
            )
            if count
        },
        seeds=seed_ranges(seeds),
        devices=tuple(sorted({_device(row) for row in records})),
        versions=tuple(sorted({_code_version(row) for row in records})),
        run_command=run_command(selection.suite, seeds, mechanism=",".join(names)),
        report_command=report_command(selection.suite, selection.suite_version, seeds, names),
        boards=boards,
        mechanisms=mechanisms,
        tasks=_task_sections(selection, of, records, judged, results),
        families=_facets("family", [section.facts.family for section in mechanisms]),
        categories=_category_facets(of),
        blocks=_facets("block", [_block(section.facts) for section in mechanisms]),
        positions=_facets("positions", [_positions(section.facts) for section in mechanisms]),
    )


def _boards(rows: pd.DataFrame, of: Grid) -> tuple[Board, ...]:
    suite = _board(rows, of, None, [(category, of.tasks_of(category)) for category in of.categories])
    of_categories = [
        _board(
            rows[rows["task_category"] == facet.label],
            of,
            facet,
            [(task.label, (task,)) for task in of.tasks_of(facet.label)],
        )
        for facet in _category_facets(of)
    ]
    return (suite, *of_categories)


def _board(
    rows: pd.DataFrame, of: Grid, facet: Facet | None, parts: Sequence[tuple[str, tuple[TaskFacts, ...]]]
) -> Board:
    counting = {name: [task for task in tasks if task.gap >= SMALLEST_GAP] for name, tasks in parts}
    shown = {name: tasks for name, tasks in counting.items() if tasks}
    tasks = [task for part in shown.values() for task in part]
    num_seeds = len(set(rows["seed"]))
    found = leaderboard(rows) if num_seeds > 1 else None
    entries = {entry.mechanism.key: entry for entry in found.entries} if found else {}
    lines = [
        BoardLine(
            mechanism=mechanism,
            entry=entries.get(mechanism.key),
            reason="" if mechanism.key in entries else _reason(of, found, mechanism, tasks),
            rank_bar=charts.rank_bar(*entries[mechanism.key].rank[:3], len(entries))
            if mechanism.key in entries
            else None,
            skill_bar=charts.bar(*entries[mechanism.key].middle) if mechanism.key in entries else None,
            skill=_mean_skill(of, tasks, mechanism),
            parts=tuple(_mean_skill(of, part, mechanism) for part in shown.values()),
        )
        for mechanism in of.mechanisms
    ]
    by_skill = sorted(lines, key=lambda line: math.inf if math.isnan(line.skill) else -line.skill)
    return Board(
        facet=facet,
        parts=tuple(shown),
        num_tasks=len(tasks),
        num_left_out=sum(len(part) for _, part in parts) - len(tasks),
        num_seeds=num_seeds,
        ranked=tuple(line for line in by_skill if line.entry),
        unranked=tuple(line for line in by_skill if not line.entry),
    )


def _reason(of: Grid, found: Leaderboard | None, mechanism: MechanismFacts, tasks: Sequence[TaskFacts]) -> str:
    if not tasks:
        return "no task counts"
    if found is None:
        return "one seed"
    cells = [of.cell(task, mechanism) for task in tasks]
    num_runs = sum(cell.n + cell.num_failed for cell in cells)
    return f"{num_runs} of {len(tasks) * len(found.seeds)} runs"


def _mean_skill(of: Grid, tasks: Sequence[TaskFacts], mechanism: MechanismFacts) -> float:
    """Mean skill over tasks, runs without a score counted as 0; NaN where some task has no run."""
    means = []
    for task in tasks:
        cell = of.cell(task, mechanism)
        num_runs = cell.n + cell.num_failed
        means.append((cell.skill * cell.n if cell.n else 0.0) / num_runs if num_runs else math.nan)
    return float(np.mean(means)) if means else math.nan


def _results(
    of: Grid, records: Sequence[Row], drawn: Mapping[tuple[Key, Key], charts.Curve]
) -> dict[tuple[Key, Key], Result]:
    failures: dict[tuple[Key, Key], Counter[str]] = {}
    for row in records:
        if row["status"] != "ok":
            failures.setdefault((task_key(row), mechanism_key(row)), Counter())[_failure(row)] += 1
    results = {}
    for task in of.tasks:
        for mechanism, is_tied in zip(of.mechanisms, not_separable(of.cells_of(task)), strict=True):
            keys = (task.key, mechanism.key)
            if keys not in of.cells:
                continue
            estimate = of.cells[keys]
            low, high = ((end - task.floor) / task.gap if task.gap else math.nan for end in estimate.interval)
            counts = failures.get(keys, Counter())
            results[keys] = Result(
                task=task,
                mechanism=mechanism,
                estimate=estimate,
                interval=(low, high),
                bar=charts.bar(estimate.skill, low, high),
                failures=", ".join(f"{count} {status}" for status, count in sorted(counts.items())),
                is_tied=is_tied,
                reach=reach(estimate),
                curve=drawn.get(keys),
            )
    return results


def _failure(row: Row) -> str:
    error = row["error_type"]
    return f"{row['status']} ({error})" if _is_known(error) else str(row["status"])


def _drawn_curves(of: Grid, rows: pd.DataFrame, curves: pd.DataFrame | None) -> dict[tuple[Key, Key], charts.Curve]:
    if curves is None or curves.empty:
        return {}
    tasks = {task.label: task for task in of.tasks}
    mechanisms = {mechanism.label: mechanism for mechanism in of.mechanisms}
    averages = mean_curves(rows, curves)
    found: dict[tuple[Key, Key], charts.Curve] = {}
    for split, metric in _METRICS:
        of_metric = averages[(averages["split"] == split) & (averages["metric"] == metric)]
        for (task_label, mechanism_label), points in of_metric.groupby(["task", "mechanism"], sort=False):
            task = tasks[str(task_label)]
            keys = (task.key, mechanisms[str(mechanism_label)].key)
            if keys in found:
                continue
            drawn = charts.curve(
                points["step"].tolist(),
                points["mean"].tolist(),
                points["std"].tolist(),
                metric=f"{split} {metric}",
                num_seeds=int(points["n"].max()),
                bounds=(task.floor, task.ceiling) if metric == "accuracy" else None,
            )
            if drawn is not None:
                found[keys] = drawn
    return found


def _mechanism_sections(
    selection: Selection, of: Grid, records: Sequence[Row], board: Board, results: Mapping[tuple[Key, Key], Result]
) -> tuple[MechanismSection, ...]:
    lines = [*board.ranked, *board.unranked]
    ids = anchors("mech", [(line.mechanism.key, line.mechanism.name) for line in lines])
    by_mechanism: dict[Key, list[Row]] = {}
    for row in records:
        by_mechanism.setdefault(mechanism_key(row), []).append(row)
    num_runs = len(of.tasks) * len({row["seed"] for row in records})
    is_verified = any(_is_verified(row) for row in records)
    families = _by_label("family", [line.mechanism.family for line in lines])
    blocks = _by_label("block", [_block(line.mechanism) for line in lines])
    positions = _by_label("positions", [_positions(line.mechanism) for line in lines])
    around = Counter(mechanism.name for mechanism in of.mechanisms)
    sections = []
    for line in lines:
        facts = line.mechanism
        own = by_mechanism[facts.key]
        shown = tuple(results[task.key, facts.key] for task in of.tasks if (task.key, facts.key) in results)
        term = mechanism_term(facts.name, facts.arguments)
        is_one_of_several = around[facts.name] > 1
        command = term and run_command(
            selection.suite,
            {int(row["seed"]) for row in own},
            mechanism=term,
            block=_block(facts) if is_one_of_several else None,
            positions=_positions(facts) if is_one_of_several else None,
        )
        sections.append(
            MechanismSection(
                facts=facts,
                anchor=ids[facts.key],
                family=families[facts.family],
                block=blocks[_block(facts)],
                positions=positions[_positions(facts)],
                board=line,
                arguments=_arguments(facts.arguments),
                statuses=_with_missing(Counter(str(row["status"]) for row in own), num_runs),
                badge=_badge(own) if is_verified else "",
                costs=_costs(own),
                source=_source(facts.source),
                command=command,
                results=shown,
                factors=tuple(sorted({factor for result in shown for factor in result.estimate.stretched})),
                out_of_range=_out_of_range(of, shown),
            )
        )
    return tuple(sections)


def _out_of_range(of: Grid, results: Sequence[Result]) -> tuple[tuple[Facet, charts.Lines], ...]:
    found = []
    for facet in _category_facets(of):
        estimates = [one.estimate for one in results if one.task.category == facet.label and one.estimate.stretched]
        if estimates:
            found.append((facet, charts.lines([{1: estimate.skill, **estimate.stretched} for estimate in estimates])))
    return tuple(found)


def _task_sections(
    selection: Selection,
    of: Grid,
    records: Sequence[Row],
    judged: Sequence[Separation],
    results: Mapping[tuple[Key, Key], Result],
) -> tuple[TaskSection, ...]:
    ids = anchors("task", [(task.key, task.name) for task in of.tasks])
    categories = {facet.label: facet for facet in _category_facets(of)}
    newest = {task_key(row): row for row in sorted(records, key=lambda row: (row["finished_at"], row["run_id"]))}
    by_task = {one.task.key: one for one in judged}
    seeds = {int(row["seed"]) for row in records}
    sections = []
    for task in of.tasks:
        row = newest[task.key]
        found = [results[task.key, one.key] for one in of.mechanisms if (task.key, one.key) in results]
        sections.append(
            TaskSection(
                facts=task,
                anchor=ids[task.key],
                category=categories[task.category],
                arguments=_arguments(str(row["task_args"])),
                length=int(row["seq_len"]),
                description=describe(task.name, str(row["task_version"]), str(row["task_args"])),
                separation=by_task[task.key],
                source=_source(task.source),
                command=run_command(selection.suite, seeds, task=task.name),
                results=tuple(sorted(found, key=lambda one: -one.estimate.mean if one.estimate.n else math.inf)),
            )
        )
    return tuple(sections)


def _source(key: str) -> Source:
    bibtex, unknown = cite([key])
    return Source(key, "" if unknown else bibtex)


def _arguments(text: str) -> dict[str, Any]:
    """Arguments by name; what is no object, as a stranger may write, is shown under one name."""
    given = json.loads(text)
    return given if isinstance(given, dict) else {"arguments": given}


def _costs(rows: Sequence[Row]) -> tuple[Cost, ...]:
    """Seconds of one run by device: those of a job are shared by the members that it trained as one."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        if _is_known(row["train_s"]):
            seconds.setdefault(_device(row), []).append(float(row["train_s"]) / int(row["ensemble_size"]))
    return tuple(Cost(device, float(np.median(seconds[device]))) for device in sorted(seconds))


def _device(row: Row) -> str:
    return f"{row['device_type']} ({row['device_name']})"


def _code_version(row: Row) -> str:
    commit = f", commit {str(row['git_sha'])[:10]}" if _is_known(row["git_sha"]) else ""
    changed = ", with changes" if _is_known(row["git_dirty"]) and row["git_dirty"] else ""
    return f"{row['synthbench_version']}{commit}{changed}"


def _badge(rows: Sequence[Row]) -> str:
    num_verified = sum(_is_verified(row) for row in rows)
    if not num_verified:
        return "self-reported"
    return "verified" if num_verified == len(rows) else f"{num_verified} of {len(rows)} rows verified"


def _is_verified(row: Row) -> bool:
    return _is_known(row.get("verified_by"))


def _is_known(value: Any) -> bool:
    """Whether a row says something."""
    return bool(pd.notna(value))


def _ok_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", item[0])))


def _with_missing(counts: Mapping[str, int], num_runs: int) -> dict[str, int]:
    num_missing = num_runs - sum(counts.values())
    return _ok_first(counts) | ({"missing": num_missing} if num_missing else {})


def _block(mechanism: MechanismFacts) -> str:
    return str(mechanism.key[1])


def _positions(mechanism: MechanismFacts) -> str:
    return str(mechanism.key[2])


def _category_facets(of: Grid) -> tuple[Facet, ...]:
    named = anchors("category", [(category, category) for category in of.categories])
    return tuple(Facet(anchor, category) for category, anchor in named.items())


def _facets(prefix: str, labels: Sequence[str]) -> tuple[Facet, ...]:
    return tuple(_by_label(prefix, labels).values())


def _by_label(prefix: str, labels: Sequence[str]) -> dict[str, Facet]:
    named = anchors(prefix, [(label, label) for label in sorted(set(labels))])
    return {label: Facet(anchor, label) for label, anchor in named.items()}
