"""Mechanisms with a kernel, and inputs in float32."""

from typing import Any

import torch
from torch import Tensor

from synthbench.mechanisms import MECHANISMS


def draw(
    length: int, key_dim: int = 16, value_dim: int = 16, *, batch: tuple[int, ...] = (1,)
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw q, k and v of two heads in float32."""
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(*batch, 2, length, width, generator=generator) for width in (key_dim, key_dim, value_dim))
    return q, k, v


def make(name: str, head_dim: int = 16, seed: int = 0, **options: Any) -> Any:
    """A mechanism of two heads; SLAY of few anchors and features, each of which is many steps of the interpreter."""
    options = ({"P": 3, "R": 2, "D": 5} if name == "slay" else {}) | options
    generator = torch.Generator().manual_seed(seed)
    return MECHANISMS[name](model_dim=2 * head_dim, num_heads=2, generator=generator, **options)
