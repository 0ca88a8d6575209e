"""One root seed a member, and separate streams from it: ``init``, ``train``, ``validation``, ``test``.

The data streams are keyed by task, task version, size, split and seed, never by mechanism or learning rate: every
mechanism sees the same batches. The ``init`` stream is keyed by the seed alone, so all mechanisms begin with the same
embeddings. Philox is counter-based: its streams are the same on every machine.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Literal

import numpy as np

from synthbench.knobs import arguments_of
from synthbench.tasks import Batch, Task

Split = Literal["train", "validation", "test"]

BLOCK_STEPS = 200
"""Batches that are drawn at once. It decides which numbers are drawn, so it is part of what the streams are."""

_STREAMS = {"init": 0, "train": 1, "validation": 2, "test": 3}


def _data_sequence(task: Task, length: int, split: Split, seed: int) -> np.random.SeedSequence:
    size = json.dumps([task.name, task.version, length, arguments_of(task)], sort_keys=True).encode()
    words = np.frombuffer(hashlib.sha256(size).digest()[:16], dtype="<u4")
    return np.random.SeedSequence(seed, spawn_key=(_STREAMS[split], *(int(word) for word in words)))


def init_seed(seed: int) -> int:
    """The seed of a member's initialisation, below 2**63."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_STREAMS["init"],))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def data_seed(task: Task, length: int, seed: int) -> int:
    """A number below 2**63 that names a member's training stream; equal for all mechanisms."""
    return int(_data_sequence(task, length, "train", seed).generate_state(1, np.uint64)[0] >> 1)


def data_blocks(
    task: Task, length: int, split: Split, seed: int, *, num_batches: int, batch_size: int
) -> Iterator[Batch]:
    """Draw a stream block by block, each of up to ``BLOCK_STEPS`` batches: arrays [batches, batch, length].

    Block i depends on nothing but the stream and i, so the first batches are the same however many follow, as long as
    they fill whole blocks.
    """
    for index in range(-(-num_batches // BLOCK_STEPS)):
        num_steps = min(BLOCK_STEPS, num_batches - index * BLOCK_STEPS)
        yield data_block(task, length, split, seed, index, num_steps=num_steps, batch_size=batch_size)


def data_block(
    task: Task, length: int, split: Split, seed: int, index: int, *, num_steps: int, batch_size: int
) -> Batch:
    """Draw one block of a stream, of up to ``BLOCK_STEPS`` batches: arrays [batches, batch, length]."""
    root = _data_sequence(task, length, split, seed)
    child = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, index))  # as root.spawn makes it
    batch = task.sample(np.random.Generator(np.random.Philox(child)), num_steps * batch_size, length)
    return Batch(*(tokens.reshape(num_steps, batch_size, length) for tokens in batch))
