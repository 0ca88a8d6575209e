import torch
from torch import nn

from synthbench.blocks.transformer import Transformer
from synthbench.layers import LayerNorm
from synthbench.mechanisms import MECHANISMS


def test_the_block_is_two_residuals_that_read_normalised_inputs() -> None:
    generator = torch.Generator().manual_seed(0)
    mixer = MECHANISMS["softmax"](model_dim=8, num_heads=2, max_length=9, generator=generator).double()
    block = Transformer(mixer=mixer, model_dim=8, expansion=3, generator=generator).double()
    for norm in (block.mixer_norm, block.mlp_norm):
        assert isinstance(norm, LayerNorm)
        norm.weight.data.uniform_(0.5, 2, generator=generator)
        norm.bias.data.normal_(generator=generator)
    x = torch.randn(3, 9, 8, generator=generator, dtype=torch.float64)

    y = x + mixer(nn.functional.layer_norm(x, (8,), block.mixer_norm.weight, block.mixer_norm.bias))
    hidden = nn.functional.layer_norm(y, (8,), block.mlp_norm.weight, block.mlp_norm.bias) @ block.widen.weight
    assert block.widen.bias is not None
    hidden = hidden + block.widen.bias
    gaussian_error = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2

    assert block.widen.weight.shape == (8, 24)
    torch.testing.assert_close(block(x), y + block.narrow(gaussian_error))
