"""Streams of sequences: what each is drawn from, that a command draws none twice, and what a user can have of them."""

import errno
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from synthbench.data import TaskDataset
from synthbench.errors import StoreError
from synthbench.runner.executors.inline import Inline
from synthbench.runner.plan import make_cells, make_plan
from synthbench.runner.request import RunContext
from synthbench.suites import Suite, load_suite
from synthbench.tasks import IGNORE, TASKS, Batch, Split, Task, local_ceiling, shortcut_accuracies
from synthbench.tasks.base import SPLITS
from synthbench.tasks.basic.copy import Copy
from synthbench.tasks.basic.reverse import Reverse
from synthbench.tasks.reasoning.induction import Induction
from synthbench.training import seeding
from synthbench.training.seeding import BLOCK_STEPS, KeptBlocks, data_blocks
from synthbench.training.sequences import draw, write
from synthbench.training.stream import device_blocks, prefetched
from synthbench.training.train import Trainer
from tests.cli.commands import Command
from tests.results.stores import failing
from tests.training.cells import CPU, make_cell

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
def test_another_split_seed_option_task_or_length_is_another_stream_kept_apart(changed: dict[str, Any]) -> None:
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
    events = Inline().run(jobs, where, lambda: False)

    next(events)
    assert len(draws) == 6  # training, validation and test of two seeds
    assert len(list(events)) == len(jobs) - 1 == 1
    assert len(draws) == 6
    assert seeding.blocks_of.cache_info().currsize == 0


def test_a_class_that_was_defined_again_has_streams_of_its_own(draws: Draws) -> None:
    unit = TASKS["reverse"]
    again = type(unit.__name__, (unit,), {"__module__": unit.__module__})
    kept = KeptBlocks(2**20)
    list(read(kept))
    list(data_blocks(again(), 8, "train", 0, num_batches=3, batch_size=2, kept=kept))

    assert len(draws) == 2


def test_only_scored_columns_are_kept_and_nothing_behind_them() -> None:
    cell = make_cell("distant_match", length=12)
    (block,) = device_blocks(cell.runs([0]), "train", num_batches=3, batch_size=8, device=CPU)

    assert block.columns.tolist() == [6]
    assert block.inputs.shape == (3, 1, 8, 7)
    assert (block.targets != IGNORE).any()


def test_prefetching_changes_nothing_and_passes_an_error_on() -> None:
    assert list(prefetched(iter([[1], [2], [3]]))) == [[1], [2], [3]]
    assert list(prefetched(iter([]))) == []

    def broken() -> Iterator[int]:
        yield 1
        raise ArithmeticError("drawn wrong")

    items = prefetched(broken())
    with pytest.raises(ArithmeticError, match="drawn wrong"):
        list(items)


def read_in_a_run(task: str, split: Split, seed: int, suite: Suite) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and scored columns of one stream, as a suite's trainer reads them; on a ladder, of level 3."""
    (cell,) = make_cells(suite, {task: {}}, {"linear": {}}, device_type="cpu", is_full=True)
    trainer = Trainer(cell.runs([seed]), CPU)
    schedule, count = cell.ladder_schedule, getattr(suite.evaluation, f"{split}_sequences", 0)
    if schedule is not None:
        of_level = (schedule.num_batches[2], schedule.batch_sizes[2]) if split == "train" else (1, count)
        batches = list(trainer.batches(split, *of_level, factor=3))
    else:
        before_a_test = {"train": trainer.training_batches(), "validation": trainer.validation_batches()}
        batches = list(before_a_test.get(split) or trainer.batches("test", 1, count))
    inputs, targets = (
        torch.cat([getattr(batch, part)[:, 0].flatten(0, 1) for batch in batches]).numpy()
        for part in batches[0]._fields[:2]
    )
    return inputs, targets, batches[0].columns.numpy()


@pytest.mark.parametrize(
    ("task", "split", "suite"),
    [
        *[("copy", split, "smoke") for split in SPLITS],
        ("first_token", "validation", "smoke"),
        *[("parity_running", split, "core") for split in SPLITS],
    ],
)
def test_the_sequences_are_those_that_a_run_with_this_seed_reads(task: str, split: Split, suite: str) -> None:
    inputs, targets, columns = read_in_a_run(task, split, 43, load_suite(suite))
    drawn = draw(f"{task}:level=3" if suite == "core" else task, split=split, seed=43, suite=suite)

    np.testing.assert_array_equal(drawn.inputs[:, : inputs.shape[1]], inputs)
    np.testing.assert_array_equal(drawn.targets[:, columns], targets)
    assert (np.delete(drawn.targets, columns, axis=1) == IGNORE).all()
    assert drawn.inputs.dtype == drawn.targets.dtype == np.int64


def test_fewer_sequences_of_a_suite_are_its_first() -> None:
    for split in ("train", "validation", "test"):
        every, few = (draw("copy", split=split, seed=1, suite="smoke", count=count) for count in (None, 37))
        np.testing.assert_equal([few.inputs, few.targets], [every.inputs[:37], every.targets[:37]])


def test_a_suite_gives_the_arguments_of_a_task_and_options_change_it() -> None:
    assert draw("mqar", suite="peers", split="test").metadata["length"] == 64
    assert draw("mqar:length=32,num_pairs=2", suite="peers", split="test", count=1).metadata["length"] == 32


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_gives_the_same_sequences_with_and_without_workers(workers: int) -> None:
    dataset = TaskDataset("copy:length=8", split="train", seed=3, count=24, batch_size=4)
    drawn = draw("copy:length=8", split="train", seed=3, count=24, batch_size=4)
    inputs, targets = zip(*DataLoader(dataset, batch_size=4, num_workers=workers), strict=True)

    np.testing.assert_array_equal(torch.cat(inputs).numpy(), drawn.inputs)
    np.testing.assert_array_equal(torch.cat(targets).numpy(), drawn.targets)
    assert dataset.metadata == drawn.metadata
    assert dataset.metadata["count"] == len(dataset) == 24


def test_a_file_has_everything_and_the_same_bytes_again(tmp_path: Path, synthbench: Command) -> None:
    drawn = draw("mqar:level=3,num_pairs=2", split="test", seed=7, count=10)
    write(drawn, tmp_path / "one.npz")
    asked = ("mqar:level=3,num_pairs=2", "--split", "test", "--seed", "7", "--count", "10", "--out", "two.npz")
    assert [synthbench("data", *asked, *again).returncode for again in ([], [], ["--force"])] == [0, 2, 0]
    with np.load(tmp_path / "one.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["inputs"], drawn.inputs)
        np.testing.assert_array_equal(file["targets"], drawn.targets)
        metadata = json.loads(str(file["metadata"]))

    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert metadata == drawn.metadata
    assert metadata["options"]["num_pairs"] == 2
    assert metadata["floor"] == drawn.task.floor(drawn.length).value
    assert metadata["ceiling"] == drawn.task.ceiling(drawn.length).value
    assert {path.name for path in tmp_path.iterdir()} == {"one.npz", "two.npz"}


def test_no_file_is_left_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw("copy:length=4", count=2)
    (tmp_path / "old.npz").write_text("precious")
    monkeypatch.setattr(np, "savez_compressed", failing(errno.ENOSPC))
    with pytest.raises(StoreError, match="No space left on device"):
        write(drawn, tmp_path / "old.npz", is_forced=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.npz", "precious")]
