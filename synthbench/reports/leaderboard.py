"""Who is good at what, and how sure that is: the ranking of a suite, and how far its mechanisms reach out of range."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from jaxtyping import Float

from synthbench.reports.aggregates import (
    Interval,
    Rank,
    interquartile_mean,
    intervals,
    probability_of_improvement,
    ranks,
    solved_rate,
)
from synthbench.reports.grid import Estimate, Grid, MechanismFacts, TaskFacts
from synthbench.reports.separation import SMALLEST_GAP
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, percent, sources_of

SOLVED = 0.9
"""Skill from which a run counts as one that solved its task."""


@dataclass(frozen=True)
class Entry:
    """A mechanism that has a run of every ranked task and seed."""

    mechanism: MechanismFacts
    rank: Rank
    skills: Float[np.ndarray, "tasks seeds"]
    """Of every run; 0 where it has no score."""
    skill: float
    """Mean over tasks and seeds."""
    middle: Interval
    """Interquartile mean of all runs, with the interval over seeds."""
    categories: dict[str, float]
    """Mean skill by category, of those with a ranked task."""
    solved: Interval


@dataclass(frozen=True)
class Leaderboard:
    """The ranking of one suite."""

    tasks: tuple[TaskFacts, ...]
    """Those that count: floor and ceiling are further apart than the evaluation's noise."""
    seeds: tuple[int, ...]
    entries: tuple[Entry, ...]
    """Best first."""
    partial: dict[MechanismFacts, int]
    """Mechanisms that lack some run, with the number of ranked tasks that they have all runs of; never ranked."""
    num_left_out: int
    """Tasks that do not count."""

    @cached_property
    def improvement(self) -> Float[np.ndarray, "entries entries"]:
        """Probability of improvement of each entry over each other one; NaN over itself."""
        chances = np.full((len(self.entries), len(self.entries)), math.nan)
        for one, other in combinations(range(len(self.entries)), 2):
            chance = probability_of_improvement(self.entries[one].skills, self.entries[other].skills)
            chances[one, other], chances[other, one] = chance, 1 - chance
        return chances

    @property
    def categories(self) -> tuple[str, ...]:
        """Those with a task that counts."""
        return tuple(dict.fromkeys(task.category for task in self.tasks))


def leaderboard(of: Grid) -> Leaderboard:
    """Rank the mechanisms that have all runs. A run without a score counts as one at the floor.

    Args:
        of: The cells of a report.

    Raises:
        ValueError: If there are fewer than two seeds: no interval can be given.
    """
    tasks = tuple(task for task in of.tasks if task.gap >= SMALLEST_GAP)
    seeds = of.seeds
    num_complete = {
        mechanism: sum(_is_complete(of.cell(task, mechanism), seeds) for task in tasks) for mechanism in of.mechanisms
    }
    ranked = [mechanism for mechanism, count in num_complete.items() if count == len(tasks) > 0]
    partial = {mechanism: count for mechanism, count in num_complete.items() if mechanism not in ranked}
    if not ranked:
        return Leaderboard(tasks, seeds, (), partial, len(of.tasks) - len(tasks))
    skills = np.array([[_skills(of, task, mechanism, seeds) for task in tasks] for mechanism in ranked])
    categories = tuple(dict.fromkeys(task.category for task in tasks))
    generator = np.random.Generator(np.random.Philox(0))
    found = [
        Entry(
            mechanism=mechanism,
            rank=rank,
            skills=own,
            skill=float(average),
            middle=middle,
            categories={category: _category_mean(own, tasks, category) for category in categories},
            solved=solved_rate(int((own >= SOLVED).sum()), own.size),
        )
        for mechanism, own, rank, average, middle in zip(
            ranked,
            skills,
            ranks(skills, generator),
            skills.mean(axis=(1, 2)),
            intervals(skills, interquartile_mean, generator),
            strict=True,
        )
    ]
    entries = tuple(sorted(found, key=lambda entry: -entry.skill))
    return Leaderboard(tasks, seeds, entries, partial, len(of.tasks) - len(tasks))


def leaderboard_table(board: Leaderboard) -> Table:
    """The ranking, best first; mechanisms that lack a run follow without a rank."""
    lines = [Line((entry.mechanism.label,), _entry_cells(entry)) for entry in board.entries]
    for mechanism, count in board.partial.items():
        remark = Cell(f"{count} of {len(board.tasks)} tasks")
        blanks = (Cell(),) * (3 + len(board.categories))
        lines.append(Line((mechanism.label,), (remark, *blanks, *_costs(mechanism)), len(lines) == len(board.entries)))
    return Table(
        name="leaderboard",
        title="Leaderboard",
        caption=(
            f"Skill, (accuracy − floor) / (ceiling − floor), over {len(board.tasks)} tasks and {len(board.seeds)} "
            "seeds. Rank: by mean skill, with the 95 % interval over resampled tasks and seeds. IQM: interquartile "
            "mean of all runs, with the 95 % interval over resampled seeds. Solved: share of runs with a skill of "
            f"{SOLVED:g}, with Wilson's interval. A run without a score counts as 0. Parameters of the mechanisms of "
            "all layers, state of one, the largest over the tasks. Left out for a gap below "
            f"{percent(SMALLEST_GAP)} points: {board.num_left_out} tasks."
        ),
        headings=("Mechanism",),
        columns=(
            Column("Rank"),
            Column("IQM"),
            Column("Skill"),
            Column("Solved"),
            *(Column(category) for category in board.categories),
            Column("Parameters"),
            Column("State"),
        ),
        lines=tuple(lines),
        sources=sources_of(board.tasks, (*(entry.mechanism for entry in board.entries), *board.partial)),
    )


def improvement_table(board: Leaderboard) -> Table | None:
    """How often a run of one ranked mechanism beats a run of another; None if fewer than two are ranked."""
    if len(board.entries) < 2:
        return None
    return Table(
        name="improvement",
        title="Probability of improvement",
        caption=(
            "Chance in per cent that a run of the line's mechanism has a higher skill than one of the column's, on a "
            "task drawn at random; a tie counts half. Best mechanism first."
        ),
        headings=("Mechanism",),
        columns=tuple(Column(entry.mechanism.label) for entry in board.entries),
        lines=tuple(
            Line(
                (entry.mechanism.label,),
                tuple(Cell() if math.isnan(chance) else Cell(percent(chance)) for chance in chances),
            )
            for entry, chances in zip(board.entries, board.improvement.tolist(), strict=True)
        ),
        sources=sources_of(board.tasks, (entry.mechanism for entry in board.entries)),
    )


def reach_table(of: Grid) -> Table | None:
    """How far each mechanism goes beyond what it was trained on; None if nothing was tested out of range.

    Args:
        of: The cells of a report.
    """
    tasks = [task for task in of.tasks if any(cell.stretched for cell in of.cells_of(task))]
    if not tasks:
        return None
    return Table(
        name="reach",
        title="Out of range",
        caption=(
            "Largest multiple of the length or load of the training up to which the mean skill over seeds is at least "
            f"{SOLVED:g}; in brackets the mean skill at the largest that was tested. --: not even in range."
        ),
        headings=("Mechanism",),
        columns=tuple(Column(task.label) for task in tasks),
        lines=tuple(
            Line((mechanism.label,), tuple(_reach_cell(of.cell(task, mechanism)) for task in tasks))
            for mechanism in of.mechanisms
        ),
        sources=sources_of(tasks, of.mechanisms),
    )


def reach(cell: Estimate) -> int:
    """The largest multiple up to which the mean skill is that of a solved task; 0 if it is not even in range."""
    farthest = 0
    for factor, skill in {1: cell.skill, **dict(sorted(cell.stretched.items()))}.items():
        if math.isnan(skill) or skill < SOLVED:
            break
        farthest = factor
    return farthest


def _reach_cell(cell: Estimate) -> Cell:
    if not cell.stretched:
        return Cell()
    farthest = reach(cell)
    return Cell(f"{farthest}×" if farthest else NOTHING, remarks=(fixed(cell.stretched[max(cell.stretched)], 2),))


def _entry_cells(entry: Entry) -> tuple[Cell, ...]:
    rank = entry.rank
    span = f"{rank.low}-{rank.high}" if rank.low < rank.high else f"{rank.low}"
    return (
        Cell(str(rank.value), remarks=(span,)),
        Cell(fixed(entry.middle.value, 2), remarks=(f"{fixed(entry.middle.low, 2)} to {fixed(entry.middle.high, 2)}",)),
        Cell(fixed(entry.skill, 2)),
        Cell(percent(entry.solved.value), remarks=(f"{percent(entry.solved.low)} to {percent(entry.solved.high)}",)),
        *(Cell(fixed(skill, 2)) for skill in entry.categories.values()),
        *_costs(entry.mechanism),
    )


def _costs(mechanism: MechanismFacts) -> tuple[Cell, Cell]:
    return tuple(
        Cell(NOTHING if math.isnan(cost) else f"{cost:.0f}") for cost in (mechanism.num_parameters, mechanism.state)
    )  # type: ignore[return-value]


def _is_complete(cell: Estimate, seeds: tuple[int, ...]) -> bool:
    return {*cell.scores, *cell.failed_seeds} == set(seeds)


def _skills(of: Grid, task: TaskFacts, mechanism: MechanismFacts, seeds: tuple[int, ...]) -> list[float]:
    scores = of.cell(task, mechanism).scores
    return [(scores[seed] - task.floor) / task.gap if seed in scores else 0.0 for seed in seeds]


def _category_mean(own: Float[np.ndarray, "tasks seeds"], tasks: tuple[TaskFacts, ...], category: str) -> float:
    return float(np.mean([skills.mean() for task, skills in zip(tasks, own, strict=True) if task.category == category]))
