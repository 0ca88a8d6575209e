"""Compare mechanisms with fewer and with more layers: ``python -m studies.depth.page``, or ``--check``.

The page compares rows of suite ``climb`` with rows that have another number of layers. The command ``synthbench run
--suite studies/climb.toml --block transformer:layers=4`` makes rows with four layers.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from studies.climb import page as climb
from studies.pages import store, write
from synthbench.reports.aggregates import UNKNOWN, Interval, over_seeds
from synthbench.reports.cells import NO_ROWS, Cells, CellStats, MechanismFacts, TaskFacts, grid
from synthbench.reports.ladder import Ladder
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import select, settings
from synthbench.reports.table import NOTHING, counted, fixed

MODEL = climb.SUITE.model
BLOCKS = re.compile(rf"{re.escape(MODEL.block)}(?::layers=(\d+))?")
"""The suite's block, alone or with another number of layers."""
MORE, LESS = "softmax", "linear"
HOPS = "khop_induction"
"""The task that the published ratio is about."""
PUBLISHED = 4.0
"""Ratio of the reasoning depths of transformers and linear models, as announced by Allen-Zhu (2025)."""
LOWER, UPPER = "≥ ", "≤ "


class Comparison(NamedTuple):
    """Scores of mechanism ``MORE`` and of another mechanism on one task, with equally many layers."""

    other: str
    task: str
    layers: int
    ladder: Ladder
    scores: Mapping[int, tuple[float, float]]
    """Scores of both mechanisms in levels, by seed; a run without a score has 0."""

    @property
    def bound(self) -> str:
        """Sign ``≥`` or ``≤`` if a score at an end of the ladder makes the ratio a bound; ``NOTHING`` if both apply."""
        more, less = map(fmean, zip(*self.scores.values(), strict=True))
        bottom, top = climb.END, self.ladder.num_levels - climb.END
        bounds = LOWER * (more > top or less < bottom), UPPER * (less > top or more < bottom)
        return NOTHING if all(bounds) else "".join(bounds)


def depths_in(rows: pd.DataFrame) -> Cells:
    """Select the cells of ``climb`` that exist with at least two numbers of layers and are otherwise the same."""
    rows = select(rows, climb.SUITE.name, climb.SUITE.version).rows
    rows = rows[rows["block"].map(lambda block: BLOCKS.fullmatch(block) is not None)]
    alike = rows.groupby([rows["task"], rows["mech"], rows["positions"], settings(rows)])
    return grid(rows[alike["block"].transform("nunique") > 1])


def by_layers(cells: Cells) -> dict[str, dict[int, MechanismFacts]]:
    """Group the mechanisms by name, then by number of layers in ascending order."""
    found: dict[str, dict[int, MechanismFacts]] = {}
    for mechanism in cells.mechanisms:
        block = BLOCKS.fullmatch(mechanism.block)
        layers = int(block[1]) if block and block[1] else MODEL.num_layers
        found.setdefault(mechanism.name, {}).setdefault(layers, mechanism)
    return {name: dict(sorted(each.items())) for name, each in found.items()}


def comparisons(cells: Cells) -> list[Comparison]:
    """Compare ``MORE`` with every other mechanism, on the seeds that both have."""
    mechanisms = by_layers(cells)
    more = mechanisms.pop(MORE, {})
    found = []
    for other, less in mechanisms.items():
        for task in cells.tasks:
            for layers in more.keys() & less.keys():
                first, second = (cells.cell(task, each[layers]).runs for each in (more, less))
                if task.ladder is not None and (seeds := first.keys() & second.keys()):
                    top = task.ladder.num_levels
                    scores = {seed: (top * first[seed], top * second[seed]) for seed in seeds}
                    found.append(Comparison(other, task.name, layers, task.ladder, scores))
    return found


def log_loads(ladder: Ladder, scores: Float[np.ndarray, "*size"]) -> Float[np.ndarray, "*size"]:
    """Convert scores in levels to logarithms of loads: n stands for the load of level n, with linear interpolation.

    Below level 1, the logarithm has the same slope as between levels 1 and 2.
    """
    logs = np.log(ladder.loads)
    found: Float[np.ndarray, "*size"] = np.interp(
        scores, np.arange(len(logs) + 1), np.append(2 * logs[0] - logs[1], logs)
    )
    return found


def ratio(compared: Sequence[Comparison]) -> Interval:
    """Compute the geometric mean of the ratio of the loads of both mechanisms, with its interval over seeds.

    Only seeds that all comparisons have are used. The result is NaN without a seed. With one seed, the ends of the
    interval are NaN.
    """
    seeds = sorted(set.intersection(*(set(each.scores) for each in compared)))
    if not seeds:
        return UNKNOWN
    logs = np.array([log_loads(each.ladder, np.array([each.scores[seed] for seed in seeds])) for each in compared])
    # As parts of the longest ladder they lie between -1 and 1.
    longest = max(float(np.ptp(log_loads(each.ladder, np.array([0, each.ladder.num_levels])))) for each in compared)
    parts = (logs[..., 0] - logs[..., 1]) / longest
    (mean,) = over_seeds(parts[None], np.full(len(parts), 1 / len(parts)), low=-1.0)
    return Interval(*(math.exp(longest * part) for part in mean))


def paragraphs(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the paragraphs of the page; without rows there are none."""
    cells = depths_in(rows)
    if not cells.tasks:
        return
    mechanisms, compared = by_layers(cells), comparisons(cells)
    depths = sorted({layers for of_mechanism in mechanisms.values() for layers in of_mechanism})
    headings = [counted(layers, "layer") for layers in depths]
    yield "# Capacity with more layers"
    yield (
        f"Tasks of suite `climb` under its protocol, with {counted(len(cells.seeds), 'seed')}. The suite has "
        f"{counted(MODEL.num_layers, 'layer')}. Width, steps and batches stay, so a deeper model has more "
        "parameters and sees the same data."
    )
    if any(each.other == LESS for each in compared):
        yield _verdict([each for each in compared if each.other == LESS])
    yield "## Capacity and score"
    yield (
        "Capacity, the load at half skill, as the median over seeds, and in brackets the mean score in levels "
        "([ladder.md](../../docs/ladder.md)). ≥: the skill does not fall to one half; <: it is below one half on the "
        "first level."
    )
    lines = [
        [task.name, task.ladder.unit, name, *(_reached(task, found.get(layers, NO_ROWS)) for layers in depths)]
        for task in cells.tasks
        if task.ladder is not None
        for name, each in mechanisms.items()
        for found in [{layers: cells.cell(task, mechanism) for layers, mechanism in each.items()}]
        if any(cell.runs for cell in found.values())
    ]
    yield plain_table(lines, ["task", "load in", "mechanism", *headings])
    if compared:
        yield f"## `{MORE}` against the others"
        yield (
            f"The ratio of the loads that the scores of `{MORE}` and the other stand for, with its 95 % CI over seeds; "
            f"of several tasks or depths the geometric mean. With a score within {climb.END:g} levels of an end of the "
            "ladder the ratio is a lower bound (≥) or an upper one (≤). Where both mechanisms are at the same end, "
            "nothing is compared (--)."
        )
        yield plain_table(list(_ratios(compared, depths)), ["against", "task", *headings, "all depths"])


def _verdict(compared: Sequence[Comparison]) -> str:
    """Write the ratio on ``HOPS`` by depth, beside the published ratio, then that over all tasks and depths."""
    known = [each for each in compared if each.bound != NOTHING]
    claim = (
        f"Larger models with more training and Canon layers are announced to reach {PUBLISHED:g} for hops over a "
        "permutation (Allen-Zhu, 2025). The models here have no convolution."
    )
    if not known:
        return claim
    by_depth = {each.layers: [each] for each in sorted(known, key=lambda each: each.layers) if each.task == HOPS}
    of_hops = ""
    if by_depth:
        ratios = ", ".join(f"{_interval(each)} at {counted(layers, 'layer')}" for layers, each in by_depth.items())
        of_hops = f"**On `{HOPS}` the load of `{MORE}` is that of `{LESS}` times {ratios}** (95 % CIs over seeds). "
        ends = [ratio(each) for each in by_depth.values()]
        place = (
            "above" if all(end.high < PUBLISHED for end in ends)
            else "below" if all(end.low > PUBLISHED for end in ends)
            else ""
        )  # fmt: skip
        claim += f" The announced ratio is {place} all these intervals." * bool(place)
    bounds = [sum(sign in each.bound for each in known) for sign in (LOWER, UPPER)]
    return (
        f"{of_hops}{claim}\n\nOver {counted(len(known), 'pair')} of task and depth the geometric mean is "
        f"{_interval(known)}. Lower bounds among them: {bounds[0]}; upper bounds: {bounds[1]}; left out, as both are "
        f"at the same end of the ladder: {len(compared) - len(known)}."
    )


def _ratios(compared: Sequence[Comparison], depths: Sequence[int]) -> Iterator[list[str]]:
    """Yield one line per mechanism and task, then one for all tasks; the columns are the depths, then all depths."""
    for other in dict.fromkeys(each.other for each in compared):
        own = [each for each in compared if each.other == other]
        tasks = list(dict.fromkeys(each.task for each in own))
        for task in (*tasks, *["all"] * (len(tasks) > 1)):
            of_task = [each for each in own if task in (each.task, "all")]
            of_depths = [[each for each in of_task if each.layers == layers] for layers in depths]
            yield [other, task, *map(_interval, of_depths), _interval(of_task)]


def _interval(compared: Sequence[Comparison]) -> str:
    """Format the ratio: ``≥ 1.80 (1.52 to 2.21)``."""
    known = [each for each in compared if each.bound != NOTHING]
    if not known:
        return NOTHING
    signs = "".join(sign for sign in (LOWER, UPPER) if any(each.bound == sign for each in known))
    value, *ends = (fixed(end, 2) for end in ratio(known))
    return f"{signs}{value}" + ("" if NOTHING in ends else f" ({' to '.join(ends)})")


def _reached(task: TaskFacts, cell: CellStats) -> str:
    """Format the capacity and the mean score in levels of a cell: ``1.7 (1.4)``; empty without a run."""
    if task.ladder is None or not cell.runs:
        return ""
    return (
        f"{task.ladder.load_text(cell.load_at_half)} ({fixed(task.ladder.num_levels * fmean(cell.runs.values()), 1)})"
    )


if __name__ == "__main__":
    write(__file__, paragraphs(store().runs()))
