"""Answer questions on which papers differ, from rows of ``climb``: ``python -m studies.disputes.page``.

Every number comes from the rows in ``results``, or from the code of a mechanism.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from studies.climb import page as climb
from studies.pages import each, store, write
from synthbench.mechanisms import MECHANISMS
from synthbench.options import MAIN_SUITE
from synthbench.registry import CONTROL
from synthbench.reports.aggregates import Interval, balanced, over_runs, over_seeds
from synthbench.reports.cells import Cells, grid
from synthbench.reports.ladder import LEAST
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import select
from synthbench.reports.table import counted, fixed, in_words
from synthbench.reports.variants import Variant, changes_of, of_sizes, variants_of
from synthbench.training.ladder_scores import rescored

STATES = Path(__file__).with_name("states.csv")
SUITE = climb.SUITE
SOFTMAX = "softmax"


class Rates(NamedTuple):
    """Loss of skill if one mechanism has a single learning rate for all tasks."""

    mechanism: str
    best: float
    """The rate with the higher mean skill."""
    lost: Interval
    """Mean skill if validation chooses the rate of each run, minus mean skill at the best single rate."""
    lost_otherwise: Interval
    """Mean skill if validation chooses the rate of each run, minus mean skill at the worse single rate."""
    num_low: int
    """Number of tasks on which the lower rate is better by half a level or more, on average over seeds."""
    num_high: int
    """Number of tasks on which the higher rate is better by half a level or more, on average over seeds."""


def page() -> Iterator[str]:
    """Yield the paragraphs of the page, except those without rows."""
    rows = store().runs()
    yield "# Disputes between papers"
    yield (
        "Papers differ on these questions. The answers come from rows of `climb`, one protocol for all mechanisms, "
        "with 95 % CIs over seeds, or from the code."
    )
    yield from _convolution(rows)
    yield from _sizes(rows)
    yield from _states()
    yield from _rates(rows)


def _variants(rows: pd.DataFrame) -> list[Variant]:
    selection = select(rows, SUITE.name, SUITE.version).without_variants()
    if selection.variants.empty:
        return []
    return variants_of(grid(selection.rows), grid(selection.variants))


def _convolution(rows: pd.DataFrame) -> Iterator[str]:
    changes = changes_of(_variants(rows))
    with_conv = [change for change in changes if "conv=" in change.words[1] and "conv=" not in change.words[0]]
    if not with_conv:
        return
    names = list(dict.fromkeys(mechanism.name for change in with_conv for mechanism in change.mechanisms))
    num_seeds = max(change.num_seeds for change in with_conv)
    yield "## Does a short convolution decide recall?"
    yield (
        "Many recurrent layers contain a causal convolution over three or four tokens; softmax attention, their "
        f"baseline, has none. Here `--conv 4` adds the same convolution to {len(names)} mechanisms "
        f"({', '.join(names)}), with {counted(num_seeds, 'seed')}; `mamba2` has one of its own in both:"
    )
    yield "\n".join(f"- {change.sentence}" for change in with_conv)
    for change in with_conv:
        if change.category == "recall":
            gains = change.means[1] - change.means[0]
            first, second = np.argsort(-gains)[:2]
            yield (
                f"On recall the median over mechanisms is {fixed(float(np.median(gains)), 2, is_signed=True)}. "
                f"{100 * gains[[first, second]].sum() / gains.sum():.0f} % of the sum comes from "
                f"{change.mechanisms[first].name} and {change.mechanisms[second].name}."
            )
    yield (
        "[The report](../../reports/core/README.md#what-one-factor-changes) has all factors."
        + " One seed has no interval." * (num_seeds == 1)
    )


def _sizes(rows: pd.DataFrame) -> Iterator[str]:
    found = [sizes for sizes in _all_sizes(rows) if len(sizes.states) > 2]
    if not found:
        return
    categories = list(found[0].skills)
    num_tasks, num_seeds = found[0].num_tasks, found[0].num_seeds
    yield "## Does the size of the state decide recall?"
    yield (
        f"{len(found)} mechanisms at three or more sizes of their state, on {num_tasks} tasks with "
        f"{counted(num_seeds, 'seed')}. Where no option sets the size, the model's width does (`--match state=2304`). "
        "Mean skill from the smallest state to the largest, and the gain per doubling of "
        "the state, by least squares over the logarithm:"
    )
    lines = [
        [
            sizes.mechanism,
            ", ".join(f"{state:,.0f}" for state in sizes.states),
            *(
                f"{', '.join(fixed(skill, 2) for skill in skills)} ({fixed(sizes.slope(category), 3, is_signed=True)})"
                for category, skills in sizes.skills.items()
            ),
        ]
        for sizes in found
    ]
    headings = ["mechanism", "state", *(category.replace("_", " ") for category in categories)]
    yield plain_table(lines, headings)
    if len(found) > 1:
        yield (
            "On average a doubling adds, with a 95 % t interval over mechanisms, "
            + "; ".join(
                f"{in_words(over_runs([sizes.slope(category) for sizes in found]), 3, is_signed=True)} to "
                f"{category.replace('_', ' ')}"
                for category in categories
            )
            + "."
        )
    yield from _widened(rows, [sizes.mechanism for sizes in found], categories)


def _widened(rows: pd.DataFrame, names: Sequence[str], categories: Sequence[str]) -> Iterator[str]:
    """Say for which mechanisms a match changed the model's width, and how softmax scores at these widths."""
    model = SUITE.model
    alike = rows[(rows["block"] == model.block) & (rows["positions"] == model.positions)]
    is_sized = alike["match"].fillna("").str.startswith("state=")
    of_suite = alike[(alike["suite"] == SUITE.name) & (is_sized | alike["match"].isna())]
    of_other_width = set(of_suite.loc[of_suite["d_model"] != model.model_dim, "mech"])
    widened = [name for name in names if name in of_other_width]
    if not widened:
        return
    text = f"For {len(widened)} of the {len(names)} ({', '.join(widened)}) the width of the whole model changed."
    of_control = alike[(alike["suite"] == MAIN_SUITE) & is_sized & (alike["mech"] == SOFTMAX)]
    if of_control.empty:
        yield text
        return
    seeds = set(of_control["seed"])
    # The rows of the two suites have other baselines, and some tasks other levels.
    compared = pd.concat(
        [
            select(rescored(of_control), MAIN_SUITE).rows,
            select(rescored(of_suite[of_suite["mech"].isin([SOFTMAX, *widened])]), SUITE.name, seeds=seeds).rows,
        ]
    ).fillna({"score": 0.0})
    scores = compared.pivot_table("score", ["task", "task_args"], ["mech", "d_model"])
    scores = scores.dropna(subset=[column for column in scores.columns if column[0] == SOFTMAX])
    of_task = of_suite.drop_duplicates("task").set_index("task")["task_category"].to_dict()
    by_category = scores.groupby(scores.index.get_level_values("task").map(of_task))
    means, num_tasks = by_category.mean(), by_category.size().to_dict()
    control, others = (means[names].T.groupby("d_model").mean() for names in ([SOFTMAX], widened))

    def listed(at_widths: pd.DataFrame, category: str) -> str:
        return ", ".join(fixed(score, 2) for score in at_widths[category].tolist())

    found = [
        f"{listed(control, category)} on {counted(num_tasks[category], f'{category} task')} "
        f"(these {len(widened)} on average {listed(others, category)})".replace("_", " ")
        for category in categories
        if category in num_tasks
    ]
    missing = [category.replace("_", " ") for category in categories if category not in num_tasks]
    yield (
        f"{text} `{SOFTMAX}`, which keeps every token at any width, is the control. At widths "
        f"{', '.join(map(str, control.index))}, counted from the committed baselines, it scores {'; '.join(found)}."
        + f" It has no such rows of {', '.join(missing)}."
        * bool(missing)
    )


class _Sizes(NamedTuple):
    """A mechanism at several sizes of its state, the smallest first."""

    mechanism: str
    states: list[float]
    skills: dict[str, list[float]]
    """Mean skill at each size, by category."""
    num_tasks: int
    num_seeds: int

    def slope(self, category: str) -> float:
        """Gain in skill for each doubling of the state."""
        return float(np.polyfit(np.log2(self.states), self.skills[category], 1)[0])


def _all_sizes(rows: pd.DataFrame) -> Iterator[_Sizes]:
    """Yield mechanisms at several sizes of their state, on the tasks and seeds that most variants have."""
    by_main: dict[str, list[Variant]] = {}
    for variant in of_sizes(_variants(rows)):
        by_main.setdefault(variant.main.name, []).append(variant)
    for name, variants in by_main.items():
        tasks, seeds = variants[0].tasks, variants[0].seeds
        of_category = np.array([task.category for task in tasks])
        points = {variants[0].main.state: variants[0].skills[0]} | {
            variant.variant.state: variant.skills[1] for variant in variants
        }
        ordered = sorted(points)
        skills = {
            category: [float(points[state][of_category == category].mean()) for state in ordered]
            for category in dict.fromkeys(of_category)
        }
        yield _Sizes(name, ordered, skills, len(tasks), len(seeds))


def _states() -> Iterator[str]:
    yield "## Which published state sizes are wrong?"
    yield (
        "Recall is often drawn over the size of the state, from a formula. Beside each formula stands the state that "
        "the mechanism here keeps between two tokens in a layer of that shape; `check` measures that the count is not "
        "too small."
    )
    lines = []
    for one in each(pd.read_csv(STATES)):
        options: dict[str, Any] = {} if math.isnan(one.N) else {"N": int(one.N)}
        mechanism = MECHANISMS[one.mechanism](
            model_dim=one.model_dim, num_heads=one.num_heads, **options, max_length=1024
        )
        kept = mechanism.state_elements(1024)
        counts = one.elements, kept, f"{one.elements / kept:.2g} ×"
        lines.append([one.mechanism, one.model_dim, one.num_heads, one.formula, *counts, one.why])
    headings = ["mechanism", "width", "heads", "published formula", "published", "kept", "ratio", "because"]
    yield plain_table(lines, headings)
    yield (
        "The formulas are `state_size` in the files of `zoology/mixers` (github.com/HazyResearch/zoology, 2025). Issue "
        "34 there reports the first, which two later commits corrected. Key and value are the widths of a head, here "
        "equal."
    )


def _rates(rows: pd.DataFrame) -> Iterator[str]:
    found = sorted(_all_rates(rows), key=lambda one: one.lost.value, reverse=True)
    if not found:
        return
    low, high = SUITE.training.learning_rates or (0.0, 0.0)
    yield "## How narrow are the windows of learning rates?"
    yield (
        f"Every run of `climb` is trained at {low:g} and {high:g}, and validation chooses one. A mechanism whose good "
        "rates differ from task to task loses if one rate is taken for all. The table has the lost skill, and on how "
        f"many of the {len(SUITE.tasks)} tasks one rate is better by {LEAST:g} levels or more:"
    )
    lines = [
        [one.mechanism, f"{one.best:g}", in_words(one.lost, 3), in_words(one.lost_otherwise, 3), *one[-2:]]
        for one in found
    ]
    headings = ["mechanism", "best rate", "lost with it", "lost with the other", f"{low:g} better", f"{high:g} better"]
    yield plain_table(lines, headings)
    by_best = ", ".join(f"{sum(one.best == rate for one in found)} at {rate:g}" for rate in (low, high))
    worst = max(found, key=lambda one: one.lost_otherwise.value)
    yield (
        f"The best single rate differs: {by_best}. With the other rate, up to {in_words(worst.lost_otherwise, 3)} of "
        f"mean skill is lost ({worst.mechanism}); with the best, up to {in_words(found[0].lost, 3)} "
        f"({found[0].mechanism}). So the protocol has both."
    )


def _all_rates(rows: pd.DataFrame) -> Iterator[Rates]:
    rates = SUITE.training.learning_rates or ()
    if len(rates) != 2:
        return
    of_suite = rows[(rows["suite"] == SUITE.name) & rows["task"].isin(SUITE.tasks) & (rows["mech_family"] != CONTROL)]
    # The protocol of a row includes neither its rate nor what the others did, so each rate can be selected alone.
    parts = [of_suite, *(of_suite[of_suite["lr"] == rate] for rate in rates)]
    chosen, *single = (_complete(part) for part in parts)
    for name in sorted(set(chosen).intersection(*single)):
        skills = [chosen[name].skills, *(part[name].skills for part in single)]
        tasks = chosen[name].cells.tasks
        weights = balanced([task.category for task in tasks])
        lost = [over_seeds((skills[0] - at_rate)[None], weights, low=-1.0)[0] for at_rate in skills[1:]]
        margins = np.array([task.ladder.margin if task.ladder else np.inf for task in tasks])
        lead = (skills[1] - skills[2]).mean(axis=1)
        order = int(lost[1].value < lost[0].value)
        num_better = (int((sign * lead >= margins).sum()) for sign in (1, -1))
        yield Rates(name, rates[order], lost[order], lost[1 - order], *num_better)


class _Runs(NamedTuple):
    cells: Cells
    skills: Float[np.ndarray, "tasks seeds"]


def _complete(rows: pd.DataFrame) -> dict[str, _Runs]:
    """Return the skills of the mechanisms that have all tasks and seeds of the suite, by name; a failed run has 0."""
    of = grid(select(rows, SUITE.name, SUITE.version, seeds=SUITE.seeds).without_variants().rows)
    found = {}
    for place, mechanism in enumerate(of.mechanisms):
        has_all = all(of.cell(task, mechanism).runs.keys() >= set(SUITE.seeds) for task in of.tasks)
        if has_all and len(of.tasks) == len(SUITE.tasks):
            found[mechanism.name] = _Runs(of, np.nan_to_num(of.scores[:, place]))
    return found


if __name__ == "__main__":
    write(__file__, page())
