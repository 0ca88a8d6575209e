"""HGRN2: a gated linear RNN whose state is an outer product."""

import math
from typing import ClassVar

import torch
from torch.nn.functional import logsigmoid, rms_norm, silu

from synthbench.forms.recurrences import decayed
from synthbench.forms.shapes import KeyHeads, ValueHeads
from synthbench.forms.state import State
from synthbench.knobs import knob
from synthbench.mechanisms.base import Attention, mechanism


@mechanism
class Hgrn2(Attention):
    r"""Gated linear attention whose key is what its gate forgets.

    With f_t, i_t and o_t the second, third and first projection of a token and :math:`\gamma` the ``lower`` bound,

    .. math::
        g_t = \gamma + (1 - \gamma) \sigma(f_t), \qquad S_t = diag(g_t) S_{t-1} + (1 - g_t) i_t^T, \qquad
        out_t = norm(S_t^T silu(o_t))

    State: ``key_dim * value_dim`` numbers a head.

    Source: Qin et al. (2024), HGRN2, section 3, with SiLU on the output gate as in the authors' code. There the lower
    bound is learned and rises with the layer from 0 at the first; here it is one number, 0. The norm divides a head's
    output, there all channels, by the root mean square and has no parameters.
    """

    name: ClassVar = "hgrn2"
    label: ClassVar = "HGRN2"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "qin2024hgrn2"
    complexity: ClassVar = "T d^2"

    lower: float = knob(0.0, "least value of the gates", low=0, high=0.999)

    def attend(self, q: KeyHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> ValueHeads:
        """Attend with gates made of k."""
        log_gates = logsigmoid(k)
        if self.lower:
            log_gates = torch.logaddexp(log_gates + math.log1p(-self.lower), k.new_tensor(math.log(self.lower)))
        out = decayed(silu(q), (1 - self.lower) * (-k).sigmoid(), v, log_gates, state=state)
        return rms_norm(out, out.shape[-1:], eps=1e-5)

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Key x value in every head, whatever the length."""
        return self.model_dim * self.head_dim
