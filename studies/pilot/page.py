"""Pilot study of ladders: ``python -m studies.pilot.page`` prints the tables from ``ladder.csv``.

``python -m studies.pilot.page run rules 1/2`` makes the missing runs of part ``rules``, here of the first half of its
settings. Each part asks one question about training on a ladder. Each process uses one thread.
"""

import csv
import json
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pandas as pd
import torch
from scipy.stats import kendalltau

from studies.climb.page import SUITE
from studies.pages import each, store
from synthbench import mechanisms
from synthbench.levels import LevelScore, profile
from synthbench.registry import CONTROL
from synthbench.reports.cells import grid
from synthbench.reports.ladder import LEAST
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import select
from synthbench.suites import Suite
from synthbench.tasks import level_bounds
from synthbench.training.cell import Cell, Run
from synthbench.training.evaluate import evaluate
from synthbench.training.ladder import LadderSchedule, evenly, ladder_schedule, mixture
from synthbench.training.stream import DeviceBlock
from synthbench.training.train import Trainer, on_levels

ROWS = Path(__file__).with_name("ladder.csv")

TASKS = ("string_copy", "dyck", "s5_words", "parity_running", "bucket_sort", "mqar")
MECHANISMS = ("softmax", "lstm", "linear", "gla", "deltanet", "slay")
FEW_TASKS = ("string_copy", "dyck", "s5_words")
FEW_MECHANISMS = ("softmax", "lstm", "gla", "slay")
MANY_SEEDS = tuple(range(101, 111))
SEEDS = MANY_SEEDS[:3]
EDGE_TASKS = ("mqar", "string_copy", "a5_words", "dyck")
EDGES = (1e-3, 3e-2)
"""Rates below and above those of the suite."""
AT_ONCE = 3
"""Number of batched seeds."""


class Setting(NamedTuple):
    """All settings of a run except the seed."""

    task: str
    mech: str
    rule: str = "low first"
    rate: float = 3e-3
    steps: int = 1024
    width: int = 48


Part = list[tuple[Setting, tuple[int, ...]]]
"""Settings, with the seeds of each."""


def parts() -> dict[str, Part]:
    """Return the settings of each part, by name; a run that two parts need is made once."""
    cells = list(product(TASKS, MECHANISMS))
    few = list(product(FEW_TASKS, FEW_MECHANISMS))
    rates, steps, widths = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2), (1024, 512, 2048), (48, 96)
    return {
        "rules": [(Setting(*cell, rule=rule), SEEDS) for cell in cells for rule in ("low first", "rising", FRONTIER)],
        "orders": [(Setting(*cell, rule=rule), SEEDS) for cell in few for rule in RULES],
        "rates": [(Setting(*cell, rule="rising", rate=rate), SEEDS[:2]) for cell in few for rate in rates],
        "budgets": [(Setting(*cell, rule="rising", steps=number), SEEDS) for cell in few for number in steps],
        "seeds": [(Setting(*cell), MANY_SEEDS) for cell in few],
        "widths": [(Setting(*cell, width=width), SEEDS) for cell in few for width in widths],
        "edges": [(Setting(*cell, rate=rate), SUITE.seeds[:1]) for cell in edge_cells() for rate in EDGES],
    }


def edge_cells() -> list[tuple[str, str]]:
    """Pair four tasks with all mechanisms of the suite except its controls."""
    ranked = [name for name in SUITE.mechanisms if mechanisms.MECHANISMS[name].family != CONTROL]
    return list(product(EDGE_TASKS, ranked))


def uniform(num_steps: int, num_levels: int) -> list[int]:
    """Spread the steps evenly over all levels from the first step on."""
    return [spread(step, num_levels) for step in range(num_steps)]


def rising(num_steps: int, num_levels: int, slowness: float = 2.5) -> list[int]:
    """Place every other step at a centre that rises from the first level to the last, slowly at first.

    The other steps are spread over the levels up to the centre. After 70 % of the steps, all steps are spread over all
    levels.
    """
    levels = []
    for step in range(num_steps):
        share = step / (0.7 * num_steps)
        centre = min(num_levels - 1, int(num_levels * share**slowness))
        levels.append(centre if share < 1 and step % 2 == 0 else spread(step, centre + 1))
    return levels


def spread(step: int, num_levels: int) -> int:
    """Return the level of a step; consecutive steps are spread evenly over the first ``num_levels`` levels."""
    return int(evenly(step) * num_levels)


ORDERS: dict[str, Callable[[int, int], list[int]]] = {
    "low first": mixture, "rising": rising, "slow rise": partial(rising, slowness=5.0), "uniform": uniform,
}  # fmt: skip
FRONTIER = "frontier"
RULES = (*ORDERS, FRONTIER)
GATE, LOOK_EVERY, LOOK_SEQUENCES = 0.6, 16, 64
"""Skill at which the frontier moves to the next level, steps between two evaluations, and sequences per evaluation."""


def frontier(trainer: Trainer, schedule: LadderSchedule) -> Iterator[int]:
    """Place every other step at the first level that is not learned yet, and the others at levels up to this one."""
    looks = [
        trainer.batches("validation", -(-schedule.training.steps // LOOK_EVERY), LOOK_SEQUENCES, factor=number)
        for number, _ in enumerate(schedule.levels, start=1)
    ]
    centre = 0
    for step in range(schedule.training.steps):
        if step and step % LOOK_EVERY == 0:
            bound = level_bounds(schedule.levels[centre])
            (score,) = evaluate(trainer.model, [next(looks[centre])])
            if score.accuracy >= bound.base + GATE * (bound.ceiling - bound.base):
                centre = min(centre + 1, len(schedule.levels) - 1)
        yield centre if step % 2 == 0 else spread(step, centre + 1)


def train(setting: Setting, seeds: Sequence[int]) -> list[list[LevelScore]]:
    """Train several seeds of a setting in a batch and test them on every level."""
    suite = suite_of(setting)
    schedule = ladder_schedule(suite, setting.task)
    cell = Cell(suite, setting.task, schedule.levels[-1].length, {}, setting.mech, {}, "cpu")
    trainer = Trainer([Run(cell, seed, setting.rate) for seed in seeds], torch.device("cpu"))
    for step, batch in enumerate(batches(trainer, schedule, setting.rule)):
        trainer.schedule.apply(step, trainer.optimiser, trainer.model)
        trainer.step(batch.inputs[0], batch.targets[0], batch.columns)
    return [levels for _, levels in on_levels(trainer, "test")]


def suite_of(setting: Setting) -> Suite:
    """Suite ``climb`` with another budget or width; warm-up and decay keep their shares of the steps."""
    suite = SUITE
    training, share = suite.training, setting.steps / suite.training.steps
    steps = {name: round(getattr(training, name) * share) for name in ("steps", "warmup_steps", "decay_steps")}
    model = suite.model.model_copy(update={"model_dim": setting.width})
    return suite.model_copy(update={"training": training.model_copy(update=steps), "model": model})


def batches(trainer: Trainer, schedule: LadderSchedule, rule: str) -> Iterator[DeviceBlock]:
    """Yield the batch of every step."""
    num_steps = schedule.training.steps
    streams = [
        trainer.batches("train", num_steps, size, factor=number)
        for number, size in enumerate(schedule.batch_sizes, start=1)
    ]
    order = frontier(trainer, schedule) if rule == FRONTIER else ORDERS[rule](num_steps, len(schedule.levels))
    for level in order:
        yield next(streams[level])


def run(part: str, shard: str) -> None:
    """Make the missing runs of a part, for one shard of the settings."""
    number, of = map(int, shard.split("/"))
    torch.set_num_threads(1)
    done = scores()
    for setting, seeds in parts()[part]:
        if zlib.crc32(repr(setting).encode()) % of != number - 1:
            continue
        missing = [seed for seed in seeds if (setting, seed) not in done]
        at_once = 1 if setting.rule == FRONTIER else AT_ONCE
        for start in range(0, len(missing), at_once):
            write(setting, missing[start : start + at_once])


def write(setting: Setting, seeds: Sequence[int]) -> None:
    """Train several seeds of a setting and append their rows."""
    began = time.perf_counter()
    by_seed = train(setting, seeds)
    seconds = (time.perf_counter() - began) / len(seeds)
    with ROWS.open("a", newline="", encoding="utf-8") as file:
        for seed, levels in zip(seeds, by_seed, strict=True):
            skills = json.dumps([round(level.skill, 4) for level in levels])
            csv.writer(file).writerow([*setting, seed, round(sum(profile(levels)), 4), round(seconds, 1), skills])


def scores() -> dict[tuple[Setting, int], tuple[float, int]]:
    """Read the score in levels and the number of levels of each run in the file, by setting and seed."""
    columns = [*Setting._fields, "seed", "score", "seconds", "skills"]
    rows = each(pd.read_csv(ROWS, names=columns)) if ROWS.exists() else ()
    return {(Setting(*row[1:7]), row.seed): (row.score, len(json.loads(row.skills))) for row in rows}


FIELDS = {"rules": "rule", "orders": "rule", "rates": "rate", "budgets": "steps", "widths": "width", "seeds": "seed"}
"""The field that the settings of each part vary."""
CELL = ["task", "mech"]


def frame(part: str) -> pd.DataFrame:
    """Tabulate the scores of a part's complete cells: one column per value of the varied field, one row per run."""
    settings = parts()[part]
    made = scores()
    missing = {one[:2] for one, seeds in settings for seed in seeds if (one, seed) not in made}
    lines = [
        {**setting._asdict(), "seed": seed} | dict(zip(("score", "levels"), made[setting, seed], strict=True))
        for setting, seeds in settings
        if setting[:2] not in missing
        for seed in seeds
    ]
    if not lines:
        return pd.DataFrame()
    index = [*CELL, "levels"] if FIELDS[part] == "seed" else [*CELL, "levels", "seed"]
    found = pd.DataFrame(lines).pivot_table(index=index, columns=FIELDS[part], values="score", sort=False)
    return found.rename(columns=str)


def table(part: str) -> str:
    """Tabulate each cell's mean score, and compare the values over all cells; empty while no cell is complete."""
    found = frame(part)
    if found.empty:
        return ""
    cells = found.groupby([*CELL, "levels"], sort=False).mean()
    of_cells = zip(cells.index.tolist(), cells.to_numpy(), strict=True)
    lines = [[task, f"{levels}", mech, *map(_two, row)] for (task, mech, levels), row in of_cells]
    if FIELDS[part] != "seed":
        tops = cells.index.get_level_values("levels").to_numpy()
        ends = (found < 0.1) | found.gt(found.index.get_level_values("levels") - 0.1, axis=0)
        spread = found.groupby(CELL).var().mean() ** 0.5
        below = (-cells.sub(cells.max(axis=1), axis=0)).mean()
        order = [_tau(cells.iloc[:, 0], cells[value]) for value in cells]
        lines += [
            ["**share of the ladder**", "", "", *map(_two, cells.div(tops, axis=0).mean())],
            ["**at an end**, % of runs", "", "", *(f"{100 * share:.0f}" for share in ends.mean())],
            ["**below the best**, levels", "", "", *map(_two, below)],
            ["**spread of seeds**, levels", "", "", *map(_two, spread)],
            ["**order**, tau with the first", "", "", *map(_two, order)],
        ]
    return plain_table(lines, ["task", "levels", "mechanism", *found])


def windows() -> str:
    """Tabulate the rates at which each cell comes within half a level of its score at the best rate."""
    found = frame("rates")
    if found.empty:
        return ""
    cells = found.groupby(CELL, sort=False).mean()
    good = cells.ge(cells.max(axis=1) - LEAST, axis=0)
    best = zip(cells.index.tolist(), cells.idxmax(axis=1), good.to_numpy(), strict=True)
    lines = [[*cell, rate, ", ".join(good.columns[is_good])] for cell, rate, is_good in best]
    return plain_table(lines, ["task", "mechanism", "best rate", "within half a level"])


class Edge(NamedTuple):
    """Scores of a task and mechanism in levels, at a rate below the suite's, at one of the suite's, and above."""

    task: str
    mech: str
    below: float
    chosen: float
    """At the suite's rate that validation chose."""
    above: float

    @property
    def gain(self) -> float:
        """The gain of the better outside rate over the chosen one, in levels; negative if there is none."""
        return max(self.below, self.above) - self.chosen


def edges() -> list[Edge]:
    """Return the complete cells of part ``edges``, joined with the rows in ``results``."""
    made = scores()
    rows = store().runs()
    shown = grid(select(rows[rows["seed"] == SUITE.seeds[0]], SUITE.name, SUITE.version).without_variants().rows)
    tasks = {task.name: task for task in shown.tasks}
    keys = {mechanism.name: mechanism.key for mechanism in shown.mechanisms}
    found = []
    for task, mech in edge_cells():
        below, above = (made.get((Setting(task, mech, rate=rate), SUITE.seeds[0])) for rate in EDGES)
        if below is not None and above is not None and (ladder := tasks[task].ladder) is not None:
            share = shown.estimates[tasks[task].key, keys[mech]].mean
            found.append(Edge(task, mech, below[0], share * ladder.num_levels, above[0]))
    return found


def edge_text() -> str:
    """Tabulate scores at rates outside the suite's, and count cells where such a rate is better by half a level."""
    cells = edges()
    if not cells:
        return ""
    by_task = {task: [cell for cell in cells if cell.task == task] for task in EDGE_TASKS}
    lines = [
        [task, *(f"{fmean(values):.2f}" for values in zip(*(cell[2:] for cell in of_task), strict=True)),
         f"{sum(cell.gain >= LEAST for cell in of_task)} of {len(of_task)}"]
        for task, of_task in by_task.items() if of_task
    ]  # fmt: skip
    headings = ["task", f"{EDGES[0]:g}", "chosen", f"{EDGES[1]:g}", f"better outside by {LEAST:g} of a level"]
    better = [f"{cell.mech} on {cell.task} ({cell.gain:.1f})" for cell in cells if cell.gain >= LEAST]
    inside = len(cells) - len(better)
    return (
        plain_table(lines, headings)
        + f"\n\nIn {inside} of {len(cells)} cells ({100 * inside / len(cells):.0f} %) no rate outside is better by "
        f"half a level. Exceptions (levels in brackets): {', '.join(better) or 'none'}."
    )


def _two(value: float) -> str:
    return "--" if math.isnan(value) else f"{value:.2f}"


def _tau(first: pd.Series, second: pd.Series) -> float:
    """Compute Kendall's tau-b over the mechanisms of each task, and average it over the tasks."""
    both = pd.DataFrame({"first": first, "second": second})
    taus = [kendalltau(own["first"], own["second"]).statistic for _, own in both.groupby("task") if len(own) > 1]
    known = [tau for tau in taus if not math.isnan(tau)]
    return fmean(known) if known else math.nan


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(*sys.argv[2:])
    else:
        for text in (*map(table, FIELDS), windows(), edge_text()):
            sys.stdout.write(f"{text}\n\n" if text else "")
