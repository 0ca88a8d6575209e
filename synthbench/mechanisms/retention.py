"""Retention: linear attention whose state decays at a fixed rate."""

import math
from types import MappingProxyType
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad, rms_norm, silu

from synthbench.forms.recurrences import CHUNK, decayed
from synthbench.forms.shapes import AnswerHeads, KeyHeads, QueryHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism, stock_part


@mechanism
class Retention(RecurrentAttention):
    r"""Linear attention without a feature map, whose state decays at a fixed rate in each head.

    With :math:`\gamma_h = 1 - 2^{-5-h}` for the heads h = 0, 1, ..., and :math:`D_{ts} = \gamma_h^{t-s}`,

    .. math::
        R_{ts} = \frac{q_t \cdot k_s}{\sqrt{d}} \frac{D_{ts}}{\sqrt{\sum_{i \le t} D_{ti}}}, \qquad
        out_t = norm\Big( \frac{\sum_{s \le t} R_{ts} v_s}{\max(|\sum_{s \le t} R_{ts}|, 1)} \Big)

    The stock layer, as its authors build it, has an output gate: each :math:`out_t` is multiplied by :math:`swish(x_t
    W_G)`. The projections of the stock layer have Xavier initialisation as in the authors' code, with gain
    :math:`2^{-2.5}` for q, k, v and the gate, and gain 1 for the output. The bare layer has no gate, and its
    projections are initialised as in other mechanisms.

    State: ``key_dim * (value_dim + 1)`` numbers per head.

    Source: Sun et al. (2023), eq. 5 to 8, and "retention score normalization" in section 2.2; torchscale,
    component/multiscale_retention.py. As in that code, the group norm divides each head by the root mean square of its
    channels and has no parameters. The paper's position encoding, xPos, scales q and k and rotates them. The decay
    takes the place of the scaling, so only the rotation remains. The channels form n pairs, which are rotated. Pair i
    (from 0) has the frequency base^(-i/n) here, as in RoPE, but base^(-i/(n - 1)) in that code. Values are as wide as
    keys here, but twice as wide in that code.
    """

    name: ClassVar = "retention"
    label: ClassVar = "Retention"
    source: ClassVar = "sun2023retnet"
    complexity: ClassVar = "T d^2"
    bare: ClassVar = MappingProxyType({"output_gate": False})
    takes_last_queries: ClassVar = True
    own_positions: ClassVar = "rope"

    output_gate: bool = stock_part("whether a swish gate multiplies the outputs")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the output gate, and rescale all projections as in the authors' code; without the gate, do nothing."""
        if self.output_gate:
            self.gate = Linear(self.model_dim, self.model_dim, bias=False, generator=generator)
            with torch.no_grad():  # uniform in ±1/√width so far; Xavier's bound is √3 times that
                for layer, share in ((self.qkv, 2**-2.5), (self.gate, 2**-2.5), (self.out, 1)):
                    layer.weight.mul_(share * math.sqrt(3))

    def controls(self, x: Tokens) -> tuple[Tensor | None]:
        """Compute the output gates; the result is ``(None,)`` if the layer has no output gate."""
        return (self.by_head(silu(self.gate(x))) if self.output_gate else None,)

    def attend(
        self,
        q: QueryHeads,
        k: KeyHeads,
        v: ValueHeads,
        gate: ValueHeads | None = None,
        *,
        state: State | None = None,
    ) -> AnswerHeads:
        """Attend with one matrix of scores for all pairs of tokens, or chunk by chunk if that is faster."""
        queries, length = q.shape[-2], k.shape[-2]
        rate = self.rate(q)
        before = 0 if state is None else state.position
        positions = torch.arange(before, before + length, dtype=q.dtype, device=q.device).unsqueeze(-1)
        # The sum of a row of D, a geometric series: (1 - γ^(t+1)) / (1 - γ).
        row_sums = torch.expm1((positions[length - queries :] + 1) * rate) / torch.expm1(rate)
        q = q / (math.sqrt(q.shape[-1]) * row_sums.sqrt())
        # A column of ones beside the values makes the sum of the scores one more column.
        values = pad(v, (0, 1), value=1.0)
        if state is not None:
            sums = decayed(q, k, values, rate, state=state)
        elif queries < length or length <= 2 * CHUNK:
            sums = (q @ k.mT * self.decays(rate, queries, positions)) @ values
        else:
            sums = decayed(q, k, values, rate.expand(-1, length, 1))
        mixed = sums[..., :-1] / sums[..., -1:].abs().clamp(min=1)
        out = rms_norm(mixed, mixed.shape[-1:], eps=1e-6)
        return out if gate is None else out * gate[..., length - queries :, :]

    def rate(self, q: QueryHeads) -> Float[Tensor, "heads 1 1"]:
        """Compute the logarithm of each head's decay factor."""
        heads = torch.arange(q.shape[-3], dtype=q.dtype, device=q.device)
        return torch.log1p(-torch.exp2(-5 - heads)).view(-1, 1, 1)

    def decays(
        self, rate: Float[Tensor, "heads 1 1"], queries: int, positions: Float[Tensor, "length 1"]
    ) -> Float[Tensor, "heads queries length"]:
        """Compute the last ``queries`` rows of the decay matrix D, whose entries are 0 for keys after the query."""
        distance = positions[len(positions) - queries :] - positions.mT
        return (rate * distance).exp().tril(len(positions) - queries)

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Return heads x key width x (value width + 1 for the sum of scores), the same for every length."""
        return self.model_dim * (self.head_dim + 1)
