"""What plain loops over tokens need, with which tests compare mechanisms."""

import torch
from torch import Tensor

from synthbench.mechanisms import Attention, Mechanism


def agree(net: Mechanism, x: Tensor, plain: Tensor) -> None:
    """``net(x)`` is ``plain``, and so are the gradients by the tokens and all parameters."""
    leaves, out = [x, *net.parameters()], net(x)
    fast, slow = (
        torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True, materialize_grads=True) for y in (out, plain)
    )

    torch.testing.assert_close(out, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(net.forward_last(x), plain[:, -1:], rtol=1e-9, atol=1e-9)


def heads_of(x: Tensor) -> Tensor:
    """Two heads, [batch, 2, length, channels / 2]."""
    cut: Tensor = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return cut


def merged(net: Attention, outs: list[Tensor]) -> Tensor:
    """The outputs [batch, heads, channels] of every token, projected back to [batch, length, width]."""
    projected: Tensor = net.out(torch.stack(outs, dim=1).flatten(-2))
    return projected


def divide_by_rms(heads: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Every head's output over its root mean square."""
    return heads / (heads.square().mean(-1, keepdim=True) + epsilon).sqrt()


def unit(x: Tensor) -> Tensor:
    """Vectors of length 1."""
    normal: Tensor = x / x.norm(dim=-1, keepdim=True)
    return normal
