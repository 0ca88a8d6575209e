"""A plugin of pytest that moves every number drawn from a normal distribution by up to 4 units in the last place.

Its own bits decide how far, so that equal draws stay equal. A test that passes only for one last bit fails with it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
"""Integers of the same size, by the floating-point types that are moved."""

MOST = 4
"""Largest distance in units in the last place."""


def moved(x: Tensor) -> Tensor:
    """The same numbers, each moved by -4 to 4 units in the last place; zeros stay."""
    bits = x.detach().contiguous().view(BITS[x.dtype])
    steps = (bits.long() * 2654435761 >> 9) % (2 * MOST + 1) - MOST
    return torch.where(x.detach() == 0, x.detach(), (bits + steps.to(bits.dtype)).view(x.dtype))


def _drawing(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def draw_and_move(*sizes: Any, **options: Any) -> Tensor:
        x = draw(*sizes, **options)
        return moved(x).requires_grad_(x.requires_grad) if x.dtype in BITS else x

    return draw_and_move


def _filling(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def fill_and_move(x: Tensor, *options: Any, **more: Any) -> Tensor:
        fill(x, *options, **more)
        if x.dtype in BITS:
            with torch.no_grad():
                x.copy_(moved(x))
        return x

    return fill_and_move


def pytest_configure() -> None:
    """Replace the functions that draw, for the rest of this process."""
    torch.randn, torch.randn_like = _drawing(torch.randn), _drawing(torch.randn_like)
    torch.Tensor.normal_ = _filling(torch.Tensor.normal_)  # type: ignore[method-assign]
