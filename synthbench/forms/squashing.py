"""A softmax of powers, for scores that are never negative, such as values of the Yat kernel.

The weight of a score x_i is x_iⁿ / (epsilon + Σ_j x_jⁿ). Numerator and denominator are first divided by the largest
term of the denominator, so that no power overflows.

Source: Bouhsine (2026), appendix B.
"""

from jaxtyping import Float
from torch import Tensor


def softermax(scores: Float[Tensor, "*batch keys"], power: float, epsilon: float) -> Float[Tensor, "*batch keys"]:
    """Turn scores x into weights x_iⁿ / (epsilon + Σ_j x_jⁿ) over the last axis (eq. 3).

    The exponent n is ``power``, which must be at least 0.25.
    """
    numerators, denominator = softermax_parts(scores, power, epsilon)
    return numerators / denominator


def softermax_parts(
    scores: Float[Tensor, "*batch keys"], power: float, epsilon: float
) -> tuple[Float[Tensor, "*batch keys"], Float[Tensor, "*batch 1"]]:
    """Return the numerators and denominator of :func:`softermax`, all divided by the denominator's largest term."""
    floor = epsilon ** (1 / power)
    # A common factor cancels, so it needs no gradient.
    largest = scores.detach().amax(-1, keepdim=True).clamp(min=floor)
    ratios = scores / largest
    if power < 1:
        # The slope at 0 is infinite; times the gradient 0 of a masked score it is NaN: a score of 0 gets no gradient.
        is_zero = ratios == 0
        numerators = ratios.masked_fill(is_zero, 1).pow(power).masked_fill(is_zero, 0)
    else:
        numerators = ratios.pow(power)
    return numerators, numerators.sum(-1, keepdim=True) + (floor / largest).pow(power)
