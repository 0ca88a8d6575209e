"""Settings of a mechanism beside each other: what a convolution, other positions, another state or an option changes.

A variant is a setting that was run on some of the tasks of another one of its mechanism, which is its main setting.
Both are compared on the tasks and seeds that both have, run by run.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from synthbench.reports.aggregates import Interval, balanced, over_seeds
from synthbench.reports.cells import Cells, MechanismFacts, TaskFacts, arguments_in, skills_of
from synthbench.reports.table import (
    NOTHING,
    Cell,
    Column,
    Line,
    Table,
    fixed,
    grouped,
    score_text,
    skill_words,
    sources_of,
)
from synthbench.reports.verdicts import is_ranked


class Variant(NamedTuple):
    """A variant with its main setting."""

    main: MechanismFacts
    variant: MechanismFacts
    tasks: tuple[TaskFacts, ...]
    """The tasks that both have, with a gap that is wide enough for a skill."""
    seeds: tuple[int, ...]
    """The seeds that both have on each of these."""
    skills: Float[np.ndarray, "2 tasks seeds"]
    """Of main setting and variant; 0 without a score."""

    @property
    def words(self) -> tuple[str, str]:
        """The settings in which the two differ, of each."""
        before, after = zip(*self._differences(), strict=True)
        return ", ".join(before), ", ".join(after)

    def _differences(self) -> Iterator[tuple[str, str]]:
        main, variant = self.main, self.variant
        if main.block != variant.block:
            yield main.block, variant.block
        if main.positions != variant.positions:
            yield f"positions {main.positions}", f"positions {variant.positions}"
        if main.match or variant.match:
            yield main.match or "not matched", variant.match or "not matched"
        elif main.arguments != variant.arguments:
            ours, theirs = arguments_in(main.arguments), arguments_in(variant.arguments)
            names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
            before, after = (" ".join(f"{name}={side.get(name, NOTHING)}" for name in names) for side in (ours, theirs))
            yield before, after

    @property
    def categories(self) -> list[str]:
        """Of each task."""
        return [task.category for task in self.tasks]

    @property
    def is_of_another_size(self) -> bool:
        """Whether its state is larger or smaller, and all around the mechanism alike."""
        main, variant = self.main, self.variant
        return (main.block, main.positions) == (variant.block, variant.positions) and main.state != variant.state

    def intervals(self) -> list[Interval]:
        """Mean skill of main setting and variant, over all tasks; for these tasks and other seeds."""
        weights = balanced(self.categories)
        return [_mean(skills[None], weights, low=0.0) for skills in self.skills]


class Change(NamedTuple):
    """One change of the settings of several mechanisms, on the tasks of a category or on all."""

    words: tuple[str, str]
    """The settings before and after."""
    category: str
    """Empty: all of them, each with the same weight."""
    num_tasks: int
    num_seeds: int
    mechanisms: tuple[MechanismFacts, ...]
    """In their main settings."""
    means: Float[np.ndarray, "2 mechanisms"]
    """Mean skill before and after."""
    difference: Interval
    """Mean over mechanisms of after − before; for these mechanisms and tasks, and other seeds."""

    @property
    def sentence(self) -> str:
        """The change in words."""
        (before, after), places = self.means, 2
        what = f"{self.num_tasks} {self.category}".replace("_", " ") if self.category else f"all {self.num_tasks}"
        where = f"on {what} {'task' if self.num_tasks == 1 else 'tasks'}"
        return (
            f"{self.words[1]} instead of {self.words[0]} changes the mean skill of {len(self.mechanisms)} mechanisms "
            f"{where} by {_signed(self.difference)}; the mechanisms lie between {fixed(after.min(), places)} and "
            f"{fixed(after.max(), places)} instead of {fixed(before.min(), places)} and {fixed(before.max(), places)}."
        )


def variants_of(main: Cells, others: Cells) -> list[Variant]:
    """The variants in printed order, each beside the main setting from which it differs in the fewest ways.

    Those that share no task and seed with it are left out.
    """
    found = []
    for variant in others.mechanisms:
        named = [mechanism for mechanism in main.mechanisms if mechanism.name == variant.name]
        if not named:
            continue
        nearest = min(named, key=lambda mechanism: _distance(mechanism, variant))
        both = [
            (task, main.cell(task, nearest), others.cell(task, variant))
            for task in main.tasks
            if is_ranked(task) and others.cell(task, variant).runs.keys() & main.cell(task, nearest).runs.keys()
        ]
        seeds = sorted(set.intersection(*(set(cell.runs) for _task, *cells in both for cell in cells))) if both else []
        if seeds:
            skills = [[skills_of(cell, task, seeds) for cell in cells] for task, *cells in both]
            tasks = tuple(task for task, *_cells in both)
            found.append(Variant(nearest, variant, tasks, tuple(seeds), np.swapaxes(np.array(skills), 0, 1)))
    return found


def of_sizes(variants: Sequence[Variant]) -> list[Variant]:
    """The variants whose state has another size, on the tasks and seeds that most of these have."""
    sized = [variant for variant in variants if variant.is_of_another_size]
    common = Counter((variant.tasks, variant.seeds) for variant in sized).most_common(1)
    return [variant for variant in sized if (variant.tasks, variant.seeds) == common[0][0]]


def changes_of(variants: Sequence[Variant]) -> list[Change]:
    """The changes that several mechanisms have on the same tasks and seeds: by category, then over all."""
    alike: dict[tuple[object, ...], list[Variant]] = {}
    for variant in variants:
        alike.setdefault((variant.words, variant.tasks, variant.seeds), []).append(variant)
    return [change for group in alike.values() if len(group) > 1 for change in _by_category(group)]


def variant_tables(variants: Sequence[Variant]) -> list[Table]:
    """Means by category, the changes that several mechanisms share, and the tasks one by one."""
    changes = changes_of(variants)
    tables = [_means_table(variants), _tasks_table(variants)]
    return [_changes_table(changes), *tables] if changes else tables


def summary_of(variants: Sequence[Variant]) -> str:
    """The shared changes in a few sentences."""
    num = len({variant.main for variant in variants})
    counted = f"{len(variants)} other settings of {num} mechanisms, on the tasks that both settings have."
    return " ".join([counted, *(change.sentence for change in changes_of(variants))])


def _by_category(group: Sequence[Variant]) -> Iterator[Change]:
    first = group[0]
    skills = np.array([variant.skills for variant in group])  # [mechanisms, 2, tasks, seeds]
    names = list(dict.fromkeys(first.categories))
    for name in [*(names if len(names) > 1 else []), ""]:
        part = np.array([name in ("", category) for category in first.categories])
        weights = balanced([category for category, is_in in zip(first.categories, part, strict=True) if is_in])
        means = skills[:, :, part].mean(axis=3) @ weights
        # The cells of all mechanisms count as the tasks of one.
        differences = (skills[:, 1] - skills[:, 0])[:, part].reshape(1, -1, len(first.seeds))
        yield Change(
            words=first.words,
            category=name,
            num_tasks=int(part.sum()),
            num_seeds=len(first.seeds),
            mechanisms=tuple(variant.main for variant in group),
            means=means.T,
            difference=_mean(differences, np.tile(weights, len(group)) / len(group)),
        )


def _mean(
    skills: Float[np.ndarray, "1 tasks seeds"], weights: Float[np.ndarray, " tasks"], *, low: float = -1.0
) -> Interval:
    """A weighted mean of skills, or of differences; its ends are NaN with one seed."""
    if skills.shape[2] > 1:
        return over_seeds(skills, weights, low=low)[0]
    return Interval(float(skills[0, :, 0] @ weights), math.nan, math.nan)


def _changes_table(changes: Sequence[Change]) -> Table:
    return Table(
        name="changes",
        title="Changes that several mechanisms share",
        caption=(
            "Mean skill over the mechanisms in both settings, over the tasks of a category, and over all tasks with "
            "equal weight for all categories. Difference: after − before, with its 95 % interval for these mechanisms "
            "and tasks and other seeds. In brackets: the lowest and the highest mechanism."
        ),
        headings=("Change", "Tasks"),
        columns=tuple(map(Column, ("Mechanisms", "Seeds", "Before", "After", "Difference"))),
        lines=grouped(
            Line(
                (" → ".join(change.words), f"{change.category or 'all'} ({change.num_tasks})"),
                (
                    Cell(str(len(change.mechanisms))),
                    Cell(str(change.num_seeds)),
                    *(
                        Cell(fixed(side.mean(), 2), remarks=(f"{fixed(side.min(), 2)} to {fixed(side.max(), 2)}",))
                        for side in change.means
                    ),
                    Cell(_signed(change.difference)),
                ),
            )
            for change in changes
        ),
    )


def _means_table(variants: Sequence[Variant]) -> Table:
    names = list(dict.fromkeys(name for variant in variants for name in variant.categories))
    has_ladder = any(task.ladder for variant in variants for task in variant.tasks)
    return Table(
        name="variants",
        title="Settings side by side",
        caption=(
            f"Mean skill, {skill_words(has_ladder=has_ladder)}, over the tasks and seeds that a variant shares with "
            "the main setting of its mechanism, which stands above it; in brackets the difference from it with its "
            "95 % interval for these tasks and other seeds. A run without a score counts as 0. Mean: every category "
            "weighs the same. Parameters of the mechanisms of all layers, state of one, the largest over the tasks."
        ),
        headings=("Mechanism", "Setting"),
        columns=tuple(map(Column, ("Tasks", "Seeds", *names, "Mean", "Parameters", "State"))),
        lines=_lines(variants, lambda variant: _mean_cells(variant, names)),
        sources=_sources(variants),
    )


def _tasks_table(variants: Sequence[Variant]) -> Table:
    tasks = list(dict.fromkeys(task for variant in variants for task in variant.tasks))
    unit = "Heights in rungs" if any(task.ladder for task in tasks) else "Accuracies in per cent"
    return Table(
        name="variants-tasks",
        title="Settings side by side, task by task",
        caption=(
            f"{unit}, means over the seeds that a variant shares with the main setting of its mechanism, which stands "
            "above it; in brackets the difference from it."
        ),
        headings=("Mechanism", "Setting"),
        columns=tuple(Column(task.label) for task in tasks),
        lines=_lines(variants, lambda variant: _task_cells(variant, tasks)),
        sources=_sources(variants),
    )


def _lines(
    variants: Sequence[Variant], cells_of: Callable[[Variant], tuple[Sequence[Cell], Sequence[Cell]]]
) -> tuple[Line, ...]:
    """A group a mechanism: its main setting (again if other variants share other runs with it), then its variants."""
    lines = []
    for (main, *_), group in itertools.groupby(variants, lambda each: (each.main, each.tasks, each.seeds)):
        for position, variant in enumerate(group):
            ours, theirs = map(tuple, cells_of(variant))
            if position == 0:
                lines.append(Line((main.label, variant.words[0]), ours))
            lines.append(Line((main.label, variant.words[1]), theirs))
    return grouped(lines)


def _mean_cells(variant: Variant, names: Sequence[str]) -> tuple[Sequence[Cell], Sequence[Cell]]:
    weights = balanced(variant.categories)
    parts = [np.array([category == name for category in variant.categories]) for name in names]
    weighted = [weights * part / (weights[part].sum() or 1.0) for part in parts] + [weights]
    is_known = [*(part.any() for part in parts), True]
    differences = [_mean((variant.skills[1] - variant.skills[0])[None], each) for each in weighted]
    sides = []
    for mechanism, skills in zip((variant.main, variant.variant), variant.skills, strict=True):
        means = [float(skills.mean(axis=1) @ each) for each in weighted]
        printed = [Cell(fixed(mean, 2)) if known else Cell() for mean, known in zip(means, is_known, strict=True)]
        if mechanism is variant.variant:
            printed = [
                replace(cell, remarks=(_signed(difference),)) if known else cell
                for cell, difference, known in zip(printed, differences, is_known, strict=True)
            ]
        counts = [Cell(str(len(variant.tasks))), Cell(str(len(variant.seeds)))]
        costs = (mechanism.num_parameters, mechanism.state)
        sides.append([*counts, *printed, *(Cell(NOTHING if math.isnan(cost) else f"{cost:.0f}") for cost in costs)])
    return sides[0], sides[1]


def _task_cells(variant: Variant, tasks: Sequence[TaskFacts]) -> tuple[Sequence[Cell], Sequence[Cell]]:
    main: list[Cell] = []
    other: list[Cell] = []
    for task in tasks:
        if task not in variant.tasks:
            main.append(Cell())
            other.append(Cell())
            continue
        ours, theirs = variant.skills[:, variant.tasks.index(task)].mean(axis=1).tolist()
        scores = [task.floor + skill * task.gap for skill in (ours, theirs)]
        scale = task.ladder.num_rungs if task.ladder else 100 * task.gap
        main.append(Cell(score_text(task, scores[0])))
        other.append(Cell(score_text(task, scores[1]), remarks=(fixed(scale * (theirs - ours), 1, is_signed=True),)))
    return main, other


def _sources(variants: Sequence[Variant]) -> tuple[str, ...]:
    return sources_of((task for variant in variants for task in variant.tasks), (variant.main for variant in variants))


def _distance(mechanism: MechanismFacts, other: MechanismFacts) -> int:
    """In how many ways two settings of a mechanism differ."""
    return sum(part != of_other for part, of_other in zip(mechanism.key, other.key, strict=True))


def _signed(difference: Interval) -> str:
    """A difference with the ends of its interval, if it has one."""
    value, *ends = (fixed(number, 2, is_signed=True) for number in difference)
    return value if NOTHING in ends else f"{value}, {ends[0]} to {ends[1]}"
