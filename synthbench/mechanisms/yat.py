"""Softmax attention over Yat scores."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from synthbench.knobs import knob
from synthbench.mechanisms._yat import yat_kernel
from synthbench.mechanisms.base import ScoreAttention, mechanism


@mechanism
class Yat(ScoreAttention):
    r"""Softmax over the Yat kernel, :math:`(q \cdot k)^2 / (\|q - k\|^2 + \epsilon)`: alignment over distance.

    State: every key and value so far.

    Source: Bouhsine (2026), section 2.2; the kernel is eq. 1 of the SLAY paper. Queries and keys
    keep their lengths.
    """

    name: ClassVar = "yat"
    label: ClassVar = "YAT"
    family: ClassVar = "yat"
    source: ClassVar = "nmn2026"
    complexity: ClassVar = "T^2 d"
    normaliser: ClassVar = "softmax"

    epsilon: float = knob(1e-3, "added to the squared distance", low=1e-12, high=1)

    def scores(
        self, q: Float[Tensor, "*batch queries key_dim"], k: Float[Tensor, "*batch keys key_dim"]
    ) -> Float[Tensor, "*batch queries keys"]:
        """The kernel of every pair."""
        return yat_kernel(q, k, self.epsilon)
