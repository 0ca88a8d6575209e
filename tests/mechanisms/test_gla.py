import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.gla import Gla
from tests.mechanisms.loops import check_loop, decaying_sum, divide_by_rms, heads_of, merged
from tests.tensors import normal


def step_by_step(net: Gla, x: Tensor) -> Tensor:
    """The gated recurrence token by token."""
    q, k, v = map(heads_of, net.qkv(x).chunk(3, dim=-1))
    assert net.gate_out.bias is not None
    alpha = (x @ net.gate_in.weight @ net.gate_out.weight + net.gate_out.bias).sigmoid() ** (1 / net.tau)
    heads = torch.stack(decaying_sum(k, v, heads_of(alpha), q), dim=2) / 6**0.5
    if not net.output_gate:
        return merged(net, list(divide_by_rms(heads, 1e-6).unbind(2)))
    y = heads_of(x @ net.out_gate.weight)
    return merged(net, list((divide_by_rms(heads, 1e-5) * net.gain.weight * y * y.sigmoid()).unbind(2)))


@pytest.mark.parametrize("tau", [16.0, 32.0])
@pytest.mark.parametrize("length", [1, 40])
@pytest.mark.parametrize("condition", ["bare", "stock"])
def test_forward_is_the_gated_recurrence_step_by_step(length: int, tau: float, condition: str) -> None:
    check_loop(Gla, step_by_step, length, condition, tau=tau)


def test_without_gates_it_is_linear_attention_without_a_feature_map() -> None:
    q, k, v = (normal(2, 4, 100, 16, seed=seed) for seed in range(3))

    expected = divide_by_rms((q @ k.mT).tril() @ v / 4, 1e-6)

    torch.testing.assert_close(Gla().attend(q, k, v), expected)
    torch.testing.assert_close(Gla().attend(q, k, v, torch.zeros_like(k)), expected)
