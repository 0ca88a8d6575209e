"""A short convolution around any mechanism: what it computes, what it keeps, and that nothing else changes."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad, silu

from synthbench.blocks import BLOCKS, conv_elements
from synthbench.layers import ShortConvolution
from synthbench.mechanisms import MECHANISMS, Attention, condition_options
from synthbench.runner.match import size_of as matched_size
from synthbench.training.train import init_generator
from tests.blocks.cells import cell_of

X = torch.randn(3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def block_of(mechanism: str, name: str = "attention_only", **options: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    bare: dict[str, Any] = condition_options(MECHANISMS[mechanism], "bare")
    mixer = MECHANISMS[mechanism](model_dim=8, num_heads=2, max_length=9, generator=generator, **bare)
    return BLOCKS[name](mixer=mixer, model_dim=8, generator=generator, **options).double()


def grouped(weight: Tensor, x: Tensor) -> Tensor:
    """The same by PyTorch's convolution, whose taps begin with the oldest token."""
    filters = weight.flip(0).T.unsqueeze(1)
    return conv1d(pad(x.mT, (len(weight) - 1, 0)), filters, groups=x.shape[-1]).mT


@pytest.mark.parametrize("width", [1, 2, 4, 12])
@pytest.mark.parametrize("length", [1, 3, 9])
def test_it_is_a_causal_convolution_of_every_channel(width: int, length: int) -> None:
    convolution = ShortConvolution(width, 8).double()

    torch.testing.assert_close(convolution(X[:, :length]), grouped(convolution.weight, X[:, :length]))


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("mechanism", ["softmax", "deltanet", "lstm"])
def test_on_the_input_the_mechanism_reads_a_residual_convolution(name: str, mechanism: str) -> None:
    block, plain = block_of(mechanism, name, conv=4), block_of(mechanism, name)
    read: list[Tensor] = []
    block.mixer.register_forward_pre_hook(lambda _mixer, inputs: read.append(inputs[0]))
    plain.mixer.register_forward_pre_hook(lambda _mixer, inputs: read.append(inputs[0]))
    convolved, _ = block(X), plain(X)

    torch.testing.assert_close(read[0], read[1] + grouped(block.convolution.weight, read[1]))
    torch.testing.assert_close(block.forward_last(X), convolved[..., -1:, :])
    own = dict(block.named_parameters())
    assert all(torch.equal(own[name], value) for name, value in plain.named_parameters())  # it is drawn last
    assert own.keys() - dict(plain.named_parameters()).keys() == {"convolution.weight"}


@pytest.mark.parametrize("mechanism", ["softmax", "linear", "deltanet"])
def test_on_queries_keys_and_values_it_has_an_activation(mechanism: str) -> None:
    block = block_of(mechanism, conv=4, conv_on="qkv")
    mixer = block.mixer
    assert isinstance(mixer, Attention)
    assert mixer.convolution is not None
    q, k, v = mixer.split_heads(silu(grouped(mixer.convolution.weight, mixer.qkv(X))))

    for found, expected in zip(mixer.heads(X), (q, k, v), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(block.forward_last(X), block(X)[..., -1:, :])


@pytest.mark.parametrize(("on", "channels"), [("input", 64), ("qkv", 192)])
def test_a_row_counts_its_parameters_and_its_state(on: str, channels: int) -> None:
    plain, convolved = (
        cell_of("linear", block) for block in (None, f"attention_only:conv=4{',conv_on=qkv' * (on == 'qkv')}")
    )
    without, beside = (cell.model(init_generator(0)).size(cell.length) for cell in (plain, convolved))
    num_layers = plain.suite.model.num_layers

    assert conv_elements(4, on, 64) == 3 * channels
    assert beside.state_elements - without.state_elements == 3 * channels
    assert matched_size(convolved, "state") == beside.state_elements
    for count in ("num_parameters", "num_parameters_mixer"):
        assert getattr(beside, count) - getattr(without, count) == 4 * channels * num_layers


def test_a_row_says_it_and_has_another_id() -> None:
    plain, none, convolved = (
        cell_of("linear", block) for block in (None, "attention_only:conv=0", "attention_only:conv=4")
    )

    assert plain.identity == none.identity
    assert plain.identity["block_args"] == {}
    assert convolved.identity["block_args"] == {"conv": 4}
