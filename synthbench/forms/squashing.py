"""A softmax of powers, for scores which are never negative, as those of the Yat kernel are.

Source: Bouhsine (2026), appendix B. It is :math:`x^n` over a sum that contains it; both are divided by the largest
term first, so that no power overflows.
"""

from jaxtyping import Float
from torch import Tensor


def softermax(scores: Float[Tensor, "*batch keys"], power: float, epsilon: float) -> Float[Tensor, "*batch keys"]:
    """Weights over the last axis: x_iⁿ / (epsilon + Σ_j x_jⁿ) (eq. 3), for a power of 0.25 or more."""
    numerators, denominator = softermax_parts(scores, power, epsilon)
    return numerators / denominator


def softermax_parts(
    scores: Float[Tensor, "*batch keys"], power: float, epsilon: float
) -> tuple[Float[Tensor, "*batch keys"], Float[Tensor, "*batch 1"]]:
    """Numerators of :func:`softermax` and the sum that they are divided by, both over the largest term of the sum."""
    floor = epsilon ** (1 / power)
    # A common factor cancels, so it needs no gradient.
    largest = scores.detach().amax(-1, keepdim=True).clamp(min=floor)
    ratios = scores / largest
    if power < 1:
        # The slope at 0 is infinite, and times the 0 behind a mask it is NaN: a score of 0 gets no gradient.
        is_zero = ratios == 0
        numerators = ratios.masked_fill(is_zero, 1).pow(power).masked_fill(is_zero, 0)
    else:
        numerators = ratios.pow(power)
    return numerators, numerators.sum(-1, keepdim=True) + (floor / largest).pow(power)
