"""What a leak of the future looks like: probes that tell one kind from another, and say nothing where none fits.

Each probe replaces the second half of a sequence and looks at how the outputs of the first half change.
"""

import torch
from torch import Tensor

from synthbench.mechanisms import Mechanism

LENGTHS = (33, 130, 400)
SCALES = (1.0, 10.0, 1e3)

MAXIMUM = (
    "this looks like a maximum over all positions, such as the key stabiliser of FAVOR+: a future that repeats tokens "
    "of the past leaks nothing, a new one does; take the maximum over the features of each position"
)
WHOLE = (
    "this looks like a sum, mean or normalisation over the whole sequence, or attention without a mask: in another "
    "order the tokens give the same outputs in that order"
)
CIRCULAR = (
    "this looks like a circular convolution: shifting the tokens around the end shifts the outputs; pad the transform "
    "to twice the length"
)


@torch.no_grad()
def likely_cause(mechanism: Mechanism, tolerance: float) -> str | None:
    """What a leak comes from, as far as probes tell; None where none of the known kinds fits.

    Args:
        mechanism: In float64, in the mode in which it leaks.
        tolerance: Largest change, relative to the largest output, that counts as rounding.
    """
    try:
        for length in sorted({min(length, mechanism.max_length) for length in LENGTHS}):
            if length < 4:
                continue
            x = _noise(mechanism, length, seed=length)
            for scale in SCALES:
                future = scale * _noise(mechanism, length, seed=length + 1)
                if _leak(mechanism, x, future).max() > tolerance:
                    return _cause(mechanism, x, future, tolerance)
    except Exception:  # noqa: BLE001 - what fails on some probe has no cause that is known
        return None
    return None


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
    """How many positions ahead an output sees, if that is the same at two places and not all of them."""
    reaches = set()
    for cut in (x.shape[1] // 3, x.shape[1] // 2):
        leaking = (_leak(mechanism, x, future, cut) > tolerance).nonzero()
        reaches.add(cut - int(leaking.min()) if len(leaking) else 0)
    reach = reaches.pop()
    return reach if not reaches and 0 < reach < x.shape[1] // 3 else None


def _is_idempotent(mechanism: Mechanism, x: Tensor, tolerance: float) -> bool:
    """Whether the past does not care which of its own tokens the future repeats.

    A maximum or minimum over all positions does not; a sum, a mean or a threshold on one would.
    """
    half = x.shape[1] // 2
    repeating = [torch.cat([x[:, :half], x[:, [token]].expand(-1, x.shape[1] - half, -1)], 1) for token in range(half)]
    pasts = [mechanism(one)[:, :half] for one in repeating]
    return all(_is_same(past, pasts[0], tolerance) for past in pasts[1:])


def _leak(mechanism: Mechanism, x: Tensor, future: Tensor, cut: int | None = None) -> Tensor:
    """Change of each output before the cut, relative to the largest."""
    cut = x.shape[1] // 2 if cut is None else cut
    past = mechanism(x)[:, :cut]
    after = mechanism(torch.cat([x[:, :cut], future[:, cut:]], 1))[:, :cut]
    change: Tensor = (past - after).abs().amax((0, 2)) / past.abs().max()
    return change


def _is_same(one: Tensor, other: Tensor, tolerance: float) -> bool:
    return bool((one - other).abs().max() <= tolerance * other.abs().max())


def _noise(mechanism: Mechanism, length: int, *, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, mechanism.model_dim, generator=generator, dtype=torch.float64)
