"""DeltaNet: linear attention that replaces what a key held."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import rms_norm

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import delta
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.knobs import knob
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism


@mechanism
class Deltanet(RecurrentAttention):
    r"""A memory from keys to values that corrects what it returns for a key instead of adding to it.

    With q and k scaled to length 1 and :math:`\beta_t = \sigma(x_t W_\beta)`,

    .. math:: S_t = S_{t-1} - \beta_t k_t (S_{t-1}^T k_t - v_t)^T, \qquad out_t = norm(S_t^T q_t)

    A step multiplies the state by :math:`I - \beta_t k_t k_t^T`, whose eigenvalues are 1 and :math:`1 - \beta_t`:
    between 0 and 1, or with ``eigenvalues=signed``, which doubles beta, between -1 and 1. Only then can a layer count
    modulo two.

    State: ``key_dim * value_dim`` numbers a head.

    Source: Schlag et al. (2021), section 4.2, for the rule; Yang et al. (2024), Parallelizing linear transformers with
    the delta rule, for the form that is computed, the scaling of q and k and the norm, which divides a head's output by
    its root mean square and has no parameters here; Grazzi et al. (2025) for signed eigenvalues. Left out: the short
    convolutions and SiLU on q, k and v.
    """

    name: ClassVar = "deltanet"
    label: ClassVar = "DeltaNet"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "yang2024deltanet"
    complexity: ClassVar = "T d^2"

    eigenvalues: Literal["zero-one", "signed"] = knob(
        "zero-one", "range of a step's eigenvalues: beta from 0 to 1, or from 0 to 2"
    )

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projection to beta."""
        self.rate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)

    def controls(self, x: Tokens) -> tuple[Tensor]:
        """Beta."""
        return (self.beta(x),)

    def beta(self, x: Tokens) -> Float[Tensor, "*batch heads length 1"]:
        """How far a token moves the value of its key towards its own: 1 replaces it."""
        beta: Tensor = self.rate(x).sigmoid().mT.unsqueeze(-1)
        return beta if self.eigenvalues == "zero-one" else 2 * beta

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        beta: Float[Tensor, "*batch heads length 1"] | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with this beta; without any it is 1, and every token replaces the value of its key."""
        if beta is None:
            beta = torch.ones_like(k[..., :1])
        out = delta(unit_vectors(q), unit_vectors(k), v, beta, state=state)
        return rms_norm(out, out.shape[-1:], eps=1e-6)
