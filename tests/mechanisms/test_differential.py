import math

import pytest
import torch

from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.differential import Differential
from tests.mechanisms.loops import agree, divide_by_rms, heads_of, merged, turn, turned
from tests.tensors import normal


@pytest.mark.parametrize("length", [1, 9])
def test_split_is_the_difference_of_two_softmaxes_of_halves_query_by_query(
    length: int, generator: torch.Generator
) -> None:
    net = Differential(model_dim=12, num_heads=2, initial=0.3, layout="split", generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    q1, k1, q2, k2 = net.vectors.squeeze(1)
    scale, outs = (q1 @ k1).exp() - (q2 @ k2).exp() + 0.3, []
    for t in range(length):
        first, second = (
            (torch.einsum("bhd,bhsd->bhs", q[:, :, t, half], k[:, :, : t + 1, half]) / 3**0.5).softmax(-1)
            for half in (slice(0, 3), slice(3, 6))
        )
        mixed = torch.einsum("bhs,bhsd->bhd", first - scale * second, v[:, :, : t + 1])
        outs.append(0.7 * divide_by_rms(mixed))

    agree(net, x, merged(net, outs))


@pytest.mark.parametrize("length", [1, 9])
def test_two_heads_are_turned_each_by_all_frequencies_then_subtracted_query_by_query(
    length: int, generator: torch.Generator
) -> None:
    net = Differential(model_dim=24, num_heads=4, initial=0.3, generator=generator).double()
    net.gain.weight.data = 1 + 0.3 * normal(12, seed=1)
    turn(net, length)
    x = normal(3, length, 24).requires_grad_()
    q, k, v = net.qkv(x).chunk(3, dim=-1)
    # [batch, length, softmax, 6], each turned by the angles of a head of width 6
    q, k = (turned(part.unflatten(-1, (4, 6)).transpose(1, 2)).transpose(1, 2) for part in (q, k))
    v = v.unflatten(-1, (2, 12))
    q1, k1, q2, k2 = net.vectors.squeeze(1)
    factor, outs = (q1 @ k1).exp() - (q2 @ k2).exp() + 0.3, []
    for t in range(length):
        heads = []
        for head in range(2):
            first, second = (
                (torch.einsum("bd,bsd->bs", q[:, t, half], k[:, : t + 1, half]) / 6**0.5).softmax(-1)
                for half in (2 * head, 2 * head + 1)
            )
            mixed = torch.einsum("bs,bsd->bd", first - factor * second, v[:, : t + 1, head])
            heads.append(0.7 * divide_by_rms(mixed) * net.gain.weight)
        outs.append(torch.cat(heads, dim=-1))

    agree(net, x, net.out(torch.stack(outs, dim=1)))


@pytest.mark.parametrize("name", ["differential", "softmax+differential"])
def test_lambda_begins_by_the_depth_of_the_layer(name: str) -> None:
    option = name.partition("+")[2] and "differential_layout"
    values = {"model_dim": 16, "num_heads": 4, "max_length": 8, "bias": False}
    layers = MECHANISMS[name].layers_of(values, 4)

    starts = {depth: made["initial"] for depth, (unit, made) in enumerate(layers) if unit is Differential}
    assert starts == pytest.approx({depth: 0.8 - 0.6 * math.exp(-0.3 * depth) for depth in starts})
    assert len(starts) == (2 if option else 4)
    split = MECHANISMS[name].layers_of({**values, option or "layout": "split"}, 4)
    assert all("initial" not in made for _unit, made in split)
