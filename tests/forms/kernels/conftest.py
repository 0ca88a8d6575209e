"""Inputs in float32, and what surrounds kernels in Triton's interpreter."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Draw = Callable[..., tuple[Tensor, Tensor, Tensor]]


@pytest.fixture
def draw() -> Draw:
    """Draw q, k and v of two heads in float32."""

    def draw(
        length: int, key_dim: int = 16, value_dim: int = 16, *, batch: tuple[int, ...] = (1,)
    ) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(length)
        q, k, v = (
            torch.randn(*batch, 2, length, width, generator=generator) for width in (key_dim, key_dim, value_dim)
        )
        return q, k, v

    return draw
