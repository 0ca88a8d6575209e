"""The pilot behind the ladder: ``python docs/ladder.py run PART``, then ``python docs/ladder.py`` for ``ladder.md``.

Each part asks one question about how a model should climb; its runs are the rows of ``ladder.csv``. A run that is there
is not made again. Runs of several seeds are trained as one program where the rule permits it.
"""

import csv
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from synthbench.results.heights import height, profile
from synthbench.runner.config import Cell, Member
from synthbench.runner.ladder import climb, sized_in
from synthbench.runner.stream import DeviceBlock
from synthbench.runner.train import GroupResult, MemberResult, Trainer, _climbed
from synthbench.suites import Suite, load_suite

FOLDER = Path(__file__).parent
ROWS = FOLDER / "ladder.csv"

TASKS = ("mqar", "string_copy", "dyck", "s5_words", "parity_running", "bucket_sort")
MECHANISMS = ("softmax", "linear", "slay", "gla", "deltanet", "lstm")
SEEDS = (101, 102, 103)
RATE = 3e-3


class Setting(NamedTuple):
    """What decides the height of a cell's runs, beside their seeds."""

    part: str
    task: str
    mech: str
    rule: str = "common"
    rate: float = RATE
    steps: int = 512
    width: int = 48


def parts() -> dict[str, list[tuple[Setting, tuple[int, ...]]]]:
    """The settings of each part, with their seeds."""
    cells = list(product(TASKS, MECHANISMS))
    some = [(task, mech) for task in ("mqar", "string_copy", "s5_words") for mech in ("softmax", "slay", "gla", "lstm")]
    return {
        "rules": [(Setting("rules", *cell, rule=rule), SEEDS) for rule in RULES for cell in cells],
        "rates": [
            (Setting("rates", *cell, rate=rate), SEEDS[:2]) for cell in some for rate in (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
        ],
        "budgets": [(Setting("budgets", *cell, steps=steps), SEEDS) for cell in some for steps in (256, 512, 1024)],
        "seeds": [(Setting("seeds", *cell), tuple(range(101, 111))) for cell in some],
        "widths": [(Setting("widths", *cell, width=width), SEEDS) for cell in some for width in (48, 96)],
    }


def uniform(num_steps: int, num_rungs: int) -> list[int]:
    """All rungs alike, from the first step."""
    golden = (math.sqrt(5) - 1) / 2
    return [int((step + 1) * golden % 1 * num_rungs) for step in range(num_steps)]


def to_the_top(num_steps: int, num_rungs: int) -> list[int]:
    """As the common rule; once the centre is at the top, every other step stays there."""
    order = climb(num_steps, num_rungs)
    return [num_rungs - 1 if step >= 0.7 * num_steps and step % 2 == 0 else rung for step, rung in enumerate(order)]


def linear(num_steps: int, num_rungs: int) -> list[int]:
    """As the common rule, but the centre rises at an even pace."""
    golden = (math.sqrt(5) - 1) / 2
    order = []
    for step in range(num_steps):
        share = step / (0.7 * num_steps)
        centre = min(num_rungs - 1, int(num_rungs * share))
        order.append(centre if share < 1 and step % 2 == 0 else int((step + 1) * golden % 1 * (centre + 1)))
    return order


ORDERS: dict[str, Callable[[int, int], list[int]]] = {
    "common": climb,
    "uniform": uniform,
    "linear": linear,
    "to the top": to_the_top,
}
FRONTIER = "frontier"
RULES = (*ORDERS, FRONTIER)
GATE, LOOK_EVERY, LOOK_SEQUENCES = 0.6, 16, 64
"""Skill at which the frontier moves on, steps between two looks at it, and the sequences of a look."""


def train(setting: Setting, seeds: Sequence[int]) -> list[MemberResult]:
    """Train a cell's seeds and test them on every rung."""
    cell = _cell(setting)
    members = [Member(cell, seed, setting.rate) for seed in seeds]
    trainer = Trainer(members, torch.device("cpu"))
    result = GroupResult(
        [MemberResult(member, size) for member, size in zip(members, trainer.sizes, strict=True)], trainer.strategy
    )
    for step, batch in enumerate(_batches(trainer, setting)):
        trainer.schedule.apply(step, trainer.optimiser, trainer.model)
        trainer.step(batch.inputs[0], batch.targets[0], batch.columns)
    _climbed(trainer, result)
    return result.members


def _cell(setting: Setting) -> Cell:
    suite = _suite(setting)
    _, length, _ = sized_in(suite, setting.task, {})
    return Cell(suite, setting.task, None, length, {}, setting.mech, {}, "cpu")


def _suite(setting: Setting) -> Suite:
    """Suite ``climb`` with what the setting changes."""
    suite = load_suite("climb")
    training = suite.training
    shares = {name: round(getattr(training, name) * setting.steps / training.steps) for name in _SHARES}
    return suite.model_copy(
        update={
            "training": training.model_copy(update={"steps": setting.steps, **shares}),
            "model": suite.model.model_copy(update={"model_dim": setting.width}),
        }
    )


_SHARES = ("warmup_steps", "decay_steps")


def _batches(trainer: Trainer, setting: Setting) -> Iterator[DeviceBlock]:
    course = trainer.members[0].cell.course
    assert course is not None
    streams = [
        trainer.batches("train", setting.steps, size, factor=number)
        for number, size in enumerate(course.batch_sizes, start=1)
    ]
    if setting.rule == FRONTIER:
        order: Iterator[int] = _frontier(trainer, setting.steps)
    else:
        order = iter(ORDERS[setting.rule](setting.steps, len(course.rungs)))
    for rung in order:
        yield next(streams[rung])


def _frontier(trainer: Trainer, num_steps: int) -> Iterator[int]:
    """Half of the steps on the first rung that the one member has not learned, the others evenly on those below."""
    from synthbench.runner.evaluate import evaluate
    from synthbench.tasks import rung_bounds

    (member,) = trainer.members
    rungs = member.cell.course.rungs
    looks = [
        trainer.batches("validation", -(-num_steps // LOOK_EVERY), LOOK_SEQUENCES, factor=number)
        for number in member.cell.tests
    ]
    frontier = 0
    for step in range(num_steps):
        if step and step % LOOK_EVERY == 0:
            bound = rung_bounds(rungs[frontier])
            (score,) = evaluate(trainer.model, [next(looks[frontier])])
            if score.accuracy >= bound.base + GATE * (bound.ceiling - bound.base):
                frontier = min(frontier + 1, len(rungs) - 1)
        yield frontier if step % 2 == 0 else int((step + 1) * (math.sqrt(5) - 1) / 2 % 1 * (frontier + 1))


def run(part: str, shard: str = "1/1") -> None:
    """Make the runs of a part that are missing, of one shard of its cells."""
    number, of = map(int, shard.split("/"))
    torch.set_num_threads(1)
    done = {(*row[:7], row[7]) for row in _rows()}
    for index, (setting, seeds) in enumerate(parts()[part]):
        missing = [seed for seed in seeds if (*map(str, setting), str(seed)) not in done]
        if not missing or index % of != number - 1:
            continue
        groups = (
            [[seed] for seed in missing]
            if setting.rule == FRONTIER
            else [missing[i : i + 3] for i in range(0, len(missing), 3)]
        )
        for group in groups:
            began = time.perf_counter()
            results = train(setting, group)
            seconds = (time.perf_counter() - began) / len(group)
            with ROWS.open("a", newline="") as file:
                for seed, member in zip(group, results, strict=True):
                    skills = [round(rung.skill, 4) for rung in member.rungs]
                    csv.writer(file).writerow(
                        [
                            *setting,
                            seed,
                            round(height(member.rungs), 4),
                            len(skills),
                            round(seconds, 1),
                            json.dumps(skills),
                        ]
                    )
            print(
                *setting, group, [round(height(member.rungs), 2) for member in results], f"{seconds:.1f} s", flush=True
            )


def _rows() -> list[list[str]]:
    if not ROWS.exists():
        return []
    with ROWS.open(newline="") as file:
        return list(csv.reader(file))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(*sys.argv[2:])
