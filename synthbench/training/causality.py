"""Whether a model sees the future, or other sequences, at the very settings at which it is trained.

Fast kernels leak at some lengths, batches or dtypes only: where a length is a multiple of a block, or a batch large
enough for another path. So the program that is trained is asked itself, before the first step and after the last.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from synthbench.errors import ContractError
from synthbench.training.ensemble import SequenceModel

TOLERANCE = 1e-4
"""Largest change, relative to the largest output, that counts as rounding in float32."""


class Leak(NamedTuple):
    """What changed although nothing that it may depend on did."""

    change: float
    """Largest change over the largest output."""
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
        before: Outputs for some inputs.
        after: Outputs for inputs that differ in places.
        is_known: Where an input and all those before it in its sequence are the same in both.
        tolerance: Largest change, relative to the largest output, that counts as rounding.
    """
    size = before.nan_to_num(0, 0, 0).abs().max().clamp(min=torch.finfo(before.dtype).tiny)
    # What is no number before is a fault of another kind; what becomes none is a change.
    is_held = is_known & before.isfinite().all(-1)
    changes = ((before - after).abs().amax(-1) / size).where(is_held, 0)
    if bool((changes <= tolerance).all()):
        return None
    place = changes.nan_to_num(torch.inf).flatten().argmax()
    *sequence, position = torch.unravel_index(place, changes.shape)
    return Leak(float(changes.flatten()[place]), int(position), not bool(is_known[tuple(sequence)].all()))


def altered(
    tokens: Int[Tensor, "members batch length"], cut: int, vocab_size: int
) -> Int[Tensor, "members batch length"]:
    """The same tokens, but for those from ``cut`` on in every other sequence of every other member."""
    other = tokens.clone()
    other[::2, ::2, cut:] = (tokens[::2, ::2, cut:] + 1) % vocab_size
    return other


def check_as_trained(
    model: SequenceModel, batches: dict[int, int], *, num_members: int, vocab_size: int, when: str
) -> None:
    """Check that no output depends on later tokens, on other sequences of its batch or on other members.

    In training mode with gradients, and in evaluation mode without, each at two cuts that lie inside a block.

    Args:
        model: Of all members.
        batches: Sequences of a batch by their length in tokens.
        num_members: How many members the model runs.
        vocab_size: Tokens that every member knows, 2 or more.
        when: For the message: ``before the first step``.

    Raises:
        ContractError: If one does; the message says at which length, batch and mode, where and by how much.
    """
    was_training, device = model.training, next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    try:
        for length, batch_size in batches.items():
            tokens = torch.randint(vocab_size, (num_members, batch_size, length), generator=generator).to(device)
            for is_training in (True, False):
                with torch.set_grad_enabled(is_training):
                    model.train(is_training)
                    before = _hidden(model, tokens)
                    for cut in sorted({max(1, length // 3), length - 1} - {0, length}):
                        other = altered(tokens, cut, vocab_size)
                        is_known = (tokens == other).cumprod(-1).bool()
                        leak = find_leak(before, _hidden(model, other), is_known, TOLERANCE)
                        if leak is not None:
                            where = told(leak, before, cut, is_training=is_training)
                            raise ContractError(f"the model as trained {where}, {when}; {num_members} runs together")
    finally:
        model.train(was_training)


def _hidden(
    model: SequenceModel, tokens: Int[Tensor, "members batch length"]
) -> Float[Tensor, "members batch length width"]:
    """The vectors that the head reads; a bottleneck's head may look at all of them."""
    x: Tensor = model.position.embed(model.embedding(tokens))
    for block in model.layers:
        x = block(x)
    return x.detach()


def told(leak: Leak, before: Float[Tensor, "*leading batch length width"], cut: int, *, is_training: bool) -> str:
    """What a leak is, where it was seen and how large it is."""
    what = (
        f"is not causal: other inputs from position {cut} on change the output at position {leak.position}"
        if leak.is_of_future
        else f"lets sequences see each other: other inputs in some change others' output at position {leak.position}"
    )
    mode = "training" if is_training else "evaluation"
    dtype = str(before.dtype).removeprefix("torch.")
    return (
        f"{what}, by {leak.change:.2g} of its size, at length {before.shape[-2]} and batch {before.shape[-3]}, "
        f"in {dtype} and {mode} mode"
    )
