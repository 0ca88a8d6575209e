from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.gla import Gla


def divide_by_rms(heads: Tensor) -> Tensor:
    return heads / (heads.square().mean(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize("tau", [16.0, 32.0])
@pytest.mark.parametrize("length", [1, 11, 75])
def test_forward_is_the_gated_recurrence_step_by_step(
    length: int, tau: float, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    gla = Gla(model_dim=12, num_heads=2, tau=tau, generator=generator).double()
    x = normal(3, length, 12)
    q, k, v = gla.split_heads(gla.qkv(x))
    assert gla.gate_out.bias is not None
    gates = (x @ gla.gate_in.weight @ gla.gate_out.weight + gla.gate_out.bias).sigmoid() ** (1 / tau)
    gates = gates.view(3, length, 2, 6).transpose(1, 2)
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(length):
        state = gates[:, :, t, :, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state) / 6**0.5)
    expected = gla.merge_heads(divide_by_rms(torch.stack(outs, dim=-2)))

    torch.testing.assert_close(gla(x), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gla.forward_last(x), expected[:, -1:], rtol=1e-9, atol=1e-9)


def test_without_gates_it_is_linear_attention_without_a_feature_map(normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(2, 4, 100, 16, seed=seed) for seed in range(3))

    expected = divide_by_rms((q @ k.mT).tril() @ v / 4)

    torch.testing.assert_close(Gla().attend(q, k, v), expected)
    torch.testing.assert_close(Gla().attend(q, k, v, torch.zeros_like(k)), expected)
