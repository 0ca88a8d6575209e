"""Gated linear attention."""

import math
from types import MappingProxyType
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid, rms_norm, silu

from synthbench.forms.recurrences import decayed
from synthbench.forms.shapes import AnswerHeads, KeyHeads, QueryHeads, Token, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear, RmsNorm
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism, stock_part
from synthbench.options import option


@mechanism
class Gla(RecurrentAttention):
    r"""Linear attention without a feature map; every key channel decays at a rate computed from the token.

    .. math::
        S_t = diag(\alpha_t) S_{t-1} + k_t v_t^T, \qquad out_t = norm(S_t^T q_t / \sqrt{d}), \qquad
        \alpha_t = \sigma(x_t W_1 W_2 + b)^{1 / \tau}

    The stock layer, as its authors build it, has an output gate, which turns ``norm(...)`` into :math:`g \odot
    norm(...) \odot swish(x_t W_g)` with a gain g that all heads share. The bare layer leaves out the gain and the
    output gate.

    State: ``key_dim * value_dim`` numbers per head.

    Source: Yang et al. (2024), Gated linear attention transformers with hardware-efficient training, section 4, and
    flash-linear-attention, ``layers/gla.py``. As in that code, tau is 16, W_1 has 16 columns, and the norm divides a
    head's output by its root mean square. In that code, keys are half as wide as values; here, keys and values have the
    same width.
    """

    name: ClassVar = "gla"
    label: ClassVar = "GLA"
    source: ClassVar = "yang2024gla"
    complexity: ClassVar = "T d^2"
    bare: ClassVar = MappingProxyType({"output_gate": False})
    rotation_note: ClassVar = "one decay per channel does not commute with a rotation that mixes two channels"

    gate_rank: int = option(16, "columns of W_1, through which the gates are computed from a token", low=1)
    tau: float = option(16.0, "temperature of the gates: larger ones forget more slowly", low=1)
    output_gate: bool = stock_part("whether a swish gate multiplies the outputs, whose norm then has a gain")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the two factors of the projection to the forget gates, then the projection to the output gates."""
        self.gate_in = Linear(self.model_dim, self.gate_rank, bias=False, generator=generator)
        self.gate_out = Linear(self.gate_rank, self.model_dim, bias=True, generator=generator)
        if self.output_gate:
            self.out_gate = Linear(self.model_dim, self.model_dim, bias=False, generator=generator)
            self.gain = RmsNorm(self.head_dim)

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position, where only the last query attends."""
        q, k, v = self.heads(x)
        return self.merge_heads(self.attend(q[..., -1:, :], k, v, *self.controls(x)))

    def controls(self, x: Tokens) -> tuple[Tensor, Tensor | None]:
        """Compute the logarithms of the forget gates, at most 0, and the output gates."""
        log_gates = self.by_head(logsigmoid(self.gate_out(self.gate_in(x))) / self.tau)
        return log_gates, self.by_head(silu(self.out_gate(x))) if self.output_gate else None

    def attend(
        self,
        q: QueryHeads,
        k: KeyHeads,
        v: ValueHeads,
        log_gates: Float[Tensor, "*batch heads length gates"] | None = None,
        out_gate: ValueHeads | None = None,
        *,
        state: State | None = None,
    ) -> AnswerHeads:
        """Attend with forget gates, given as logarithms: one per channel, or one for all; None means no forgetting.

        The norm of the outputs has a gain only if ``out_gate`` is given.
        """
        if log_gates is None:
            log_gates = torch.zeros_like(k[..., :1])
        out = decayed(q / math.sqrt(q.shape[-1]), k, v, log_gates, state=state)
        if out_gate is None:
            return rms_norm(out, out.shape[-1:], eps=1e-6)
        return self.gain(out) * out_gate[..., -q.shape[-2] :, :]
