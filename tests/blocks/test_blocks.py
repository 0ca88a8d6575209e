"""Formulas of each block around a mechanism, its short convolution, and the number of its layers in a model."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, silu

from synthbench.blocks import BLOCKS, Block, block, conv_elements
from synthbench.blocks.base import Mix
from synthbench.errors import UsageError
from synthbench.layers import LayerNorm
from synthbench.mechanisms import MECHANISMS, condition_options
from synthbench.options import option
from synthbench.results import Store
from synthbench.runner.estimates import cost_columns
from synthbench.runner.match import size_of as matched_size
from synthbench.runner.run import run
from synthbench.training.cell import Cell
from synthbench.training.ensemble import ModelSize
from synthbench.training.train import init_generator
from synthbench.trust import replan
from synthbench.trust.verify import Sampling, verify
from tests.mechanisms.loops import summed_taps
from tests.runner.runs import tiny
from tests.training.cells import cell_of

X = torch.randn(3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def block_of(mechanism: str, name: str = "attention_only", **options: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    bare: dict[str, Any] = condition_options(MECHANISMS[mechanism], "bare")
    mixer = MECHANISMS[mechanism](model_dim=8, num_heads=2, max_length=9, generator=generator, **bare)
    return BLOCKS[name](mixer=mixer, model_dim=8, generator=generator, **options).double()


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("mechanism", ["softmax", "deltanet", "lstm"])
def test_on_the_input_the_mechanism_reads_a_residual_convolution(name: str, mechanism: str) -> None:
    block, plain = block_of(mechanism, name, conv=4), block_of(mechanism, name)
    read: list[Tensor] = []
    block.mixer.register_forward_pre_hook(lambda _mixer, inputs: read.append(inputs[0]))
    plain.mixer.register_forward_pre_hook(lambda _mixer, inputs: read.append(inputs[0]))
    convolved, _ = block(X), plain(X)

    torch.testing.assert_close(read[0], read[1] + summed_taps(block.convolution, read[1]))
    torch.testing.assert_close(block.forward_last(X), convolved[..., -1:, :])
    own = dict(block.named_parameters())
    assert all(torch.equal(own[name], value) for name, value in plain.named_parameters())  # it is drawn last
    assert own.keys() - dict(plain.named_parameters()).keys() == {"convolution.weight"}


@pytest.mark.parametrize("mechanism", ["softmax", "linear", "deltanet"])
def test_on_queries_keys_and_values_it_has_an_activation(mechanism: str) -> None:
    block = block_of(mechanism, conv=4, conv_on="qkv")
    mixer = block.mixer
    q, k, v = mixer.split_heads(silu(summed_taps(mixer.convolution, mixer.qkv(X))))

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


def size_of(cell: Cell) -> ModelSize:
    return cell.model(init_generator(0)).size(cell.length)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("mechanism", ["softmax", "lstm"])
def test_a_model_has_as_many_layers_as_its_block_says(name: str, mechanism: str) -> None:
    one, two, four = (size_of(cell_of(mechanism, f"{name}{option}")) for option in (":layers=1", "", ":layers=4"))

    assert len(cell_of(mechanism, f"{name}:layers=4").model(init_generator(0)).layers) == 4
    # Whatever is not in a layer is in all three.
    assert four.num_parameters - two.num_parameters == 2 * (two.num_parameters - one.num_parameters) > 0
    assert four.num_parameters_mixer == 2 * two.num_parameters_mixer == 4 * one.num_parameters_mixer
    assert one.state_elements == two.state_elements == four.state_elements


def test_another_number_of_layers_has_another_id_and_the_suites_number_has_not() -> None:
    plain, *same = (
        cell_of("softmax", option) for option in (None, "attention_only:layers=0", "attention_only:layers=2")
    )
    four = cell_of("softmax", "attention_only:layers=4")

    assert plain.suite.model.num_layers == 2
    assert [cell.identity for cell in same] == [plain.identity] * 2
    assert plain.identity["block_args"] == {}
    assert four.identity == {**plain.identity, "block_args": {"layers": 4}}
    assert (cost_columns(plain)["n_layers"], cost_columns(four)["n_layers"]) == (2, 4)


def test_a_row_of_a_hybrid_says_how_many_layers_it_had_and_is_made_again_to_the_last_bit(tmp_path: Path) -> None:
    around: dict[str, Any] = {"mechanisms": ("gla+softmax",), "block": "attention_only:layers=3"}
    run(tiny(tmp_path, tasks=("copy:length=8",), seeds=(0,), executor="inline", **around))
    store = Store.open(tmp_path, create=False)
    verification = verify(store, Sampling(fraction=1.0, device="cpu", workers=0))
    (row,) = store.table().to_pylist()

    assert (row["mech"], row["block"], row["n_layers"]) == ("gla+softmax", "attention_only:layers=3", 3)
    assert (verification.ok, [rerun.verdict for rerun in verification.reruns]) == (True, ["bitwise"])
    assert replan.check([{**row, "n_layers": 2}]).faults == [(row["run_id"], "n_layers is 2; the plan says 3")]


def test_a_block_cannot_give_an_option_of_all_blocks_another_meaning() -> None:
    with pytest.raises(
        UsageError, match="Deep declares 'layers', an option that every block has; allowed: another name"
    ):

        @block
        class Deep(Block):
            name: ClassVar = "deep"
            source: ClassVar = "unpublished"
            layers: int = option(2, "layers of its MLP", low=1, high=8)

            def around(self, x: Tensor, mix: Mix) -> Tensor:
                return x + mix(x)
