import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from synthbench.data import TaskDataset
from synthbench.errors import StoreError, UsageError
from synthbench.runner.plan import make_cells
from synthbench.suites import load_suite
from synthbench.tasks import IGNORE, Split
from synthbench.training.sequences import draw, write
from synthbench.training.train import Trainer
from tests.results.stores import failing


def read_in_a_run(task: str, split: Split, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and scored columns of one stream, as the trainer of suite ``smoke`` reads them."""
    suite = load_suite("smoke")
    (cell,) = make_cells(suite, {task: {}}, {"linear": {}}, device_type="cpu", is_full=True)
    trainer = Trainer(cell.runs([seed]), torch.device("cpu"))
    before_a_test = {"train": trainer.training_batches(), "validation": trainer.validation_batches()}
    batches = list(before_a_test.get(split) or trainer.batches("test", 1, suite.evaluation.test_sequences))
    inputs, targets = (
        torch.cat([getattr(batch, part)[0, 0] for batch in batches]).numpy() for part in batches[0]._fields[:2]
    )
    return inputs, targets, batches[0].columns.numpy()


@pytest.mark.parametrize(
    ("task", "split"), [("copy", "train"), ("copy", "validation"), ("copy", "test"), ("first_token", "validation")]
)
def test_the_sequences_are_those_that_a_run_with_this_seed_reads(task: str, split: Split) -> None:
    inputs, targets, columns = read_in_a_run(task, split, seed=43)
    drawn = draw(task, split=split, seed=43, suite="smoke")

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


def test_a_file_has_everything_and_the_same_bytes_again(tmp_path: Path) -> None:
    drawn = draw("mqar:level=3,num_pairs=2", split="test", seed=7, count=10)
    for name in ("one.npz", "two.npz"):
        write(drawn, tmp_path / name)
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


def test_no_file_is_replaced_unasked_and_none_is_left_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = draw("copy:length=4", count=2)
    (tmp_path / "old.npz").write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        write(drawn, tmp_path / "old.npz")
    monkeypatch.setattr(np, "savez_compressed", failing(errno.ENOSPC))
    with pytest.raises(StoreError, match="No space left on device"):
        write(drawn, tmp_path / "old.npz", is_forced=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.npz", "precious")]


def test_the_command_writes_the_file_and_replaces_none_unasked(tmp_path: Path, synthbench: Callable[..., Any]) -> None:
    out = str(tmp_path / "mqar.npz")
    ask = ["data", "mqar:level=3", "--count", "5", "--seed", "1", "--split", "validation", "--out", out]

    assert synthbench(*ask).returncode == 0
    with np.load(out) as file:
        np.testing.assert_array_equal(file["inputs"], draw("mqar:level=3", split="validation", seed=1, count=5).inputs)
    assert synthbench(*ask).returncode == 2
    assert synthbench(*ask, "--force").returncode == 0
