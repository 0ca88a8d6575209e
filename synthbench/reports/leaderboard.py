"""The ranking of a suite: the skills of mechanisms by category and overall, with their uncertainty."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from synthbench.registry import CONTROL
from synthbench.reports.aggregates import (
    TIE,
    UNKNOWN,
    Interval,
    Rank,
    balanced,
    interquartile_means,
    over_seeds,
    possibly_best,
    probability_of_improvement,
    ranks,
    reached,
    solved_rates,
)
from synthbench.reports.cells import Cells, Key, MechanismFacts, TaskFacts, place_of, skills_of
from synthbench.reports.interim import ANALYSES
from synthbench.reports.statistics import TOLERANCE, Prior, prior_of
from synthbench.reports.table import (
    NOTHING,
    Cell,
    Column,
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
from synthbench.reports.verdicts import MARGIN, SMALLEST_GAP, is_ranked, ranked_tasks, with_all_tasks

SOLVED = 0.9
"""Skill at which a run counts as having solved its task."""
USUAL_SEEDS = ANALYSES[0].num_seeds or 0
"""Usual number of seeds of a mechanism; a smaller number is stated beside its name."""
FEW_SEEDS = (
    "A single run is taken to scatter as the other mechanisms do on its task, or where each has one run, as on the "
    "other tasks. "
)
CONDITION_WORDS = (
    "Condition stock: the layer as its authors build it; bare: the recurrence or the scores alone. A mechanism sees "
    "absolute places if its outputs change when the same tokens stand some places later. "
)
RANK_INTERVALS = ", with 95 % intervals that hold for all mechanisms at once and for tasks like these"
YES_OR_NO = {True: "yes", False: "no", None: NOTHING}
THESE_TASKS = "the 95 % interval over seeds"
"""Description of most intervals of a ranking, which treat tasks as fixed and seeds as random."""


@dataclass(frozen=True)
class Entry:
    """A ranked mechanism with its statistics; it has a run of every ranked task."""

    mechanism: MechanismFacts
    num_seeds: tuple[int, int]
    """The smallest and the largest number of runs used on a task."""
    few_seeds: str
    """The number of seeds in words, as in ``1 seed``, if it is below the usual number; otherwise empty."""
    rank: Rank
    skills: Float[np.ndarray, "tasks seeds"]
    """Skill of every run, in [0, 1]; 0 for a run without a score, NaN as padding after the last run."""
    skill: Interval
    """Mean over categories of the means over tasks and seeds, with an interval over seeds."""
    middle: Interval
    """Interquartile mean of all runs, with an interval over seeds."""
    solved: Interval
    """Share of runs that solved their task, with an interval over seeds."""

    @property
    def label(self) -> str:
        """The label of the mechanism, if necessary with a remark in brackets, as in ``PaTH (1 seed)``.

        Remarks name a small number of seeds, or a control (a reference that does not learn to mix tokens).
        """
        remarks = ", ".join(filter(None, ["control" * (self.mechanism.family == CONTROL), self.few_seeds]))
        return f"{self.mechanism.label} ({remarks})" if remarks else self.mechanism.label


class Placed(NamedTuple):
    """One line of a leaderboard: a mechanism, which may be ranked or not."""

    mechanism: MechanismFacts
    entry: Entry | None
    """The mechanism's entry in the ranking; None if it is not ranked."""
    reason: str = ""
    """The reason why the mechanism is not ranked, such as ``5 of 14 tasks``; empty if it is ranked."""

    @property
    def label(self) -> str:
        """The label in tables, with a remark on a control, on few seeds or on missing tasks."""
        return self.entry.label if self.entry else f"{self.mechanism.label} ({self.reason}, not ranked)"


_Columns = dict[Column | str, Callable[[Placed], Cell | str]]


@dataclass(frozen=True)
class Leaderboard:
    """The ranking of one suite, or of one of its categories."""

    cells: Cells
    tasks: tuple[TaskFacts, ...]
    """The ranked tasks, whose floor and ceiling are far enough apart for differences in skill to exceed noise."""
    entries: tuple[Entry, ...]
    """The ranked mechanisms, best first."""
    prior: Prior | None
    """Assumed variance of skill over seeds on tasks where no mechanism has two runs; None if unknown."""
    parts: "dict[str, Leaderboard]"
    """One ranking per category, by its name; empty if this is the ranking of a category."""

    @property
    def placed(self) -> list[Placed]:
        """All mechanisms: the ranked ones, best first, then the mechanisms that lack a run of some ranked task."""
        placed = [Placed(entry.mechanism, entry) for entry in self.entries]
        ranked = {entry.mechanism for entry in self.entries}
        for mechanism in self.cells.mechanisms:
            if mechanism not in ranked:
                count = sum(bool(self.cells.cell(task, mechanism).runs) for task in self.tasks)
                reason = f"{count} of {len(self.tasks)} tasks" if count else "no task that counts"
                placed.append(Placed(mechanism, None, reason))
        return placed

    @property
    def left_out(self) -> tuple[TaskFacts, ...]:
        """Tasks that are not ranked."""
        return tuple(task for task in self.cells.tasks if not is_ranked(task))

    @property
    def has_conditions(self) -> bool:
        """True if the rows state the condition of layers, stock or bare.

        A stock layer is as published. A bare layer lacks convolutions and most gates.
        """
        return any(entry.mechanism.condition for entry in self.entries)

    @property
    def has_rank_intervals(self) -> bool:
        """True if there are enough tasks for intervals of ranks."""
        return len(self.tasks) >= LEAST_TASKS

    @property
    def num_seeds(self) -> str:
        """The number of seeds per mechanism and task, in words: ``3 seeds``, ``1 to 3 seeds``."""
        fewest, most = zip(*(entry.num_seeds for entry in self.entries), strict=True) if self.entries else ((0,), (0,))
        return seeds_words(min(fewest), max(most))

    @property
    def mechanisms(self) -> tuple[Entry, ...]:
        """The mechanisms that compete for the best rank, best first.

        Controls (references that do not learn to mix tokens) are left out. Bare layers (only recurrence or attention
        scores) are left out too, unless all mechanisms are bare layers.
        """
        found = tuple(entry for entry in self.entries if entry.mechanism.family != CONTROL)
        return tuple(entry for entry in found if entry.mechanism.condition != "bare") or found

    @property
    def candidates(self) -> tuple[Entry, ...]:
        """The mechanisms that could rank first on a new set of similar tasks.

        A mechanism could rank first if no other mechanism has a 95 % interval of ranks that begins at a better rank.
        """
        first = min((entry.rank.low for entry in self.mechanisms), default=1)
        return tuple(entry for entry in self.mechanisms if entry.rank.low == first)

    def skill_of(self, mechanism: MechanismFacts) -> Interval:
        """Return the mean skill of a mechanism; NaN if the mechanism is not ranked."""
        return next((entry.skill for entry in self.entries if entry.mechanism == mechanism), UNKNOWN)

    def verdict(self) -> str:
        """Return the verdict on which mechanisms are best, as several lines of text.

        There is one line per category and, if there are several categories, one line on all of them. The last line
        explains the other lines, and names the mechanisms that could rank first on new, similar tasks.
        """
        orders = [f"{in_title(name)}: {order}" for name, order in self.orders.items()]
        return "\n".join(filter(None, [*orders, f"{self.certainty} {self.outlook}".strip()]))

    @cached_property
    def orders(self) -> dict[str, str]:
        """One text per category that names the best mechanisms with their mean skills, and one text on all categories.

        The keys are the names of the categories and ``OVERALL``.
        """
        parts = {name: part.order for name, part in (self.parts or {"": self}).items()}
        if len(parts) == 1:
            return parts
        is_open = len(self.candidates) > 1 and self.has_order
        return parts | {
            OVERALL: self.order
            + f" (on a fresh set of similar tasks, any of {len(self.candidates)} mechanisms could rank first)" * is_open
        }

    @property
    def has_order(self) -> bool:
        """True if the verdict compares several mechanisms, and their mean skills are not all equal."""
        skills = [entry.skill.value for entry in self.mechanisms]
        return len(skills) > 1 and skills[0] - skills[-1] > TOLERANCE

    @property
    def certainty(self) -> str:
        """A text that explains ``orders`` and counts mechanisms with a single seed; empty if nothing can be ordered."""
        parts = [part for part in (self, *self.parts.values()) if part.has_order]
        if not parts:
            return ""
        if all(math.isnan(entry.skill.low) for part in parts for entry in part.mechanisms):
            return "With one seed each, nothing is known of other seeds."
        single = sum(entry.num_seeds == (1, 1) for entry in self.mechanisms)
        on_some = sum(entry.num_seeds[0] == 1 for entry in self.mechanisms) - single
        few = [
            f"{number} {'was' if number == 1 else 'were'} run with {how}"
            for number, how in (
                (single, "a single seed on each task"),
                (on_some, "a single seed on some tasks and several seeds on the others"),
            )
            if number
        ]
        return (
            "Each line names every mechanism that may be the best on these tasks (95 % confidence over seeds) or "
            f"scores within {short(MARGIN)} of the first; “next” is the best of the others."
            + f" Of the {len(self.mechanisms)} mechanisms, {', and '.join(few)}. Where a mechanism has only one seed "
            "on a task, its variance over seeds is estimated from the mechanisms and tasks that were run with several "
            "seeds." * bool(few)
        )

    @property
    def outlook(self) -> str:
        """A sentence on the mechanisms that could rank first on fresh, similar tasks; empty unless ``has_order``."""
        if not self.has_order:
            return ""
        named = [entry.mechanism.label for entry in self.candidates]
        if len(named) == 1:
            return f"On a fresh set of similar tasks, {named[0]} would still rank first."
        who = "any" if len(named) == len(self.mechanisms) else str(len(named))
        who += f" of the {len(self.mechanisms)} mechanisms could rank first: {_listed(named, most=5)}."
        return f"On a fresh set of similar tasks, {who}"

    @property
    def order(self) -> str:
        """A text that names the best mechanisms with their mean skills, or gives the reason why there is no order."""
        if not self.tasks:
            return f"no task has {100 * SMALLEST_GAP:.0f} points between its floor and its ceiling."
        if not self.mechanisms:
            who = "only controls have" if self.entries else "no mechanism has"
            return f"{who} a run of every task."
        entries = self.mechanisms
        texts = [f"{entry.mechanism.label} {short(entry.skill.value)}" for entry in entries]
        if len(entries) == 1:
            return f"{texts[0]}, the only mechanism with a run of every task."
        if not self.has_order:
            return f"all {len(entries)} mechanisms have the same mean skill, {short(entries[0].skill.value)}."
        if all(math.isnan(entry.skill.low) for entry in entries):
            return f"{_listed(texts)}."
        near, below = (
            [text for text, is_one in zip(texts, self.is_below, strict=True) if is_one == wanted]
            for wanted in (False, True)
        )
        return "; next: ".join([_listed(near, "or"), *below[:1]])

    @property
    def is_below(self) -> list[bool]:
        """One flag for each mechanism in ``mechanisms``: True if the mechanism is clearly below the best one.

        Two conditions must hold: with 95 % confidence, the mechanism is not the best; and its mean skill is at least
        ``MARGIN`` below the highest.
        """
        entries = self.mechanisms
        skills = np.array([entry.skills for entry in entries])
        is_far = [entries[0].skill.value - entry.skill.value >= MARGIN for entry in entries]
        may_be_best = possibly_best(skills, balanced([task.category for task in self.tasks]), self.prior)
        return [bool(each) for each in ~may_be_best & is_far]


OVERALL = "overall"
"""Title of the verdict's line on all categories."""
MOST_NAMES = 8
"""Largest number of mechanisms that a line of the verdict names; further ones are only counted."""
LEAST_TASKS = 8
"""Smallest number of tasks for intervals of ranks, which would be uninformative with fewer tasks."""


def in_title(name: str) -> str:
    """Format the name of a category as a title: ``state_tracking`` becomes ``State tracking``."""
    return name.replace("_", " ").capitalize()


def _listed(names: Sequence[str], joined: str = "and", most: int = MOST_NAMES) -> str:
    """Join names into a text; names beyond ``most`` are only counted.

    >>> _listed(["a", "b", "c"]), _listed(["a", "b", "c"], "or", most=1)
    ('a, b and c', 'a or 2 more')
    """
    shown = [*names[:most], f"{len(names) - most} more"] if len(names) > most else [*names]
    return f" {joined} ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def short(skill: float) -> str:
    """Format a skill with two decimals and no leading zero: ``.75``."""
    return fixed(skill, 2).removeprefix("0")


def seeds_words(fewest: int, most: int) -> str:
    """Express a range of numbers of seeds, given its two ends, in words.

    >>> seeds_words(1, 1), seeds_words(1, 3)
    ('1 seed', '1 to 3 seeds')
    """
    return counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"


def leaderboard(cells: Cells) -> Leaderboard:
    """Rank the mechanisms that have a run of every ranked task.

    A task is ranked if its floor and ceiling are far enough apart. A run without a score has skill 0 (chance level). If
    tasks have levels, only the first three seeds count. If every ranked mechanism has at least n > 3 seeds on every
    ranked task, the first n seeds count instead.

    If a mechanism has a single run of a task, the variance over seeds is estimated from the other mechanisms' runs of
    the task. If every mechanism has a single run of the task, the variance is estimated from other tasks. If no task
    allows an estimate, there are no intervals over seeds.
    """
    gaps = np.array([[[task.gap if is_ranked(task) else math.nan]] for task in cells.tasks]).reshape(-1, 1, 1)
    is_mechanism = [mechanism.family != CONTROL for mechanism in cells.mechanisms]
    prior = prior_of(cells.scores[:, is_mechanism] / gaps)
    parts = {name: _ranked(cells.among(cells.tasks_of(name)), prior, {}) for name in cells.categories}
    return _ranked(cells, prior, parts)


def _ranked(cells: Cells, prior: Prior | None, parts: dict[str, Leaderboard]) -> Leaderboard:
    tasks = ranked_tasks(cells)
    ranked = with_all_tasks(cells) if tasks else ()
    if not ranked:
        return Leaderboard(cells, tasks, (), prior, parts)
    num_runs = np.array([[len(cells.cell(task, mechanism).runs) for task in tasks] for mechanism in ranked])
    if cells.has_ladder:
        # Seeds may have been added until a difference showed, which biases a mean. So each cell uses
        # at most the usual number of seeds, or as many as every cell has.
        num_runs = np.minimum(num_runs, max(USUAL_SEEDS, num_runs.min()))
    skills = np.full((len(ranked), len(tasks), num_runs.max()), math.nan)
    for (row, column), count in np.ndenumerate(num_runs):
        cell = cells.cell(tasks[column], ranked[row])
        skills[row, column, :count] = skills_of(cell, tasks[column], sorted(cell.runs)[:count])
    num_seeds = [(int(counts.min()), int(counts.max())) for counts in num_runs]
    usual = min(USUAL_SEEDS, num_runs.max())
    categories = [task.category for task in tasks]
    weights = balanced(categories)
    columns = zip(
        ranked,
        num_seeds,
        [seeds_words(*ends) if ends[0] < usual else "" for ends in num_seeds],
        ranks(skills, categories),
        skills,
        over_seeds(skills, weights, prior),
        interquartile_means(skills, weights, prior),
        solved_rates(reached(skills, SOLVED), weights),
        strict=True,
    )
    entries = tuple(sorted((Entry(*column) for column in columns), key=lambda entry: -entry.skill.value))
    return Leaderboard(cells, tasks, entries, prior, parts)


def leaderboard_tables(board: Leaderboard, own: Collection[Key] = ()) -> list[Table]:
    """Return the tables of a leaderboard.

    The tables show capacities (loads at half skill), scores by category, means and ranks, and probabilities of
    improvement.

    ``own`` holds the keys of the user's mechanisms, which come first in each table except the last.
    """
    left_out = ", ".join(task.label for task in board.left_out)
    has_few = any(entry.few_seeds for entry in board.entries)
    has_ladder = board.cells.has_ladder
    measure = skill_words(has_ladder=has_ladder)
    capacities = _table(
        *(board, own, "capacities", "Capacities"),
        "The load at which the skill falls to one half, on one task of each category: median over seeds. ≥: the skill "
        "does not fall to one half; <: it is below one half on the first level. The pages of the categories have the "
        "other tasks.",
        {
            f"{task.label}, {task.ladder.unit}": capacity(board.cells, task)
            for task in quoted(board.cells)
            if task.ladder
        },
    )
    profile = _table(
        *(board, own, "leaderboard", "Score by category" if has_ladder else "Skill by category"),
        f"Mean {measure}, over the tasks of a category and {board.num_seeds}, with {THESE_TASKS}. A run without a "
        f"score counts as 0. {FEW_SEEDS * has_few}Best mean over the categories first."
        + " Mechanisms that lack tasks in every category are only in the next table."
        * (len(board.entries) < len(board.cells.mechanisms))
        + f" Not ranked, with less than {100 * SMALLEST_GAP:.0f} points between floor and ceiling: {left_out}."
        * bool(left_out),
        {f"{name} ({len(part.tasks)})": _mean_of(part) for name, part in board.parts.items() if part.tasks},
    )
    # On a ladder no task is "solved": the ladder ends only because the lengths of sequences do.
    solved: _Columns = {} if has_ladder else {"Solved": _of_entry(lambda one: interval_cell(one.solved, percent))}
    conditions: _Columns = {}
    if board.has_conditions:
        conditions = {
            "Condition": lambda row: row.mechanism.condition or NOTHING,
            "Convolution": lambda row: row.mechanism.convolution or "no",
            "Positions": lambda row: row.mechanism.positions,
            "Sees absolute places": lambda row: YES_OR_NO[row.mechanism.sees_places],
        }
    summary = _table(
        *(board, own, "leaderboard-summary", "Means and ranks"),
        f"Over {len(board.tasks)} tasks and {board.num_seeds}; every category weighs the same. Mean {measure}. "
        f"IQM: interquartile mean of all runs. "
        + (f"Solved: share of runs with a skill of {SOLVED:g}, in per cent. All three" if solved else "Both")
        + f" with {THESE_TASKS}. Parameters of the mechanisms of all layers, state of one, the largest over the "
        f"tasks. Step: milliseconds of a training step, median; hosts differ. {CONDITION_WORDS * bool(conditions)}Rank "
        f"by mean{RANK_INTERVALS * board.has_rank_intervals}.",
        {
            "Mean": _mean_of(board),
            "IQM": _of_entry(lambda one: interval_cell(one.middle)),
            **solved,
            "Parameters": lambda row: fixed(row.mechanism.num_parameters, 0),
            "State": lambda row: fixed(row.mechanism.state, 0),
            "Step": lambda row: fixed(row.mechanism.step_ms, 0),
            **conditions,
            "Rank": _of_entry(
                lambda one: Cell(str(one.rank.value), remarks=(one.rank.ends,) * board.has_rank_intervals)
            ),
        },
    )
    tables = [table for table in (capacities, profile, summary) if table.columns and table.lines]
    return [*tables, _improvement_table(board)] if len(board.entries) > 1 else tables


def quoted(cells: Cells) -> list[TaskFacts]:
    """Choose one task per category; its capacity (load at half skill) represents the category in summaries.

    The list is empty if tasks have no levels.
    """
    tasks = [min(cells.tasks_of(name), key=lambda task: place_of("capacity", task.name)) for name in cells.categories]
    return [task for task in tasks if task.ladder]


def capacity(cells: Cells, task: TaskFacts) -> Callable[[Placed], str]:
    """Return a function that formats a mechanism's capacity on ``task``, given the mechanism's leaderboard line.

    The capacity is the load at half skill.
    """
    return lambda row: task.ladder.load_text(cells.cell(task, row.mechanism).load_at_half) if task.ladder else NOTHING


def _mean_of(board: Leaderboard) -> Callable[[Placed], Cell]:
    return lambda row: interval_cell(board.skill_of(row.mechanism))


def _of_entry(cell: Callable[[Entry], Cell]) -> Callable[[Placed], Cell]:
    return lambda row: cell(row.entry) if row.entry else Cell()


def _table(board: Leaderboard, own: Collection[Key], name: str, title: str, caption: str, columns: _Columns) -> Table:
    """Make a table of a leaderboard, with a line for each mechanism that has a value in some column.

    The user's mechanisms come first, then the ranked mechanisms, then all others.
    """
    rows = sorted(board.placed, key=lambda row: row.mechanism.key not in own)
    sources = sources_of(board.tasks, (row.mechanism for row in rows))
    table = table_of(name, title, caption, ("Mechanism",), rows, lambda row: (row.label,), columns, sources=sources)
    kept = [
        (row, line) for row, line in zip(rows, table.lines, strict=True) if any(cell != Cell() for cell in line.cells)
    ]
    first = next((place for place, (row, _) in enumerate(kept) if row.entry is None), 0)
    lines = [replace(line, is_first_of_group=place == first > 0) for place, (_, line) in enumerate(kept)]
    return replace(table, lines=tuple(lines))


def _improvement_table(board: Leaderboard) -> Table:
    categories = [task.category for task in board.tasks]
    ties = np.array([task.ladder.margin if task.ladder else TIE for task in board.tasks])
    chances: dict[tuple[int, int], Interval] = {}
    for first, second in combinations(range(len(board.entries)), 2):
        found = probability_of_improvement(board.entries[first].skills, board.entries[second].skills, categories, ties)
        chances[first, second] = found
        chances[second, first] = Interval(1 - found.value, 1 - found.high, 1 - found.low)

    def chance(of: int, one: int) -> Cell:
        return interval_cell(chances[one, of], lambda share: fixed(100 * share, 0)) if one != of else Cell()

    return table_of(
        "improvement",
        "Probability of improvement",
        "Chance in per cent that a run of the row's mechanism has a higher skill than a run of the column's, on a task "
        f"drawn at random, with equal weight for all categories; {tie_words(has_ladder=board.cells.has_ladder)}. With "
        "a separate 95 % interval for tasks like these. Best mechanism first.",
        ("Mechanism",),
        range(len(board.entries)),
        lambda one: (board.entries[one].label,),
        [(entry.mechanism.label, partial(chance, of)) for of, entry in enumerate(board.entries)],
        sources=sources_of(board.tasks, (entry.mechanism for entry in board.entries)),
    )
