import math
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.differential import Differential
from tests.mechanisms.loops import check_loop, divide_by_rms, merged, turned


def query_by_query(net: Differential, x: Tensor) -> Tensor:
    """The difference of two softmaxes: of halves of a head, or of two heads, each turned by all frequencies."""
    q, k, v = (part.unflatten(-1, (net.num_heads, 6)).transpose(1, 2) for part in net.qkv(x).chunk(3, dim=-1))
    pairs, gain = [turned(part).chunk(2, dim=-1) for part in (q, k)], torch.ones(6, dtype=x.dtype)
    if net.layout == "authors":
        pairs, gain = [(turned(part)[:, 0::2], turned(part)[:, 1::2]) for part in (q, k)], net.gain.weight
        v = torch.cat([v[:, 0::2], v[:, 1::2]], dim=-1)
    q1, k1, q2, k2 = net.vectors.squeeze(1)
    factor, outs = (q1 @ k1).exp() - (q2 @ k2).exp() + 0.3, []
    for t in range(x.shape[1]):
        first, second = (
            (torch.einsum("bhd,bhsd->bhs", q[:, :, t], k[:, :, : t + 1]) / q.shape[-1] ** 0.5).softmax(-1)
            for q, k in zip(*pairs, strict=True)
        )
        mixed = torch.einsum("bhs,bhsd->bhd", first - factor * second, v[:, :, : t + 1])
        outs.append(0.7 * divide_by_rms(mixed) * gain)
    return merged(net, outs)


@pytest.mark.parametrize(("layout", "num_heads"), [("split", 2), ("authors", 4)])
@pytest.mark.parametrize("length", [1, 9])
def test_it_is_the_difference_of_two_softmaxes_query_by_query(length: int, layout: str, num_heads: int) -> None:
    sizes: dict[str, Any] = {"width": 6 * num_heads, "num_heads": num_heads}
    check_loop(Differential, query_by_query, length, **sizes, initial=0.3, layout=layout, is_turned=True)


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
