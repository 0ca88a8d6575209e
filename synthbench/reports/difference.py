"""Our table against the published one: what was reproduced, cell by cell."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from synthbench.reports.against.published import (
    NUM_SEEDS,
    NUM_SEQUENCES,
    ROUNDING,
    PublishedCell,
    published_arguments,
    published_name,
    table3,
    table8,
)
from synthbench.reports.cells import Cells, Estimate, MechanismFacts, arguments_in
from synthbench.reports.table import NOTHING, Cell, Column, Table, fixed, mean_cell, percent, table_of

LIMIT = 3.0
"""Combined standard errors beyond which two cells differ."""

UNINFORMATIVE = 0.05
"""A published skill this close to 0 or 1 may be that of every mechanism."""

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
    """Its label in our tables."""
    mechanism_published: str
    ours: Estimate | None
    """None if our rows lack the cell or have the task at several sizes."""
    published_mean: float
    published_std: float
    """Population standard deviation over the published seeds, as printed."""
    floor: float
    """Of the task; NaN without our cell, as is its ceiling."""
    ceiling: float

    @property
    def difference(self) -> float:
        """Our mean − the published one; NaN without ours."""
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
        """Whether the difference is at most three combined standard errors; False if not judged."""
        return abs(self.z) <= LIMIT


@dataclass(frozen=True)
class Difference:
    """All published cells beside ours."""

    comparisons: tuple[Comparison, ...]
    """In the published order, without cells that were published without a number."""
    unpublished: tuple[str, ...]
    """Tasks that the published table names without any number."""

    @property
    def outside(self) -> tuple[Comparison, ...]:
        """The judged cells that differ by more than three combined standard errors."""
        return tuple(comparison for comparison in self.comparisons if comparison.is_judged and not comparison.is_within)

    @property
    def rms_z(self) -> float:
        """Root mean square of z over the judged cells; NaN without any."""
        judged = [comparison.z for comparison in self.comparisons if comparison.is_judged]
        return float(np.sqrt(np.mean(np.square(judged)))) if judged else math.nan

    def expected_rms_z(self) -> tuple[float, float, float]:
        """The root mean square of z if all published cells come from our distributions: mean and 95 % range.

        It is less than 1 because the standard error of a published mean is never taken to be smaller than ours
        predicts. Both sides are drawn from a normal distribution with our mean and spread; the published side also has
        the noise of its test sets and is rounded.
        """
        rng = np.random.Generator(np.random.Philox(0))
        squares = [
            np.square(_drawn_z(comparison.ours, rng))
            for comparison in self.comparisons
            if comparison.is_judged and comparison.ours
        ]
        rms = np.sqrt(np.mean(squares, axis=0))
        low, high = np.quantile(rms, [0.025, 0.975])
        return float(rms.mean()), float(low), float(high)

    def summary(self) -> str:
        """The outcome in words, every count computed."""
        judged = [comparison for comparison in self.comparisons if comparison.is_judged]
        ours = [comparison.ours for comparison in self.comparisons if comparison.ours]
        num_within = sum(comparison.is_within for comparison in judged)
        num_missing = len(self.comparisons) - len(ours)
        num_single = len(ours) - len(judged)
        sentence = f"{num_within} of {len(self.comparisons)} published cells within 3 combined standard errors"
        sentence += f"; {len(self.outside)} outside."
        # The skill by which each informative cell could differ and stay within the limit.
        reach = [
            LIMIT * comparison.standard_error / (comparison.ceiling - comparison.floor)
            for comparison in judged
            if comparison.is_informative
        ]
        if reach:
            sentence += (
                f" {len(reach)} of them are informative, with a published skill from {UNINFORMATIVE:g} to "
                f"{1 - UNINFORMATIVE:g}; in half of these, a difference in skill of {np.median(reach):.2f} would go "
                "unnoticed."
            )
        in_paper = {cell.mechanism for cell in table3()}
        num_in_paper = sum(comparison.mechanism_published in in_paper for comparison in self.comparisons)
        sentence += (
            f" {num_in_paper} of the cells are in the paper, {len(self.comparisons) - num_in_paper} in its authors' "
            "repository."
        )
        if judged:
            mean, low, high = self.expected_rms_z()
            sentence += f" rms z = {self.rms_z:.2f}; an exact reproduction has {mean:.2f} ({low:.2f} to {high:.2f})."
        if num_missing:
            sentence += f" Not compared, since we do not have exactly one cell with a score: {num_missing}."
        if num_single:
            sentence += f" Not judged, fewer than two seeds: {num_single}."
        if unknown := sum(math.isnan(estimate.evaluation_std) for estimate in ours):
            sentence += f" Judged without evaluation noise, which our rows lack: {unknown}."
        if self.unpublished:
            sentence += f" Published without a number, left out: {', '.join(self.unpublished)}."
        return sentence


def published_error(ours: Estimate, published_std: float) -> float:
    """Standard error of a published mean.

    The published standard deviation comes from three seeds, so it is itself uncertain by about a half, and it is 0.00
    by luck if three seeds agree. It is therefore not allowed to be smaller than what our seeds predict for the
    published protocol: our spread between seeds, over three seeds, plus the noise of scoring each on only 64 sequences.
    (Our spread includes the noise of our larger test set, so the prediction is slightly too large.) The larger of the
    two is taken, plus the variance 0.01² / 12 of rounding to two decimals.

    Args:
        ours: Our cell. If its evaluation noise is unknown, that term is left out.
        published_std: Population standard deviation over three seeds as printed; its square times 3/2 is the sample
            variance.

    Returns:
        NaN below two seeds of ours.
    """
    if ours.n < 2:
        return math.nan
    sample_variance = published_std**2 * NUM_SEEDS / (NUM_SEEDS - 1)
    evaluation_std = 0.0 if math.isnan(ours.evaluation_std) else ours.evaluation_std
    predicted = ours.std**2 / NUM_SEEDS + evaluation_std**2 / (NUM_SEEDS * NUM_SEQUENCES)
    return math.hypot(math.sqrt(max(sample_variance / NUM_SEEDS, predicted)), ROUNDING_ERROR)


def difference(cells: Cells) -> Difference:
    """Put every published cell beside ours."""
    labels = {cell.mechanism: ours.label for cell in table8() for ours in _named(cells, cell.mechanism)}
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
    published = {comparison.task for comparison in comparisons}
    unpublished = dict.fromkeys(cell.task for cell in table8() if cell.task not in published)
    return Difference(tuple(comparisons), tuple(unpublished))


def difference_tables(result: Difference, causes: Mapping[tuple[str, str], str]) -> list[Table]:
    """The cells outside, a table of all cells for each category, and the averages of the categories.

    Args:
        result: All published cells beside ours.
        causes: Why a cell differs, by task and published name of the mechanism; default: ``not explained``.
    """
    outside = table_of(
        "difference-outside",
        "Cells outside",
        "Published cells that differ from ours by more than 3 combined standard errors (SE). Difference (ours − "
        "published) and SE in percentage points.",
        ("Task", "Mechanism"),
        result.outside,
        lambda one: (one.task, one.mechanism),
        {
            **_DIFFERENCE,
            Column("Cause", "text"): lambda one: causes.get((one.task, one.mechanism_published), UNEXPLAINED),
        },
        sources=(PAPER,),
    )
    of_categories = [
        table_of(
            f"difference-{category}",
            f"{category.replace('_', ' ').capitalize()} tasks",
            "Accuracy in per cent: ours as mean ± sample standard deviation over n seeds, published as printed (mean ± "
            f"population standard deviation over {NUM_SEEDS} seeds, {NUM_SEQUENCES} test sequences each). Difference "
            "(ours − published) and combined standard error (SE) in percentage points.",
            ("Task", "Mechanism"),
            [comparison for comparison in result.comparisons if comparison.category == category],
            lambda one: (one.task, one.mechanism),
            {
                "Ours": lambda one: mean_cell(one.ours, one.ours.n) if one.ours else Cell(),
                "n": lambda one: str(one.ours.n) if one.ours else NOTHING,
                "Published": lambda one: Cell(f"{100 * one.published_mean:.0f}", f"{100 * one.published_std:.0f}"),
                **_DIFFERENCE,
                **_WITHIN,
            },
            sources=(PAPER,),
            is_grouped=True,
        )
        for category in dict.fromkeys(comparison.category for comparison in result.comparisons)
    ]
    averages = table_of(
        "difference-averages",
        "Averages of the categories",
        "Mean over the category's published tasks in per cent, ours and as printed; difference and combined "
        "standard error (SE) in percentage points. There is no average of ours if our rows lack a published task.",
        ("Category", "Mechanism"),
        _averages(result),
        lambda one: (one.category, one.mechanism),
        {
            "Ours": lambda one: percent(one.ours),
            "Published": lambda one: f"{100 * one.published:.0f}",
            **_DIFFERENCE,
            **_WITHIN,
        },
        sources=(PAPER,),
        is_grouped=True,
    )
    return [*[outside] * bool(result.outside), *of_categories, averages]


_DIFFERENCE: Mapping[Column | str, Callable[[Any], str]] = {
    "Difference": lambda one: fixed(100 * one.difference, 1, is_signed=True),
    "SE": lambda one: percent(one.standard_error),
    "z": lambda one: fixed(one.z, 1, is_signed=True),
}
"""A difference and its standard error, in points, and their ratio."""
_WITHIN: Mapping[Column | str, Callable[[Any], str]] = {
    Column("Within 3 SE", "word"): lambda one: NOTHING if math.isnan(one.z) else "yes" if abs(one.z) <= LIMIT else "no"
}


def _ours(cells: Cells, published: PublishedCell) -> tuple[Estimate | None, float, float]:
    """Our cell of the published task and mechanism, floor and ceiling; None unless exactly one has a score."""
    candidates = [
        (cells.cell(task, mechanism), task.floor, task.ceiling)
        for mechanism in _named(cells, published.mechanism)
        for task in cells.tasks
        if task.name == published.task
    ]
    return candidates[0] if len(candidates) == 1 and candidates[0][0].n else (None, math.nan, math.nan)


def _drawn_z(ours: Estimate, rng: np.random.Generator) -> Float[np.ndarray, " draws"]:
    """Many draws of the z value of a published cell that comes from our distribution."""
    evaluation_std = 0.0 if math.isnan(ours.evaluation_std) else ours.evaluation_std
    mine = ours.mean + ours.std * rng.standard_normal((NUM_DRAWS, ours.n))
    of_tests = evaluation_std / math.sqrt(NUM_SEQUENCES) * rng.standard_normal((NUM_DRAWS, NUM_SEEDS))
    theirs = ours.mean + ours.std * rng.standard_normal((NUM_DRAWS, NUM_SEEDS)) + of_tests
    mean, std = (ROUNDING * np.round(moment / ROUNDING) for moment in (theirs.mean(axis=1), theirs.std(axis=1)))
    my_variance = mine.var(axis=1, ddof=1)
    predicted = my_variance / NUM_SEEDS + evaluation_std**2 / (NUM_SEEDS * NUM_SEQUENCES)
    squared_error = my_variance / ours.n + np.maximum(std**2 / (NUM_SEEDS - 1), predicted) + ROUNDING_ERROR**2
    z: Float[np.ndarray, " draws"] = (mine.mean(axis=1) - mean) / np.sqrt(squared_error)
    return z


def _named(cells: Cells, published: str) -> list[MechanismFacts]:
    """Our mechanisms of a published name; of several settings, those of the published protocol."""
    named = [mechanism for mechanism in cells.mechanisms if published_name(mechanism.name) == published]
    if len(named) < 2:
        return named
    wanted = published_arguments()[published].items()
    return [one for one in named if one.match is None and wanted <= arguments_in(one.arguments).items()]


class _Average(NamedTuple):
    """Our average over the published tasks of a category, beside the published one."""

    category: str
    mechanism: str
    ours: float
    """NaN if our rows lack a task, as is its error."""
    published: float
    standard_error: float

    @property
    def difference(self) -> float:
        """Ours − the published one."""
        return self.ours - self.published

    @property
    def z(self) -> float:
        """The difference in combined standard errors."""
        return self.difference / self.standard_error


def _averages(result: Difference) -> list[_Average]:
    averages = []
    for published in table3():
        comparisons = [
            comparison
            for comparison in result.comparisons
            if (comparison.category, comparison.mechanism_published) == (published.category, published.mechanism)
        ]
        means = [comparison.ours.mean if comparison.ours else math.nan for comparison in comparisons]
        errors = [comparison.standard_error for comparison in comparisons]
        # The means of Table 3 were rounded once more.
        error = math.hypot(math.hypot(*errors) / len(errors), ROUNDING_ERROR)
        mechanism = comparisons[0].mechanism
        averages.append(_Average(published.category, mechanism, float(np.mean(means)), published.mean, error))
    return averages
