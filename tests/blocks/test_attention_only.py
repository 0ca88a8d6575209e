import torch

from synthbench.blocks import BLOCKS
from synthbench.mechanisms import MECHANISMS


def test_the_block_is_a_residual_around_the_mechanism() -> None:
    mixer = MECHANISMS["lstm"](model_dim=8, num_heads=2, max_length=9).double()
    block = BLOCKS["attention_only"](mixer=mixer, model_dim=8)
    x = torch.randn(3, 9, 8, dtype=torch.float64)

    torch.testing.assert_close(block(x), x + mixer(x))
    assert {name.partition(".")[0] for name, _ in block.named_parameters()} == {"mixer"}
