"""DeltaProduct: several steps of the delta rule (replace the value stored for a key) per token."""

from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad, silu

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import corrected
from synthbench.forms.shapes import KeyHeads, Token, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear, ShortConvolution
from synthbench.mechanisms._recurrent import SiluAttention
from synthbench.mechanisms.base import convolved, kept_by_convolution, mechanism, stock_part
from synthbench.options import option


@mechanism
class Deltaproduct(SiluAttention):
    r"""The delta rule applied ``steps`` times per token, each time with another key, value and rate.

    The delta rule replaces the value stored for a key. First, the query q, and the keys k and values v of all steps,
    pass through a causal depthwise convolution with ``conv`` taps and SiLU. Then q and all k are scaled to norm 1. Let
    n be ``steps``. In each head, step j has the rate :math:`\beta_{t,j} = 2 \sigma(x_t W_{\beta,j})`, and the forget
    gate is :math:`\alpha_t = \exp(-A\,softplus(x_t W_\alpha + b))`. Then

    .. math::
        S_{t,0} = \alpha_t S_{t-1}, \qquad
        S_{t,j} = (I - \beta_{t,j} k_{t,j} k_{t,j}^T) S_{t,j-1} + \beta_{t,j} k_{t,j} v_{t,j}^T, \qquad
        out_t = norm(S_{t,n}^T q_t) \odot silu(x_t W_g)

    The norm divides a head's output by its root mean square and has a learned gain. The optimiser's weight decay does
    not apply to A and b. The above is the stock layer, as in the code cited below. The bare layer leaves out the
    convolution, the gain and the output gate; in it, weight decay applies to A and b. Each token multiplies the state
    by a product of n generalised Householder matrices; this product can be a rotation. With ``gate=none``, alpha is 1.

    State: ``key_dim * value_dim`` numbers per head, and the convolution's inputs (q, and the k and v of all steps) at
    the last ``conv - 1`` tokens.

    Source: Siems et al. (2025), DeltaProduct, with or without a gate. Several things follow flash-linear-attention,
    ``layers/gated_deltaproduct.py``: the default of two steps, beta up to 2, the gate, the parts around the recurrence,
    and the initial values of A and b (those of ``gated-deltanet``). In that code, values are twice as wide as keys, and
    the keys of all heads together have three quarters of the model's width. Here, keys and values have equal width. The
    scaling of q is explained in ``deltanet``.
    """

    name: ClassVar = "deltaproduct"
    label: ClassVar = "DeltaProduct"
    source: ClassVar = "siems2025deltaproduct"
    complexity: ClassVar = "T steps d^2"
    bare: ClassVar = MappingProxyType({"conv": 0, "norm_gain": False, "output_gate": False, "undecayed": False})

    steps: int = option(2, "steps of the delta rule per token", low=1, high=8)
    gate: Literal["head", "none"] = option("head", "what shrinks the state before the steps: a gate per head, or none")
    undecayed: bool = stock_part("whether weight decay leaves the gate's rate A and bias alone")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create the projections to the rates, and to the keys and values of all steps after the first.

        Then create the decay gate, the convolutions, the norm and the output gate.
        """
        self.rate = Linear(self.model_dim, self.num_heads * self.steps, bias=False, generator=generator)
        self.others = (
            Linear(self.model_dim, 2 * (self.steps - 1) * self.model_dim, bias=self.bias, generator=generator)
            if self.steps > 1
            else None
        )
        if self.gate == "head":
            self.forget = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
            self.draw_decay(generator, undecayed=self.undecayed)
        super().initialise(generator)
        self.others_convolution = (
            ShortConvolution(self.conv, 2 * (self.steps - 1) * self.model_dim, generator)
            if self.conv and self.steps > 1
            else None
        )

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update ``state`` in place."""
        return self.merge_heads(self.attend(*self.heads(x, state), *self.controls(x, state), state=state))

    def controls(self, x: Tokens, state: State | None = None) -> tuple[Tensor | None, ...]:
        """Compute the rates, decay gates (as logarithms) and output gates, and the keys and values of later steps.

        Later steps are all steps of a token except its first. The rates are [..., heads, length, steps]. If a state is
        given, ``x`` holds only the next token.
        """
        beta = 2 * self.by_head(self.rate(x)).sigmoid()
        gate = self.log_decay(self.by_head(self.forget(x))) if self.gate == "head" else None
        output_gates = self.output_gates(x)
        if self.others is None:
            return beta, gate, output_gates, None, None
        others = self.others(x)
        if self.others_convolution is not None:
            others = convolved(self.others_convolution, others, state, kept="convolution of the other steps")
        keys, values = self.by_head(silu(others)).chunk(2, dim=-1)
        keys = keys.unflatten(-1, (self.steps - 1, self.head_dim))
        return beta, gate, output_gates, keys, values.unflatten(-1, (self.steps - 1, self.head_dim))

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        beta: Float[Tensor, "*batch heads length steps"] | None = None,
        log_gate: Float[Tensor, "*batch heads length 1"] | None = None,
        output_gates: ValueHeads | None = None,
        other_keys: Float[Tensor, "*batch heads length others key_dim"] | None = None,
        other_values: Float[Tensor, "*batch heads length others value_dim"] | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with the given rates and gates, and with the keys and values of the steps after the first.

        By default, each token takes one step of rate 1, and the state does not decay.
        """
        beta = torch.ones_like(k[..., :1]) if beta is None else beta
        log_gate = torch.zeros_like(beta[..., :1]) if log_gate is None else log_gate
        keys, values = k.unsqueeze(-2), v.unsqueeze(-2)
        if other_keys is not None and other_values is not None:
            other_keys = torch.stack([self.rotated(key, state) for key in other_keys.unbind(-2)], dim=-2)
            keys, values = torch.cat([keys, other_keys], dim=-2), torch.cat([values, other_values], dim=-2)
        keys, rates = unit_vectors(keys), beta.unsqueeze(-1)
        # Only the first step of each token decays the state.
        decay = pad(log_gate, (0, keys.shape[-2] - 1)).unsqueeze(-1)
        steps = (x.flatten(-3, -2) for x in (rates * keys, keys, rates * values, decay))
        out = corrected(unit_vectors(q), *steps, state=state)
        return self.normed(out, output_gates)

    def state_elements(self, length: int) -> int:
        """Count the numbers in the state matrices of all heads and in the past inputs that the convolutions store."""
        others = kept_by_convolution(self.conv, 2 * (self.steps - 1) * self.model_dim, length)
        return super().state_elements(length) + others
