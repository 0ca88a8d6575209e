"""Formulas of what each block computes around a mechanism."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from synthbench.blocks import BLOCKS
from synthbench.layers import LayerNorm
from synthbench.mechanisms import MECHANISMS


def normed(x: Tensor, norm: LayerNorm) -> Tensor:
    return layer_norm(x, (8,), norm.weight, norm.bias)


def residual(block: Any, x: Tensor) -> Any:
    return x + block.mixer(x)


def with_gelu(block: Any, x: Tensor) -> Any:
    y = x + block.mixer(normed(x, block.mixer_norm))
    hidden = normed(y, block.mlp_norm) @ block.widen.weight + block.widen.bias
    return y + block.narrow(hidden * (1 + torch.erf(hidden / 2**0.5)) / 2)


def without_norm(block: Any, x: Tensor) -> Any:
    """Two residuals without norm or activation."""
    y = x + block.mixer(x)
    distances = (y.unsqueeze(-1) - block.yat.weight).square().sum(-2) + 0.1
    units = 24 / math.log(25) * (y @ block.yat.weight + block.yat.bias).square() / distances
    return y + block.linear(units)


def with_norms_before(block: Any, x: Tensor) -> Any:
    """They touch no residual."""
    y = x + block.mixer(normed(x, block.mixer_norm))
    return y + block.linear(block.yat(normed(y, block.yat_norm)))


def with_norms_after(block: Any, x: Tensor) -> Any:
    """They touch both sums."""
    y = normed(x + block.mixer(x), block.mixer_norm)
    return normed(y + block.linear(block.yat(y)), block.yat_norm)


@pytest.mark.parametrize(
    ("name", "options", "formula", "num_norms"),
    [
        ("attention_only", {}, residual, 0),
        ("transformer", {"expansion": 3}, with_gelu, 2),
        ("aether", {"expansion": 3, "epsilon": 0.1, "norm": "none"}, without_norm, 0),
        ("aether", {"expansion": 3, "epsilon": 0.1, "norm": "pre"}, with_norms_before, 2),
        ("aether", {"expansion": 3, "epsilon": 0.1, "norm": "post"}, with_norms_after, 2),
    ],
)
def test_a_block_is_its_formula(
    name: str, options: dict[str, Any], formula: Callable[..., Any], num_norms: int, generator: torch.Generator
) -> None:
    mixer = MECHANISMS["yat"](model_dim=8, num_heads=2, max_length=9, generator=generator)
    block = BLOCKS[name](mixer=mixer, model_dim=8, generator=generator, **options).double()
    norms = [module for module in block.modules() if isinstance(module, LayerNorm)]
    for norm in norms:
        norm.weight.data.uniform_(0.5, 2, generator=generator)
        norm.bias.data.normal_(generator=generator)
    x = torch.randn(3, 9, 8, generator=generator, dtype=torch.float64)

    torch.testing.assert_close(block(x), formula(block, x))
    assert len(norms) == num_norms
