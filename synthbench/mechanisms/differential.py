"""Differential attention: one softmax minus another."""

from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import pad, rms_norm, scaled_dot_product_attention

from synthbench.errors import UsageError
from synthbench.forms.shapes import KeyHeads, ValueHeads
from synthbench.forms.state import State
from synthbench.knobs import knob
from synthbench.mechanisms.base import Attention, mechanism


@mechanism
class Differential(Attention):
    r"""The difference of two softmax attentions, each by half of the channels of queries and keys.

    With :math:`q^1, q^2` and :math:`k^1, k^2` the halves, and vectors :math:`\lambda` that all heads share,

    .. math::
        out_t = (1 - \lambda_0) \, norm\Big( \sum_s \Big[ softmax_s\Big( \frac{q^1_t \cdot k^1_s}{\sqrt{d / 2}} \Big) -
        \lambda \, softmax_s\Big( \frac{q^2_t \cdot k^2_s}{\sqrt{d / 2}} \Big) \Big] v_s \Big), \qquad
        \lambda = e^{\lambda_{q1} \cdot \lambda_{k1}} - e^{\lambda_{q2} \cdot \lambda_{k2}} + \lambda_0

    State: every key and value so far.

    Source: Ye et al. (2025), eq. 1 to 3; the vectors begin normal with deviation 0.1 as there. There lambda_0 is
    0.8 - 0.6 exp(-0.3 (l - 1)) in layer l; here it is that of the first layer in all. The norm divides a head's output
    by its root mean square; there it has a gain.
    """

    name: ClassVar = "differential"
    label: ClassVar = "Differential"
    family: ClassVar = "softmax"
    source: ClassVar = "ye2025differential"
    complexity: ClassVar = "T^2 d"

    initial: float = knob(0.2, "lambda_0, what the second softmax is multiplied by at first", low=0, high=0.8)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the vectors of lambda.

        Raises:
            UsageError: If the width of a head is odd.
        """
        if self.head_dim % 2:
            raise UsageError(f"a head has {self.head_dim} channels; allowed: an even number, for two halves")
        # In the order q1, k1, q2, k2.
        self.vectors = nn.Parameter(0.1 * torch.randn(4, 1, self.head_dim // 2, generator=generator))

    def attend(self, q: KeyHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> ValueHeads:
        """Attend twice in one fused operation, and subtract."""
        # Zeros make keys as wide as values, since only then a kernel that holds no length x length is chosen.
        is_causal = state is None
        if state is not None:
            k, v = state.append("keys", k), state.append("values", v)
        half = self.head_dim // 2
        query, key = (pad(x.unflatten(-1, (2, -1)).movedim(-2, 0), (0, v.shape[-1] - half)) for x in (q, k))
        values = v.expand(2, *v.shape)
        query, key, flat = (x.reshape(-1, *x.shape[-3:]) for x in (query, key, values))
        mixed = scaled_dot_product_attention(query, key, flat, is_causal=is_causal, scale=half**-0.5)
        first, second = mixed.view(2, *q.shape[:-1], v.shape[-1])
        q1, k1, q2, k2 = self.vectors.unbind(-3)
        scale = (q1 * k1).sum(-1, keepdim=True).exp() - (q2 * k2).sum(-1, keepdim=True).exp() + self.initial
        out = first - scale.unsqueeze(-3) * second
        return (1 - self.initial) * rms_norm(out, out.shape[-1:], eps=1e-5)
