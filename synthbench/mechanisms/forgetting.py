"""Forgetting transformer: softmax attention with a forget gate."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid, pad, scaled_dot_product_attention

from synthbench.forms.linear import widened
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism


@mechanism
class Forgetting(RecurrentAttention):
    r"""Softmax attention whose scores fall by what has been forgotten since the key.

    With :math:`f_t = \sigma(x_t w + b)`, one a head,

    .. math::
        out_t = \sum_{s \le t} softmax_s\Big( \frac{q_t \cdot k_s}{\sqrt d} + \sum_{r=s+1}^t \log f_r \Big) v_s

    State: every key and value so far, and a number a head and token.

    Source: Lin et al. (2025), forgetting attention, without output gate, output norm, norm of q and k and token shift,
    which are in their "Pro" layer. w and b begin as in other linear layers, since they give none.
    """

    name: ClassVar = "forgetting"
    label: ClassVar = "FoX"
    family: ClassVar = "softmax"
    source: ClassVar = "lin2025forgetting"
    complexity: ClassVar = "T^2 d"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projection to the gate."""
        self.gate = Linear(self.model_dim, self.num_heads, bias=True, generator=generator)

    def controls(self, x: Tokens) -> tuple[Tensor]:
        """Logarithms of the gate."""
        return (self.by_head(logsigmoid(self.gate(x))),)

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        log_gate: Float[Tensor, "*batch heads length 1"] | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend in one fused operation; without a gate nothing is forgotten."""
        dtype, (q, k, v) = v.dtype, map(widened, (q, k, v))
        since = torch.zeros_like(k[..., :1]) if log_gate is None else widened(log_gate).cumsum(-2)
        is_causal, now = state is None, since
        if state is not None:
            if "since" in state.tensors:
                now = state.tensors["since"][..., -1:, :] + since
            since, k, v = (state.append(name, x) for name, x in (("since", now), ("keys", k), ("values", v)))
        one = torch.ones_like(now)
        # Two more channels add the difference of the running sums to a score.
        queries = torch.cat([q / math.sqrt(q.shape[-1]), now, one], dim=-1)
        keys = torch.cat([k, one if is_causal else torch.ones_like(since), -since], dim=-1)
        # Values as wide as keys, since only then a kernel that holds no length x length is chosen.
        queries, keys, values = (x.reshape(-1, *x.shape[-3:]) for x in (queries, keys, pad(v, (0, 2))))
        mixed = scaled_dot_product_attention(queries, keys, values, is_causal=is_causal, scale=1.0)
        return mixed[..., :-2].reshape(*q.shape[:-1], v.shape[-1]).to(dtype)

    def state_elements(self, length: int) -> int:
        """Every key and value, and the running sum at each in every head."""
        return length * (2 * self.model_dim + self.num_heads)
