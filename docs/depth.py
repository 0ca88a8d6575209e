"""How far mechanisms get with few and with many layers: the text of ``reports/depth/README.md``.

``docs/generate.py`` writes it from the rows of ``climb`` whose block has another number of layers, as
``--block transformer:layers=4`` makes them, and from those of the suite itself.
"""

import json
import re
from collections.abc import Iterator
from statistics import median_low

import climb
import numpy as np
import pandas as pd
from tabulate import tabulate

from synthbench.heights import load_at_half, rungs_in
from synthbench.reports.aggregates import Interval, t_interval
from synthbench.reports.selection import select
from synthbench.reports.table import fixed
from synthbench.results import Store

OTHERWISE = re.compile(rf"{climb.SUITE.model.block}(:layers=\d+)?")
"""Blocks that differ from the suite's in their number alone."""
AGAINST = ("softmax", "linear")


def read() -> pd.DataFrame:
    """Rows of tasks and mechanisms that have one with another number of layers, with loads and heights in rungs."""
    rows = select(Store.open(climb.RESULTS, create=False).runs(), climb.SUITE.name, climb.SUITE.version).rows
    rows = rows[rows["block"].map(lambda block: OTHERWISE.fullmatch(block) is not None)]
    cells = rows.groupby(["task", "mech"])["n_layers"].transform("nunique")
    rows = rows[cells > 1].copy()
    rungs = rows["metrics"].map(lambda text: rungs_in(json.loads(text)))
    rows["height"] = rows["score"] * rungs.map(len).astype(float)
    rows["load"] = rungs.map(load_at_half)
    rows["step"] = rungs.map(lambda of_run: (of_run[-1].load / of_run[0].load) ** (1 / (len(of_run) - 1)))
    return rows


def ratios(rows: pd.DataFrame) -> dict[tuple[str, int], Interval]:
    """By task and number of layers, the multiple of the second mechanism's load that the first copes with.

    A rung is a factor of load, and mechanisms are as many factors apart as rungs. The interval is over seeds
    (t distribution, paired); it is the value alone with one seed.
    """
    found = {}
    for (task, layers), cell in rows.groupby(["task", "n_layers"]):
        first, second = (cell[cell["mech"] == mech].set_index("seed")["height"] for mech in AGAINST)
        apart = (first - second).dropna().to_numpy()
        if len(apart):
            error = float(np.std(apart, ddof=1)) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
            interval = t_interval(float(apart.mean()), error, max(1.0, len(apart) - 1.0), low=-np.inf, high=np.inf)
            found[task, int(layers)] = Interval(*(float(cell["step"].iloc[0] ** end) for end in interval))
    return found


def page() -> Iterator[str]:
    """The paragraphs of the page; nothing without rows."""
    rows = read()
    if not len(rows):
        return
    depths = sorted(rows["n_layers"].unique())
    yield "# How far mechanisms get with more layers"
    yield (
        f"Tasks of suite `{climb.SUITE.name}` under its protocol, with {', '.join(map(str, depths))} layers. Each "
        "cell: the load at half of the skill, median over seeds, and the mean height in rungs. "
        "[ladder.md](../../docs/ladder.md) defines both, and [tasks.md](../../docs/tasks.md) the load of each task."
    )
    yield tabulate(
        [
            [task, mechanism, *(_cell(cell[cell["n_layers"] == layers]) for layers in depths)]
            for (task, mechanism), cell in rows.groupby(["task", "mech"], sort=False)
        ],
        ["task", "mechanism", *(f"{layers} {'layer' if layers == 1 else 'layers'}" for layers in depths)],
        tablefmt="github",
        disable_numparse=True,
    )
    yield f"## {AGAINST[0]} against {AGAINST[1]} attention"
    yield (
        f"The multiple of the load of `{AGAINST[1]}` that `{AGAINST[0]}` copes with, as rungs count it, with a 95 % "
        "interval over seeds. At an end of the ladder a height is a bound, and so is the ratio."
    )
    yield tabulate(
        [
            [task, layers, f"{fixed(ratio.value, 1)} ({fixed(ratio.low, 1)} to {fixed(ratio.high, 1)})"]
            for (task, layers), ratio in ratios(rows).items()
        ],
        ["task", "layers", "ratio"],
        tablefmt="github",
        disable_numparse=True,
    )


def _cell(runs: pd.DataFrame) -> str:
    if not len(runs):
        return ""
    load, height = median_low(runs["load"]), fixed(runs["height"].mean(), 1)
    return f"{'above the last' if np.isinf(load) else fixed(load, 1) if load else 'below the first'} ({height})"
