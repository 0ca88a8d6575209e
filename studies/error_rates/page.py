"""Simulate how often the tests and intervals of a report are wrong: ``python -m studies.error_rates.page``.

Reports of simulated runs are made by the functions for real reports, and compared with the truth. The results are
written to ``reports.csv`` and ``README.md``, in some minutes on one core. ``--check`` makes the first report of each
row again, and compares it with the stored report.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import trim_mean
from tabulate import tabulate

from studies import pages
from synthbench.reports.aggregates import probability_of_improvement, ranks
from synthbench.reports.cells import NO_ROWS, Cells, CellStats, MechanismFacts, TaskFacts
from synthbench.reports.leaderboard import SOLVED, leaderboard
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE
from synthbench.reports.verdicts import judge

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
NUM_REPORTS = 100
NUM_SEEDS = (3, 5, 10)
NUM_CATEGORIES, TASKS_EACH, NUM_MECHANISMS = 4, 6, 6
NUM_TASKS = NUM_CATEGORIES * TASKS_EACH
NUM_TRUE = 4000
"""Number of simulated runs from which the true mean of a task and mechanism is computed."""

Levels = Float[np.ndarray, "tasks mechanisms"]
Runs = Float[np.ndarray, "tasks mechanisms seeds"]


class Case(NamedTuple):
    """A distribution of the scores of runs."""

    words: str
    draw: Callable[[np.random.Generator, Levels, int], Runs]
    """Draws scores of runs, given a level from 0.2 to 0.8 for each task and mechanism; a higher level means higher
    scores."""
    better: float = 0.6
    worse: float = 0.5
    """Levels of the better mechanism and of all others, on tasks with a true difference."""


def _normal(rng: np.random.Generator, levels: Levels, num_seeds: int) -> Runs:
    return levels[..., None] + 0.05 * rng.standard_normal((*levels.shape, num_seeds))


def _near_ceiling(rng: np.random.Generator, levels: Levels, num_seeds: int) -> Runs:
    return 1 - 2 * (1 - levels[..., None]) * rng.beta(0.8, 30, (*levels.shape, num_seeds))


def _learning(lowest: float, highest: float) -> Callable[[np.random.Generator, Levels, int], Runs]:
    """Simulate runs that score 0.98 or 0.3; the share at 0.98 grows with the level, from ``lowest`` to ``highest``."""

    def draw(rng: np.random.Generator, levels: Levels, num_seeds: int) -> Runs:
        share = lowest + (highest - lowest) * (levels[..., None] - 0.2) / 0.6
        shape = (*levels.shape, num_seeds)
        return np.where(rng.random(shape) < share, 0.98, 0.3) + 0.01 * rng.standard_normal(shape)

    return draw


def _unequal(rng: np.random.Generator, levels: Levels, num_seeds: int) -> Runs:
    spreads = np.where(np.arange(levels.shape[1]) == NOISY, 0.08, 0.02)
    return levels[..., None] + spreads[:, None] * rng.standard_normal((*levels.shape, num_seeds))


def _correlated(rng: np.random.Generator, levels: Levels, num_seeds: int) -> Runs:
    own = rng.standard_normal((*levels.shape, num_seeds))
    shared = rng.standard_normal((len(levels), 1, num_seeds))
    return levels[..., None] + 0.05 * math.sqrt(0.5) * (own + shared)


def _residual(rng: np.random.Generator, levels: Levels, num_seeds: int) -> Runs:
    """Draw runs that scatter like measured residuals; each mechanism has its own residuals on a task."""
    tasks = np.arange(len(levels)) * len(RESIDUALS) // len(levels)
    runs = rng.integers(RESIDUALS.shape[2], size=(*levels.shape, num_seeds))
    found: Runs = levels[..., None] + np.take_along_axis(RESIDUALS[tasks], runs, axis=2)
    return found


def _read_residuals() -> Runs:
    """Read residuals of runs from the mean of five runs, scaled by √(5/4) to make the variance unbiased."""
    numbers = np.loadtxt(FOLDER / "residuals.csv", delimiter=",", skiprows=1, usecols=(2, 3, 4, 5, 6))
    return numbers.reshape(-1, NUM_MECHANISMS, 5) * math.sqrt(5 / 4)


RESIDUALS = _read_residuals()
CASES: Mapping[str, Case] = {
    "normal": Case("standard deviation 0.05; 0.6 against 0.5", _normal),
    "near the ceiling": Case("skewed below 1; a mean of 0.99 against 0.90", _near_ceiling, 0.8, -1.0),
    "half learn": Case("0.98 or 0.3, half of the runs learn; 95 % against 5 %", _learning(0.05, 0.95), 0.8, 0.2),
    "8 of 10 learn": Case("0.98 or 0.3, 80 % of the runs learn; 100 % against 60 %", _learning(0.6, 1.0), 0.8, 0.2),
    "unequal spread": Case("one mechanism scatters four times as much as the others; 0.6 against 0.5", _unequal),
    "correlated seeds": Case("as normal; half of the variance is shared by all runs of a seed", _correlated),
    "residuals": Case("residuals of 47 tasks of a former suite; 0.6 against 0.5", _residual),
}

TESTS = ("null task", "null pair", "true task", "true pair")
INTERVALS = ("cell", "noisy cell", "category", "skill", "IQM", "solved", "rank", "improvement", "near 1")
NOISY = 1
"""Index of the mechanism that scatters more in the case of unequal spread; its cells are also counted separately."""
BETTER = 0.2
"""Distance of one mechanism above and of another below the rest, so that the first nearly always beats the second."""
NUM_RANKINGS = 20
"""Number of rankings that are simulated for each report."""


def measures(case: Case, num_seeds: int, index: int) -> dict[str, float]:
    """Compare one report with the truth: shares of errors and of truths found, coverages and widths."""
    rng = np.random.Generator(np.random.Philox(key=(num_seeds, index)))
    of_tests, of_these = _of_tests(case, num_seeds, rng), _of_these_tasks(case, num_seeds, rng)
    return of_tests | of_these | _of_tasks_like_these(case, num_seeds, rng)


def _of_tests(case: Case, num_seeds: int, rng: np.random.Generator) -> dict[str, float]:
    """Simulate tests: on every second task all mechanisms are equal, on the other tasks the first is better."""
    levels = np.full((NUM_TASKS, NUM_MECHANISMS), 0.5)
    is_null = np.arange(NUM_TASKS) % 2 == 0
    levels[~is_null, 0], levels[~is_null, 1:] = case.better, case.worse
    of = make_grid(np.clip(case.draw(rng, levels, num_seeds), 0, 1))
    verdicts = list(judge(of).values())
    first = of.mechanisms[0].key
    null = [one for one, is_one in zip(verdicts, is_null, strict=True) if is_one]
    true = [one for one, is_one in zip(verdicts, is_null, strict=True) if not is_one]
    return {
        "null task": _share(one.has_differences for one in null),
        "null pair": _share(any(first not in pair for pair in one.named) for one in true),
        "true task": _share(one.has_differences for one in true),
        "true pair": float(np.mean([sum(first in pair for pair in one.named) for one in true])) / (NUM_MECHANISMS - 1),
    }


def _of_these_tasks(case: Case, num_seeds: int, rng: np.random.Generator) -> dict[str, float]:
    """Measure the coverage of intervals that treat the tasks as fixed and the seeds as random."""
    levels = _levels(rng)
    of = make_grid(np.clip(case.draw(rng, levels, num_seeds), 0, 1))
    true = np.clip(case.draw(rng, levels, NUM_TRUE), 0, 1)
    means = true.mean(axis=2)
    board = leaderboard(of)
    by_mechanism = {entry.mechanism.key: entry for entry in board.entries}
    entries, noisy = [by_mechanism[mechanism.key] for mechanism in of.mechanisms], of.mechanisms[NOISY]
    ends = {
        "cell": [
            (*of.interval(task, mechanism), means[row, column])
            for row, task in enumerate(of.tasks)
            for column, mechanism in enumerate(of.mechanisms)
        ],
        "noisy cell": [(*of.interval(task, noisy), means[row, NOISY]) for row, task in enumerate(of.tasks)],
        "category": [
            (*part.skill_of(mechanism)[1:], means[[task.category == name for task in of.tasks], column].mean())
            for column, mechanism in enumerate(of.mechanisms)
            for name, part in board.parts.items()
        ],
        "skill": [(*entry.skill[1:], means[:, column].mean()) for column, entry in enumerate(entries)],
        "IQM": [
            (*entry.middle[1:], trim_mean(true[:, column], 0.25, axis=None)) for column, entry in enumerate(entries)
        ],
        "solved": [(*entry.solved[1:], (true[:, column] >= SOLVED).mean()) for column, entry in enumerate(entries)],
    }
    return {key: value for name, lines in ends.items() for key, value in _coverage(name, lines).items()}


def _of_tasks_like_these(case: Case, num_seeds: int, rng: np.random.Generator) -> dict[str, float]:
    """Measure the coverage of intervals that treat the tasks as a random sample; no mechanism is truly better.

    The intervals of ranks are right if each of them contains all ranks. A second simulation has a mechanism that is
    better on most tasks, so that its probability of improvement is near 1.
    """
    categories = [f"category {index // TASKS_EACH}" for index in range(NUM_TASKS)]
    is_right, chances, near_1 = [], [], []
    truth = _chance_of_better(case)
    for _ in range(NUM_RANKINGS):
        skills = np.moveaxis(np.clip(case.draw(rng, _levels(rng), num_seeds), 0, 1), 1, 0)
        is_right.append(all(one.low == 1 and one.high == NUM_MECHANISMS for one in ranks(skills, categories)))
        chances.append((*probability_of_improvement(skills[2], skills[3], categories)[1:], 0.5))
        better = np.moveaxis(np.clip(case.draw(rng, _levels(rng, BETTER), num_seeds), 0, 1), 1, 0)
        near_1.append((*probability_of_improvement(better[2], better[3], categories)[1:], truth))
    return {"rank covers": _share(is_right), **_coverage("improvement", chances), **_coverage("near 1", near_1)}


@cache
def _chance_of_better(case: Case) -> float:
    """Compute the true probability of improvement if the levels differ by ``2 * BETTER``, from very many tasks."""
    rng = np.random.Generator(np.random.Philox(0))
    tasks = [np.clip(case.draw(rng, _levels(rng, BETTER), 4), 0, 1) for _ in range(400)]
    better, other = np.concatenate([one[:, 2] for one in tasks]), np.concatenate([one[:, 3] for one in tasks])
    return probability_of_improvement(better, other, ["all"] * len(better)).value


def _levels(rng: np.random.Generator, better: float = 0.0) -> Levels:
    """Draw levels from one distribution; add ``better`` for the third mechanism and subtract it for the fourth."""
    levels = 0.5 + 0.15 * rng.standard_normal((NUM_TASKS, NUM_MECHANISMS))
    levels[:, 2] += better
    levels[:, 3] -= better
    return np.clip(levels, 0.2, 0.8)


def _coverage(name: str, lines: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    low, high, truth = np.array(lines).T
    covers = (low <= truth + TOLERANCE) & (truth <= high + TOLERANCE)
    return {f"{name} covers": float(covers.mean()), f"{name} width": float((high - low).mean())}


def make_grid(scores: Runs) -> Cells:
    """Make the cells of a report from simulated scores, with floor 0 and ceiling 1."""
    exact: dict[str, Any] = {"floor": 0.0, "floor_is_exact": True, "ceiling": 1.0, "ceiling_is_exact": True}
    others: dict[str, Any] = {"local_ceiling": math.nan, "shortcut": None, "source": ""}
    tasks = tuple(
        TaskFacts((index,), f"task {index}", f"task_{index}", f"category {index // TASKS_EACH}", **exact, **others)
        for index in range(len(scores))
    )
    mechanisms = tuple(
        MechanismFacts(
            (index,), f"mechanism {index}", f"m{index}", "1", "{}", None, "made up", "", "", math.nan, math.nan
        )
        for index in range(scores.shape[1])
    )
    cells = {
        (task.key, mechanism.key): _estimate(scores[row, column])
        for row, task in enumerate(tasks)
        for column, mechanism in enumerate(mechanisms)
    }
    return Cells(tasks, mechanisms, cells)


def _estimate(scores: Float[np.ndarray, " seeds"]) -> CellStats:
    return replace(NO_ROWS, scores=dict(enumerate(scores.tolist())), skill=float(scores.mean()))


def _share(found: Iterable[bool]) -> float:
    return float(np.mean(list(found)))


def simulate(num_reports: int, rows: Iterable[tuple[str, int]] | None = None) -> Iterator[dict[str, str]]:
    """Yield means over simulated reports, one row for each case and number of seeds, or only for those in ``rows``."""
    for name, num_seeds in product(CASES, NUM_SEEDS) if rows is None else rows:
        found = [measures(CASES[name], num_seeds, index) for index in range(num_reports)]
        means = {key: f"{np.mean([one[key] for one in found]):.4f}" for key in found[0]}
        yield {"case": name, "seeds": str(num_seeds), "reports": str(num_reports), **means}


def read() -> list[dict[str, str]]:
    """Read the stored rows."""
    rows = pd.read_csv(FOLDER / "reports.csv", dtype=str, keep_default_na=False)
    return [{str(name): str(value) for name, value in row.items()} for row in rows.to_dict("records")]


def tables(lines: list[dict[str, str]]) -> str:
    """Write both tables as Markdown."""
    whole = [line for line in lines if line["reports"] != "1"]
    of_tests = [[_case(line), line["seeds"], *(f"{float(line[name]):.2f}" for name in TESTS)] for line in whole]
    of_intervals = [[_case(line), line["seeds"], *(_coverage_cell(line, name) for name in INTERVALS)] for line in whole]
    cases = "".join(f"- *{name}*: {case.words}.\n" for name, case in CASES.items())
    exceptions = "; ".join(
        f"{line['case']}, {line['seeds']} seeds: {float(line['null task']):.2f}"
        for line in whole
        if float(line["null task"]) > SIGNIFICANCE
    )
    return (
        f"{cases}\n"
        + _table(["case", "seeds", *TESTS], of_tests)
        + f"\n\nMore than 5 % of null tasks are said to show differences in these cases: {exceptions}.\n\n"
        + _table(["case", "seeds", *INTERVALS], of_intervals)
    )


def _table(headings: list[str], lines: list[list[str]]) -> str:
    sides = ["left", *["right"] * (len(headings) - 1)]
    return tabulate(lines, headings, tablefmt="pipe", disable_numparse=True, colalign=sides)


def _coverage_cell(line: Mapping[str, str], name: str) -> str:
    covers = f"{float(line[f'{name} covers']):.2f}"
    return f"{covers} ({float(line[f'{name} width']):.2f})" if f"{name} width" in line else covers


def _case(line: Mapping[str, str]) -> str:
    return line["case"] if line["seeds"] == str(NUM_SEEDS[0]) else ""


def stale(rows: Iterable[tuple[str, int]] | None = None) -> list[str]:
    """List differences from the stored results in the first report of each row."""
    written = {(line["case"], line["seeds"]): line for line in read() if line["reports"] == "1"}
    found = []
    for line in simulate(1, rows):
        old = written.get((line["case"], line["seeds"]), {})
        found += [
            f"{line['case']}, {line['seeds']} seeds, {key}: {old.get(key)} was written, now it is {value}"
            for key, value in line.items()
            if key not in ("case", "seeds", "reports") and not abs(float(old.get(key, "nan")) - float(value)) <= 2e-4
        ]
    return found


def main() -> int:
    """Write the numbers, or compare them with the stored numbers."""
    found: list[str] = []
    if pages.asks_to_check():
        found = stale()
        sys.stdout.writelines(f"stale: {line}\n" for line in found)
    else:
        lines = [*simulate(1), *simulate(NUM_REPORTS)]
        pd.DataFrame(lines).to_csv(FOLDER / "reports.csv", index=False, lineterminator="\n")
    return pages.main({PAGE: pages.filled(PAGE, [tables(read())])}) or int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
