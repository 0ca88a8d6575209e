"""DeltaProduct: several steps of the delta rule a token."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm, silu

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import corrected
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.knobs import knob
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import SiluAttention, log_decay, log_rates, log_uniform_steps
from synthbench.mechanisms.base import mechanism


@mechanism
class Deltaproduct(SiluAttention):
    r"""The delta rule in ``steps`` steps a token, each with a key, a value and a rate of its own.

    With q, the k and the v passed through SiLU, q and the k then scaled to length 1,
    :math:`\beta_{t,j} = 2 \sigma(x_t W_{\beta,j})` and :math:`\alpha_t = \exp(-A\,softplus(x_t W_\alpha + b))`, one a
    head,

    .. math::
        S_{t,0} = \alpha_t S_{t-1}, \qquad
        S_{t,j} = (I - \beta_{t,j} k_{t,j} k_{t,j}^T) S_{t,j-1} + \beta_{t,j} k_{t,j} v_{t,j}^T, \qquad
        out_t = norm(S_{t,n}^T q_t)

    A token multiplies the state by a product of n generalised Householder matrices, such as a rotation.
    ``gate=none`` leaves out alpha.

    State: ``key_dim * value_dim`` numbers a head.

    Source: Siems et al. (2025), DeltaProduct, gated or not; two steps, beta up to 2, the gate, and how A and b begin
    (as in ``gated-deltanet``) are those of the authors' code. The norm divides a head's output by its root mean square
    and has no parameters. Values are as wide as keys, not twice. Left out: the short convolutions before SiLU, and the
    output gate. As in ``gated-deltanet``, q is scaled once more there, the norm has a gain, and A and b have no weight
    decay.
    """

    name: ClassVar = "deltaproduct"
    label: ClassVar = "DeltaProduct"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "siems2025deltaproduct"
    complexity: ClassVar = "T steps d^2"

    steps: int = knob(2, "steps of the delta rule a token", low=1, high=8)
    gate: Literal["head", "none"] = knob("head", "what shrinks the state before the steps: a gate a head, or nothing")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections to the rates, to the keys and values of the other steps, and the gate."""
        self.rate = Linear(self.model_dim, self.num_heads * self.steps, bias=False, generator=generator)
        self.others = (
            Linear(self.model_dim, 2 * (self.steps - 1) * self.model_dim, bias=self.bias, generator=generator)
            if self.steps > 1
            else None
        )
        if self.gate == "head":
            self.forget = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
            self.log_rate = log_rates(self.num_heads, 0.0, generator)
            self.gate_bias = nn.Parameter(log_uniform_steps(self.num_heads, 1, 1, generator=generator))

    def controls(self, x: Tokens) -> tuple[Tensor | None, ...]:
        """Rates [..., heads, length, steps], the logarithm of the gate, and what the other steps put in where."""
        beta = 2 * self.by_head(self.rate(x)).sigmoid()
        gate = log_decay(self.log_rate, self.gate_bias, self.by_head(self.forget(x))) if self.gate == "head" else None
        if self.others is None:
            return beta, gate, None, None
        keys, values = self.by_head(silu(self.others(x))).chunk(2, dim=-1)
        keys = keys.unflatten(-1, (self.steps - 1, self.head_dim))
        return beta, gate, keys, values.unflatten(-1, (self.steps - 1, self.head_dim))

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        beta: Float[Tensor, "*batch heads length steps"] | None = None,
        log_gate: Float[Tensor, "*batch heads length 1"] | None = None,
        other_keys: Float[Tensor, "*batch heads length others key_dim"] | None = None,
        other_values: Float[Tensor, "*batch heads length others value_dim"] | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with these rates, gate and further steps; without any there is one step with beta 1."""
        beta = torch.ones_like(k[..., :1]) if beta is None else beta
        log_gate = torch.zeros_like(beta[..., :1]) if log_gate is None else log_gate
        keys, values = k.unsqueeze(-2), v.unsqueeze(-2)
        if other_keys is not None and other_values is not None:
            other_keys = torch.stack([self.rotated(key, state) for key in other_keys.unbind(-2)], dim=-2)
            keys, values = torch.cat([keys, other_keys], dim=-2), torch.cat([values, other_values], dim=-2)
        keys, rates = unit_vectors(keys), beta.unsqueeze(-1)
        # The first step of a token is the one that decays.
        decay = pad(log_gate, (0, keys.shape[-2] - 1)).unsqueeze(-1)
        steps = (x.flatten(-3, -2) for x in (rates * keys, keys, rates * values, decay))
        out = corrected(unit_vectors(q), *steps, state=state)
        return rms_norm(out, out.shape[-1:], eps=1e-5)
