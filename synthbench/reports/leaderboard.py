"""The ranking of a suite: which mechanism is good at what, and how certain that is."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from jaxtyping import Float

from synthbench.registry import CONTROL
from synthbench.reports.aggregates import (
    TIE,
    Interval,
    Rank,
    balanced,
    by_category,
    interquartile_means,
    over_seeds,
    probability_of_improvement,
    ranks,
    reached,
    solved_rates,
)
from synthbench.reports.cells import Cells, MechanismFacts, TaskFacts, skills_of
from synthbench.reports.looks import LOOKS
from synthbench.reports.statistics import TOLERANCE
from synthbench.reports.table import (
    NOTHING,
    Cell,
    Column,
    Line,
    Table,
    counted,
    fixed,
    interval_cell,
    percent,
    skill_words,
    sources_of,
    table_of,
    tie_words,
)
from synthbench.reports.verdicts import SMALLEST_GAP, is_ranked, with_all_tasks

SOLVED = 0.9
"""Skill at which a run counts as having solved its task."""
USUAL_SEEDS = LOOKS[0].num_seeds or 0
"""Seeds that mechanisms have unless more are needed; where one has fewer, that stands beside its name."""
FEW_SEEDS = "A single run is taken to scatter as the other mechanisms do on its task. "
CONDITION_WORDS = (
    "Condition stock: the layer as its authors build it; bare: the recurrence or the scores alone. A mechanism sees "
    "absolute places if its outputs change when the same tokens stand some places later. "
)
YES_OR_NO = {True: "yes", False: "no", None: NOTHING}
THESE_TASKS = "the 95 % interval for these tasks and other seeds"
"""The question that most intervals of a ranking answer."""


@dataclass(frozen=True)
class Entry:
    """A mechanism that has a run of every ranked task."""

    mechanism: MechanismFacts
    num_seeds: tuple[int, int]
    """The fewest and the most runs that count on a task."""
    few_seeds: str
    """The same in words, ``1 seed``, if other mechanisms have more; otherwise empty."""
    rank: Rank
    skills: Float[np.ndarray, "tasks seeds"]
    """Skill of every run, in [0, 1]; 0 without a score, NaN where a mechanism has fewer runs than another."""
    skill: Interval
    """Mean over categories of the means over tasks and seeds; for these tasks and other seeds."""
    middle: Interval
    """Interquartile mean of all runs; for these tasks and other seeds."""
    categories: dict[str, Interval]
    """Mean skill by category (those with a ranked task); for these tasks and other seeds."""
    solved: Interval
    """Share of runs that solved their task; for these tasks and other seeds."""

    @property
    def label(self) -> str:
        """The label of the mechanism, and in brackets ``few_seeds``: ``PaTH (1 seed)``."""
        return f"{self.mechanism.label} ({self.few_seeds})" if self.few_seeds else self.mechanism.label


@dataclass(frozen=True)
class Leaderboard:
    """The ranking of one suite."""

    tasks: tuple[TaskFacts, ...]
    """The tasks that count: their floor and ceiling are so far apart that a difference in skill is more than noise."""
    entries: tuple[Entry, ...]
    """Best first."""
    partial: dict[MechanismFacts, int]
    """Mechanisms that lack some ranked task, and so are not ranked, with the number of ranked tasks that they have."""
    left_out: tuple[TaskFacts, ...]
    """Tasks that do not count."""

    @property
    def has_ladder(self) -> bool:
        """Whether skills are heights over the rungs of each task."""
        return any(task.ladder for task in self.tasks)

    @property
    def has_conditions(self) -> bool:
        """Whether it is known which layers are those of their authors."""
        return any(entry.mechanism.condition for entry in self.entries)

    @property
    def num_seeds(self) -> str:
        """The number of seeds of a mechanism on a task, in words."""
        fewest, most = zip(*(entry.num_seeds for entry in self.entries), strict=True) if self.entries else ((0,), (0,))
        return seeds_words(min(fewest), max(most))

    @cached_property
    def improvement(self) -> list[list[Interval | None]]:
        """Probability of improvement of each entry over each other one; None over itself."""
        chances: list[list[Interval | None]] = [[None] * len(self.entries) for _ in self.entries]
        categories = [task.category for task in self.tasks]
        ties = np.array([task.ladder.margin if task.ladder else TIE for task in self.tasks])
        for first, second in combinations(range(len(self.entries)), 2):
            chance = probability_of_improvement(
                self.entries[first].skills, self.entries[second].skills, categories, ties
            )
            chances[first][second] = chance
            chances[second][first] = Interval(1 - chance.value, 1 - chance.high, 1 - chance.low)
        return chances

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories with a task that counts."""
        return tuple(dict.fromkeys(task.category for task in self.tasks))

    @property
    def mechanisms(self) -> tuple[Entry, ...]:
        """The entries without the controls, best first."""
        return tuple(entry for entry in self.entries if entry.mechanism.family != CONTROL)

    @property
    def candidates(self) -> tuple[Entry, ...]:
        """The mechanisms (no controls) that may be the best on tasks like these: none is certainly better."""
        first = min((entry.rank.low for entry in self.mechanisms), default=1)
        return tuple(entry for entry in self.mechanisms if entry.rank.low == first)

    @property
    def best(self) -> MechanismFacts | None:
        """The one mechanism that can be the best on tasks like these; None if there are several, or only one in all."""
        return self.candidates[0].mechanism if len(self.candidates) == 1 < len(self.mechanisms) else None

    def verdict(self) -> str:
        """Which mechanisms can be the best, in a sentence or two, or why nothing can be said."""
        return self._silence() or self._claim()

    def _silence(self) -> str:
        """The reason why nothing can be said; empty if something can."""
        if not self.tasks:
            return f"Nothing is ranked: no task has {100 * SMALLEST_GAP:.0f} points between its floor and its ceiling."
        if not self.entries:
            return "Nothing is ranked: no mechanism has a run of every task."
        if not self.mechanisms:
            return "Nothing is compared: only controls have a run of every task."
        if len(self.mechanisms) == 1:
            return f"Nothing is compared: {self.mechanisms[0].label} is the only mechanism with a run of every task."
        return ""

    def _claim(self) -> str:
        best, lowest, num = self.mechanisms[0], self.mechanisms[-1], len(self.mechanisms)
        categories = "category" if len(self.categories) == 1 else "categories"
        over = f"over {len(self.tasks)} task{'s' * (len(self.tasks) != 1)} in {len(self.categories)} {categories}"
        if best.skill.value - lowest.skill.value <= TOLERANCE:
            return f"All {num} mechanisms have the same mean skill {over}: {fixed(best.skill.value, 2)}."
        value, low, high = (fixed(number, 2) for number in best.skill)
        ends = "" if math.isnan(best.skill.low) else f" ({low} to {high} for other seeds)"
        left_out = ", controls left out" * (best is not self.entries[0])
        highest = f"{best.label} has the highest mean skill {over}{left_out}: {value}{ends}."
        if not ends:
            highest += " With one seed each, nothing is known of other seeds."
        if self.best:
            return f"{highest} On tasks like these it is the best of {num}."
        if len(self.candidates) == num:
            return f"{highest} No mechanism is shown to be better than another on tasks like these."
        others = [entry.label for entry in self.candidates if entry is not best]
        if len(others) > MOST_NAMES:
            others = [*others[:MOST_NAMES], f"{len(others) - MOST_NAMES} more"]
        *first, last = others
        named = f"{', '.join(first)} or {last}" if first else last
        return f"{highest} On tasks like these the best of {num} may as well be {named}."


MOST_NAMES = 5
"""Mechanisms that the verdict names besides the best."""


def seeds_words(fewest: int, most: int) -> str:
    """A number of seeds in words.

    >>> seeds_words(1, 1), seeds_words(1, 3)
    ('1 seed', '1 to 3 seeds')
    """
    return counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"


def leaderboard(cells: Cells) -> Leaderboard:
    """Rank the mechanisms that have a run of every task. A run without a score counts as one at the floor.

    A single run has the spread of its task, as the mechanisms with several runs show it. If there are none, there are
    no intervals for other seeds.
    """
    tasks = tuple(task for task in cells.tasks if is_ranked(task))
    left_out = tuple(task for task in cells.tasks if not is_ranked(task))
    ranked = with_all_tasks(cells) if tasks else ()
    partial = {
        mechanism: sum(bool(cells.cell(task, mechanism).runs) for task in tasks)
        for mechanism in cells.mechanisms
        if mechanism not in ranked
    }
    if not ranked:
        return Leaderboard(tasks, (), partial, left_out)
    num_runs = np.array([[len(cells.cell(task, mechanism).runs) for task in tasks] for mechanism in ranked])
    if cells.has_ladder:
        # Seeds may have been added until a difference showed, which biases a mean: only those of all cells count.
        num_runs = np.minimum(num_runs, max(USUAL_SEEDS, num_runs.min()))
    skills = np.full((len(ranked), len(tasks), num_runs.max()), math.nan)
    for (row, column), count in np.ndenumerate(num_runs):
        cell = cells.cell(tasks[column], ranked[row])
        skills[row, column, :count] = skills_of(cell, tasks[column], sorted(cell.runs)[:count])
    num_seeds = [(int(counts.min()), int(counts.max())) for counts in num_runs]
    usual = min(USUAL_SEEDS, num_runs.max())
    categories = [task.category for task in tasks]
    weights = balanced(categories)
    is_in = by_category(categories)
    of_parts = {name: over_seeds(skills[:, part], weights[part] * len(is_in)) for name, part in is_in.items()}
    columns = zip(
        ranked,
        num_seeds,
        [seeds_words(*ends) if ends[0] < usual else "" for ends in num_seeds],
        ranks(skills, categories),
        skills,
        over_seeds(skills, weights),
        interquartile_means(skills, weights),
        [dict(zip(of_parts, intervals, strict=True)) for intervals in zip(*of_parts.values(), strict=True)],
        solved_rates(reached(skills, SOLVED), weights),
        strict=True,
    )
    entries = tuple(sorted((Entry(*column) for column in columns), key=lambda entry: -entry.skill.value))
    return Leaderboard(tasks, entries, partial, left_out)


def leaderboard_tables(board: Leaderboard) -> list[Table]:
    """The profile by category, the means over all categories with the rank, and the probabilities of improvement."""
    left_out = ", ".join(task.label for task in board.left_out)
    has_few = any(entry.few_seeds for entry in board.entries)
    profile = table_of(
        "leaderboard",
        "Skill by category",
        f"Mean skill, {skill_words(has_ladder=board.has_ladder)}, over the tasks of a category and "
        f"{board.num_seeds}, with {THESE_TASKS}. A run without a score counts as 0. {FEW_SEEDS * has_few}"
        "Best mean over the categories first."
        + f" Not ranked, with less than {100 * SMALLEST_GAP:.0f} points between floor and ceiling: {left_out}."
        * bool(left_out),
        ("Mechanism",),
        board.entries,
        lambda entry: (entry.label,),
        {
            f"{name} ({count})": _of_category(name)
            for name, count in Counter(task.category for task in board.tasks).items()
        },
    )
    # On a ladder nothing is "solved": it ends only because its lengths do.
    solved: dict[Column | str, Callable[[Entry], Cell | str]] = {}
    if not board.has_ladder:
        solved["Solved"] = lambda entry: interval_cell(entry.solved, show=percent)
    conditions: dict[Column | str, Callable[[Entry], Cell | str]] = {}
    if board.has_conditions:
        conditions = {
            "Condition": lambda entry: entry.mechanism.condition or NOTHING,
            "Positions": lambda entry: entry.mechanism.positions,
            "Sees absolute places": lambda entry: YES_OR_NO[entry.mechanism.sees_places],
        }
    summary = table_of(
        "leaderboard-summary",
        "Means and ranks",
        f"Over {len(board.tasks)} tasks and {board.num_seeds}; every category weighs the same. Skill: mean. "
        f"IQM: interquartile mean of all runs. "
        + (f"Solved: share of runs with a skill of {SOLVED:g}, in per cent. All three" if solved else "Both")
        + f" with {THESE_TASKS}. Parameters of the mechanisms of all layers, state of one, the largest over the "
        f"tasks. {CONDITION_WORDS * board.has_conditions}Rank by mean skill, with 95 % intervals that hold for all "
        "mechanisms at once and for tasks like these.",
        ("Mechanism",),
        board.entries,
        lambda entry: (entry.label,),
        {
            "Skill": lambda entry: interval_cell(entry.skill),
            "IQM": lambda entry: interval_cell(entry.middle),
            **solved,
            "Parameters": lambda entry: fixed(entry.mechanism.num_parameters, 0),
            "State": lambda entry: fixed(entry.mechanism.state, 0),
            **conditions,
            "Rank": lambda entry: Cell(str(entry.rank.value), remarks=(entry.rank.ends,)),
        },
    )
    tables = [_with_partial(board, profile), _with_partial(board, summary)]
    return [*tables, _improvement_table(board)] if len(board.entries) > 1 else tables


def _of_category(name: str) -> Callable[[Entry], Cell]:
    return lambda entry: interval_cell(entry.categories[name])


def _with_partial(board: Leaderboard, table: Table) -> Table:
    """The same table with a row for each mechanism that lacks a run."""
    lines = [
        Line(
            (f"{mechanism.label} ({tasks_words(count, len(board.tasks))}, not ranked)",),
            (Cell(),) * len(table.columns),
            is_first_of_group=position == 0,
        )
        for position, (mechanism, count) in enumerate(board.partial.items())
    ]
    sources = sources_of(board.tasks, (*(entry.mechanism for entry in board.entries), *board.partial))
    return replace(table, lines=(*table.lines, *lines), sources=sources)


def _improvement_table(board: Leaderboard) -> Table:
    return Table(
        name="improvement",
        title="Probability of improvement",
        caption=(
            "Chance in per cent that a run of the row's mechanism has a higher skill than a run of the column's, on a "
            "task drawn at random, with equal weight for all categories; "
            f"{tie_words(has_ladder=board.has_ladder)}. With a separate 95 % interval for tasks like these. "
            "Best mechanism first."
        ),
        headings=("Mechanism",),
        columns=tuple(Column(entry.mechanism.label) for entry in board.entries),
        lines=tuple(
            Line(
                (entry.label,),
                tuple(
                    Cell() if chance is None else interval_cell(chance, show=lambda share: fixed(100 * share, 0))
                    for chance in chances
                ),
            )
            for entry, chances in zip(board.entries, board.improvement, strict=True)
        ),
        sources=sources_of(board.tasks, (entry.mechanism for entry in board.entries)),
    )


def tasks_words(count: int, num_tasks: int) -> str:
    """Count of the ranked tasks that a mechanism has: ``3 of 24 tasks``, or ``no task that counts``."""
    return f"{count} of {num_tasks} tasks" if count else "no task that counts"
