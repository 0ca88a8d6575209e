"""The data that runs read, drawn and moved to the training device.

Each cell (a mechanism on a task) and seed has one stream of batches, which runs with different learning rates share.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int, Integer, Shaped
from torch import Tensor

from synthbench.tasks import IGNORE, Batch, Split, Task
from synthbench.training.cell import Cell, Run
from synthbench.training.seeding import KeptBlocks, data_blocks

T = TypeVar("T")

TOKENS_AT_ONCE = {"cpu": 1536, "cuda": 1 << 20}
"""Limit on the tokens of all runs that pass through the model at once, by device type.

On a CPU the activations should stay in a core's cache. On one thread, at length 256 and batch 32, six pieces take 40 %
less time than the whole batch with ``slay``, and 60 % less with ``yat-spherical``.
"""


class DeviceBlock(NamedTuple):
    """Many batches of all runs, moved to the device at once.

    ``inputs`` has the shape [batches, runs, batch, length]. ``targets`` has the shape [batches, runs, batch, number of
    columns]: it holds only the positions in ``columns``, where at least one sequence is scored. Inputs after the last
    scored position are cut off, since mechanisms are causal and no scored output depends on them. If the model computes
    all answers from its output at the last position, nothing is cut off.
    """

    inputs: Tensor
    targets: Tensor
    columns: Tensor


def device_blocks(
    runs: Sequence[Run],
    split: Split,
    *,
    num_batches: int,
    batch_size: int,
    device: torch.device,
    factor: int = 1,
    is_beyond: bool = False,
    kept: KeptBlocks | None = None,
) -> Iterator[DeviceBlock]:
    """Draw the data streams of runs block by block, and move each block to the device.

    ``factor`` selects the task and length: it is a key of :attr:`Cell.tests` or, with ``is_beyond``, of
    :attr:`Cell.beyond`. The length must be the same for all runs. A block in the cache ``kept`` is not drawn again. On
    a GPU, the next block is drawn while the device works on the current block. On a ladder (levels of increasing
    difficulty), targets before a level's position ``first_new`` are as easy as on easier levels. They are scored in
    training, but not in validation and test.
    """

    def test_of(cell: Cell) -> tuple[Task, int]:
        return cell.beyond[factor][:2] if is_beyond else cell.tests[factor]

    names = [(run.cell, run.seed) for run in runs]
    distinct = list(dict.fromkeys(names))
    stream_of_run = [distinct.index(name) for name in names]
    streams = [
        data_blocks(*test_of(cell), split, seed, num_batches=num_batches, batch_size=batch_size, kept=kept)
        for cell, seed in distinct
    ]
    task, length = test_of(runs[0].cell)

    def targets_of(batch: Batch, cell: Cell) -> Integer[np.ndarray, "batches batch length"]:
        if split == "train" or not cell.levels:
            return batch.targets
        level = cell.beyond[factor] if is_beyond else cell.levels[factor - 1]
        return level.new_targets(batch.targets)

    def move() -> Iterator[DeviceBlock]:
        for batches in zip(*streams, strict=True):
            labels = [targets_of(batch, cell) for batch, (cell, _) in zip(batches, distinct, strict=True)]
            inputs = np.stack([batches[stream].inputs for stream in stream_of_run], axis=1, dtype=np.int64)
            targets = np.stack([labels[stream] for stream in stream_of_run], axis=1, dtype=np.int64)
            columns = np.flatnonzero((targets != IGNORE).any(axis=(0, 1, 2)))
            scored = np.ascontiguousarray(targets[..., columns])
            num_visible = columns.max(initial=0) + 1 if task.readout == "position" else length
            visible = np.ascontiguousarray(inputs[..., :num_visible])
            yield DeviceBlock(*(torch.from_numpy(array).to(device) for array in (visible, scored, columns)))

    return move() if device.type == "cpu" else prefetched(move())


def in_pieces(
    inputs: Int[Tensor, "runs batch length"],
    targets: Shaped[Tensor, "runs batch columns"],
    tokens_at_once: int | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut a batch into nearly equal pieces of at most ``tokens_at_once`` tokens each, counting the tokens of all runs.

    A piece has at least one sequence per run, even if that exceeds the limit. ``targets`` is cut likewise; it may
    be any tensor with the same runs and sequences. If ``tokens_at_once`` is None, the device's ``TOKENS_AT_ONCE`` is
    used.
    """
    most = max(1, (tokens_at_once or TOKENS_AT_ONCE[inputs.device.type]) // (inputs.shape[0] * inputs.shape[-1]))
    num_pieces = math.ceil(inputs.shape[1] / most)
    yield from zip(inputs.chunk(num_pieces, dim=1), targets.chunk(num_pieces, dim=1), strict=True)


def prefetched(iterator: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator; a thread computes the next item while the caller works on the current one."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        pending = thread.submit(next, iterator, None)
        while (item := pending.result()) is not None:
            pending = thread.submit(next, iterator, None)
            yield item
