"""What is measured of any task: what can be had without mixing positions, and by shortcuts."""

import numpy as np
from jaxtyping import Int

from synthbench.tasks.base import IGNORE, Batch, Bound, Task

NUM_TOKENS = 2**19
"""Tokens of the sample from which the rule is learned, and of the one on which it is scored."""


def measured_local_ceiling(task: Task, length: int) -> Bound:
    """See :func:`synthbench.tasks.local_ceiling`."""
    floor = task.floor(length)
    if task.readout == "bottleneck":
        return floor
    fit, fresh = (_sample(task, length, seed) for seed in (0, 1))
    seen, learned = _most_frequent(_pairs(task, fit.inputs), fit.targets)
    pairs = _pairs(task, fresh.inputs)
    # A pair that was never seen is answered by its neighbour's rule: wrong at worst, as a constant would be.
    predictions = learned[np.searchsorted(seen, pairs).clip(max=len(seen) - 1)]
    reached = accuracy(predictions, fresh.targets)
    return reached if reached.value > floor.value else floor


def measured_shortcuts(task: Task, length: int) -> dict[str, Bound]:
    """See :func:`synthbench.tasks.shortcut_accuracies`."""
    inputs, targets = _sample(task, length, 0)
    return {name: accuracy(predictions, targets) for name, predictions in task.shortcuts(inputs).items()}


def _sample(task: Task, length: int, seed: int) -> Batch:
    return task.sample(np.random.Generator(np.random.Philox(seed)), max(256, NUM_TOKENS // length), length)


def accuracy(predictions: Int[np.ndarray, "batch length"], targets: Int[np.ndarray, "batch length"]) -> Bound:
    """What predictions reach, pooled over the scored positions; the best rule of their kind may reach more.

    Sequences are independent, their positions are not: the standard error is that of a ratio of two sums.
    """
    is_scored = targets != IGNORE
    is_right = (predictions == targets) & is_scored
    share = is_right.sum() / is_scored.sum()
    residuals = is_right.sum(axis=1) - share * is_scored.sum(axis=1)
    return Bound(float(share), "bound", float(np.sqrt((residuals**2).sum()) / is_scored.sum()))


def _pairs(task: Task, inputs: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, "batch length"]:
    """One number for each position and token."""
    return inputs + task.vocab_size * np.arange(inputs.shape[1])


def _most_frequent(
    pairs: Int[np.ndarray, "batch length"], targets: Int[np.ndarray, "batch length"]
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """The pairs that occur at scored positions, sorted, and the most frequent target of each."""
    is_scored = targets != IGNORE
    (seen, answers), counts = np.unique(np.stack([pairs[is_scored], targets[is_scored]]), axis=1, return_counts=True)
    order = np.lexsort((-counts, seen))
    kept, first = np.unique(seen[order], return_index=True)
    return kept, answers[order][first]
