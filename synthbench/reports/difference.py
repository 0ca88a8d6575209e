"""Our table against the published one: what was reproduced, cell by cell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from synthbench.reports.against.published import (
    NUM_SEEDS,
    NUM_SEQUENCES,
    ROUNDING,
    PublishedAverage,
    PublishedCell,
    published_arguments,
    published_name,
    table3,
    table8,
)
from synthbench.reports.cells import Cells, Estimate, MechanismFacts, arguments_in
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, average_of, fixed, grouped, mean_cell, percent

LIMIT = 3.0
"""Combined standard errors beyond which a difference is called one."""

UNINFORMATIVE = 0.05
"""Skill so near to 0 or 1 that every mechanism may be there."""

NUM_DRAWS = 2000

ROUNDING_ERROR = ROUNDING / math.sqrt(12)
"""Standard deviation of a uniform rounding error."""

UNEXPLAINED = "not explained"

PAPER = "slay2026"


@dataclass(frozen=True)
class Comparison:
    """One published cell beside ours. Accuracies are fractions in [0, 1]."""

    task: str
    category: str
    mechanism: str
    """What our tables print."""
    mechanism_published: str
    ours: Estimate | None
    """None if our rows lack the cell, or have the task at several sizes."""
    published_mean: float
    published_std: float
    """Population standard deviation over the published seeds, as printed."""
    floor: float
    """Of the task; NaN without our cell, as is its ceiling."""
    ceiling: float

    @property
    def difference(self) -> float:
        """Our mean less the published; NaN without ours."""
        return self.ours.mean - self.published_mean if self.ours else math.nan

    @property
    def standard_error(self) -> float:
        """Combined standard error of the difference; NaN below two seeds of ours."""
        if self.ours is None:
            return math.nan
        return math.hypot(self.ours.standard_error, published_error(self.ours, self.published_std))

    @property
    def z(self) -> float:
        """The difference in combined standard errors; NaN below two seeds of ours."""
        return self.difference / self.standard_error

    @property
    def is_informative(self) -> bool:
        """Whether the published mean lies between floor and ceiling, where mechanisms can differ."""
        gap = self.ceiling - self.floor
        return gap > 0 and UNINFORMATIVE <= (self.published_mean - self.floor) / gap <= 1 - UNINFORMATIVE

    @property
    def is_judged(self) -> bool:
        """Whether we have the two seeds that a standard error needs."""
        return not math.isnan(self.z)

    @property
    def is_within(self) -> bool:
        """Whether the difference is at most three combined standard errors; False where it is not judged."""
        return abs(self.z) <= LIMIT


@dataclass(frozen=True)
class Difference:
    """All published cells beside ours."""

    comparisons: tuple[Comparison, ...]
    """In the published order; cells that were published without a number are not among them."""
    unpublished: tuple[str, ...]
    """Tasks that the published table names without any number."""

    @property
    def outside(self) -> tuple[Comparison, ...]:
        """Those that are judged and differ by more than three combined standard errors."""
        return tuple(one for one in self.comparisons if one.is_judged and not one.is_within)

    @property
    def rms_z(self) -> float:
        """Root mean square of z over the judged cells; NaN without any."""
        judged = [one.z for one in self.comparisons if one.is_judged]
        return float(np.sqrt(np.mean(np.square(judged)))) if judged else math.nan

    @property
    def informative(self) -> tuple[Comparison, ...]:
        """Those that are judged and are published between floor and ceiling."""
        return tuple(one for one in self.comparisons if one.is_judged and one.is_informative)

    @property
    def unnoticed(self) -> float:
        """Skill by which half of the informative cells could differ and stay within the limit; NaN without any."""
        reach = [LIMIT * one.standard_error / (one.ceiling - one.floor) for one in self.informative]
        return float(np.median(reach)) if reach else math.nan

    def expected_rms_z(self) -> tuple[float, float, float]:
        """What the root mean square of z is if all published cells come from our distributions: mean and 95 % range.

        Less than 1, as the standard error of a published mean is never taken to be smaller than ours predicts. Both
        sides are drawn anew, normal about our mean with our spread, ours without and the published with the noise of
        its test sets and rounded.
        """
        rng = np.random.Generator(np.random.Philox(0))
        squares = [np.square(_drawn_z(one.ours, rng)) for one in self.comparisons if one.is_judged and one.ours]
        rms = np.sqrt(np.mean(squares, axis=0))
        low, high = np.quantile(rms, [0.025, 0.975])
        return float(rms.mean()), float(low), float(high)

    def summary(self) -> str:
        """The outcome in words, every count computed."""
        num_within = sum(one.is_within for one in self.comparisons)
        num_judged = sum(one.is_judged for one in self.comparisons)
        num_missing = sum(one.ours is None for one in self.comparisons)
        num_single = len(self.comparisons) - num_judged - num_missing
        sentence = f"{num_within} of {len(self.comparisons)} published cells within 3 combined standard errors"
        sentence += f"; {len(self.outside)} outside."
        if self.informative:
            sentence += (
                f" {len(self.informative)} of them are informative, with a published skill from {UNINFORMATIVE:g} to "
                f"{1 - UNINFORMATIVE:g}; in half of these a difference of {self.unnoticed:.2f} of skill would go "
                "unnoticed."
            )
        if num_judged:
            mean, low, high = self.expected_rms_z()
            sentence += (
                f" rms z = {self.rms_z:.2f}, where an exact reproduction has {mean:.2f} ({low:.2f} to {high:.2f})."
            )
        if num_missing:
            sentence += f" Without exactly one cell of ours that has a score: {num_missing}."
        if num_single:
            sentence += f" Not judged, fewer than two seeds: {num_single}."
        unknown = sum(one.ours is not None and math.isnan(one.ours.evaluation_std) for one in self.comparisons)
        if unknown:
            sentence += f" Judged without the published evaluation noise, which our rows do not say: {unknown}."
        if self.unpublished:
            sentence += f" Published without a number, left out: {', '.join(self.unpublished)}."
        return sentence


def published_error(ours: Estimate, published_std: float) -> float:
    """Standard error of a published mean.

    The published standard deviation comes from three seeds, so it is itself uncertain to about a half, and is printed
    as 0.00 by luck where three seeds agree. Taken alone it would call such a cell exact. Hence it is not allowed to be
    smaller than what our seeds predict for the published protocol: our spread between seeds over three seeds, plus the
    noise of scoring each of them on 64 sequences only. (Our own spread holds the noise of our larger test set too,
    which makes the prediction slightly too large.) The larger of the two is taken, and the error of rounding to two
    decimals is added, of variance 0.01² / 12.

    Args:
        ours: Our cell, with two seeds or more. Where no row says the evaluation noise, that term is left out.
        published_std: Population standard deviation over three seeds as printed, a fraction; times 3/2 its square is
            the sample variance.

    Returns:
        A fraction like the mean; NaN below two seeds of ours.
    """
    if ours.n < 2:
        return math.nan
    sample_variance = published_std**2 * NUM_SEEDS / (NUM_SEEDS - 1)
    evaluation_std = 0.0 if math.isnan(ours.evaluation_std) else ours.evaluation_std
    predicted = ours.std**2 / NUM_SEEDS + evaluation_std**2 / (NUM_SEEDS * NUM_SEQUENCES)
    return math.hypot(math.sqrt(max(sample_variance / NUM_SEEDS, predicted)), ROUNDING_ERROR)


def difference(cells: Cells) -> Difference:
    """Put every published cell beside ours."""
    labels = {cell.mechanism: one.label for cell in table8() for one in _named(cells, cell.mechanism)}
    comparisons = [
        Comparison(
            task=cell.task,
            category=cell.category,
            mechanism=labels.get(cell.mechanism, cell.mechanism),
            mechanism_published=cell.mechanism,
            ours=ours,
            published_mean=cell.mean,
            published_std=cell.std,
            floor=floor,
            ceiling=ceiling,
        )
        for cell in table8()
        if cell.mean is not None and cell.std is not None
        for ours, floor, ceiling in [_ours(cells, cell)]
    ]
    named = dict.fromkeys(cell.task for cell in table8())
    return Difference(
        comparisons=tuple(comparisons),
        unpublished=tuple(task for task in named if task not in {one.task for one in comparisons}),
    )


def difference_tables(found: Difference, causes: Mapping[tuple[str, str], str]) -> list[Table]:
    """The cells outside with their causes, one table of all cells for each category, and the categories' averages.

    Args:
        found: All published cells beside ours.
        causes: Why a cell differs, by task and published name of the mechanism; others print ``not explained``.
    """
    tables = [_outside_table(found, causes)] if found.outside else []
    tables += [
        _cells_table(category, [one for one in found.comparisons if one.category == category])
        for category in dict.fromkeys(one.category for one in found.comparisons)
    ]
    return [*tables, _averages_table(found)]


def _ours(cells: Cells, published: PublishedCell) -> tuple[Estimate | None, float, float]:
    """Our cell of the published task and mechanism, floor and ceiling; None unless exactly one has a score."""
    found = [
        (task, cells.cell(task, mechanism))
        for mechanism in _named(cells, published.mechanism)
        for task in cells.tasks
        if task.name == published.task
    ]
    if len(found) != 1 or not found[0][1].n:
        return None, math.nan, math.nan
    task, cell = found[0]
    return cell, task.floor, task.ceiling


def _drawn_z(ours: Estimate, rng: np.random.Generator) -> Float[np.ndarray, " draws"]:
    """The z value of a published cell that comes from the distribution of ours, drawn many times."""
    evaluation_std = 0.0 if math.isnan(ours.evaluation_std) else ours.evaluation_std
    mine = ours.mean + ours.std * rng.standard_normal((NUM_DRAWS, ours.n))
    of_tests = evaluation_std / math.sqrt(NUM_SEQUENCES) * rng.standard_normal((NUM_DRAWS, NUM_SEEDS))
    theirs = ours.mean + ours.std * rng.standard_normal((NUM_DRAWS, NUM_SEEDS)) + of_tests
    mean, std = (ROUNDING * np.round(one / ROUNDING) for one in (theirs.mean(axis=1), theirs.std(axis=1)))
    my_variance = mine.var(axis=1, ddof=1)
    predicted = my_variance / NUM_SEEDS + evaluation_std**2 / (NUM_SEEDS * NUM_SEQUENCES)
    squared_error = my_variance / ours.n + np.maximum(std**2 / (NUM_SEEDS - 1), predicted) + ROUNDING_ERROR**2
    found: Float[np.ndarray, " draws"] = (mine.mean(axis=1) - mean) / np.sqrt(squared_error)
    return found


def _named(cells: Cells, published: str) -> list[MechanismFacts]:
    """Ours of a published name; of several settings those that have the arguments of the published protocol."""
    named = [one for one in cells.mechanisms if published_name(one.name) == published]
    return [one for one in named if _is_as_published(one)] if len(named) > 1 else named


def _is_as_published(mechanism: MechanismFacts) -> bool:
    published = published_arguments()[published_name(mechanism.name)]
    return mechanism.match is None and published.items() <= arguments_in(mechanism.arguments).items()


def _outside_table(found: Difference, causes: Mapping[tuple[str, str], str]) -> Table:
    return Table(
        name="difference-outside",
        title="Cells outside",
        caption=(
            "Published cells that differ from ours by more than 3 combined standard errors (SE). Difference (ours less "
            "published) and SE in per cent points."
        ),
        headings=("Task", "Mechanism"),
        columns=(Column("Difference"), Column("SE"), Column("z"), Column("Cause", "text")),
        lines=tuple(
            Line(
                (one.task, one.mechanism),
                (*_difference_cells(one), Cell(causes.get((one.task, one.mechanism_published)) or UNEXPLAINED)),
            )
            for one in found.outside
        ),
        sources=(PAPER,),
    )


def _cells_table(category: str, comparisons: Sequence[Comparison]) -> Table:
    return Table(
        name=f"difference-{category}",
        title=f"{category.replace('_', ' ').capitalize()} tasks",
        caption=(
            "Accuracy in per cent: ours as mean ± sample standard deviation over n seeds, published as printed (mean ± "
            f"population standard deviation over {NUM_SEEDS} seeds, {NUM_SEQUENCES} test sequences each). Difference "
            "(ours less published) and combined standard error (SE) in points."
        ),
        headings=("Task", "Mechanism"),
        columns=(
            Column("Ours"),
            Column("n"),
            Column("Published"),
            Column("Difference"),
            Column("SE"),
            Column("z"),
            Column("Within 3 SE", "word"),
        ),
        lines=grouped(
            Line(
                (one.task, one.mechanism),
                (
                    mean_cell(one.ours, one.ours.n) if one.ours else Cell(),
                    Cell(str(one.ours.n) if one.ours else NOTHING),
                    Cell(f"{100 * one.published_mean:.0f}", f"{100 * one.published_std:.0f}"),
                    *_difference_cells(one),
                    _verdict_cell(one.z),
                ),
            )
            for one in comparisons
        ),
        sources=(PAPER,),
    )


def _averages_table(found: Difference) -> Table:
    """Our averages over the tasks that were published, beside the published averages."""
    lines = []
    for published in table3():
        members = [
            one
            for one in found.comparisons
            if (one.category, one.mechanism_published) == (published.category, published.mechanism)
        ]
        lines.append(Line((published.category, members[0].mechanism), _average_cells(published, members)))
    return Table(
        name="difference-averages",
        title="Averages of the categories",
        caption=(
            "Mean over the category's published tasks in per cent, ours and as printed; difference and combined "
            "standard error (SE) in points. A category of which our rows lack a published task has no average here."
        ),
        headings=("Category", "Mechanism"),
        columns=(
            Column("Ours"),
            Column("Published"),
            Column("Difference"),
            Column("SE"),
            Column("z"),
            Column("Within 3 SE", "word"),
        ),
        lines=grouped(lines),
        sources=(PAPER,),
    )


def _average_cells(published: PublishedAverage, members: Sequence[Comparison]) -> tuple[Cell, ...]:
    printed = Cell(f"{100 * published.mean:.0f}")
    cells = [one.ours for one in members if one.ours]
    if len(cells) < len(members):
        return (Cell(), printed, Cell(), Cell(), Cell(), Cell())
    ours = average_of(cells).mean
    points = ours - published.mean
    # The means of Table 3 were rounded once more.
    error = math.hypot(math.hypot(*(one.standard_error for one in members)) / len(members), ROUNDING_ERROR)
    return (
        Cell(percent(ours)),
        printed,
        Cell(fixed(100 * points, 1, is_signed=True)),
        Cell(percent(error)),
        Cell(fixed(points / error, 1, is_signed=True)),
        _verdict_cell(points / error),
    )


def _difference_cells(one: Comparison) -> tuple[Cell, Cell, Cell]:
    return (
        Cell(fixed(100 * one.difference, 1, is_signed=True)),
        Cell(percent(one.standard_error)),
        Cell(fixed(one.z, 1, is_signed=True)),
    )


def _verdict_cell(z: float) -> Cell:
    if math.isnan(z):
        return Cell()
    return Cell("yes" if abs(z) <= LIMIT else "no")
