"""RWKV-7: a delta rule whose gate, rates and keys of three kinds are a vector each."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import corrected
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.knobs import knob
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism

FASTEST = math.exp(-0.5)
"""Minus the logarithm of the fastest decay of a token."""


@mechanism
class Rwkv7(RecurrentAttention):
    r"""A memory that decays by channel and takes out what it returns for one key while another is put in.

    With r, k and v the projections of a token, :math:`w_t = \exp(-e^{-1/2} \sigma(b_w + \tanh(x_t W_1) W_2))`,
    :math:`a_t = \sigma(b_a + x_t A_1 A_2)`, :math:`\kappa_t` the vector :math:`\xi \odot k_t` scaled to length 1 and
    :math:`\tilde k_t = k_t \odot (1 + (a_t - 1) \odot \alpha)`,

    .. math::
        S_t = (diag(w_t) - (a_t \odot \kappa_t) \kappa_t^T) S_{t-1} + \tilde k_t v_t^T, \qquad
        out_t = norm(S_t^T r_t) + (r_t \cdot (\rho \odot \tilde k_t)) v_t

    State: ``key_dim * value_dim`` numbers a head.

    Source: Peng et al. (2025), section 4, time mixing; their state is the transpose. The beginnings are those of the
    authors' code for a first layer: b_w, b_a and xi by channel, alpha 1.02, rho -0.04, r and v projected by entries up
    to 0.5 over the root of the width, k by entries up to 0.05 over it, none of them with a bias there. W_2 and A_2 are
    small: there orthogonal rows times 0.1, here uniform times 0.1. W_1 and A_1 have 32 columns there too below a width
    of 369, beyond about 2.5 times its root. There W_1, A_1 and the output projection are 0 at first, which gives others
    no gradient in the first step; here W_1 and A_1 are small and the output projection is as in other mechanisms. There
    b_w learns at twice the rate, and only matrices have weight decay. The norm is a layer norm a head without
    parameters. Left out: token shift (as the short convolutions of others), the value residual from the first layer,
    and the output gate.
    """

    name: ClassVar = "rwkv7"
    label: ClassVar = "RWKV-7"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "peng2025rwkv7"
    complexity: ClassVar = "T d^2"

    gate_rank: int = knob(32, "columns of W_1 and of A_1, through which decays and rates are read off a token", low=1)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Scale the projections; draw those to decays and rates, and lay out what begins by channel."""
        width, heads, size = self.model_dim, self.num_heads, self.head_dim
        with torch.no_grad():
            scales = torch.tensor([0.5, 0.05, 0.5]).repeat_interleave(width)
            self.qkv.weight.mul_(scales)
            if self.qkv.bias is not None:
                self.qkv.bias.mul_(scales)
        self.decay_in, self.rate_in = (Linear(width, self.gate_rank, bias=False, generator=generator) for _ in range(2))
        self.decay_out, self.rate_out = (
            Linear(self.gate_rank, width, bias=False, generator=generator) for _ in range(2)
        )
        with torch.no_grad():
            for layer in (self.decay_in, self.rate_in, self.decay_out, self.rate_out):
                layer.weight.mul_(0.1)
        along = torch.linspace(0, 1, width)
        within = torch.linspace(-1, 1, size) if size > 1 else torch.zeros(1)
        zigzag = (within * within.abs()).repeat(heads)
        self.decay_bias = self._by_channel(-6 + 6 * along + 0.5 + 2.5 * zigzag)
        self.rate_bias = self._by_channel(-0.19 + 0.3 * zigzag + 0.4 * (along - 0.5))
        self.removal = self._by_channel(0.71 - 0.1 * (along - 0.5))
        self.mixing = self._by_channel(torch.full((width,), 1.02))
        self.bonus = self._by_channel(torch.full((width,), -0.04))

    def _by_channel(self, values: Tensor) -> nn.Parameter:
        return nn.Parameter(values.view(self.num_heads, 1, self.head_dim).clone())

    def controls(self, x: Tokens) -> tuple[Tensor, Tensor]:
        """Logarithms of the decays, and the rates."""
        decay = self.by_head(self.decay_out(self.decay_in(x).tanh())) + self.decay_bias
        rate = self.by_head(self.rate_out(self.rate_in(x))) + self.rate_bias
        return -FASTEST * decay.sigmoid(), rate.sigmoid()

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        log_decay: KeyHeads | None = None,
        rate: KeyHeads | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with these decays and rates; without any, nothing decays and the rate is 1."""
        log_decay = torch.zeros_like(k) if log_decay is None else log_decay
        rate = torch.ones_like(k) if rate is None else rate
        removed = unit_vectors(k * self.removal)
        k = k * (1 + (rate - 1) * self.mixing)
        # It reads the state before the decay, which is at least exp(-FASTEST): a division undoes it.
        out = corrected(q, removed * (-log_decay).exp(), rate * removed, v, log_decay, k, fastest=FASTEST, state=state)
        normal = layer_norm(out, out.shape[-1:], eps=1e-5 * self.head_dim)
        return normal + (q * k * self.bonus).sum(-1, keepdim=True) * v
