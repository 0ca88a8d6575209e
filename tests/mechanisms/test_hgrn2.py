import pytest
from torch import Tensor
from torch.nn.functional import silu

from synthbench.mechanisms.hgrn2 import Hgrn2
from tests.mechanisms.loops import check_loop, decaying_sum, divide_by_rms, heads_of, merged


def step_by_step(net: Hgrn2, x: Tensor) -> Tensor:
    """The gated recurrence token by token, then the norm of each head or of all."""
    o, f, i = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    g = net.lower + (1 - net.lower) * f.sigmoid()
    outs = decaying_sum(1 - g, i, g, silu(o))
    if net.norm == "head":
        return merged(net, [divide_by_rms(out) for out in outs])
    return merged(net, [divide_by_rms(out.flatten(-2) / 6**0.5) * net.gain.weight for out in outs])


@pytest.mark.parametrize("lower", [0.0, 0.3])
@pytest.mark.parametrize("length", [1, 40])
@pytest.mark.parametrize("condition", ["bare", "stock"])
def test_forward_is_the_gated_recurrence_step_by_step(length: int, lower: float, condition: str) -> None:
    check_loop(Hgrn2, step_by_step, length, condition, lower=lower)
