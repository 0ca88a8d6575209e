"""Golden numbers of training, held to ``TRAINING_VERSION``: a change shows in a file.

A few tiny models are trained for a few steps. The initialisation, the seeds and streams of data, the batching of runs,
the optimiser, the schedules and the evaluation are those of any run.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch

from synthbench.tasks import TASKS
from synthbench.tasks.base import SPLITS
from synthbench.training import identity
from synthbench.training.cell import Cell, Run
from synthbench.training.seeding import data_blocks, data_seed, init_seed
from synthbench.training.train import train_group
from synthbench.trust import replan
from synthbench.trust.replan import CannotVerify
from tests.contract import _golden
from tests.contract._golden import Entry, Lists, rounded
from tests.contract._rounding import Rounding
from tests.training.cells import make_cell

PATH = _golden.FOLDER / "first_steps.json"
KEY = "training"
NUMBER = "TRAINING_VERSION in synthbench/training/identity.py"

SEEDS, RATE, STEPS = (42, 43), 0.03, 4
NUM_BATCHES = 401
"""Of each stream: more than are drawn at once, since how many these are decides which numbers are drawn."""


class Program(NamedTuple):
    """Trained model and its surroundings."""

    block: str
    positions: str
    schedule: str = "constant"
    mechanism: str = "softmax"
    tasks: tuple[str, ...] = ("copy",)

    @property
    def name(self) -> str:
        return f"{self.mechanism} in {self.block} with {self.positions}, {self.schedule}, {' and '.join(self.tasks)}"


PROGRAMS = (
    Program("attention_only", "learned"),
    Program("transformer", "learned", "warmup-cosine"),
    Program("aether", "learned", "geometric-curriculum"),
    Program("transformer", "rope"),
    Program("attention_only", "none", mechanism="lstm", tasks=("bottleneck_compression",)),
    Program("transformer", "rope", tasks=("copy", "parity")),
)


def cells_of(program: Program) -> list[Cell]:
    """Cells of a protocol of which every setting moves the losses by far more than the tolerance."""
    settings: dict[str, Any] = {
        "block": program.block, "positions": program.positions, "model_dim": 16, "num_heads": 2, "num_layers": 2,
        "bias": True, "schedule": program.schedule, "learning_rates": (RATE,), "betas": (0.8, 0.9), "eps": 0.01,
        "weight_decay": 0.5, "batch_size": 8, "test_sequences": 32, "curve_every": 1, "curve_sequences": 16,
        "threshold": 0.9, "length": 8,
    }  # fmt: skip
    if program.schedule == "warmup-cosine":
        settings["warmup_steps"] = 2
    if program.positions == "rope":
        settings["stretches"] = (2,)
    return [make_cell(task, program.mechanism, steps=STEPS, **settings) for task in program.tasks]


RUNS = {
    "one run": [(SEEDS[0], RATE)],
    "two runs": [(seed, RATE) for seed in SEEDS],
    "two rates": [(SEEDS[0], RATE), (SEEDS[1], RATE / 3)],
}
"""Seeds and learning rates of runs that are trained beside each other."""


def entry(beside: Iterable[str] = RUNS) -> Entry:
    trained = {
        f"{program.name}: {words}": losses_of([Run(cell, *one) for cell in cells_of(program) for one in RUNS[words]])
        for program in PROGRAMS
        for words in beside
    }
    return {"version": identity.TRAINING_VERSION, "options": {}, "streams of copy:length=8": streams(), **trained}


entry_now = cache(entry)


def losses_of(runs: Sequence[Run]) -> Lists:
    """Of every run its seeds, and of every step its rate and losses in nats."""
    results = train_group(runs, torch.device("cpu")).runs
    scores = [[result.score, *result.stretched.values()] for result in results]
    return {
        "init_seed": [init_seed(run.seed) for run in runs],
        "data_seed": [data_seed(run.cell.task, run.cell.length, run.seed) for run in runs],
        "learning rate": rounded([rate for result in results for rate in result.rates]),
        **{
            f"float32 {split} loss": losses(
                point.value
                for result in results
                for point in result.curve
                if (point.split, point.metric) == (split, "loss")
            )
            for split in ("train", "validation")
        },
        "float32 test loss": losses(score.loss for of_run in scores for score in of_run if score is not None),
    }


def losses(values: Iterable[float]) -> list[float]:
    return rounded(list(values), digits=6)


def streams() -> Lists:
    """Digests of the batches of each split."""
    digests: Lists = {}
    for split in SPLITS:
        blocks = data_blocks(TASKS["copy"](), 8, split, SEEDS[0], num_batches=NUM_BATCHES, batch_size=4)
        content = b"".join(array.astype("<i8").tobytes() for block in blocks for array in block)
        digests[split] = [hashlib.sha256(content).hexdigest()[:12]]
    return digests


@pytest.fixture(scope="module")
def held() -> Entry:
    if os.environ.get(_golden.SWITCH) == "1":
        _golden.write(PATH, {KEY: _golden.rewritten(KEY, _golden.read(PATH).get(KEY), entry_now())})
    return _golden.read(PATH)[KEY]


def test_training_computes_what_its_version_did(held: Entry) -> None:
    _golden.check_unchanged(KEY, held, entry_now(), number=NUMBER)


def test_what_is_held_of_training_does_not_depend_on_how_a_processor_rounds(held: Entry) -> None:
    with Rounding(0):
        moved = entry(["two rates"])

    assert moved != {term: entry_now()[term] for term in moved}
    assert not (found := _golden.fragile(held, moved)), f"rounding decides {found}"


def test_a_version_of_training_above_1_is_part_of_every_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "TRAINING_VERSION", 1)
    (first,) = cells_of(PROGRAMS[0])
    first_ids = [run.run_id for run in first.runs(SEEDS)]
    monkeypatch.setattr(identity, "TRAINING_VERSION", 2)
    (second,) = cells_of(PROGRAMS[0])

    assert "training_version" not in first.identity
    assert second.identity == {**first.identity, "training_version": 2}
    assert not set(first_ids) & {run.run_id for run in second.runs(SEEDS)}


@pytest.mark.parametrize(("of_row", "here"), [({}, 2), ({"training_version": 2}, 1)])
def test_a_row_of_other_training_is_refused(of_row: dict[str, int], here: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "TRAINING_VERSION", here)
    version = of_row.get("training_version", 1)

    with pytest.raises(
        CannotVerify, match=f"other version: training is {version} in the row and {here} here; checked: "
    ):
        replan._suite(of_row, {})
