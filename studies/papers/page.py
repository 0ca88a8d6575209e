"""Write the tables of the studies in this folder: experiments of the source papers, with one change at a time.

``python -m studies.papers.page`` writes the results of every page from the packaged rows; ``--check`` compares them.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from studies.pages import filled, main, store
from synthbench.options import parse_term
from synthbench.reports.aggregates import Interval, over_seeds, p_over_seeds
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.statistics import SIGNIFICANCE, holm
from synthbench.reports.table import p_text
from synthbench.runner.plan import make_cells
from synthbench.suites import Suite, load_suite

HERE = Path(__file__).parent
MARKERS = "<!-- results -->", "<!-- end of results -->"
SEEDS = (42, 43, 44)
COLUMNS = ["run_id", "skill", "status", "wall_s", "ensemble_size"]
DEFAULT, RATES = "default", "its rates alone"


class Arm(NamedTuple):
    """A protocol and a mechanism with its options."""

    suite: Suite
    term: str


class Comparison(NamedTuple):
    """Arms (protocols with a mechanism) on some tasks, and the differences between arms to report."""

    title: str
    tasks: tuple[str, ...]
    arms: Mapping[str, Arm]
    shown: tuple[str, ...]
    """Arms whose skills are printed."""
    differences: Mapping[str, tuple[str, str]]
    """Differences by name: the first arm minus the second."""


def scheduled(schedule: str, steps: int) -> Suite:
    """Suite curriculum with another schedule and number of steps."""
    suite = load_suite("curriculum")
    changes = {"schedule": schedule, "steps": steps}
    return suite.model_copy(update={"training": suite.training.model_copy(update=changes)})


def of_curriculum(mechanism: str, steps: int) -> Comparison:
    """Compare three schedules of the learning rate for a mechanism."""
    schedules = {
        "constant rate": "constant",
        "curriculum": "geometric-curriculum",
        RATES: "curriculum-rates",
    }
    arms = {name: Arm(scheduled(schedule, steps), mechanism) for name, schedule in schedules.items()}
    pairs = [("curriculum", "constant rate"), (RATES, "constant rate"), ("curriculum", RATES)]
    return Comparison(
        f"{mechanism}, {steps:,} steps",
        tuple(load_suite("curriculum").tasks),
        arms,
        tuple(arms),
        {f"{first} − {second}": (first, second) for first, second in pairs},
    )


def of_options(mechanism: str, options: Sequence[str], tasks: Sequence[str]) -> Comparison:
    """Compare each option alone with the setting of suite ``paper``."""
    paper = load_suite("paper")
    arms = {DEFAULT: Arm(paper, mechanism)} | {option: Arm(paper, f"{mechanism}:{option}") for option in options}
    return Comparison(mechanism, tuple(tasks), arms, (DEFAULT,), {option: (option, DEFAULT) for option in options})


SLAY = (
    *("R=1", "R=4", "R=8", "D=4", "D=64", "P=8", "P=128", "epsilon=1e-3", "epsilon=0.1"),
    *("omega=orthogonal", "guard=add"),
)
REWA = ("m=0", "n=0", "p=0", "m=15", "n=15", "p=15", "tau=0.1", "tau=10")
PAGES = {
    "curriculum": [
        *(of_curriculum(mechanism, 200) for mechanism in load_suite("curriculum").mechanisms),
        of_curriculum("rewa-geometric", 2000),
    ],
    "slay_options": [of_options("slay", SLAY, ("sort", "reverse", "counting", "addition", "majority"))],
    "rewa_options": [
        of_options("rewa-geometric", REWA, ("reverse", "sort", "addition")),
        of_options("rewa-lsh", ("K=8", "L=1", "L=32"), ("reverse", "sort", "addition")),
    ],
}


def run_ids(arm: Arm, tasks: Sequence[str]) -> list[list[str]]:
    """Return the ids of an arm's runs, one list per task."""
    name, options = parse_term(arm.term)
    cells = make_cells(arm.suite, {task: {} for task in tasks}, {name: options}, device_type="cpu", is_full=True)
    return [[run.run_id for run in cell.runs(SEEDS)] for cell in cells]


def results(comparison: Comparison, rows: pd.DataFrame) -> Iterator[str]:
    """Yield the tables of a comparison and a summary; ``rows`` has the run id as index."""
    ids = {name: np.array(run_ids(arm, comparison.tasks)) for name, arm in comparison.arms.items()}
    every = np.unique(np.concatenate([of_arm.ravel() for of_arm in ids.values()]))
    known = rows[rows.index.isin(every)]
    minutes = float((known["wall_s"] / known["ensemble_size"]).sum()) / 60
    reached = known["skill"].clip(0, 1).where(known["status"] == "ok", 0.0)  # as in reports, a failure counts as 0
    skills = {
        name: reached.reindex(of_arm.ravel()).to_numpy(dtype=float).reshape(of_arm.shape)
        for name, of_arm in ids.items()
    }
    differences = {name: skills[one] - skills[other] for name, (one, other) in comparison.differences.items()}
    p = holm(np.array([_p(values) for values in differences.values()]))
    yield f"### {comparison.title}"
    yield f"{len(known)} of {len(every)} runs, {minutes:.0f} minutes on one core."
    yield from _verdicts(differences, p)
    yield plain_table(
        [_line(name, skills[name], low=0.0) for name in comparison.shown], ["skill", *comparison.tasks, "mean"]
    )
    yield plain_table(
        [
            [*_line(name, values, low=-1.0), p_text(one)]
            for (name, values), one in zip(differences.items(), p.tolist(), strict=True)
        ],
        ["difference of skills", *comparison.tasks, "mean", "p"],
    )


def _verdicts(differences: Mapping[str, np.ndarray], p: np.ndarray) -> Iterator[str]:
    """Group the differences by the test of their mean: shown to differ, not shown to differ, or rows missing."""
    shown = {"Shown to differ": p < SIGNIFICANCE, "Not shown to differ": p >= SIGNIFICANCE, "Rows missing": np.isnan(p)}
    for words, are in shown.items():
        if are.any():
            of_kind = [name for name, is_so in zip(differences, are, strict=True) if is_so]
            yield f"{words}: {'; '.join(f'{name} ({_text(_mean(differences[name]), sign=True)})' for name in of_kind)}."


def _line(name: str, values: np.ndarray, *, low: float) -> list[str]:
    of_tasks = [_mean(of_task[None], low=low) for of_task in values]
    return [name, *(_text(one, sign=low < 0) for one in (*of_tasks, _mean(values, low=low)))]


def _mean(values: np.ndarray, *, low: float = -1.0) -> Interval:
    """Compute the mean over tasks with its interval over seeds; NaN if a task has no run."""
    if np.isnan(values).all(axis=1).any():
        return Interval(math.nan, math.nan, math.nan)
    return over_seeds(values[None], np.full(len(values), 1 / len(values)), low=low)[0]


def _p(values: np.ndarray) -> float:
    """Compute the p value of a mean over tasks, from the seeds that all tasks have."""
    common = values[:, ~np.isnan(values).any(axis=0)]
    return p_over_seeds(common, np.full(len(values), 1 / len(values)))


def _text(mean: Interval, *, sign: bool) -> str:
    if math.isnan(mean.value):
        return "--"
    value, low, high = (f"{round(number, 2) + 0.0:{'+' if sign else ''}.2f}" for number in mean)  # no -0.00
    return value if math.isnan(mean.low) else f"{value}, {low} to {high}"


def files() -> dict[Path, str]:
    """Return the text of every page."""
    rows, found = store().columns(COLUMNS).to_pandas().set_index("run_id"), {}
    for name, comparisons in PAGES.items():
        page = HERE / name / "README.md"
        found[page] = filled(page, (part for one in comparisons for part in results(one, rows)), MARKERS)
    return found


if __name__ == "__main__":
    sys.exit(main(files()))
