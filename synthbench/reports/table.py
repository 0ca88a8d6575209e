"""Tables whose cells have content and marks, but no markup and no layout.

Accuracies are printed in per cent with one decimal, and scores over levels, from 0 to 1, with two decimals. The best
and the second best are found from means before rounding, but means that look equal when rounded get the same mark.
Results are marked only on tasks where mechanisms differ significantly. Controls, which are references without learned
mixing of tokens, are never marked.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from synthbench.reports.aggregates import TIE, Interval
from synthbench.reports.cells import Cells, CellStats, MechanismFacts, TaskFacts, clipped, is_known, mean_of
from synthbench.reports.interim import ANALYSES
from synthbench.reports.ladder import LEAST, SPLIT, num_learned, scored_levels
from synthbench.reports.verdicts import FAR, Verdict, Verdicts, compared

Mark = Literal["", "best", "second"]
Item = TypeVar("Item")

NOTHING = "--"
"""Text that is printed if there is no number."""
MINUS = "−"

MARKS = (
    "Bold: best; underlined: second; †: not shown to differ from the best (moderated t test of the two, 5 %) and "
    f"less than {FAR:g} standard deviations of a run below it. Marks stand on tasks on which mechanisms differ, beside "
    "mechanisms with a run of every task that counts, never beside controls."
)
SCORE = (
    "Score: the mean over levels of the skill, made non-increasing and cut to 0 to 1, which is the area under the "
    "curve of skill over load; Levels: the number that the task has."
)
LEARNED = (
    f"If the seeds of a cell differ by more than {SPLIT:g} levels, those above the midpoint of the lowest and the "
    "highest count as learned; p: permutation test of the task."
)
ADDED = (
    " Seeds beyond the third may have been added because a pair of mechanisms was undecided. Verdicts allow for that; "
    "intervals do not: each is for the seeds of its cell alone."
)
FACTORS = (2, 4)
"""Tested lengths, as multiples of the longest trained sequence; a row may lack metrics at these lengths."""

BEYOND = (
    "Skill of the trained models on sequences of 2 and 4 times the tokens of the longest level that they were trained "
    "on, and on that level: mean over seeds, then over tasks, each cut to [0, 1]. Tasks: those in the means. "
    f"{NOTHING}: the mechanism, or its positions, reads no more tokens than it was trained on. No score contains them."
)
BOUNDS = "Floor: best predictor that sees no input; ceiling: best causal predictor."


@dataclass(frozen=True)
class Cell:
    """One cell of a table, in parts that a renderer puts together."""

    value: str = NOTHING
    std: str = ""
    """Sample standard deviation, or half the width of an interval; may be empty."""
    remarks: tuple[str, ...] = ()
    """Remarks in brackets: ``n = 2``, ``1 failed``."""
    mark: Mark = ""
    is_tied: bool = False
    """True if the value is not shown to differ from the best."""


class Column(NamedTuple):
    """The heading of a column, and the kind of its cells: numbers, words, or text that may need several lines."""

    label: str
    kind: Literal["number", "word", "text"] = "number"


@dataclass(frozen=True)
class Line:
    """One line of a table; the name ``Row`` is used for the result of one run in a store."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    is_first_of_group: bool = False


@dataclass(frozen=True)
class Table:
    """A table without markup."""

    name: str
    """Name of the table, unique within a report; it becomes the label in LaTeX."""
    title: str
    caption: str
    headings: tuple[str, ...]
    """Headings of the label columns."""
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    sources: tuple[str, ...] = ()
    """Keys of the papers that the table's tasks and mechanisms come from, in alphabetical order."""
    outcome: str = ""
    """The result in one sentence, printed above the table."""
    is_of_tasks: bool = False
    """True if lines are tasks and columns are mechanisms; renderers transpose such a table if it is wide."""

    def shown(self, most_columns: int) -> "Table":
        """Return the table in the form in which it is printed: a wide table is transposed, so lines become columns.

        A table is wide if its lines are tasks and it has more than ``most_columns`` columns.
        """
        return self.transposed() if self.is_of_tasks and len(self.columns) > most_columns else self

    def transposed(self) -> "Table":
        """Convert a table with a line per task and a column per mechanism to a table with a line per mechanism."""
        return replace(
            self,
            headings=("Mechanism",),
            columns=tuple(Column(line.labels[-1]) for line in self.lines),
            lines=tuple(
                Line((column.label,), tuple(line.cells[position] for line in self.lines))
                for position, column in enumerate(self.columns)
            ),
            is_of_tasks=False,
        )


Pairs = Sequence[tuple[Column | str, Callable[[Item], Cell | str]]]
"""Headings of columns, each with a function that formats the cell of an item."""
Measure = Callable[[MechanismFacts, TaskFacts], Cell]
"""Function that formats the cell of a mechanism and a task."""
Facts = Mapping[Column | str, Callable[[TaskFacts], Cell | str]]
"""Headings of columns, each with a function that formats the cell of a task."""


def table_of(
    name: str,
    title: str,
    caption: str,
    headings: tuple[str, ...],
    items: Iterable[Item],
    labels: Callable[[Item], tuple[str, ...]],
    columns: Mapping[Column | str, Callable[[Item], Cell | str]] | Pairs[Item],
    *,
    sources: tuple[str, ...] = (),
    outcome: str = "",
    is_grouped: bool = False,
) -> Table:
    """Make a table with one row per item: the item's labels, then one cell per function in ``columns``."""
    pairs = list(columns.items() if isinstance(columns, Mapping) else columns)
    lines = [Line(labels(item), tuple(_cell(fill(item)) for _heading, fill in pairs)) for item in items]
    shown = tuple(Column(heading) if isinstance(heading, str) else heading for heading, _fill in pairs)
    rows = grouped(lines) if is_grouped else tuple(lines)
    return Table(name, title, caption, headings, shown, rows, sources, outcome)


def _cell(printed: Cell | str) -> Cell:
    return Cell(printed) if isinstance(printed, str) else printed


def grouped(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Mark the first line of each group of lines; a group begins wherever the first label changes."""
    groups = itertools.groupby(lines, key=lambda line: line.labels[0])
    return tuple(
        replace(line, is_first_of_group=position == 0) for _, group in groups for position, line in enumerate(group)
    )


def printed_labels(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Return the labels of each line, with the name of a group only in the group's first line."""
    before = [None, *(line.labels[0] for line in lines)]
    return [
        ("", *line.labels[1:]) if len(line.labels) > 1 and line.labels[0] == group else line.labels
        for line, group in zip(lines, before, strict=False)
    ]


def counted(number: int, word: str) -> str:
    """Format a number with a noun, which gets an s unless the number is 1: ``1 seed``, ``3 seeds``."""
    return f"{number} {word}" + "s" * (number != 1)


def percent(fraction: float) -> str:
    """Format a fraction in per cent with one decimal: ``51.6``; ``--`` for NaN."""
    return NOTHING if math.isnan(fraction) else fixed(100 * fraction, 1)


def fixed(number: float, decimals: int, *, is_signed: bool = False) -> str:
    """Format a number with a fixed number of decimals, a true minus sign and no negative zero; ``--`` for NaN."""
    if math.isnan(number):
        return NOTHING
    # Adding zero turns a negative zero into a positive one.
    rounded = round(number, decimals) + 0.0
    sign = MINUS if rounded < 0 else "+" if is_signed and rounded > 0 else ""
    return f"{sign}{abs(rounded):.{decimals}f}"


def pivot(
    cells: Cells,
    measure: Measure,
    name: str,
    title: str,
    caption: str,
    *,
    rows: Literal["tasks", "mechanisms"],
    facts: Facts | None = None,
) -> Table:
    """Make a table of one measure: a row for each task and a column for each mechanism, or the reverse.

    Args:
        cells: Results with the tasks and mechanisms to print, which keep their order.
        measure: Function that returns the table cell of a mechanism and a task.
        name: Name of the table, unique within a report.
        title: Title of the table.
        caption: Caption of the table.
        rows: ``tasks`` or ``mechanisms``.
        facts: Facts about the tasks, printed as columns before the mechanisms or, if rows are mechanisms, as rows below
            them.
    """
    of_tasks: Pairs[TaskFacts] = list((facts or {}).items())
    measured: Pairs[TaskFacts] = [(mechanism.label, partial(measure, mechanism)) for mechanism in cells.mechanisms]
    table = table_of(
        *(name, title, caption, ("Category", "Task"), cells.tasks, lambda task: (task.category, task.label)),
        [*of_tasks, *measured] if rows == "tasks" else [*measured, *of_tasks],
        sources=sources_of(cells.tasks, cells.mechanisms),
        is_grouped=True,
    )
    table = replace(table, is_of_tasks=True)
    if rows == "tasks":
        return table
    lines = [
        replace(line, is_first_of_group=place == len(measured)) for place, line in enumerate(table.transposed().lines)
    ]
    return replace(table.transposed(), lines=tuple(lines))


def score_table(cells: Cells, verdicts: Verdicts, category: str | None = None) -> Table:
    """Make the table of scores on all tasks, or on the tasks of one category, as in Table 8 of the SLAY paper.

    The bounds of a task are its floor and ceiling, or the number of its levels. The table of all tasks has a row per
    task; its columns are the bounds and the mechanisms. The table of one category has a column per task; its rows are
    the mechanisms, then the bounds. The marks and intervals of this table depend on tasks of other categories too.
    """
    shown = replace(cells, tasks=cells.tasks_of(category))
    common_n = common_n_of(shown)
    printed = {
        (task.key, mechanism.key): cell
        for task in shown.tasks
        for mechanism, cell in zip(cells.mechanisms, _score_cells(cells, verdicts[task.key], common_n), strict=True)
    }
    return pivot(
        shown,
        lambda mechanism, task: printed[task.key, mechanism.key],
        category or "full",
        f"{category.replace('_', ' ').capitalize()} tasks" if category else "All tasks",
        _caption(cells, common_n),
        rows="mechanisms" if category else "tasks",
        facts=bounds_of(cells),
    )


def category_averages(cells: Cells) -> Table:
    """Make a table of mean accuracies over each category's tasks: a row per category and a column per mechanism.

    The layout is that of Table 3 of the SLAY paper. The best mean is not marked, because accuracies on tasks with
    different floors are not comparable. If a mechanism lacks a score on some tasks, the cell shows the mean over the
    other tasks, and their number.
    """

    def bound(name: Literal["floor", "ceiling"], relation: str, category: str) -> Cell:
        tasks = cells.tasks_of(category)
        mean = float(np.mean([getattr(task, name) for task in tasks]))
        return _bound_cell(mean, relation, is_exact=all(getattr(task, f"{name}_is_exact") for task in tasks))

    def average(mechanism: MechanismFacts, category: str) -> Cell:
        tasks = cells.tasks_of(category)
        means = [cell.mean for task in tasks if (cell := cells.cell(task, mechanism)).n]
        remarks = (f"{len(means)} of {len(tasks)} tasks",) if 0 < len(means) < len(tasks) else ()
        return Cell(percent(mean_of(means)), remarks=remarks)

    columns: Pairs[str] = [
        ("Floor", partial(bound, "floor", "≥")),
        ("Ceiling", partial(bound, "ceiling", "≤")),
        *((mechanism.label, partial(average, mechanism)) for mechanism in cells.mechanisms),
    ]
    table = table_of(
        "averages",
        "Averages of the categories",
        "Mean accuracy over the tasks of a category, in per cent. The leaderboard has the mean skill, with "
        f"intervals. {BOUNDS}",
        ("Category",),
        cells.categories,
        lambda category: (category,),
        columns,
        sources=sources_of(cells.tasks, cells.mechanisms),
        outcome="Accuracies are not compared between categories: their tasks have different floors.",
    )
    return replace(table, is_of_tasks=True)


def steps_table(cells: Cells) -> Table | None:
    """Make a table of the number of training steps until the validation skill reached the suite's threshold.

    Each cell shows the median over seeds, and the number of seeds that reached the threshold. A seed that never reached
    it counts as slower than all others. If at least half of the seeds never reached it, the cell shows that the median
    exceeds the planned steps. Tasks on which no seed reached the threshold are left out; if this leaves no task, the
    result is None.
    """
    tasks = tuple(
        task
        for task in cells.tasks
        if any(math.isfinite(steps) for cell in cells.cells_of(task) for steps in _steps(cell))
    )
    if not tasks:
        return None
    table = pivot(
        replace(cells, tasks=tasks),
        lambda mechanism, task: _steps_cell(cells.cell(task, mechanism)),
        "steps_to_threshold",
        "Steps to threshold",
        "Training steps until an evaluation first reached the suite's threshold: median over seeds; in brackets, the "
        "number of seeds that reached it. Tasks on which no seed reached it are left out.",
        rows="tasks",
    )
    return replace(
        table, outcome=f"Some run reached the suite's threshold on {len(tasks)} of {len(cells.tasks)} tasks."
    )


def beyond_table(cells: Cells) -> Table | None:
    """Make a table of each mechanism's mean skill on the longest level in training, and on even longer sequences.

    A level is one difficulty of a task. Mechanisms that were not tested on longer sequences are left out. The result is
    None if tasks have no levels, or if no mechanism was tested on longer sequences.
    """
    skills = {mechanism: _skills_beyond(cells, mechanism) for mechanism in cells.mechanisms}
    shown = [mechanism for mechanism in cells.mechanisms if skills[mechanism]]
    if not cells.has_ladder or not shown:
        return None

    def mean(place: int) -> Callable[[MechanismFacts], str]:
        return lambda mechanism: fixed(mean_of([of_task[place] for of_task in skills[mechanism]]), 2)

    return table_of(
        "beyond",
        "Beyond the trained length",
        BEYOND,
        ("Mechanism",),
        shown,
        lambda mechanism: (mechanism.label,),
        {
            "Tasks": lambda mechanism: str(len(skills[mechanism])),
            "longest trained": mean(0),
            **{f"{factor} x": mean(place) for place, factor in enumerate(FACTORS, start=1)},
        },
        sources=sources_of(cells.tasks, shown),
    )


def _skills_beyond(cells: Cells, mechanism: MechanismFacts) -> list[list[float]]:
    """Return a list of mean skills over seeds for each task where the mechanism was tested beyond the trained length.

    The first skill of a list is on the longest trained level (difficulty of the task). The other skills are on
    sequences of ``FACTORS`` times the length of this level; they are NaN if not tested.
    """
    found = []
    for task in cells.tasks:
        tested = [
            metrics
            for metrics in cells.cell(task, mechanism).metrics.values()
            if scored_levels(metrics) and any(f"x{factor}.length" in metrics for factor in FACTORS)
        ]
        if tested:
            trained = mean_of([scored_levels(metrics)[-1].skill for metrics in tested], clipped)
            beyond = [mean_of([metrics.get(f"x{factor}.skill") for metrics in tested], clipped) for factor in FACTORS]
            found.append([trained, *beyond])
    return found


def load_table(cells: Cells, category: str | None = None) -> Table:
    """Tabulate capacities (loads at half skill), with a row per task, for all tasks or for one category."""

    def load(mechanism: MechanismFacts, task: TaskFacts) -> Cell:
        cell = cells.cell(task, mechanism)
        if task.ladder is None or not cell.levels:
            return Cell()
        ends = dict.fromkeys(map(task.ladder.load_text, (min(cell.loads_at_half), max(cell.loads_at_half))))
        remarks = (" to ".join(ends),) if len(ends) > 1 else ()
        return Cell(task.ladder.load_text(cell.load_at_half), remarks=remarks)

    caption = (
        "Capacity: the load at which the skill falls to one half, interpolated over the logarithm of the load: median "
        "over seeds (the lower middle one if their number is even); in brackets, the lowest and the highest seed. ≥: "
        "the skill does not fall to one half; <: it is below one half on the first level."
    )
    unit: Facts = {Column("Load in", "word"): lambda task: task.ladder.unit if task.ladder else NOTHING}
    shown, name = replace(cells, tasks=cells.tasks_of(category)), f"{category or 'full'}-load"
    return pivot(shown, load, name, "Capacity", caption, rows="tasks", facts=unit)


def bounds_of(cells: Cells) -> Facts:
    """Return table columns with each task's floor and ceiling in per cent, or its number of levels if it has any.

    ``≥`` marks a floor that is only a lower limit, and ``≤`` a ceiling that is only an upper limit.
    """
    if cells.has_ladder:
        return {"Levels": lambda task: str(task.ladder.num_levels) if task.ladder else NOTHING}
    return {
        "Floor": lambda task: _bound_cell(task.floor, "≥", is_exact=task.floor_is_exact),
        "Ceiling": lambda task: _bound_cell(task.ceiling, "≤", is_exact=task.ceiling_is_exact),
    }


def skill_words(*, has_ladder: bool) -> str:
    """Return the name of the measure by which a leaderboard ranks, with its formula or meaning."""
    if has_ladder:
        return "score (0 to 1, the area under the curve of skill over load)"
    return "skill, (accuracy − floor) / (ceiling − floor) cut to 0 to 1"


def tie_words(*, has_ladder: bool) -> str:
    """Return a clause that says which runs count as tied in a probability of improvement."""
    less = f"scores less than {LEAST:g} levels" if has_ladder else f"skills less than {TIE:g}"
    return f"{less} apart are a tie, which counts half"


def score_text(task: TaskFacts, score: float) -> str:
    """Format a score over levels with two decimals, or an accuracy in per cent with one decimal; ``--`` for NaN."""
    return fixed(score, 2) if task.ladder else percent(score)


def mean_cell(cell: CellStats, common_n: int | None = None) -> Cell:
    """Format the mean and standard deviation of scores in per cent.

    The number of seeds is added unless it equals ``common_n``.
    """
    std = "" if math.isnan(cell.std) else percent(cell.std)
    return Cell(percent(cell.mean), std, run_remarks(cell, common_n))


def run_remarks(cell: CellStats, common_n: int | None) -> tuple[str, ...]:
    """Return remarks on a cell: its number of seeds unless it equals ``common_n``, and its failed seeds, if any."""
    counted = (f"n = {cell.n}",) if cell.n and cell.n != common_n else ()
    return (*counted, f"{cell.num_failed} failed") if cell.num_failed else counted


def p_text(p: float) -> str:
    """Format a p value with three decimals: ``0.012``, ``< 0.001``; ``--`` for NaN."""
    return "< 0.001" if p < 0.001 else fixed(p, 3)


def p_relation(p: float) -> str:
    """Format a p value as the relation that follows the letter p in a text: ``= 0.012``, ``< 0.001``."""
    return p_text(p) if p < 0.001 else f"= {p_text(p)}"


def interval_cell(interval: Interval, show: Callable[[float], str] | None = None) -> Cell:
    """Format a number and the ends of its interval, if known.

    ``show`` formats each number. By default, numbers have two decimals.
    """
    show = show or (lambda number: fixed(number, 2))
    ends = () if math.isnan(interval.low) else (f"{show(interval.low)} to {show(interval.high)}",)
    return Cell(show(interval.value), remarks=ends)


def in_words(interval: Interval, decimals: int = 2, *, is_signed: bool = False) -> str:
    """Format a number with the ends of its interval, if they are known: ``0.52 (0.48 to 0.56)``."""
    value, low, high = interval
    if math.isnan(low):
        return fixed(value, decimals, is_signed=is_signed)
    return f"{fixed(value, decimals, is_signed=is_signed)} ({fixed(low, decimals)} to {fixed(high, decimals)})"


def sources_of(tasks: Iterable[TaskFacts], mechanisms: Iterable[MechanismFacts]) -> tuple[str, ...]:
    """Return the keys of the papers behind tasks and mechanisms, each once, in alphabetical order."""
    keys = {task.source for task in tasks} | {mechanism.source for mechanism in mechanisms}
    return tuple(sorted(key for key in keys if key))


def _score_cells(cells: Cells, verdict: Verdict, common_n: int | None) -> list[Cell]:
    """Make the cells of one task, marked as by :func:`marked`, in the order of the mechanisms."""
    estimates = cells.cells_of(verdict.task)
    if verdict.task.ladder:
        printed = [ladder_cell(cells, verdict, mechanism, common_n) for mechanism in cells.mechanisms]
    else:
        printed = [mean_cell(estimate, common_n) for estimate in estimates]
    return marked(cells, verdict, printed, [estimate.mean for estimate in estimates])


def marked(cells: Cells, verdict: Verdict, printed: list[Cell], means: Sequence[float]) -> list[Cell]:
    """Mark the results on a task that are best, second best, or not significantly different from the best.

    ``printed`` holds the table cell of each mechanism, and ``means`` its mean score. If there is no best mechanism,
    nothing is marked.
    """
    if verdict.best is None:
        return printed
    can_win, mechanisms = compared(cells), cells.mechanisms
    ranked = [mean if mechanism in can_win else math.nan for mechanism, mean in zip(mechanisms, means, strict=True)]
    known = sorted((mean for mean in ranked if not math.isnan(mean)), reverse=True)
    # Means that print alike share their mark; there are no marks if all print alike.
    texts = list(dict.fromkeys(score_text(verdict.task, mean) for mean in known))
    marks: dict[str, Mark] = {texts[0]: "best", texts[1]: "second"} if len(texts) > 1 else {}
    return [
        replace(cell, mark=marks.get(score_text(verdict.task, mean), ""), is_tied=mechanism.key in verdict.near_best)
        for mechanism, mean, cell in zip(mechanisms, ranked, printed, strict=True)
    ]


def ladder_cell(cells: Cells, verdict: Verdict, mechanism: MechanismFacts, common_n: int | None = None) -> Cell:
    """Format a mean score ± the larger of its distances from the ends of its 95 % interval.

    If the scores of the seeds are far apart, the number of seeds that learned is added.
    """
    task, estimate = verdict.task, cells.cell(verdict.task, mechanism)
    cell, (low, high) = mean_cell(estimate, common_n), cells.interval(task, mechanism)
    # An interval that is cut at the top of the ladder is described by its other half.
    half = "" if math.isnan(low) else score_text(task, max(estimate.mean - low, high - estimate.mean))
    remarks = list(cell.remarks)
    num_levels = task.ladder.num_levels if task.ladder else 1
    if (num := num_learned([num_levels * score for score in estimate.scores.values()])) is not None:
        tested = "" if math.isnan(verdict.p) else f", p {p_relation(verdict.p)}"
        remarks.append(f"{num} of {estimate.n} seeds learned{tested}")
    return replace(cell, value=score_text(task, estimate.mean), std=half, remarks=tuple(remarks))


def common_n_of(cells: Cells) -> int | None:
    """Return the number of seeds that every cell (task × mechanism) with a score has; None if the numbers differ."""
    counts = {cell.n for *_, cell in cells if cell.n}
    return counts.pop() if len(counts) == 1 else None


def _caption(cells: Cells, common_n: int | None) -> str:
    spread = "half of its 95 % interval" if cells.has_ladder else "sample standard deviation"
    num = "n" if common_n is None else f"n = {common_n}"
    seeds = "one seed (n = 1)" if common_n == 1 else f"mean ± {spread} over {num} seeds"
    if cells.has_ladder:
        return f"Score, 0 to 1, {seeds}. {SCORE} {LEARNED} {MARKS}{on_added_seeds(cells)}"
    return f"Accuracy in per cent, {seeds}. {MARKS} {BOUNDS}"


def on_added_seeds(cells: Cells) -> str:
    """Return a caption's remark that seeds may have been added until a test showed whether mechanisms differ.

    The remark begins with a space. It is empty if no seeds can have been added: tasks have no levels, or the runs have
    only the usual seeds.
    """
    return ADDED if cells.has_ladder and len(cells.seeds) > (ANALYSES[0].num_seeds or 0) else ""


def _bound_cell(bound: float, relation: str, *, is_exact: bool) -> Cell:
    text = percent(bound)
    return Cell(text if is_exact or text == NOTHING else f"{relation} {text}")


def _steps(cell: CellStats) -> list[float]:
    """Return the training steps until the threshold was reached, for each successful run; infinite if never."""
    found = [row["steps_to_threshold"] for row in cell.rows if row["seed"] in cell.scores]
    return [float(steps) if is_known(steps) else math.inf for steps in found]


def _steps_cell(cell: CellStats) -> Cell:
    if not cell.n:
        return mean_cell(cell)
    steps = _steps(cell)
    # The mean of the two middle values is infinite if one of them is.
    median = float(np.median(steps))
    planned = max(int(row["steps_planned"]) for row in cell.rows if row["seed"] in cell.scores)
    text = fixed(median, 0) if math.isfinite(median) else f"> {planned}"
    return Cell(text, remarks=(f"{sum(map(math.isfinite, steps))} of {cell.n}",))
