"""Draw the token sequences of a task exactly as runs read them, without training and without PyTorch."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from jaxtyping import Int

from synthbench.errors import StoreError, UnknownName, UsageError
from synthbench.options import LARGEST_SEED, arguments_of, parse_term, registered
from synthbench.plugins import blamed
from synthbench.suites import Suite, load_suite
from synthbench.tasks import SPLITS, TASKS, Batch, Level, Split, Task, sized
from synthbench.training.ladder import ladder_schedule, sized_in
from synthbench.training.seeding import data_blocks

MOST_TOKENS = 1 << 28
"""Limit on the tokens that are drawn; inputs and targets of that size take 4 GiB."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequences of one split (training, validation or test), in the order in which a run reads them."""

    task: Task
    length: int
    split: Split
    seed: int
    batch_size: int
    inputs: Int[np.ndarray, "count length"]
    targets: Int[np.ndarray, "count length"]
    """Target tokens; -100 at positions that are not scored."""

    @property
    def metadata(self) -> dict[str, Any]:
        """Facts about the task and the stream of sequences.

        Floor and ceiling are accuracies in [0, 1] or, for some tasks, negated bits per token.
        """
        floor, ceiling = self.task.floor(self.length), self.task.ceiling(self.length)
        return {
            "task": self.task.name,
            "version": self.task.version,
            "options": arguments_of(self.task),
            "length": self.length,
            "vocab_size": self.task.vocab_size,
            "readout": self.task.readout,
            "floor": floor.value,
            "floor_kind": floor.kind,
            "ceiling": ceiling.value,
            "ceiling_kind": ceiling.kind,
            "split": self.split,
            "seed": self.seed,
            "count": len(self.inputs),
            "batch_size": self.batch_size,
        }


def draw(
    task: str,
    *,
    split: str = "train",
    seed: int = 0,
    count: int | None = None,
    batch_size: int | None = None,
    suite: str | None = None,
) -> Sequences:
    """Draw the training, validation or test sequences of a run, in the order in which the run reads them.

    With ``suite``, the result is the first ``count`` sequences that runs of the suite read. Without ``suite``, it is
    all sequences of a run that reads ``count`` sequences in batches of ``batch_size``. A run draws its sequences in
    large blocks, so without ``suite``, another ``count`` or ``batch_size`` may give entirely different sequences.

    Args:
        task: Name of the task, with options as in ``mqar:level=3`` or ``mqar:num_pairs=8``.
        split: ``train``, ``validation`` or ``test``.
        seed: Root seed of the run, 0 or more.
        count: Number of sequences. Default: all that a run of ``suite`` reads.
        batch_size: Sequences per batch, a divisor of ``count``. Default: all in one batch, as in a test. Not allowed
            with ``suite``.
        suite: Name of the suite whose runs read the sequences. The suite sets the batch size and the options that it
            lists for the task.

    Raises:
        UnknownName: If the task, an option, the split or the suite does not exist.
        UsageError: If a value is not allowed, or neither ``count`` nor ``suite`` is given.
        ContractError: If the code of a plugin's task raises an exception.
    """
    for label, value, least in (("seed", seed, 0), ("count", count, 1), ("batch size", batch_size, 1)):
        if value is not None and not least <= value <= LARGEST_SEED:
            raise UsageError(f"{label} is {value}; allowed: {least} and more, up to {LARGEST_SEED}")
    name, given = parse_term(registered(task, TASKS.resolve))
    protocol = None if suite is None else load_suite(suite)
    if protocol is not None and batch_size is not None:
        raise UsageError(f"batch size is {batch_size}; allowed: none beside suite {protocol.name!r}, which has its own")
    stream = next((known for known in SPLITS if known == split), None)
    if stream is None:
        raise UnknownName("split", split, SPLITS)
    if protocol is not None and protocol.ladder is not None:
        level, num_batches, batch_size = _level_of(protocol, stream, name, given)
        unit, length = level.task, level.length
    else:
        length, options = sized(name, given) if protocol is None else sized_in(protocol, name, given)
        level, unit = None, TASKS[name](**options)
        num_batches, batch_size = _in_batches(count, batch_size) if protocol is None else _read_by(protocol, stream)
    most = min(num_batches * batch_size, MOST_TOKENS // length)
    count = count or num_batches * batch_size
    if count > most:
        raise UsageError(f"count is {count}; allowed: 1 to {most}")
    with blamed(f"task {name!r} cannot be drawn", type(unit)):
        sequences = sequences_of(
            unit, length, stream, seed, num_batches=num_batches, batch_size=batch_size, count=count
        )
        # Training uses all targets of a level.
        if level is None or stream == "train":
            return sequences
        return replace(sequences, targets=level.new_targets(sequences.targets))


def sequences_of(
    task: Task, length: int, split: Split, seed: int, *, num_batches: int, batch_size: int, count: int
) -> Sequences:
    """Draw the first ``count`` sequences of a stream that has ``num_batches`` batches in all."""
    drawn: list[Batch] = []
    for block in data_blocks(task, length, split, seed, num_batches=num_batches, batch_size=batch_size):
        drawn.append(block)
        if sum(batch.inputs.size for batch in drawn) >= count * length:
            break
    inputs, targets = (
        np.concatenate([part.reshape(-1, length) for part in parts])[:count].astype(np.int64, copy=False)
        for parts in zip(*drawn, strict=True)
    )
    return Sequences(task, length, split, seed, batch_size, inputs, targets)


def _in_batches(count: int | None, batch_size: int | None) -> tuple[int, int]:
    """Split ``count`` sequences into batches; return the number of batches and their size."""
    if count is None:
        raise UsageError("count is missing; give it, or a suite, whose runs read a number of their own")
    batch_size = batch_size or count
    if count % batch_size:
        raise UsageError(f"count is {count}; allowed: a multiple of the batch size, {batch_size}")
    return count // batch_size, batch_size


def _read_by(suite: Suite, split: Split) -> tuple[int, int]:
    """Return the number of batches that a run of a suite reads, and their size."""
    training, evaluation = suite.training, suite.evaluation
    return {
        "train": (training.steps, training.batch_size),
        "validation": (-(-training.steps // evaluation.curve_every), evaluation.curve_sequences or 0),
        "test": (1, evaluation.test_sequences),
    }[split]


def _level_of(suite: Suite, split: Split, task: str, given: Mapping[str, str]) -> tuple[Level, int, int]:
    """Find the level that option ``level`` names; return the level, and the number and size of its batches in a run."""
    schedule = ladder_schedule(suite, task)
    numbers = [str(number) for number, _ in enumerate(schedule.levels, start=1)]
    level = given.get("level", given.get("rung"))
    if len(given) != 1 or level not in numbers:
        raise UsageError(
            f"options of {task!r} are {dict(given)}; allowed in suite {suite.name!r}: its level, 1 to {len(numbers)}, "
            f"as in {task}:level=1"
        )
    index = numbers.index(level)
    if split == "train":
        return schedule.levels[index], schedule.num_batches[index], schedule.batch_sizes[index]
    if split == "test":
        return schedule.levels[index], 1, suite.evaluation.test_sequences
    if suite.evaluation.validation_sequences is not None:
        return schedule.levels[index], 1, suite.evaluation.validation_sequences
    raise UsageError(f"split is {split!r}; allowed in suite {suite.name!r}, which does not validate: train, test")


def write(sequences: Sequences, path: Path, *, is_forced: bool = False) -> None:
    """Write ``inputs``, ``targets`` and ``metadata`` (JSON text) to a NumPy archive; equal sequences give equal files.

    Raises:
        UsageError: If ``path`` does not end in ``.npz``, or if the file exists and ``is_forced`` is False.
        StoreError: If the file cannot be written; no partial file is left in that case.
    """
    if path.suffix != ".npz":
        raise UsageError(f"out is {str(path)!r}; allowed: the name of a file that ends in .npz")
    if path.exists() and not is_forced:
        raise UsageError(f"{path} exists already; choose another name, or replace it with --force")
    arrays = {"inputs": sequences.inputs, "targets": sequences.targets}
    write_archive(path, {**arrays, "metadata": np.array(json.dumps(sequences.metadata))})


def write_archive(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a compressed NumPy archive; an existing file at ``path`` is replaced once the new file is complete.

    Raises:
        StoreError: If the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with partial.open("xb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as problem:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {problem.strerror or problem}") from problem
