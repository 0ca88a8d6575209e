"""Attention with Yat scores, by default normalised by softmax."""

from typing import ClassVar

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.forms.yat_tiles import plain
from synthbench.mechanisms._yat import YatAttention, yat_kernel
from synthbench.mechanisms.base import mechanism
from synthbench.options import option


@mechanism
class Yat(YatAttention):
    r"""Softmax of the Yat kernel, :math:`(q \cdot k)^2 / (\|q - k\|^2 + \epsilon)`.

    ``normaliser=sum`` divides the kernel's values by their sum instead, as in ``yat-sum``. ``normaliser=softermax``
    first raises the values to the power n = ``power``: :math:`s_i^n / (\delta + \sum_j s_j^n)` with :math:`\delta` =
    1e-6. The option ``scale`` multiplies the argument of the softmax. With the two other normalisers, ``scale`` must be
    1, since a factor common to all kernel values would cancel.

    State: every key and value so far.

    Source: Bouhsine (2026), section 2.2, and eq. 3 for the softermax; the kernel is eq. 1 of Luna et al. (2026).
    Queries and keys are not normalised. Neither paper has a scale. In the code of Luna et al., a scale c multiplies the
    kernel by √c, so c corresponds to ``scale`` = √c here.

    Bouhsine's package ``nmn`` has other conventions. There, the kernel is divided by :math:`\sqrt{d}`, where d is the
    head width, and multiplied by a learned number alpha that begins at 1. Epsilon is 1e-5. For heads of width 16,
    ``yat:scale=0.25,epsilon=1e-5`` equals the kernel of ``nmn`` with alpha = 1.
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
