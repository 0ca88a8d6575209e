from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.gla import Gla
from tests.mechanisms.loops import agree, divide_by_rms, merged


@pytest.mark.parametrize("tau", [16.0, 32.0])
@pytest.mark.parametrize("length", [1, 75])
@pytest.mark.parametrize("condition", ["bare", "stock"])
def test_forward_is_the_gated_recurrence_step_by_step(
    length: int, tau: float, condition: str, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    has_gate = condition == "stock"
    gla = Gla(model_dim=12, num_heads=2, tau=tau, output_gate=has_gate, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    if has_gate:
        gla.gain.weight.data = 1 + 0.3 * normal(6, seed=1)
    q, k, v = gla.split_heads(gla.qkv(x))
    assert gla.gate_out.bias is not None
    gates = (x @ gla.gate_in.weight @ gla.gate_out.weight + gla.gate_out.bias).sigmoid() ** (1 / tau)
    gates = gates.view(3, length, 2, 6).transpose(1, 2)
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(length):
        state = gates[:, :, t, :, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        read = torch.einsum("bhk,bhkv->bhv", q[:, :, t], state) / 6**0.5
        if has_gate:
            y = (x[:, t] @ gla.out_gate.weight).view(3, 2, 6)
            outs.append(divide_by_rms(read, 1e-5) * gla.gain.weight * y * y.sigmoid())
        else:
            outs.append(divide_by_rms(read, 1e-6))

    agree(gla, x, merged(gla, outs))


def test_without_gates_it_is_linear_attention_without_a_feature_map(normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(2, 4, 100, 16, seed=seed) for seed in range(3))

    expected = divide_by_rms((q @ k.mT).tril() @ v / 4, 1e-6)

    torch.testing.assert_close(Gla().attend(q, k, v), expected)
    torch.testing.assert_close(Gla().attend(q, k, v, torch.zeros_like(k)), expected)
