"""Random streams of a run, all derived from one root seed: ``init``, ``train``, ``validation``, ``test``.

A stream is a sequence of random numbers. ``init`` gives the initial parameters; the other three give data. A data
stream depends on task, task version, length, options, split and seed, never on mechanism or learning rate. So every
mechanism sees the same batches, and a worker process can keep drawn batches for the next mechanism. The ``init``
stream depends on the seed alone, so all mechanisms begin with the same embeddings. The Philox generator is
counter-based, so its streams are the same on every machine.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from threading import Lock

import numpy as np

from synthbench.options import arguments_of
from synthbench.tasks import Batch, Split, Task

BLOCK_STEPS = 200
"""Number of batches drawn at once. A different number would change the data of all streams."""

KEPT_BYTES = {"cpu": 1 << 26, "cuda": 1 << 32}
"""Limit on the memory of the blocks that a worker process keeps, in bytes, by device type.

The limit is low on a CPU, where drawing takes 0.2 % of a run and every core has a worker process. The limit is high on
a GPU, which has to wait for data and is shared by few processes.
"""

_STREAMS = {"init": 0, "train": 1, "validation": 2, "test": 3}


def _data_sequence(task: Task, length: int, split: Split, seed: int) -> np.random.SeedSequence:
    size = json.dumps([task.name, task.version, length, arguments_of(task)], sort_keys=True).encode()
    words = np.frombuffer(hashlib.sha256(size).digest()[:16], dtype="<u4")
    return np.random.SeedSequence(seed, spawn_key=(_STREAMS[split], *(int(word) for word in words)))


def init_seed(seed: int) -> int:
    """Derive the seed for a run's initial parameters, an integer below 2**63, from the run's root seed."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_STREAMS["init"],))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def data_seed(task: Task, length: int, seed: int) -> int:
    """Derive an integer below 2**63 that identifies a run's training data; it is the same for all mechanisms."""
    return int(_data_sequence(task, length, "train", seed).generate_state(1, np.uint64)[0] >> 1)


def data_block(
    task: Task, length: int, split: Split, seed: int, index: int, *, num_steps: int, batch_size: int
) -> Batch:
    """Draw one block of a data stream: ``num_steps`` batches, with arrays of shape [num_steps, batch_size, length].

    ``index`` is the block's number in the stream, from 0. All blocks but the last have ``BLOCK_STEPS`` batches.
    """
    root = _data_sequence(task, length, split, seed)
    child = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, index))  # as root.spawn makes it
    batch = task.of_split(split).sample(np.random.Generator(np.random.Philox(child)), num_steps * batch_size, length)
    return Batch(*(tokens.reshape(num_steps, batch_size, length) for tokens in batch))


class KeptBlocks:
    """A cache of drawn data in memory, in blocks of many batches; the least recently used blocks are dropped first.

    Args:
        most_bytes: Limit on the memory of all kept blocks, in bytes.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._blocks: OrderedDict[tuple[object, ...], Batch] = OrderedDict()
        self._lock = Lock()  # training and validation are drawn by separate threads

    def block(
        self, task: Task, length: int, split: Split, seed: int, index: int, *, num_steps: int, batch_size: int
    ) -> Batch:
        """Return the same block as :func:`data_block`, in the smallest integer types that hold its tokens.

        The block is drawn only if it is not in the cache.
        """
        name = json.dumps([task.name, task.version, arguments_of(task)], sort_keys=True)  # as the stream is named
        key = (type(task), name, length, split, seed, index, num_steps, batch_size)
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
        drawn = data_block(task, length, split, seed, index, num_steps=num_steps, batch_size=batch_size)
        block = Batch(*map(_smallest, drawn))
        with self._lock:
            if key not in self._blocks and _num_bytes(block) <= self.most_bytes:
                self._blocks[key] = block
                self.num_bytes += _num_bytes(block)
            while self.num_bytes > self.most_bytes:
                _, oldest = self._blocks.popitem(last=False)
                self.num_bytes -= _num_bytes(oldest)
        return block


@lru_cache(maxsize=1)
def blocks_of(command: str, device_type: str) -> KeptBlocks:  # noqa: ARG001 - the cache is of one command
    """Return this process's cache of drawn data for the command with the id ``command``.

    If there is none yet, a new cache is made, and the cache of another command or type of device is dropped.
    """
    return KeptBlocks(KEPT_BYTES[device_type])


def data_blocks(
    task: Task,
    length: int,
    split: Split,
    seed: int,
    *,
    num_batches: int,
    batch_size: int,
    kept: KeptBlocks | None = None,
) -> Iterator[Batch]:
    """Yield the batches of a data stream in blocks of up to ``BLOCK_STEPS`` batches.

    The arrays of a block have the shape [batches, batch, length]. A block is drawn when the iterator reaches it, unless
    the cache ``kept`` already has it. Block i depends only on the stream, on i and on the number of batches in the
    block. So with a larger ``num_batches``, all full blocks stay the same.
    """
    draw = data_block if kept is None else kept.block
    for index in range(-(-num_batches // BLOCK_STEPS)):
        num_steps = min(BLOCK_STEPS, num_batches - index * BLOCK_STEPS)
        yield draw(task, length, split, seed, index, num_steps=num_steps, batch_size=batch_size)


def _num_bytes(block: Batch) -> int:
    return block.inputs.nbytes + block.targets.nbytes


def _smallest(tokens: np.ndarray) -> np.ndarray:
    """Convert tokens to the smallest integer type that holds them, a signed one if any token is negative."""
    low, high = int(tokens.min(initial=0)), int(tokens.max(initial=0))
    return tokens.astype(np.min_scalar_type(high if low == 0 else min(low, -1 - high)))
