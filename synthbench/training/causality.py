"""Whether a model sees the future, or other sequences, in the very program that is trained.

Fast kernels leak at some lengths, batches or dtypes only: where a length is a multiple of a block, or a batch large
enough for another path. So the program is asked on the batches that it trains on: at each of their shapes, before the
first step of that shape and after the last step of all.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from synthbench.errors import ContractError
from synthbench.training.ensemble import MemberIds, SequenceModel

TOLERANCE = 1e-4
"""Largest change, relative to the largest output, that counts as rounding in float32."""

BLOCKS = (64, 128, 16)
"""Cuts are also made at the ends of blocks of these many tokens, and one token on: a fast kernel works in blocks."""


class Leak(NamedTuple):
    """What changed although nothing that it may depend on did."""

    change: float
    """Largest change over the largest output of the same member."""
    position: int
    is_of_future: bool
    """Whether its sequence was changed later on; else only other sequences were."""


def find_leak(
    before: Float[Tensor, "*leading length width"],
    after: Float[Tensor, "*leading length width"],
    is_known: Bool[Tensor, "*leading length"],
    tolerance: float,
) -> Leak | None:
    """The largest change among outputs that had to stay as they were; None if all did, up to rounding.

    Args:
        before: Outputs for some inputs; with four axes, of members, each of which has a size of its own.
        after: Outputs for inputs that differ in places.
        is_known: Where an input and all those before it in its sequence are the same in both.
        tolerance: Largest change, relative to the largest output, that counts as rounding.
    """
    finite = before.nan_to_num(0, 0, 0).abs()
    size = finite.amax((1, 2, 3), keepdim=True)[..., 0] if before.ndim == 4 else finite.max()
    # What is no number before is a fault of another kind; what becomes none is a change.
    is_held = is_known & before.isfinite().all(-1)
    changes = (before - after).abs().amax(-1) / size.clamp(min=torch.finfo(before.dtype).tiny)
    changes = changes.where(is_held, 0)
    if bool((changes <= tolerance).all()):
        return None
    place = changes.nan_to_num(torch.inf).flatten().argmax()
    *sequence, position = torch.unravel_index(place, changes.shape)
    return Leak(float(changes.flatten()[place]), int(position), not bool(is_known[tuple(sequence)].all()))


def cuts_of(length: int) -> list[int]:
    """Positions from which a sequence is altered: inside blocks, at their ends and one on, and the last.

    >>> cuts_of(40)
    [13, 1, 39, 16, 17, 32, 33]
    >>> cuts_of(200)[:9]
    [66, 1, 199, 64, 65, 128, 129, 16, 17]
    """
    at_blocks = (cut for block in BLOCKS for end in range(block, length, block)[:2] for cut in (end, end + 1))
    cuts = dict.fromkeys((max(1, length // 3), 1, length - 1, *at_blocks))
    return [cut for cut in cuts if cut < length] or [0]


def alterations(leading: Sequence[int], length: int) -> Iterator[Int[Tensor, "*leading"]]:
    """For each sequence the position from which it is altered, ``length`` for one that is not.

    Like the fields of a chessboard, every other sequence is altered, then the others: so each is beside others that
    change, in its batch and in other members. Together they try a cut for each sequence, and at least three.

    Args:
        leading: How many sequences there are on each axis.
        length: Tokens of each.
    """
    cuts = torch.tensor(cuts_of(length))
    colours = torch.stack(torch.meshgrid(*map(torch.arange, leading), indexing="ij")).sum(0) % 2
    num_rounds = math.ceil(3 / max(1, math.prod(leading)))
    for number, colour in product(range(num_rounds), (0, 1)):
        is_altered = colours == colour
        if is_altered.any():
            numbers = is_altered.flatten().cumsum(0).view(is_altered.shape) - 1
            place = (2 * number + colour) * int(is_altered.sum()) + numbers
            yield torch.where(is_altered, cuts[place % len(cuts)], length)


def check_as_trained(model: SequenceModel, tokens: MemberIds, vocab_size: int) -> None:
    """Check that no output depends on later tokens, on other sequences of its batch or on other members.

    In training mode with gradients, then in evaluation mode without.

    Args:
        model: Of all members.
        tokens: A batch, or the piece of one that passes through the model at once.
        vocab_size: Tokens that every member knows.

    Raises:
        ContractError: If one does; the message says at which length, batch and mode, where and by how much.
    """
    was_training = model.training
    try:
        for is_training in (True, False):
            model.train(is_training)
            with torch.enable_grad() if is_training else torch.inference_mode():
                before = _hidden(model, tokens)
                for cuts in alterations(tokens.shape[:-1], tokens.shape[-1]):
                    is_later = (torch.arange(tokens.shape[-1]) >= cuts[..., None]).to(tokens.device)
                    other = torch.where(is_later, (tokens + 1) % vocab_size, tokens)
                    is_known = (tokens == other).cumprod(-1).bool()
                    leak = find_leak(before, _hidden(model, other), is_known, TOLERANCE)
                    if leak is not None:
                        _refuse(model, tokens, before, leak, is_training=is_training)
    finally:
        model.train(was_training)


def _refuse(model: SequenceModel, tokens: Tensor, before: Tensor, leak: Leak, *, is_training: bool) -> None:
    everywhere = torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device)
    if find_leak(before, _hidden(model, tokens), everywhere, TOLERANCE) is not None:
        raise ContractError(
            f"the model as trained gives two outputs for one input in {'training' if is_training else 'evaluation'} "
            "mode; what is random is drawn once, when it is built"
        )
    beside = f", {len(tokens)} runs together" if len(tokens) > 1 else ""
    raise ContractError(f"the model as trained {told(leak, before, is_training=is_training)}{beside}")


def _hidden(model: SequenceModel, tokens: MemberIds) -> Float[Tensor, "members batch length width"]:
    """The vectors that the head reads; a bottleneck's head may look at all of them."""
    x: Tensor = model.position.embed(model.embedding(tokens))
    for block in model.layers:
        x = block(x)
    return x.detach()


def told(leak: Leak, before: Float[Tensor, "*leading batch length width"], *, is_training: bool) -> str:
    """What a leak is, where it was seen and how large it is."""
    what = (
        f"is not causal: other inputs after position {leak.position} change the output there"
        if leak.is_of_future
        else f"lets sequences see each other: other inputs in some change others' output at position {leak.position}"
    )
    mode = "training" if is_training else "evaluation"
    dtype = str(before.dtype).removeprefix("torch.")
    return (
        f"{what}, by {leak.change:.2g} of its size, at length {before.shape[-2]} and batch {before.shape[-3]}, "
        f"in {dtype} and {mode} mode"
    )
