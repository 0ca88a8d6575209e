import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, silu

from synthbench.mechanisms.mlstm import Mlstm
from synthbench.positions import POSITIONS
from tests.mechanisms.loops import check_loop, heads_of, merged, moved, summed_taps
from tests.tensors import normal


def step_by_step(net: Mlstm, x: Tensor) -> Tensor:
    """The layer token by token, its cell without a stabiliser."""
    is_bare = net.token_convolution is None
    seen = x if net.token_convolution is None else silu(summed_taps(net.token_convolution, x))
    weights = net.qkv.weight.chunk(3, dim=1)
    biases = (torch.zeros(36) if net.qkv.bias is None else net.qkv.bias).chunk(3)
    q, k, v = (part @ weight + bias for part, weight, bias in zip((seen, seen, x), weights, biases, strict=True))
    i, f = ((x if is_bare else torch.cat([q, k, v], dim=-1)) @ net.gates.weight).chunk(2, dim=-1)
    i, f = (i + net.input_bias.flatten()).exp(), (f + net.forget_bias.flatten()).sigmoid()
    q, k, v = map(heads_of, (q, k, v))
    z = heads_of(net.output_gate(x))
    gate = z.sigmoid() if is_bare else z * z.sigmoid()
    c, n, outs = torch.zeros(3, 2, 6, 6, dtype=x.dtype), torch.zeros(3, 2, 6, dtype=x.dtype), []
    for t in range(x.shape[1]):
        key = i[:, t, :, None] * k[:, :, t] / 6**0.5
        c = f[:, t, :, None, None] * c + key[..., None] * v[:, :, t, None, :]
        n = f[:, t, :, None] * n + key
        read = torch.einsum("bhk,bhkv->bhv", q[:, :, t], c)
        normaliser = (n * q[:, :, t]).sum(-1, keepdim=True).abs().clamp(min=1)
        out = layer_norm(read / normaliser, (6,))
        if net.gain is not None and net.skip is not None:
            out = net.gain[:, 0] * out + net.skip[:, 0] * heads_of(seen)[:, :, t]
        outs.append(gate[:, :, t] * out)
    return merged(net, outs)


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize("scale", [0.3, 10.0])
@pytest.mark.parametrize("length", [1, 40])
def test_forward_is_the_layer_without_its_stabiliser_step_by_step(length: int, scale: float, condition: str) -> None:
    def scale_gates(net: Mlstm) -> None:
        net.gates.weight.copy_(scale * normal(len(net.gates.weight), 4, seed=1))

    check_loop(Mlstm, step_by_step, length, condition, change=scale_gates)


def test_gates_of_a_thousand_neither_overflow_nor_lose_the_last_value() -> None:
    q, k, v = (normal(1, 2, 70, 6, seed=seed).float() for seed in range(3))
    log_input = torch.linspace(0, 1e3, 70).view(1, 1, -1, 1).expand(1, 2, -1, -1)

    out = Mlstm().attend(q, k, v, log_input, torch.zeros_like(log_input))

    assert out.isfinite().all()
    signs = (q * k).sum(-1, keepdim=True).sign()
    torch.testing.assert_close(out[..., -1:, :], layer_norm(signs * v, (6,))[..., -1:, :], rtol=1e-3, atol=1e-3)


def test_gates_do_not_see_where_their_token_stands(generator: torch.Generator) -> None:
    net, places = Mlstm(model_dim=8, num_heads=2, generator=generator), torch.arange(64.0).unsqueeze(-1)
    encoding = POSITIONS["rope"](model_dim=8, num_heads=2, length=64, coordinates=places, generator=generator)
    net.rotation = encoding.rotation(generator)
    moved(net)
    x = normal(2, 12, 8)
    moved_by_seven = torch.cat([torch.zeros(2, 7, 8, dtype=x.dtype), x], dim=1)
    read: list[Tensor] = []
    net.gates.register_forward_pre_hook(lambda _module, inputs: read.append(inputs[0]))
    net(x)
    net(moved_by_seven)
    torch.testing.assert_close(read[0][:, 3:], read[1][:, 10:])
