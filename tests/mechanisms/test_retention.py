import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms import retention as module
from synthbench.mechanisms.retention import Retention
from tests.mechanisms.loops import agree, heads_of, merged, rotary_angles, turn


def written_out(q: Tensor, k: Tensor, v: Tensor, gammas: list[float]) -> Tensor:
    """The paper's parallel form with its three normalisations, entry by entry, before the group norm."""
    out = torch.zeros_like(v)
    for head, gamma in enumerate(gammas):
        for t in range(q.shape[-2]):
            row_sum = sum(gamma ** (t - s) for s in range(t + 1))
            weights = torch.stack(
                [
                    (q[:, head, t] * k[:, head, s]).sum(-1)
                    / math.sqrt(q.shape[-1])
                    * (gamma ** (t - s) / math.sqrt(row_sum))
                    for s in range(t + 1)
                ],
                dim=-1,
            )
            guard = weights.sum(-1).abs().clamp(min=1)
            out[:, head, t] = (weights.unsqueeze(-1) * v[:, head, : t + 1]).sum(-2) / guard.unsqueeze(-1)
    return out


def group_norm(heads: Tensor) -> Tensor:
    return heads / (heads.square().mean(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize("length", [1, 40])
def test_attention_is_the_papers_parallel_form(length: int, scale: float, normal: Callable[..., Tensor]) -> None:
    q, k, v = (scale * normal(2, 3, length, 4, seed=seed) for seed in range(3))
    expected = written_out(q, k, v, [1 - 2**-5, 1 - 2**-6, 1 - 2**-7])

    torch.testing.assert_close(Retention().attend(q, k, v), group_norm(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [1, 40, 75])
def test_stock_turns_queries_and_keys_and_has_a_gate_behind_the_norm(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Retention(model_dim=12, num_heads=2, generator=generator).double()
    turn(net, length)
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    turns = rotary_angles(length, 6)
    q, k = (torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (3, 2))) * turns).flatten(-2) for y in (q, k))
    gamma = 1 - torch.tensor([[2.0**-5], [2.0**-6]], dtype=torch.float64)
    state, guard, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), torch.zeros(3, 2, 6, dtype=torch.float64), []
    for t in range(length):
        state = gamma[..., None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        guard = gamma * guard + k[:, :, t]
        scale = 1 / (6 * (gamma ** torch.arange(t + 1)).sum(-1, keepdim=True)).sqrt()
        read = torch.einsum("bhk,bhkv->bhv", q[:, :, t], state) * scale
        total = (q[:, :, t] * guard).sum(-1, keepdim=True) * scale
        y = (x[:, t] @ net.gate.weight).view(3, 2, 6)
        outs.append(group_norm(read / total.abs().clamp(min=1)) * y * y.sigmoid())

    agree(net, x, merged(net, outs))


def test_stock_projections_begin_as_the_authors_draw_them(generator: torch.Generator) -> None:
    """Xavier's uniform bound for 48 inputs and as many outputs is 1/4."""
    net = Retention(model_dim=48, num_heads=4, generator=generator)

    for layer, bound in ((net.qkv, 2**-2.5 / 4), (net.gate, 2**-2.5 / 4), (net.out, 0.25)):
        assert 0.98 * bound < layer.weight.abs().max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("length", [33, 101])
def test_chunks_agree_with_the_parallel_form_and_so_do_gradients(
    length: int, normal: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [normal(2, 4, length, 8, seed=seed).requires_grad_() for seed in range(3)]
    results = []
    for longest in (0, length):
        monkeypatch.setattr(module, "CHUNK", longest)
        out = Retention().attend(*inputs)
        results.append([out.detach(), *torch.autograd.grad(out.sin().sum(), inputs)])

    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("length", "queries"), [(20, 7), (100, 7)])
def test_the_last_queries_alone_attend_as_among_the_others(
    length: int, queries: int, normal: Callable[..., Tensor]
) -> None:
    q, k, v = (normal(2, 4, length, 8, seed=seed) for seed in range(3))
    retention = Retention()

    torch.testing.assert_close(
        retention.attend(q[..., -queries:, :], k, v), retention.attend(q, k, v)[..., -queries:, :]
    )
