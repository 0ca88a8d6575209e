"""Nodes and weights that turn 1 / (C - 2x), the inverse of a squared distance, into a sum of exponentials."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def gauss_laguerre(num_nodes: int, epsilon: float) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Return nodes s and weights w, in float64, with Σ w_r exp(2 s_r x) ≈ 1 / (C - 2x), C = 2 + epsilon, x in [-1, 1].

    These are the Gauss–Laguerre nodes and weights of ∫ e^(-t) f(t) dt, both divided by C. If x is the cosine of two
    unit vectors, their squared distance is 2 - 2x, so C - 2x is the squared distance plus epsilon. Near the peak at x =
    1, the sum is far too small. With three nodes and epsilon = 1e-3, it is 0.5 % of the exact value there.

    Source: Luna et al. (2026), eq. 10. The paper claims that the sum converges uniformly on [-1, 1], which is wrong.
    """
    nodes, weights = np.polynomial.laguerre.laggauss(num_nodes)
    scale = 2 + epsilon
    return torch.from_numpy(nodes / scale), torch.from_numpy(weights / scale)


def inverse_distance(num_nodes: int, epsilon: float, x: Float[Tensor, "*cosines"]) -> Float[Tensor, "*cosines"]:
    """Approximate 1 / (2 + epsilon - 2x) by the sum of exponentials with the nodes of :func:`gauss_laguerre`.

    The logarithm of each weight is added to the exponent, so that nothing overflows.
    """
    nodes, weights = gauss_laguerre(num_nodes, epsilon)
    return (weights.log().to(x) + 2 * nodes.to(x) * x.unsqueeze(-1)).exp().sum(-1)
