from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.mechanisms.gla import Gla


def divide_by_rms(heads: Tensor) -> Tensor:
    return heads / (heads.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def small(generator: torch.Generator, tau: float = 16.0) -> Gla:
    return Gla(model_dim=12, num_heads=2, tau=tau, generator=generator).double()


@pytest.mark.parametrize("length", [1, 11, 75])
def test_forward_is_the_gated_recurrence_step_by_step(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    gla, x = small(generator), normal(3, length, 12)
    q, k, v = gla.split_heads(gla.qkv(x))
    assert gla.gate_out.bias is not None
    gates = (x @ gla.gate_in.weight @ gla.gate_out.weight + gla.gate_out.bias).sigmoid() ** (1 / 16)
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


def test_a_closed_gate_forgets_its_channel_and_no_other(normal: Callable[..., Tensor]) -> None:
    k, v = normal(1, 1, 2, 2, seed=0), normal(1, 1, 2, 3, seed=1)
    k[..., 1, :] = 0
    log_gates = torch.zeros_like(k)
    log_gates[..., 1, 0] = -1e4
    out = [
        Gla().attend(torch.tensor(query, dtype=torch.float64).expand(1, 1, 2, 2), k, v, log_gates)[0, 0, 1]
        for query in ([1.0, 0.0], [0.0, 1.0])
    ]

    assert (out[0] == 0).all()
    torch.testing.assert_close(torch.nn.functional.cosine_similarity(out[1], v[0, 0, 0], dim=0).abs().item(), 1.0)


def test_a_higher_temperature_forgets_more_slowly(normal: Callable[..., Tensor], generator: torch.Generator) -> None:
    gla, x = small(generator), normal(1, 9, 12)
    slower = small(generator, tau=32.0)
    slower.load_state_dict(gla.state_dict())

    torch.testing.assert_close(2 * slower.log_gates(x), gla.log_gates(x))
    assert (gla.log_gates(x) < 0).all()


def test_the_state_does_not_grow() -> None:
    assert Gla().state_elements(1) == Gla().state_elements(10**6) == 4 * 16 * 16


def test_impossible_knobs_are_refused() -> None:
    with pytest.raises(UsageError, match=r"gla:tau is 0\.5; allowed: float from 1"):
        Gla(tau=0.5)
