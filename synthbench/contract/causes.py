"""Find the likely cause of a failed check: why outputs depend on later inputs or other sequences, or why calls differ.

To find a leak (outputs that depend on later inputs), the second half of a sequence is replaced. Then the new outputs of
the first half are compared with the old ones. If no known cause fits, no cause is named.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import torch
from torch import Tensor, nn

from synthbench.contract.setting import DOUBLE, Setting
from synthbench.mechanisms import Mechanism

LENGTHS = (33, 130, 400)

MAXIMUM = (
    "this looks like a maximum over all positions, as in the key stabiliser of FAVOR+: later tokens that repeat "
    "earlier ones change nothing, new ones do; take the maximum over the features of each position instead"
)
WHOLE = (
    "this looks like a sum, mean or normalisation over the whole sequence, or attention without a mask: "
    "reordering the tokens only reorders the outputs"
)
CIRCULAR = (
    "this looks like a circular convolution: rotating the tokens only rotates the outputs; pad the transform to "
    "twice the length"
)
FIRST = (
    "this looks like layers that take [length, batch, width]: set batch_first=True, or transpose their input and output"
)


@torch.no_grad()
def cause_of_leak(mechanism: Mechanism, setting: Setting = DOUBLE) -> str | None:
    """Name the likely cause of a leak (an output that depends on later inputs); None if no known cause fits.

    Args:
        mechanism: The mechanism, in the mode (training or evaluation) in which the leak was found.
        setting: The mechanism's device and precision.
    """
    with suppress(Exception):  # what fails on some probe has no cause that is known
        for length in sorted({min(length, mechanism.max_length) for length in LENGTHS} - {1, 2, 3}):
            x = setting.noise(mechanism, 2, length, seed=length)
            for scale in setting.scales:
                future = scale * setting.noise(mechanism, 2, length, seed=length + 1)
                if _leak(mechanism, x, future, length // 2).max() > setting.tolerance:
                    return _cause(mechanism, x, future, setting.tolerance)
    return None


@torch.no_grad()
def cause_of_mixing(mechanism: Mechanism, setting: Setting = DOUBLE) -> str | None:
    """Name the likely cause if the sequences of a batch see each other; None if no known cause fits.

    There is one known cause: the mechanism treats the batch axis as time. Such a mechanism mixes only along this axis,
    either causally or in a PyTorch layer without ``batch_first=True``.
    """
    x, other = (setting.noise(mechanism, 8, min(2, mechanism.max_length), seed=seed) for seed in range(2))
    out, beside = mechanism(x), mechanism(torch.cat([x[:, :1], other[:, 1:]], 1))
    earlier, later = mechanism(torch.cat([other[:4], x[4:]])), mechanism(torch.cat([x[:4], other[4:]]))
    is_mixed = not _is_same(earlier[4:], out[4:], setting.tolerance)  # not if only the number of sequences matters
    is_first = [getattr(layer, "batch_first", True) for layer in mechanism.modules()]
    is_time = not all(is_first) or _is_same(later[:4], out[:4], setting.tolerance)
    return FIRST if is_mixed and is_time and _is_same(beside[:, :1], out[:, :1], setting.tolerance) else None


@contextmanager
def draws_noted() -> Iterator[set[str]]:
    """Collect the names of the global random generators that a ``with`` block uses.

    The set is empty until the block ends.
    """
    noted: set[str] = set()
    before = _states()
    try:
        yield noted
    finally:
        noted.update(name for name, state in _states().items() if state != before[name])


def cause_of_difference(drawn: set[str], dropouts: Sequence[str] = ()) -> str:
    """Explain why two calls with equal inputs give different outputs.

    Args:
        drawn: Names of the global random generators from which the calls drew numbers.
        dropouts: Descriptions of dropout rates. If there are any, the text names only them.
    """
    if dropouts:
        drop = "drops values in training: set it" if len(dropouts) == 1 else "drop values in training: set them"
        return f"{', '.join(dropouts)} {drop} to 0, since the suite sets the regularisation"
    if drawn:
        return f"it draws from {' and '.join(sorted(drawn))}; use no dropout or noise; draw all else when it is built"
    return "it keeps values from one call to the next, or draws from a generator of its own"


def dropouts_of(module: nn.Module) -> list[str]:
    """List the rates at which layers of a module drop values at random, as in ``module.drop (Dropout, p=0.1)``."""
    return [
        f"{path or 'the module'} ({type(layer).__name__}, {name}={rate:g})"
        for path, layer in module.named_modules()
        for name, rate in vars(layer).items()
        if isinstance(rate, float) and rate > 0 and "drop" in (type(layer).__name__ if name == "p" else name).lower()
    ]


def _cause(mechanism: Mechanism, x: Tensor, future: Tensor, tolerance: float) -> str | None:
    if _is_idempotent(mechanism, x, tolerance):
        return MAXIMUM
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(0))
    if _is_same(mechanism(x[:, order]), mechanism(x)[:, order], tolerance):
        return WHOLE
    if _is_same(mechanism(x.roll(1, 1)), mechanism(x).roll(1, 1), tolerance):
        return CIRCULAR
    reach = _reach(mechanism, x, future, tolerance)
    if reach is None:
        return None
    return (
        f"position t sees {'t + 1' if reach == 1 else f't + 1 to t + {reach}'} and nothing later: "
        f"this looks like a mask, shift or window that is off by {'one' if reach == 1 else reach}"
    )


def _reach(mechanism: Mechanism, x: Tensor, future: Tensor, tolerance: float) -> int | None:
    """Count the later positions on which an output depends, measured at two places of the sequence.

    The result is None if the two counts differ, are 0, or are at least a third of the length.
    """
    reaches = set()
    for cut in (x.shape[1] // 3, x.shape[1] // 2):
        leaking = (_leak(mechanism, x, future, cut) > tolerance).nonzero()
        reaches.add(cut - int(leaking.min()) if len(leaking) else 0)
    reach = reaches.pop()
    return reach if not reaches and 0 < reach < x.shape[1] // 3 else None


def _is_idempotent(mechanism: Mechanism, x: Tensor, tolerance: float) -> bool:
    """Test if the outputs of a sequence's first half do not change when one of its tokens fills the whole second half.

    Each token of the first half is tried. The result is True for a maximum or minimum over all positions, and False for
    a sum or a mean.
    """
    half = x.shape[1] // 2
    repeating = [torch.cat([x[:, :half], x[:, [token]].expand(-1, x.shape[1] - half, -1)], 1) for token in range(half)]
    pasts = [mechanism(sequence)[:, :half] for sequence in repeating]
    return all(_is_same(past, pasts[0], tolerance) for past in pasts[1:])


def _leak(mechanism: Mechanism, x: Tensor, future: Tensor, cut: int) -> Tensor:
    """Replace the inputs from position ``cut`` on by those of ``future``; measure how earlier outputs change.

    Changes are relative to the largest output.
    """
    past = mechanism(x)[:, :cut]
    after = mechanism(torch.cat([x[:, :cut], future[:, cut:]], 1))[:, :cut]
    change: Tensor = (past - after).abs().amax((0, 2)) / past.abs().max()
    return change


def _is_same(actual: Tensor, expected: Tensor, tolerance: float) -> bool:
    return bool((actual - expected).abs().max() <= tolerance * expected.abs().max())


def _states() -> dict[str, object]:
    _, keys, position, *rest = np.random.get_state()  # noqa: NPY002 - what others draw from is looked at, not used
    return {
        "PyTorch's global generator": torch.get_rng_state().numpy().tobytes(),
        "numpy.random": (np.asarray(keys).tobytes(), position, rest),
        "Python's random": random.getstate(),
    }
