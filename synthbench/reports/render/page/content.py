"""The numbers and names on the leaderboard page, without markup."""

import math
from dataclasses import dataclass

from synthbench.reports.cells import Key, Row, is_known
from synthbench.reports.render.page.boards import Board, boards
from synthbench.reports.render.page.commands import report_command, run_command, seed_ranges, task_terms
from synthbench.reports.render.page.facets import Facet, facets
from synthbench.reports.render.page.panels import Panel, coloured, panels
from synthbench.reports.render.page.results import results
from synthbench.reports.render.page.sections import (
    MechanismSection,
    TaskSection,
    mechanism_sections,
    statuses,
    task_sections,
)
from synthbench.reports.report import Report
from synthbench.reports.table import on_added_seeds


@dataclass(frozen=True)
class Content:
    """Everything on a page that the report does not have itself."""

    report: Report
    statuses: dict[str, int]
    seeds: str
    on_added_seeds: str
    """:func:`synthbench.reports.table.on_added_seeds`."""
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
    facets: dict[str, dict[str, Facet]]
    panels: dict[Facet, tuple[Panel, ...]]
    """Skill over rungs by category; empty without a ladder."""
    coloured: tuple[str, ...]
    """Labels of the mechanisms that have a colour there."""

    @property
    def has_pale(self) -> bool:
        """Whether there are more mechanisms than colours."""
        return len(self.mechanisms) > len(self.coloured)

    @property
    def has_local(self) -> bool:
        """Whether some row has a local ceiling."""
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


def content(report: Report) -> Content:
    """Everything that the page of a report shows."""
    selection, cells, records = report.selection, report.cells, report.records
    shown = results(report)
    ranked = boards(report, shown)
    seeds = cells.seeds
    mechanisms = mechanism_sections(report, ranked[0], shown)
    with_colour = coloured(cells, [section.facts for section in mechanisms])
    names = list(dict.fromkeys(mechanism.name for mechanism in cells.mechanisms))
    extra = task_terms(selection.suite, {str(row["task"]): str(row["task_args"]) for row in records})
    # One command has one setting of a mechanism: where there are more, the sections have theirs.
    is_one_command = len({mechanism.key[:-1] for mechanism in cells.mechanisms}) == len(cells.mechanisms)
    return Content(
        report=report,
        statuses=statuses(records),
        seeds=seed_ranges(seeds),
        on_added_seeds=on_added_seeds(cells),
        devices=tuple(sorted({f"{row['device_type']} ({row['device_name']})" for row in records})),
        versions=tuple(sorted({_code_version(row) for row in records})),
        run_command=(
            run_command(selection.suite, seeds, task=extra, mechanism=",".join(names)) if is_one_command else None
        ),
        report_command=report_command(
            selection.suite, selection.suite_version, seeds, names, stores=list(report.stores)
        ),
        boards=ranked,
        mechanisms=mechanisms,
        tasks=task_sections(report, shown),
        facets=facets(cells),
        panels=panels(cells, with_colour),
        coloured=tuple(mechanism.label for mechanism in with_colour),
    )


def _code_version(row: Row) -> str:
    """The version of the code that made a row."""
    commit = f", commit {str(row['git_sha'])[:10]}" if is_known(row["git_sha"]) else ""
    changed = ", with changes" if is_known(row["git_dirty"]) and row["git_dirty"] else ""
    return f"{row['synthbench_version']}{commit}{changed}"
