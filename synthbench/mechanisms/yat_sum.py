"""Kernel attention with the Yat kernel."""

from typing import ClassVar

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.forms.yat_tiles import plain
from synthbench.mechanisms._yat import yat_kernel
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.options import option


@mechanism
class YatSum(ScoreAttention):
    r"""Attention weights: the Yat kernel :math:`(q \cdot k)^2 / (\|q - k\|^2 + \epsilon)` divided by its sum over keys.

    State: every key and value so far.

    Source: Luna et al. (2026): the kernel is eq. 1, and its values are normalised as in that paper's kernel attention.
    Their code takes a softmax of the kernel instead: see ``yat``. This mechanism equals ``yat:normaliser=sum``.
    """

    name: ClassVar = "yat-sum"
    label: ClassVar = "YAT-sum"
    family: ClassVar = "yat"
    source: ClassVar = "slay2026"
    complexity: ClassVar = "T^2 d"
    normaliser: ClassVar = "sum"

    epsilon: float = option(1e-3, "added to the squared distance", low=1e-12, high=1)

    yat_sides = plain

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute the kernel for every pair of a query and a key."""
        return yat_kernel(q, k, self.epsilon)
