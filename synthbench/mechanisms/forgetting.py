"""Forgetting transformer: softmax attention with a forget gate."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad, rms_norm

from synthbench.forms.linear import widened
from synthbench.forms.scores import fused
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import kept_by_convolution, mechanism
from synthbench.options import option


@mechanism
class Forgetting(RecurrentAttention):
    r"""Softmax attention with forget gates: each token after a key, up to the query's own, lowers the key's score.

    With :math:`f_t = \sigma(x_t w + b)`, one per head,

    .. math::
        out_t = \sum_{s \le t} softmax_s\Big( \frac{q_t \cdot k_s}{\sqrt d} + \sum_{r=s+1}^t \log f_r \Big) v_s

    The default is the variant that the authors call LLaMA; it needs no position encoding. The option ``pro`` selects
    the authors' variant Pro. Variant Pro mixes each key with the previous key,
    :math:`k_t \leftarrow a_t k_{t-1} + (1 - a_t) k_t` with :math:`a_t = \sigma(x_t w_k)`, one per head. Values are
    mixed in the same way, with another vector :math:`w_v`. Variant Pro also divides q, k and the output by their root
    mean squares and multiplies them by learned gains. Finally, it multiplies the output by :math:`\sigma(x_t W_g)`.

    State: every key and value so far, and one number per head and token; with ``pro``, also the latest key and value
    before the mixing.

    Source: Lin et al. (2025), forgetting attention. The option ``pro`` follows the layer in the authors' code
    (forgetting-transformer, ``modeling_forgetting_transformer.py``).
    """

    name: ClassVar = "forgetting"
    label: ClassVar = "FoX"
    family: ClassVar = "softmax"
    source: ClassVar = "lin2025forgetting"
    complexity: ClassVar = "T^2 d"

    pro: bool = option(
        default=False,
        meaning="whether keys and values are shifted, q, k and the output normed, and the output gated",
        is_addition=True,
    )

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections to forget gates and, with ``pro``, to mixing weights and output gates; gains are 1."""
        self.gate = Linear(self.model_dim, self.num_heads, bias=True, generator=generator)
        if self.pro:
            self.shift = Linear(self.model_dim, 2 * self.num_heads, bias=False, generator=generator)
            self.out_gate = Linear(self.model_dim, self.model_dim, bias=False, generator=generator)
            self.q_gain, self.k_gain, self.out_gain = (
                nn.Parameter(torch.ones(self.num_heads, 1, self.head_dim)) for _ in range(3)
            )

    def prepared(
        self, q: KeyHeads, k: KeyHeads, v: ValueHeads, x: Tokens, state: State | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mix each key and value with the key and value of the previous token, then normalise queries and keys.

        Without the option ``pro``, return q, k and v unchanged.
        """
        if not self.pro:
            return q, k, v
        back_k, back_v = self.by_head(self.shift(x).sigmoid()).chunk(2, dim=-1)
        k, v = shifted(k, back_k, state, "last key"), shifted(v, back_v, state, "last value")
        q, k = (rms_norm(each, each.shape[-1:], eps=1e-5) for each in (q, k))
        return q * self.q_gain, k * self.k_gain, v

    def controls(self, x: Tokens) -> tuple[Tensor | None, ...]:
        """Compute the logarithms of the forget gates and, if ``pro`` is set, the output gates."""
        return self.by_head(logsigmoid(self.gate(x))), self.by_head(self.out_gate(x).sigmoid()) if self.pro else None

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        log_gate: Float[Tensor, "*batch heads length 1"] | None = None,
        output_gates: ValueHeads | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend in one fused operation; if ``log_gate`` is None, nothing is forgotten."""
        dtype, (q, k, v) = v.dtype, map(widened, (q, k, v))
        since = torch.zeros_like(k[..., :1]) if log_gate is None else widened(log_gate).cumsum(-2)
        is_causal, now = state is None, since
        if state is not None:
            if "since" in state.tensors:
                now = state.tensors["since"][..., -1:, :] + since
            since, k, v = (state.append(name, x) for name, x in (("since", now), ("keys", k), ("values", v)))
        one = torch.ones_like(now)
        # Two more channels add the difference of the running sums of log f to each score.
        queries = torch.cat([q / math.sqrt(q.shape[-1]), now, one], dim=-1)
        keys = torch.cat([k, one if is_causal else torch.ones_like(since), -since], dim=-1)
        # Zeros pad values to the width of keys, since PyTorch then chooses a kernel that holds no length x length.
        out = fused(queries, keys, pad(v, (0, 2)), is_causal=is_causal, scale=1.0)[..., :-2].to(dtype)
        if output_gates is None:
            return out
        return rms_norm(out, out.shape[-1:], eps=1e-6) * self.out_gain * output_gates

    def state_elements(self, length: int) -> int:
        """Count the numbers in the state: all keys and values, and one sum of log gates per token and head.

        With ``pro``, the latest key and value before the mixing count too.
        """
        kept = kept_by_convolution(2, 2 * self.model_dim, length) if self.pro else 0
        return length * (2 * self.model_dim + self.num_heads) + kept


def shifted(x: KeyHeads, back: Float[Tensor, "*batch heads length 1"], state: State | None, kept: str) -> KeyHeads:
    """Mix every row with the previous row, whose weight is ``back``; the row before the first row is zero.

    If a state is given, ``x`` holds only the next row, and the state stores the previous row under the name ``kept``.
    """
    if state is None:
        before = pad(x[..., :-1, :], (0, 0, 1, 0))
    else:
        before = state.tensors.get(kept, torch.zeros_like(x))
        state.tensors[kept] = x
    return back * before + (1 - back) * x
