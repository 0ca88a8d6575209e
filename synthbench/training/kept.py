"""Blocks of streams that a worker has drawn, kept for the next mechanism: all of them read the same data."""

import json
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

import numpy as np

from synthbench.knobs import arguments_of
from synthbench.tasks import Batch, Task
from synthbench.training.seeding import BLOCK_STEPS, Split, data_block

KEPT_BYTES = {"cpu": 1 << 26, "cuda": 1 << 32}
"""Most bytes of a worker's kept blocks. The 220 streams of suite `paper` have 150 MB.

On a CPU drawing takes 0.2 % of a run and there is a worker for each core; a GPU waits for data, and few share it.
"""

_SMALL = (np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64)


class KeptStreams:
    """Streams whose latest blocks stay in memory, those read least recently the first to go.

    Args:
        most_bytes: What the kept blocks may take together.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._blocks: OrderedDict[tuple[object, ...], Batch] = OrderedDict()
        self._lock = Lock()  # training and validation are drawn by a thread each

    def blocks(
        self, task: Task, length: int, split: Split, seed: int, *, num_batches: int, batch_size: int
    ) -> Iterator[Batch]:
        """The same as :func:`~synthbench.training.seeding.data_blocks`, in the smallest types that hold the tokens.

        A block is drawn when it is asked for, unless it is kept.
        """
        name = json.dumps([task.name, task.version, arguments_of(task)], sort_keys=True)  # as the stream is named
        for index in range(-(-num_batches // BLOCK_STEPS)):
            num_steps = min(BLOCK_STEPS, num_batches - index * BLOCK_STEPS)
            key = (type(task), name, length, split, seed, index, num_steps, batch_size)
            block = self._find(key)
            if block is None:
                drawn = data_block(task, length, split, seed, index, num_steps=num_steps, batch_size=batch_size)
                block = Batch(*map(_smallest, drawn))
                self._keep(key, block)
            yield block

    def _find(self, key: tuple[object, ...]) -> Batch | None:
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            return self._blocks.get(key)

    def _keep(self, key: tuple[object, ...], block: Batch) -> None:
        if _num_bytes(block) > self.most_bytes:
            return
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = block
                self.num_bytes += _num_bytes(block)
            while self.num_bytes > self.most_bytes:
                _, oldest = self._blocks.popitem(last=False)
                self.num_bytes -= _num_bytes(oldest)


_of_command: dict[str, KeptStreams] = {}
"""Of the command that this process works for, by its name."""


def streams_of(command: str, device_type: str) -> KeptStreams:
    """The streams that this process keeps for a command; those of any other command are given up."""
    streams = _of_command.get(command)
    if streams is None:
        forget_streams()
        streams = _of_command[command] = KeptStreams(KEPT_BYTES[device_type])
    return streams


def forget_streams() -> None:
    """Give up what this process keeps."""
    _of_command.clear()


def _num_bytes(block: Batch) -> int:
    return block.inputs.nbytes + block.targets.nbytes


def _smallest(tokens: np.ndarray) -> np.ndarray:
    """The same numbers in the smallest type that holds them."""
    low, high = tokens.min(initial=0), tokens.max(initial=0)
    types = (dtype for dtype in _SMALL if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max)
    return tokens.astype(next(types))
