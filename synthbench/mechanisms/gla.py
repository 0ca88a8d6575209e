"""Gated linear attention."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid, rms_norm

from synthbench.forms.recurrences import decayed
from synthbench.forms.shapes import AnswerHeads, KeyHeads, QueryHeads, Token, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.knobs import knob
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism


@mechanism
class Gla(RecurrentAttention):
    r"""Linear attention without a feature map whose every key channel forgets at a rate read off the token.

    .. math::
        S_t = diag(\alpha_t) S_{t-1} + k_t v_t^T, \qquad out_t = norm(S_t^T q_t / \sqrt{d}), \qquad
        \alpha_t = \sigma(x_t W_1 W_2 + b)^{1 / \tau}

    State: ``key_dim * value_dim`` numbers a head.

    Source: Yang et al. (2024), Gated linear attention transformers with hardware-efficient training, section 4; tau is
    16 and W_1 has 16 columns there as here. The norm divides a head's output by its root mean square and has no
    parameters. Keys are as wide as values, not half. Left out: the swish gate on the output.
    """

    name: ClassVar = "gla"
    label: ClassVar = "GLA"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "yang2024gla"
    complexity: ClassVar = "T d^2"

    gate_rank: int = knob(16, "columns of W_1, through which the gates are read off a token", low=1)
    tau: float = knob(16.0, "temperature of the gates: larger ones forget more slowly", low=1)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the two factors of the gates' projection."""
        self.gate_in = Linear(self.model_dim, self.gate_rank, bias=False, generator=generator)
        self.gate_out = Linear(self.gate_rank, self.model_dim, bias=True, generator=generator)

    def forward_last(self, x: Tokens) -> Token:
        """What ``forward`` gives at the last position."""
        q, k, v = self.heads(x)
        return self.merge_heads(self.attend(q[..., -1:, :], k, v, *self.controls(x)))

    def controls(self, x: Tokens) -> tuple[Tensor]:
        """Logarithms of the gates, at most 0."""
        return (self.by_head(logsigmoid(self.gate_out(self.gate_in(x))) / self.tau),)

    def attend(
        self,
        q: QueryHeads,
        k: KeyHeads,
        v: ValueHeads,
        log_gates: Float[Tensor, "*batch heads length gates"] | None = None,
        *,
        state: State | None = None,
    ) -> AnswerHeads:
        """Attend with these gates, one a channel or one for all; without any, nothing is forgotten."""
        if log_gates is None:
            log_gates = torch.zeros_like(k[..., :1])
        out = decayed(q / math.sqrt(q.shape[-1]), k, v, log_gates, state=state)
        return rms_norm(out, out.shape[-1:], eps=1e-6)
