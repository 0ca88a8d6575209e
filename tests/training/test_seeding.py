"""Streams of sequences: what each is drawn from, and that a command draws none twice."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthbench.runner.executors.inline import Inline
from synthbench.runner.plan import make_plan
from synthbench.runner.worker import RunContext
from synthbench.tasks import TASKS, Batch, Task, local_ceiling, shortcut_accuracies
from synthbench.tasks.basic.copy import Copy
from synthbench.tasks.basic.reverse import Reverse
from synthbench.tasks.reasoning.induction import Induction
from synthbench.training import seeding
from synthbench.training.seeding import BLOCK_STEPS, KeptBlocks, blocks_of, data_blocks
from tests.training.cells import make_cell


def test_the_first_block_does_not_depend_on_how_many_follow() -> None:
    def first(num_batches: int) -> Batch:
        return next(data_blocks(TASKS["sort"](), 4, "train", 0, num_batches=num_batches, batch_size=2))

    np.testing.assert_array_equal(first(BLOCK_STEPS).inputs, first(5 * BLOCK_STEPS).inputs)


# Blocks that a command keeps, so that its second mechanism need not have them drawn again

Draws = list[tuple[int, int]]


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """Sequences and length of every draw of task reverse so far."""
    unit, seen = TASKS["reverse"], list[tuple[int, int]]()
    sample = unit.sample

    def counted(self: Task, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        seen.append((batch_size, length))
        return sample(self, rng, batch_size, length)

    monkeypatch.setattr(unit, "sample", counted)
    return seen


def read(kept: KeptBlocks, seed: int = 0, num_batches: int = 3) -> Iterator[Batch]:
    return data_blocks(TASKS["reverse"](), 8, "train", seed, num_batches=num_batches, batch_size=2, kept=kept)


@pytest.mark.parametrize(
    ("task", "types"),
    [
        (Reverse(vocabulary=300), "uint16 uint16"),
        (Induction(vocabulary=64), "uint8 int8"),  # a target that is not scored is negative
        (Induction(vocabulary=200), "uint8 int16"),
    ],
)
def test_what_is_kept_is_what_would_be_drawn_again(task: Task, types: str) -> None:
    kept = KeptBlocks(2**20)
    drawn = list(data_blocks(task, 8, "train", 0, num_batches=BLOCK_STEPS + 3, batch_size=2))
    for _ in range(2):
        again = list(data_blocks(task, 8, "train", 0, num_batches=BLOCK_STEPS + 3, batch_size=2, kept=kept))

        assert " ".join(str(array.dtype) for array in again[0]) == types
        for block, other in zip(drawn, again, strict=True):
            np.testing.assert_equal(block, other)


@pytest.mark.parametrize(
    "changed",
    [
        {"task": Reverse(vocabulary=31)}, {"task": Copy()}, {"length": 9}, {"split": "test"}, {"split": "validation"},
        {"seed": 1}, {"num_batches": 4}, {"batch_size": 3},
    ],
)  # fmt: skip
def test_another_split_seed_option_task_or_length_is_another_stream_and_none_is_taken_for_another(
    changed: dict[str, Any],
) -> None:
    kept = KeptBlocks(2**20)
    given: dict[str, Any] = {
        "task": Reverse(), "length": 8, "split": "train", "seed": 0, "num_batches": 3, "batch_size": 2
    }  # fmt: skip
    (first,) = data_blocks(**given, kept=kept)
    (kept_block,), (drawn,) = (list(data_blocks(**given | changed, kept=each)) for each in (kept, None))

    np.testing.assert_equal(kept_block, drawn)
    if not changed.keys() & {"num_batches", "batch_size"}:
        assert (first.inputs != drawn.inputs[..., :8]).any()


def test_no_block_is_drawn_before_it_is_read_and_none_twice(draws: Draws) -> None:
    kept = KeptBlocks(2**20)

    next(read(kept, num_batches=3 * BLOCK_STEPS))
    assert len(draws) == 1
    blocks = list(read(kept, num_batches=3 * BLOCK_STEPS))
    assert len(draws) == len(blocks) == 3


def test_the_memory_is_bounded_and_what_was_read_last_stays_beside_what_does_not_fit(draws: Draws) -> None:
    (block,) = read(KeptBlocks(0))
    size = block.inputs.nbytes + block.targets.nbytes
    kept = KeptBlocks(2 * size)
    draws.clear()
    for seed in (0, 1, 0, 2, 0):  # 1 is the one to go when 2 comes
        list(read(kept, seed))
        assert kept.num_bytes <= kept.most_bytes
    assert len(draws) == 3
    list(read(kept, 1))
    list(read(kept, num_batches=100))  # larger than the memory: it displaces nothing
    assert len(draws) == 5
    list(read(kept, 0)), list(read(kept, 1))
    assert len(draws) == 5


def test_a_command_draws_the_data_of_two_mechanisms_once(draws: Draws, tmp_path: Path) -> None:
    cells = [make_cell("reverse", mechanism, length=8) for mechanism in ("linear", "softmax")]
    local_ceiling(cells[0].task, 8), shortcut_accuracies(cells[0].task, 8)  # they draw too
    draws.clear()
    jobs = make_plan(cells, [0, 1], {}, 2).jobs
    where = RunContext(tmp_path / "results", "cpu", "inline", time.time())
    events = Inline().run(jobs, where, threading.Event())

    next(events)
    assert len(draws) == 6  # training, validation and test of two seeds
    assert len(list(events)) == len(jobs) - 1 == 1
    assert len(draws) == 6
    assert seeding._of_command == {}


def test_another_command_keeps_nothing_of_this_one() -> None:
    first = blocks_of("a", "cpu")

    assert blocks_of("a", "cpu") is first
    assert blocks_of("b", "cpu") is not first
    assert blocks_of("a", "cpu") is not first
    seeding.forget_blocks()


def test_a_class_that_was_defined_again_has_streams_of_its_own(draws: Draws) -> None:
    unit = TASKS["reverse"]
    again = type(unit.__name__, (unit,), {"__module__": unit.__module__})
    kept = KeptBlocks(2**20)
    list(read(kept))
    list(data_blocks(again(), 8, "train", 0, num_batches=3, batch_size=2, kept=kept))

    assert len(draws) == 2
