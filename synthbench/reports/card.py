"""Scores of one mechanism for a README, and scores of several in a LaTeX table as wide as a column of a paper."""

import math
from typing import Any

from synthbench import sources
from synthbench.errors import UnknownName, UsageError
from synthbench.options import resolve
from synthbench.reports.leaderboard import Placed, capacity, in_title, quoted, seeds_words, short
from synthbench.reports.render import latex, markdown
from synthbench.reports.render.page.content import content
from synthbench.reports.report import Report, cite
from synthbench.reports.standings import ranked_board
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, in_words, sources_of
from synthbench.reports.verdicts import MARGIN


def card(report: Report, name: str) -> str:
    """Summarise the scores of a mechanism in half a page of Markdown.

    The text has a table with one column for each setting of the mechanism in the report. Settings may differ in
    options, or in the layer: stock (as published) or bare (only recurrence or attention scores).

    Args:
        report: The report to summarise.
        name: Name or label of the mechanism.

    Raises:
        UnknownName: If the report has no run of the mechanism.
        UsageError: If the report has no ranking, because all tasks are scored in bits.
    """
    board = ranked_board(report)
    names = {one.name: one.label.removesuffix(" (bare)") for one in report.cells.mechanisms}
    found, page = resolve("mechanism", name, names), content(report)
    sections = [section for section in page.mechanisms.values() if section.facts.name == found]
    if not sections:
        raise UnknownName(f"mechanism with rows of suite {report.selection.suite!r}", name, names)
    whole = page.boards[0]
    headings = [
        "mean score" if board.cells.has_ladder else "mean skill",
        *(part.replace("_", " ") for part in whole.parts),
        *(f"capacity, {task.ladder.unit} of {task.label}" for task in whole.capacities),
        *("rank", "seeds", "parameters, state", "convolution, positions"),
    ]
    table = markdown.plain_table(
        zip(headings, *(map(markdown.escape, _facts(one, len(board.entries))) for one in sections), strict=True),
        ["with 95 % interval over seeds", *(markdown.escape(one.facts.label) for one in sections)],
    )
    suite, version = report.selection.suite, report.selection.suite_version
    commands = "\n".join(filter(None, dict.fromkeys(one.command or "" for one in sections)))
    bibtex = f"{sources.of_suite(suite, version)}\n{cite([sections[0].facts.source])[0]}".strip()
    return "\n\n".join(
        [
            f"# {markdown.escape(names[found])} on synthbench, suite {markdown.escape(f'{suite} {version}')}",
            markdown.escape(report.setting),
            table,
            *[f"```sh\n{commands}\n```"] * bool(commands),
            f"```bibtex\n{bibtex}\n```\n",
        ]
    )


def _facts(section: Any, num_ranked: int) -> list[str]:
    """List the facts of a mechanism in one condition, as they stand in its section of the HTML page.

    The condition of its layer is stock (as published) or bare (stripped).
    """
    line, facts = section.board, section.facts
    return [
        *map(in_words, (line.skill, *line.parts)),
        *(text for _, text in line.capacities),
        f"{line.entry.rank.value} of {num_ranked}" if line.entry else NOTHING,
        seeds_words(*line.entry.num_seeds) if line.entry else NOTHING,
        f"{fixed(facts.num_parameters, 0)}, {fixed(facts.state, 0)}",
        f"{facts.convolution or 'none'}, {facts.positions}",
    ]


def compact(report: Report) -> str:
    """Return a LaTeX table that fits in one column of a two-column paper; the user's mechanisms come last.

    The upper part has mean scores by category. If tasks have levels, the lower part has capacities (loads at half
    skill).

    Raises:
        UsageError: If the report has no ranking, because all tasks are scored in bits. It is also raised if no category
            has a mechanism with a run of each of its tasks.
    """
    board = ranked_board(report)
    parts = {name: part for name, part in board.parts.items() if part.tasks}
    ranked = {entry.mechanism for part in parts.values() for entry in part.entries}
    if not ranked:
        raise UsageError(
            "no mechanism has a run of every task of a category; allowed: mechanisms of which one has, as "
            "synthbench leaderboard lists them"
        )
    placed = sorted(
        (row for row in board.placed if row.mechanism in ranked), key=lambda row: row.mechanism.key in report.own
    )
    bold = {
        name: {one.mechanism for one, is_below in zip(best, part.is_below, strict=True) if not is_below}
        for name, part in parts.items()
        if (best := part.mechanisms) and not math.isnan(best[0].skill.low)
    }

    def score(name: str, row: Placed) -> Cell:
        is_best = row.mechanism in bold.get(name, ())
        return Cell(short(parts[name].skill_of(row.mechanism).value), mark="best" if is_best else "")

    def load(name: str, row: Placed) -> Cell:
        return Cell(capacity(report.cells, of_category[name])(row) if name in of_category else NOTHING)

    of_category = {task.category: task for task in quoted(report.cells)}
    lines = [
        Line((row.mechanism.label,), tuple(cell(name, row) for name in parts), is_first_of_group=place == 0)
        for cell in (score, *[load] * bool(of_category))
        for place, row in enumerate(placed)
    ]
    suite, version = report.selection.suite, report.selection.suite_version
    measure = "score" if board.cells.has_ladder else "skill"
    names = ", ".join(in_title(name).lower() for name in parts)
    units = ", ".join(f"{task.ladder.unit} of {task.label}" for task in of_category.values() if task.ladder)
    below = f" Below the rule: capacity, the load at half skill ({units})." * bool(of_category)
    table = Table(
        "compact",
        f"Scores on synthetic tasks ({suite} {version})",
        f"Mean {measure} by category ({names}; {board.num_seeds}). Bold: not shown to lie {short(MARGIN)} below the "
        f"highest.{below}",
        ("Mechanism",),
        tuple(Column(f"{in_title(name)[:4]}.") for name in parts),
        tuple(lines),
        sources_of((), (row.mechanism for row in placed)),
    )
    cited = (
        rf"\\[2pt]{{\scriptsize synthbench~\cite{{synthbench}}, suite {latex.escape(suite)} {latex.escape(version)}}}"
    )
    text = latex.document([table], suite).replace("\\end{tabular}\n", f"\\end{{tabular}}{cited}\n")
    bibtex = f"{sources.of_suite(suite, version)}\n{cite(table.sources)[0]}"
    return text + "".join(f"% {line}".rstrip() + "\n" for line in bibtex.splitlines())
