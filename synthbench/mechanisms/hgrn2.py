"""HGRN2: a gated linear RNN whose state is an outer product."""

import math
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, rms_norm, silu

from synthbench.forms.recurrences import decayed
from synthbench.forms.shapes import KeyHeads, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import RmsNorm
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism
from synthbench.options import option


@mechanism
class Hgrn2(RecurrentAttention):
    r"""Gated linear attention in which every key is one minus the forget gate.

    In place of q, k and v, each token is projected to o_t, f_t and i_t. The option ``lower`` sets the lower bound
    :math:`\gamma` of the gates. Then

    .. math::
        g_t = \gamma + (1 - \gamma) \sigma(f_t), \qquad S_t = diag(g_t) S_{t-1} + (1 - g_t) i_t^T, \qquad
        out_t = norm(S_t^T silu(o_t))

    The stock layer follows the code cited below. Its norm, ``norm=layer``, divides by the root mean square of all
    channels, then multiplies by a gain. The norm of the bare layer, ``norm=head``, divides each head by the root mean
    square of its own channels, and has no gain.

    State: ``key_dim * value_dim`` numbers per head.

    Source: Qin et al. (2024), HGRN2, section 3. SiLU on the output gate o_t, the norm and the lack of a position
    encoding follow flash-linear-attention, ``layers/hgrn2.py``. The optional convolutions in that code, off by default,
    are left out here. In the paper, lower bounds are learned jointly for all layers: 0 in the first layer and larger in
    later layers. Here, the bound is one fixed number for all layers, by default 0.
    """

    name: ClassVar = "hgrn2"
    label: ClassVar = "HGRN2"
    source: ClassVar = "qin2024hgrn2"
    complexity: ClassVar = "T d^2"
    bare: ClassVar = MappingProxyType({"norm": "head"})
    rotation_note: ClassVar = (
        "its gates depend on the position: they are computed from the rotated keys, so the same token has another gate "
        "at each position"
    )

    lower: float = option(0.0, "least value of the gates", low=0, high=0.999)
    norm: Literal["layer", "head"] = option(
        "layer", "what is divided by its root mean square: all channels, with a gain, or each head's", absent="head"
    )

    def initialise(self, generator: torch.Generator | None) -> None:  # noqa: ARG002 - nothing is drawn
        """Create the gain of the norm."""
        if self.norm == "layer":
            self.gain = RmsNorm(self.model_dim)

    def attend(self, q: KeyHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> ValueHeads:
        """Attend with forget gates and keys computed from ``k``."""
        log_gates = logsigmoid(k)
        if self.lower:
            log_gates = torch.logaddexp(log_gates + math.log1p(-self.lower), k.new_tensor(math.log(self.lower)))
        out = decayed(silu(q), (1 - self.lower) * (-k).sigmoid(), v, log_gates, state=state)
        return rms_norm(out, out.shape[-1:], eps=1e-5) if self.norm == "head" else out / math.sqrt(q.shape[-1])

    def merge_heads(self, heads: ValueHeads) -> Tensor:
        """Concatenate the heads' outputs, normalise them together if ``norm=layer``, and project them."""
        if self.norm == "head":
            return super().merge_heads(heads)
        return self.out(self.gain(heads.transpose(-2, -3).flatten(-2)))
