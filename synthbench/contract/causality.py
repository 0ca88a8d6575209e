"""Find leaks (outputs that depend on later inputs or on other sequences) at the batch shapes of the main suite.

Fast kernels may leak only at some lengths, batch sizes or dtypes. For example, a leak may occur only if the length is a
multiple of the kernel's block size, or only in large batches, which use other code.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from synthbench.options import MAIN_SUITE
from synthbench.suites import load_suite
from synthbench.tasks import IGNORE
from synthbench.training.ladder import ladder_schedule
from synthbench.training.stream import in_pieces

TOLERANCE = 1e-4
"""Largest change, relative to the largest output, that counts as rounding in float32."""

BLOCKS = (64, 128, 16)
"""Block sizes of fast kernels, in tokens; some alterations begin at the first or second token after a block."""


class Shape(NamedTuple):
    """The shape of a batch, and the model sizes for which a check builds the mechanism."""

    batch_size: int
    length: int
    max_length: int
    model_dim: int
    num_heads: int
    modes: tuple[bool, ...] = (True, False)
    """Modes in which the shape occurs: True for training, False for evaluation."""


@cache
def shapes_of_main_suite() -> tuple[Shape, ...]:
    """List the distinct shapes of training and test batches in the main suite (``core``), shortest sequences first.

    For a batch that is too large for one call of the model, the shapes of its pieces are listed instead.
    """
    suite = load_suite(MAIN_SUITE)
    rng = np.random.Generator(np.random.Philox(key=0))
    found = set()
    for task in suite.tasks:
        schedule = ladder_schedule(suite, task)
        for level, size in zip(schedule.levels, schedule.batch_sizes, strict=True):
            for batch_size, is_training in ((size, True), (suite.evaluation.test_sequences, False)):
                targets = level.task.sample(rng, batch_size, level.length).targets
                last = int(np.flatnonzero((targets != IGNORE).any(0)).max(initial=0))
                num_visible = last + 1 if level.task.readout == "position" else level.length
                whole = torch.zeros(1, batch_size, num_visible, dtype=torch.long)
                found |= {(num_visible, piece.shape[1], is_training) for piece, _ in in_pieces(whole, whole)}
    model, longest = suite.model, suite.ladder.longest if suite.ladder is not None else max(found)[0]
    return tuple(
        Shape(batch_size, length, longest, model.model_dim, model.num_heads, (is_training,))
        for length, batch_size, is_training in sorted(found)
    )


def describe_leak(
    before: Float[Tensor, "batch length width"],
    after: Float[Tensor, "batch length width"],
    is_known: Bool[Tensor, "batch length"],
    *,
    is_training: bool,
    tolerance: float = TOLERANCE,
) -> str | None:
    """Compare outputs before and after some inputs were altered, and describe the largest change that is an error.

    Args:
        before: Outputs for the original inputs.
        after: Outputs for the altered inputs.
        is_known: True at positions whose outputs must not change, since no input at or before the position was altered.
        is_training: True if the mechanism was in training mode, False if in evaluation mode.
        tolerance: Largest change, relative to the largest output, that counts as rounding.

    Returns:
        Text to follow the mechanism's name in an error message, such as ``is not causal: changing ...``. None if no
        change at positions marked in ``is_known`` exceeds ``tolerance``.
    """
    size = before.nan_to_num(0, 0, 0).abs().max().clamp(min=torch.finfo(before.dtype).tiny)
    # An output that was not finite before is a fault of another kind; one that is not finite after is a change.
    is_held = is_known & before.isfinite().all(-1)
    changes = ((before - after).abs().amax(-1) / size).where(is_held, 0)
    if bool((changes <= tolerance).all()):
        return None
    untouched = changes.where(is_known.all(-1, keepdim=True), 0)
    if not bool((untouched <= tolerance).all()):  # a leak between sequences need not be one of the future
        changes = untouched
    place = int(changes.nan_to_num(torch.inf).argmax())
    sequence, position = divmod(place, before.shape[1])
    what = (
        f"lets sequences see each other: changing some sequences changes the output of another at position {position}"
        if bool(is_known[sequence].all())
        else f"is not causal: changing the inputs after position {position} changes the output at position {position}"
    )
    mode = "training" if is_training else "evaluation"
    dtype = str(before.dtype).removeprefix("torch.")
    return (
        f"{what} by {float(changes.flatten()[place]):.2g} of the largest output (length {before.shape[1]}, batch size "
        f"{len(before)}, {dtype}, {mode} mode)"
    )


def cuts_of(length: int) -> list[int]:
    """List the positions, counted from 0, at which a check of causality begins to alter the inputs.

    They are a third of the length, 1, the last position and, for each block size in ``BLOCKS``, the first two positions
    of the second and the third block.

    >>> cuts_of(40)
    [13, 1, 39, 16, 17, 32, 33]
    >>> cuts_of(200)[:9]
    [66, 1, 199, 64, 65, 128, 129, 16, 17]
    """
    at_blocks = (cut for block in BLOCKS for end in range(block, length, block)[:2] for cut in (end, end + 1))
    cuts = dict.fromkeys((max(1, length // 3), 1, length - 1, *at_blocks))
    return [cut for cut in cuts if cut < length] or [0]


def alterations(batch_size: int, length: int) -> Int[Tensor, " batch"]:
    """Choose, for each sequence of a batch, the first position at which its inputs are altered.

    The first, third, fifth sequence and so on get the positions of :func:`cuts_of` in turn. All others get ``length``,
    one position beyond their end, so they stay unaltered.
    """
    cuts = torch.tensor(cuts_of(length))
    number = torch.arange(batch_size)
    return torch.where(number % 2 == 0, cuts[number // 2 % len(cuts)], length)
