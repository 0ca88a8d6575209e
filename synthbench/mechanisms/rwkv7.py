"""RWKV-7: a delta rule with decays and rates per channel, which removes a value at one key and adds one at another."""

import math
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import corrected
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear, TokenShift, exempt_from_decay
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import kept_by_convolution, mechanism, stock_part
from synthbench.options import option

FASTEST = math.exp(-0.5)
"""Largest decay rate: minus the logarithm of the smallest factor by which one token multiplies the state."""

MIX_POWERS = torch.tensor([[0.2], [0.9], [0.7], [0.7], [0.9], [0.2]])
"""Exponents p for r, w, k, v, a and g: the initial mix in channel i is 1 - (i / width)^p."""


@mechanism
class Rwkv7(RecurrentAttention):
    r"""A memory with a decay per channel; each token removes the value at one key and adds a value at another key.

    Each :math:`x_t` below stands for a learned mix of a token with the previous token; r, w, k, v, a and g each have
    their own mix. The vectors r, k and v are projections of :math:`x_t`, and :math:`w_t = \exp(-e^{-1/2} \sigma(b_w +
    \tanh(x_t W_1) W_2))`, :math:`a_t = \sigma(b_a + x_t A_1 A_2)` and :math:`g_t = \sigma(x_t G_1) G_2`. Let
    :math:`\kappa_t` be :math:`\xi \odot k_t` scaled to norm 1 in each head, and :math:`\tilde k_t = k_t \odot (1 + (a_t
    - 1) \odot \alpha)`. The vectors :math:`\xi`, :math:`\alpha` and :math:`\rho` are learned. Then

    .. math::
        S_t = (diag(w_t) - (a_t \odot \kappa_t) \kappa_t^T) S_{t-1} + \tilde k_t v_t^T, \qquad
        out_t = g_t \odot (norm(S_t^T r_t) + (r_t \cdot (\rho \odot \tilde k_t)) v_t)

    where the norm is a layer norm per head with a gain and a shift. The stock layer is the time mixing of a model's
    first layer in the authors' code (RWKV-LM, RWKV-v7/train_temp/src/model.py). No projection has a bias, and weight
    decay applies only to the projections to r, k and v and to the output projection. The bare layer has no mixes, no g,
    no gain and no shift. In the bare layer, the benchmark suite decides whether projections have biases, and weight
    decay applies to all parameters.

    State: ``key_dim * value_dim`` numbers per head, and the previous token's vector.

    Source: Peng et al. (2025), section 4, whose state is the transpose of S. Initial values are those of the first
    layer in that code. The mixes, b_w, b_a and xi depend on the channel; alpha is 1.02, rho is -0.04, and G_1 is 0. The
    projections to r and v are uniform in ±0.5/√width, and the projection to k in ±0.05/√width. W_2, A_2 and G_2 are 0.1
    times orthogonal rows in that code, and 0.1 times uniform values here. W_1, A_1 and G_1 have 32 columns by default.
    In that code, the number of columns grows with the model's width. W_1, A_1 and the output projection begin at 0
    there, so other parameters have no gradient in the first step. Here, W_1 and A_1 begin with small values, and the
    output projection begins as in other mechanisms.

    That code also mixes the first layer's values into the values of later layers. This is left out, since a mechanism
    sees only one layer. Also left out are initial values that differ between layers, and a doubled learning rate for
    b_w.
    """

    name: ClassVar = "rwkv7"
    label: ClassVar = "RWKV-7"
    source: ClassVar = "peng2025rwkv7"
    complexity: ClassVar = "T d^2"
    rotation_note: ClassVar = "a decay per channel does not commute with a rotation that mixes two channels"
    bare: ClassVar = MappingProxyType(
        dict.fromkeys(("token_shift", "output_gate", "norm_gain", "own_biases", "undecayed"), False)
    )

    gate_rank: int = option(32, "columns of W_1, A_1 and G_1, through which gates are computed from a token", low=1)
    token_shift: bool = stock_part("whether all is read off mixes of a token with the one before it")
    output_gate: bool = stock_part("whether a gate read off the token multiplies a head's output")
    norm_gain: bool = stock_part("whether the norm of a head's output has a gain and a shift")
    own_biases: bool = stock_part("whether no projection has a bias, as with its authors, whatever the suite says")
    undecayed: bool = stock_part("whether weight decay leaves all but the projections of r, k, v and the output alone")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Rescale the projections to r, k and v, then draw or set the other parameters."""
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
        self.shift = TokenShift(1 - (torch.arange(width) / width) ** MIX_POWERS) if self.token_shift else None
        self.gate_in = self.gate_out = None
        if self.output_gate:
            self.gate_in = Linear(width, self.gate_rank, bias=False, generator=generator)
            self.gate_out = Linear(self.gate_rank, width, bias=False, generator=generator)
            with torch.no_grad():
                self.gate_in.weight.zero_()
                self.gate_out.weight.mul_(0.1)
        self.gain = self._by_channel(torch.ones(width)) if self.norm_gain else None
        self.offset = self._by_channel(torch.zeros(width)) if self.norm_gain else None
        if self.own_biases:
            self.qkv.bias = self.out.bias = None
        if self.undecayed:
            projections = {"qkv.weight", "out.weight"}
            exempt_from_decay(self, *(name for name, _ in self.named_parameters() if name not in projections))

    def _by_channel(self, values: Tensor) -> nn.Parameter:
        return nn.Parameter(values.view(self.num_heads, 1, self.head_dim).clone())

    def attended(self, x: Tokens, state: State | None = None) -> ValueHeads:
        """Mix each token with the previous token; compute q, k, v, decays and rates; attend; apply the output gate.

        If a state is given, ``x`` holds only the next token. The state stores a matrix per head and the previous
        token's vector.
        """
        for_decay = for_rate = for_gate = x
        fused = None
        if self.shift is not None:
            before = None if state is None else state.tensors.get("token before")
            for_r, for_decay, for_k, for_v, for_rate, for_gate = self.shift(x, before)
            fused = self.qkv.by_part(for_r, for_k, for_v)
            if state is not None:
                state.tensors["token before"] = x
        q, k, v = self.heads(x, state, fused)
        out = self.attend(q, k, v, *self.controls(for_decay, for_rate), state=state)
        if self.gate_in is None or self.gate_out is None:
            return out
        return out * self.by_head(self.gate_out(self.gate_in(for_gate).sigmoid()))

    def controls(self, x: Tokens, for_rate: Tokens | None = None) -> tuple[Tensor, Tensor]:
        """Compute the decays w (as logarithms) from ``x``, and the rates a from ``for_rate`` (if None: from ``x``)."""
        decay = self.by_head(self.decay_out(self.decay_in(x).tanh())) + self.decay_bias
        rate = self.by_head(self.rate_out(self.rate_in(x if for_rate is None else for_rate))) + self.rate_bias
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
        """Attend with the given decays and rates of removal; by default, nothing decays and the rate is 1."""
        log_decay = torch.zeros_like(k) if log_decay is None else log_decay
        rate = torch.ones_like(k) if rate is None else rate
        removed = unit_vectors(k * self.removal)
        k = k * (1 + (rate - 1) * self.mixing)
        # The removal key reads the state before its decay. A division undoes the decay, at least exp(-FASTEST).
        out = corrected(q, removed * (-log_decay).exp(), rate * removed, v, log_decay, k, fastest=FASTEST, state=state)
        normal = layer_norm(out, out.shape[-1:], eps=1e-5 * self.head_dim)
        if self.gain is not None and self.offset is not None:
            normal = torch.addcmul(self.offset, normal, self.gain)
        return normal + (q * k * self.bonus).sum(-1, keepdim=True) * v

    def state_elements(self, length: int) -> int:
        """Count the numbers in the matrices of all heads and in the previous token's vector."""
        return super().state_elements(length) + kept_by_convolution(2 * self.token_shift, self.model_dim, length)
