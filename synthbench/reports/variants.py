"""Compare settings of a mechanism, which differ in convolution, position encoding, state size or another option.

A variant is a setting that was run on only some of the tasks of its mechanism's main setting. The two are compared run
by run, on the tasks and seeds that both have.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from synthbench.reports.aggregates import Interval, balanced, by_category, over_runs, over_seeds
from synthbench.reports.cells import Cells, Key, MechanismFacts, TaskFacts, arguments_in, skills_of
from synthbench.reports.statistics import Prior
from synthbench.reports.table import NOTHING, Cell, Table, fixed, score_text, skill_words, sources_of, table_of
from synthbench.reports.verdicts import is_ranked


class Variant(NamedTuple):
    """Two settings of a mechanism: its main setting, and a variant that was run on only some of the tasks."""

    main: MechanismFacts
    variant: MechanismFacts
    tasks: tuple[TaskFacts, ...]
    """The tasks that both settings have, if floor and ceiling are far enough apart for a skill."""
    seeds: tuple[int, ...]
    """The seeds that both settings have on each of these tasks."""
    skills: Float[np.ndarray, "2 tasks seeds"]
    """Skills of the main setting, then of the variant; 0 for a run without a score."""

    @property
    def differences(self) -> list[tuple[str, str]]:
        """A pair of texts for each difference: the first describes the main setting, the second the variant."""
        return _differences(self.main, self.variant)

    @property
    def words(self) -> tuple[str, str]:
        """All differences joined into two texts: one for the main setting and one for the variant."""
        before, after = (", ".join(words) for words in zip(*self.differences, strict=True))
        return before, after

    @property
    def factor(self) -> tuple[str, str]:
        """The difference of the two settings as two texts that fit several mechanisms, such as ``smaller state``.

        The first text describes the main setting, and the second text the variant.
        """
        if not self.is_of_another_size:
            return self.words
        return "main state", "smaller state" if self.variant.state < self.main.state else "larger state"

    @property
    def categories(self) -> list[str]:
        """Category of each task."""
        return [task.category for task in self.tasks]

    @property
    def is_of_another_size(self) -> bool:
        """True if the two settings have different state sizes, but the same block and position encoding."""
        main, variant = self.main, self.variant
        return (main.block, main.positions) == (variant.block, variant.positions) and main.state != variant.state

    def intervals(self) -> list[Interval]:
        """Return the mean skills of the main setting and of the variant over all tasks, with intervals over seeds."""
        weights = balanced(self.categories)
        return [over_seeds(skills[None], weights)[0] for skills in self.skills]


def _differences(main: MechanismFacts, variant: MechanismFacts) -> list[tuple[str, str]]:
    pairs = []
    if main.block != variant.block:
        pairs.append((main.block, variant.block))
    if main.positions != variant.positions:
        pairs.append((f"positions {main.positions}", f"positions {variant.positions}"))
    if main.match or variant.match:
        pairs.append((main.match or "not matched", variant.match or "not matched"))
    elif main.arguments != variant.arguments:
        ours, theirs = arguments_in(main.arguments), arguments_in(variant.arguments)
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        pairs += [(f"{name}={ours.get(name, NOTHING)}", f"{name}={theirs.get(name, NOTHING)}") for name in names]
    return pairs


_Row = tuple[Variant, int]
"""A row of a table: a pair of settings, and 0 for its main setting or 1 for its variant."""


class Change(NamedTuple):
    """A change of setting that several mechanisms share, on the tasks of one category or on all tasks."""

    words: tuple[str, str]
    """The settings before and after."""
    category: str
    """The category; empty for all categories with equal weight."""
    num_tasks: int
    num_seeds: int
    mechanisms: tuple[MechanismFacts, ...]
    """The mechanisms in their main settings."""
    means: Float[np.ndarray, "2 mechanisms"]
    """Mean skill before and after."""
    difference: Interval
    """Skill after minus skill before: mean over mechanisms, with a 95 % interval over mechanisms."""

    @property
    def sentence(self) -> str:
        """The effect of the change on the mean score, in a sentence."""
        (before, after), places = self.means, 2
        what = f"{self.num_tasks} {self.category}".replace("_", " ") if self.category else f"all {self.num_tasks}"
        where = f"on {what} {'task' if self.num_tasks == 1 else 'tasks'}"
        return (
            f"{self.words[1]} instead of {self.words[0]} changes the mean score of {len(self.mechanisms)} mechanisms "
            f"{where} by {_signed(self.difference)}; the mechanisms lie between {fixed(after.min(), places)} and "
            f"{fixed(after.max(), places)} instead of {fixed(before.min(), places)} and {fixed(before.max(), places)}."
        )


def variants_of(main: Cells, others: Cells) -> list[Variant]:
    """Pair each variant of a mechanism with the main setting from which it differs in the fewest ways.

    A variant is a setting that was run on only some tasks. A ranked task is called common if variant and main setting
    have runs of the same seed on it. A variant is left out if there is no common task, or if no seed has runs of both
    settings on every common task.

    Args:
        main: Results with the main settings.
        others: Results with the variants.
    """
    found = []
    for variant in others.mechanisms:
        named = [mechanism for mechanism in main.mechanisms if mechanism.name == variant.name]
        if not named:
            continue
        nearest = min(named, key=lambda one: len(_differences(one, variant)))
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
    """Keep the variants (settings run on only some tasks) whose state size differs from that of the main setting.

    All variants in the result must have the same tasks and seeds, so only those with the most frequent combination are
    kept.
    """
    sized = [variant for variant in variants if variant.is_of_another_size]
    common = Counter((variant.tasks, variant.seeds) for variant in sized).most_common(1)
    return [variant for variant in sized if (variant.tasks, variant.seeds) == common[0][0]]


def changes_of(variants: Sequence[Variant]) -> list[Change]:
    """List the changes of setting that were tried on several mechanisms, with the same tasks and seeds.

    If there are several categories, a change is listed once for each category, and then once for all tasks.
    """
    alike: dict[tuple[object, ...], dict[Key, Variant]] = {}
    # Of several smaller or larger states, the one farthest from the main setting is kept.
    for variant in sorted(variants, key=lambda one: abs(one.variant.state - one.main.state)):
        alike.setdefault((variant.factor, variant.tasks, variant.seeds), {})[variant.main.key] = variant
    return [change for group in alike.values() if len(group) > 1 for change in _by_category([*group.values()])]


def summary_of(variants: Sequence[Variant], changes: Sequence[Change]) -> str:
    """Summarise the changes of setting that several mechanisms share, in a few sentences."""
    num = len({variant.main for variant in variants})
    counted = f"{len(variants)} other settings of {num} mechanisms, on the tasks that both settings have."
    return " ".join([counted, *(change.sentence for change in changes)])


def _by_category(group: Sequence[Variant]) -> Iterator[Change]:
    first = group[0]
    skills = np.array([variant.skills for variant in group])  # [mechanisms, 2, tasks, seeds]
    parts = by_category(first.categories)
    whole = {"": np.ones(len(first.tasks), dtype=bool)}
    for name, part in (parts | whole if len(parts) > 1 else whole).items():
        weights = balanced([category for category, is_in in zip(first.categories, part, strict=True) if is_in])
        means = skills[:, :, part].mean(axis=3) @ weights
        yield Change(
            words=first.factor,
            category=name,
            num_tasks=int(part.sum()),
            num_seeds=len(first.seeds),
            mechanisms=tuple(variant.main for variant in group),
            means=means.T,
            difference=over_runs(means[:, 1] - means[:, 0], low=-1.0, high=1.0),
        )


def variant_tables(variants: Sequence[Variant], changes: Sequence[Change]) -> list[Table]:
    """Make tables of the changes of setting that were tried on several mechanisms, and of the mean skills of variants.

    A variant is a setting of a mechanism that was run on only some tasks. Means are shown by category and by task.
    """
    rows = _rows(variants)
    tasks = list(dict.fromkeys(task for variant in variants for task in variant.tasks))
    has_ladder = any(task.ladder for task in tasks)
    sources = sources_of(tasks, (variant.main for variant in variants))
    measure = "score" if has_ladder else "skill"
    shared = table_of(
        "changes",
        "What one factor changes",
        f"Mean {measure} over the mechanisms in both settings, over the tasks of a category, and over all tasks with "
        "equal weight for all categories. Difference: after − before, with its 95 % interval over mechanisms. In "
        "brackets: the lowest and the highest mechanism. Main state: that of the board. "
        "A factor is shown where several mechanisms have rows that differ in nothing else.",
        ("Change", "Tasks"),
        changes,
        lambda change: (" → ".join(change.words), f"{change.category or 'all'} ({change.num_tasks})"),
        {
            "Mechanisms": lambda change: str(len(change.mechanisms)),
            "Seeds": lambda change: str(change.num_seeds),
            "Before": lambda change: _with_range(change.means[0]),
            "After": lambda change: _with_range(change.means[1]),
            "Difference": lambda change: _signed(change.difference),
        },
        is_grouped=True,
    )
    means = _side_by_side(
        *("variants", "Settings side by side", "a variant", "the main setting"),
        variants,
        lambda row: row[0].words[row[1]],
    )
    by_task = table_of(
        "variants-tasks",
        "Settings side by side, task by task",
        f"{'Scores' if has_ladder else 'Accuracies in per cent'}, means over the seeds that a variant shares "
        "with the main setting of its mechanism, which stands above it; in brackets the difference from it.",
        ("Mechanism", "Setting"),
        rows,
        lambda row: (row[0].main.label, row[0].words[row[1]]),
        {task.label: partial(_mean_on, task) for task in tasks},
        sources=sources,
        is_grouped=True,
    )
    return [*[shared] * bool(changes), means, by_task]


def conditions_of(cells: Cells) -> list[Variant]:
    """Pair the stock layer of each mechanism with its bare layer; mechanisms without both are left out.

    A stock layer is built as published. A bare layer lacks convolutions and most gates. In a pair, the bare layer takes
    the place of the variant.
    """
    stock, bare = (
        replace(cells, mechanisms=tuple(one for one in cells.mechanisms if one.condition == condition))
        for condition in ("stock", "bare")
    )
    return variants_of(stock, bare)


def conditions_table(pairs: Sequence[Variant], prior: Prior | None) -> Table:
    """Make a table of the mean skills of stock layers and of bare layers, by category.

    A stock layer is built as published. A bare layer lacks convolutions and most gates. The text above the table states
    how much the two rankings agree (Kendall's τ).

    Args:
        pairs: Pairs of stock and bare layers, from :func:`conditions_of`.
        prior: Variance of skill over seeds, for tasks where no mechanism has two runs; None if unknown.
    """
    # A difference has the variance of two runs.
    of_both = prior and Prior(2 * prior.variance, prior.dof)
    table = _side_by_side(
        *("conditions", "Stock and bare", "the bare layer", "the stock one"),
        pairs,
        lambda row: ("stock", "bare")[row[1]],
        of_both,
    )
    common = [task for task in pairs[0].tasks if all(task in pair.tasks for pair in pairs)]
    weights = balanced([task.category for task in common])
    # [mechanisms, 2]: the means of both layers on the tasks that all have.
    means = np.array(
        [pair.skills[:, [pair.tasks.index(task) for task in common]].mean(axis=2) @ weights for pair in pairs]
    )
    order = np.sign(means[:, None] - means[None])
    num_pairs = len(pairs) * (len(pairs) - 1)
    if not (common and num_pairs):
        return table
    tau = fixed(float(order.prod(axis=2).sum() / num_pairs), 2)
    return replace(
        table,
        outcome=f"Kendall's τ between the order of the {len(pairs)} stock layers and that of their bare ones is {tau}, "
        f"on the {len(common)} tasks that all have.",
    )


def _side_by_side(
    name: str,
    title: str,
    one: str,
    other: str,
    variants: Sequence[Variant],
    setting: Callable[[_Row], str],
    prior: Prior | None = None,
) -> Table:
    tasks = list(dict.fromkeys(task for variant in variants for task in variant.tasks))
    return table_of(
        name,
        title,
        f"Mean {skill_words(has_ladder=any(task.ladder for task in tasks))}, over the tasks and seeds that {one} "
        f"shares with {other} of its mechanism, which stands above it; in brackets the difference from it with its "
        "95 % interval over seeds, if it has one. A run without a score counts as 0. "
        "Mean: every category weighs the same. Parameters of the mechanisms of all layers, state of one, the largest "
        "over the tasks.",
        ("Mechanism", "Setting"),
        _rows(variants),
        lambda row: (row[0].main.label, setting(row)),
        {
            "Tasks": lambda row: str(len(row[0].tasks)),
            "Seeds": lambda row: str(len(row[0].seeds)),
            **{name: partial(_mean_in, name, prior) for name in dict.fromkeys(task.category for task in tasks)},
            "Mean": partial(_mean_in, "", prior),
            "Parameters": lambda row: fixed(_setting(row).num_parameters, 0),
            "State": lambda row: fixed(_setting(row).state, 0),
        },
        sources=sources_of(tasks, (variant.main for variant in variants)),
        is_grouped=True,
    )


def _rows(variants: Sequence[Variant]) -> list[_Row]:
    """List each main setting before its variants (settings run on only some tasks).

    The main setting is repeated before variants on other tasks or seeds, since its means differ there.
    """
    rows: list[_Row] = []
    for _, group in itertools.groupby(variants, lambda each: (each.main, each.tasks, each.seeds)):
        first, *others = group
        rows += [(first, 0), (first, 1), *((variant, 1) for variant in others)]
    return rows


def _setting(row: _Row) -> MechanismFacts:
    return row[0].variant if row[1] else row[0].main


def _mean_in(category: str, prior: Prior | None, row: _Row) -> Cell:
    """Format a setting's mean skill on a category, or on all tasks if ``category`` is empty.

    For a variant, the difference from its main setting is added.
    """
    variant, side = row
    weights = balanced(variant.categories)
    part = np.array([category in ("", name) for name in variant.categories])
    if not part.any():
        return Cell()
    if category:
        weights = weights * part / weights[part].sum()
    (difference,) = over_seeds((variant.skills[1] - variant.skills[0])[None], weights, prior, low=-1.0)
    mean = float(variant.skills[side].mean(axis=1) @ weights)
    return Cell(fixed(mean, 2), remarks=(_signed(difference),) if side else ())


def _mean_on(task: TaskFacts, row: _Row) -> Cell:
    """Format a setting's mean score on a task; for a variant, the difference from its main setting is added."""
    variant, side = row
    if task not in variant.tasks:
        return Cell()
    skills = variant.skills[:, variant.tasks.index(task)].mean(axis=1).tolist()
    scale, places = (1.0, 2) if task.ladder else (100 * task.gap, 1)
    difference = fixed(scale * (skills[1] - skills[0]), places, is_signed=True)
    return Cell(score_text(task, task.floor + skills[side] * task.gap), remarks=(difference,) if side else ())


def _with_range(means: Float[np.ndarray, " mechanisms"]) -> Cell:
    return Cell(fixed(means.mean(), 2), remarks=(f"{fixed(means.min(), 2)} to {fixed(means.max(), 2)}",))


def _signed(difference: Interval) -> str:
    """Format a difference, with its sign, and the ends of its interval, if it has one."""
    value, *ends = (fixed(number, 2, is_signed=True) for number in difference)
    return value if NOTHING in ends else f"{value}, {ends[0]} to {ends[1]}"
