"""Kernel attention with the Yat kernel of unit vectors, computed exactly."""

from functools import partial
from typing import ClassVar

import torch

from synthbench.forms import kernels
from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.scores import Normaliser
from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.forms.yat_tiles import spherical
from synthbench.mechanisms._yat import YatAttention
from synthbench.mechanisms.base import mechanism
from synthbench.options import option


@mechanism
class YatSpherical(YatAttention):
    r"""Attention weights: the Yat kernel of unit vectors, :math:`x^2 / (2 + \epsilon - 2x)`, divided by its sum.

    Here, x is the cosine of a query and a key, and the sum is over the keys up to the query. With
    ``normaliser=softmax``, the weights are the softmax of ``scale`` times the kernel. With ``normaliser=softermax``,
    the weights are powers of the kernel divided by their sum, as in ``yat``. The default, ``sum``, needs no scale,
    since a factor common to all kernel values cancels.

    State: every key and value so far.

    Source: Luna et al. (2026), eq. 5, and table 9 for epsilon. As in their code, the denominator of the kernel is at
    least 1e-6, since rounding can make x larger than 1. The normalisers other than ``sum`` follow Bouhsine (2026),
    section 2.2 and eq. 3.
    """

    name: ClassVar = "yat-spherical"
    label: ClassVar = "Spherical-YAT"
    family: ClassVar = "yat"
    source: ClassVar = "slay2026"
    complexity: ClassVar = "T^2 d"

    normaliser: Normaliser = option("sum", "what makes weights of the kernel's values")
    epsilon: float = option(1e-3, "added to the squared distance", low=0, high=1)

    yat_sides = spherical

    def kernel(self, q: Queries, k: Keys) -> PairScores:
        """Compute the kernel for every pair of a query and a key."""
        x = unit_vectors(q) @ unit_vectors(k).mT
        return x.square() / torch.rsub(x, 2 + self.epsilon, alpha=2).clamp(min=1e-6)

    def own_kernel(self, dtype: torch.dtype) -> kernels.Form | None:  # noqa: ARG002 - of every type
        """Return the GPU kernel for ``normaliser=sum``, which computes tile by tile; None for other normalisers."""
        return partial(kernels.load("_yat_spherical").attend, self.epsilon) if self.normaliser == "sum" else None
