"""Attention with Yat scores, by default normalised by softmax."""

from typing import ClassVar

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.forms.yat_tiles import plain
from synthbench.mechanisms._yat import YatAttention, yat_kernel
from synthbench.mechanisms.base import mechanism
from synthbench.options import option


@mechanism
class Yat(YatAttention):
    r"""Softmax over the Yat kernel, :math:`(q \cdot k)^2 / (\|q - k\|^2 + \epsilon)`: alignment over distance.

    ``normaliser=sum`` divides the kernel's values by their sum instead, as in ``yat-sum``. ``normaliser=softermax``
    first raises them to the power n = ``power``: :math:`s_i^n / (\delta + \sum_j s_j^n)` with :math:`\delta` = 1e-6.
    ``scale`` multiplies the argument of the softmax. With the two other normalisers, it would cancel, so any value but
    1 is refused.

    State: every key and value so far.

    Source: Bouhsine (2026), section 2.2, and eq. 3 for the softermax; the kernel is eq. 1 of the SLAY paper. Queries
    and keys are not normalised. Neither paper has a scale; the code of the SLAY paper has one, but multiplies by its
    square root.

    The authors' package ``nmn`` has other conventions. It divides the kernel by :math:`\sqrt{d}`, with d the number of
    channels of a head, and multiplies it by a learned number alpha that begins at 1. It adds 1e-5 to the squared
    distance. For heads of 16 channels, ``yat:scale=0.25,epsilon=1e-5`` reproduces this with alpha fixed at 1.
    """

    name: ClassVar = "yat"
    label: ClassVar = "YAT"
    family: ClassVar = "yat"
    source: ClassVar = "nmn2026"
    complexity: ClassVar = "T^2 d"

    epsilon: float = option(1e-3, "added to the squared distance", low=1e-12, high=1)

    yat_sides = plain

    def kernel(self, q: Queries, k: Keys) -> PairScores:
        """Compute the kernel for every pair of a query and a key."""
        return yat_kernel(q, k, self.epsilon)
