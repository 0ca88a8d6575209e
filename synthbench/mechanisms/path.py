"""PaTH attention: softmax attention whose keys pass a Householder matrix at every token after them."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms import scores
from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import corrected
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism


@mechanism
class Path(RecurrentAttention):
    r"""Softmax attention with a position encoding that is read off the tokens between key and query.

    With :math:`w_t` the vector :math:`x_t W_1 W_2` scaled to length 1 and :math:`\beta_t = 2 \sigma(x_t u + b)`,

    .. math::
        H_t = I - \beta_t w_t w_t^T, \qquad
        out_t = \sum_{s \le t} softmax_s\Big( \frac{q_t^T H_t H_{t-1} \dots H_{s+1} k_s}{\sqrt d} \Big) v_s

    The scores are what a state returns to which every token adds its key in a column of its own, and which then passes
    the matrices: one recurrence for all of them.

    State: every key, which changes at every token, and every value.

    Source: Yang et al. (2025), PaTH attention, section 3, without the forget gate; W_1 has 32 columns as in the
    authors' code. Left out: the short convolution on w.
    """

    name: ClassVar = "path"
    label: ClassVar = "PaTH"
    family: ClassVar = "softmax"
    source: ClassVar = "yang2025path"
    complexity: ClassVar = "T^2 d"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections to directions and rates."""
        self.direction_in = Linear(self.model_dim, 32, bias=False, generator=generator)
        self.direction_out = Linear(32, self.model_dim, bias=False, generator=generator)
        self.rate = Linear(self.model_dim, self.num_heads, bias=True, generator=generator)

    def controls(self, x: Float[Tensor, "*batch length model_dim"]) -> tuple[Tensor, Tensor]:
        """Directions and rates of the Householder matrices."""
        direction = unit_vectors(self.by_head(self.direction_out(self.direction_in(x))))
        return direction, 2 * self.by_head(self.rate(x)).sigmoid()

    def attend(
        self,
        q: Float[Tensor, "*batch heads length key_dim"],
        k: Float[Tensor, "*batch heads length key_dim"],
        v: Float[Tensor, "*batch heads length value_dim"],
        direction: Float[Tensor, "*batch heads length key_dim"] | None = None,
        rate: Float[Tensor, "*batch heads length 1"] | None = None,
    ) -> Float[Tensor, "*batch heads length value_dim"]:
        """Attend with these matrices; without any, it is softmax attention."""
        direction = torch.zeros_like(k) if direction is None else direction
        rate = torch.zeros_like(k[..., :1]) if rate is None else rate
        columns = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device)
        products = corrected(q, rate * direction, direction, columns, torch.zeros_like(rate), k)
        return scores.weights(products / math.sqrt(q.shape[-1]), "softmax") @ v

    def state_elements(self, length: int) -> int:
        """Every key and every value."""
        return 2 * length * self.model_dim
