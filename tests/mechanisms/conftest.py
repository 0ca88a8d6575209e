"""Attention written out, and inputs for it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Mix = Callable[..., Tensor]


@pytest.fixture
def mix() -> Mix:
    """Mix values by kernel values, one position at a time: Σ κ v / N(Σ κ)."""

    def mix(kernel: Tensor, v: Tensor, guard: str = "add", delta: float = 1e-6) -> Tensor:
        rows = []
        for t in range(v.shape[-2]):
            total = kernel[..., t, : t + 1].sum(-1, keepdim=True)
            guarded = total + delta if guard == "add" else torch.clamp(total, min=delta)
            rows.append((kernel[..., t, : t + 1].unsqueeze(-1) * v[..., : t + 1, :]).sum(-2) / guarded)
        return torch.stack(rows, dim=-2)

    return mix


@pytest.fixture(scope="session")
def normal() -> Callable[..., Tensor]:
    """Draw N(0, 1) numbers in float64 from a seed."""

    def normal(*shape: int, seed: int = 0) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    return normal


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh generator, the same for every test."""
    return torch.Generator().manual_seed(0)
