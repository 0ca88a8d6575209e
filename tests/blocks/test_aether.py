import math
from typing import Literal

import torch
from torch import Tensor, nn

from synthbench.blocks.aether import Aether
from synthbench.layers import LayerNorm
from synthbench.mechanisms import MECHANISMS, Mechanism

Norm = Literal["none", "pre", "post"]


def build(norm: Norm) -> tuple[Aether, Mechanism, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mixer = MECHANISMS["yat"](model_dim=8, num_heads=2, max_length=9, generator=generator).double()
    block = Aether(mixer=mixer, model_dim=8, expansion=3, epsilon=0.1, norm=norm, generator=generator).double()
    for module in block.modules():
        if isinstance(module, LayerNorm):
            module.weight.data.uniform_(0.5, 2, generator=generator)
            module.bias.data.normal_(generator=generator)
    return block, mixer, torch.randn(3, 9, 8, generator=generator, dtype=torch.float64)


def normalise(x: Tensor, norm: LayerNorm) -> Tensor:
    return nn.functional.layer_norm(x, (8,), norm.weight, norm.bias)


def test_the_block_is_two_residuals_without_norm_or_activation() -> None:
    block, mixer, x = build("none")
    y = x + mixer(x)
    distances = (y.unsqueeze(-1) - block.yat.weight).square().sum(-2) + 0.1
    assert block.yat.bias is not None
    units = 24 / math.log(25) * (y @ block.yat.weight + block.yat.bias).square() / distances

    torch.testing.assert_close(block(x), y + block.linear(units))
    assert not any(isinstance(module, LayerNorm) for module in block.modules())


def test_norms_before_each_part_touch_no_residual() -> None:
    block, mixer, x = build("pre")

    y = x + mixer(normalise(x, block.mixer_norm))

    torch.testing.assert_close(block(x), y + block.linear(block.yat(normalise(y, block.yat_norm))))


def test_norms_after_each_sum_touch_both() -> None:
    block, mixer, x = build("post")

    y = normalise(x + mixer(x), block.mixer_norm)

    torch.testing.assert_close(block(x), normalise(y + block.linear(block.yat(y)), block.yat_norm))
