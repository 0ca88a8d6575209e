"""The Yat kernel, which two mechanisms normalise differently."""

from jaxtyping import Float
from torch import Tensor


def yat_kernel(
    q: Float[Tensor, "*batch queries dim"], k: Float[Tensor, "*batch keys dim"], epsilon: float
) -> Float[Tensor, "*batch queries keys"]:
    """(q·k)² / (‖q - k‖² + epsilon) for every pair.

    The squared distance comes from inner products, which is cheap but can round below zero where q ≈ k; it is then
    taken for zero, so that the kernel stays finite. The code behind the papers' tables does not guard this.
    """
    inner = q @ k.mT
    norms = q.square().sum(-1).unsqueeze(-1) + k.square().sum(-1).unsqueeze(-2)
    return inner.square() / ((norms - 2 * inner).clamp(min=0) + epsilon)
