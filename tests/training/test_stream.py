from collections.abc import Iterator

import numpy as np
import pytest
import torch

from synthbench.tasks import IGNORE
from synthbench.training.cell import Run
from synthbench.training.seeding import data_blocks
from synthbench.training.stream import device_blocks, prefetched
from tests.training.cells import CPU, make_cell


@pytest.mark.parametrize("task", ["reverse", "parity", "distant_match"])
def test_every_run_gets_its_own_seeds_stream(task: str) -> None:
    cell = make_cell(task, length=12)
    runs = [Run(cell, 5, 1e-3), Run(cell, 6, 1e-3), Run(cell, 5, 1e-2)]
    (block,) = device_blocks(runs, "train", num_batches=3, batch_size=4, device=CPU)
    inputs, targets, columns = block

    assert torch.equal(inputs[:, 0], inputs[:, 2])
    assert not torch.equal(inputs[:, 0], inputs[:, 1])
    (drawn,) = data_blocks(cell.task, 12, "train", 5, num_batches=3, batch_size=4)
    last = int(columns.max())
    np.testing.assert_array_equal(inputs[:, 0].numpy(), drawn.inputs[..., : last + 1])
    np.testing.assert_array_equal(targets[:, 0].numpy(), drawn.targets[..., columns.numpy()])


def test_only_scored_columns_are_kept_and_nothing_behind_them() -> None:
    cell = make_cell("distant_match", length=12)
    (block,) = device_blocks(cell.runs([0]), "train", num_batches=3, batch_size=8, device=CPU)

    assert block.columns.tolist() == [6]
    assert block.inputs.shape == (3, 1, 8, 7)
    assert (block.targets != IGNORE).any()


def test_prefetching_changes_nothing() -> None:
    assert list(prefetched(iter([[1], [2], [3]]))) == [[1], [2], [3]]
    assert list(prefetched(iter([]))) == []


def test_prefetching_passes_an_error_on() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ArithmeticError("drawn wrong")

    items = prefetched(broken())
    with pytest.raises(ArithmeticError, match="drawn wrong"):
        list(items)
