"""Mamba-2: a selective state space whose heads decay by a scalar."""

import math
from types import MappingProxyType
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm, silu, softplus

from synthbench.errors import UsageError
from synthbench.forms.recurrences import decayed
from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear, exempt_from_decay, uniform
from synthbench.mechanisms._recurrent import log_uniform_steps
from synthbench.mechanisms.base import Mechanism, kept_by_convolution, mechanism, stock_part
from synthbench.options import option


@mechanism
class Mamba2(Mechanism):
    r"""A state space model with one decay rate per head; its step sizes and the vectors B and C depend on the token.

    One projection of the token gives a gate z, values x for each head, an input vector B and an output vector C. B and
    C have width N, and all heads share them. The projection also gives each head a number delta, from which the step
    size is computed. The vectors x, B and C pass through a causal depthwise convolution with ``conv_width`` taps and
    SiLU. Then, in every head,

    .. math::
        S_t = e^{-A \Delta_t} S_{t-1} + \Delta_t B_t x_t^T, \qquad y_t = S_t^T C_t + D x_t, \qquad
        \Delta_t = softplus(\delta_t + b)

    and the output is a projection of :math:`norm(y \odot silu(z))`; the norm divides by the root mean square of all
    channels and has a gain. A, b and D have one number per head.

    The stock layer, as in the authors' code (mamba, modules/mamba2_simple.py), has a bias in the convolution, no bias
    in the projections, and no weight decay of A, D and b. The bare layer keeps the gate and the norm, but its
    convolution has a single tap (``conv_width=1``). There, the benchmark suite decides whether the layer has biases,
    and weight decay applies to all parameters.

    State: ``expand * model_dim * N`` numbers, and the last ``conv_width - 1`` inputs of the convolution.

    Source: Dao & Gu (2024), sections 6 and 7 (block-decomposed SSD, parallel projections, one group of B and C, the
    extra norm). Initial values follow the paper: A uniform in [1, 16], the step log-uniform in [0.001, 0.1], D = 1. N
    is 16 here but 64 or more in the paper. A learned initial state, limits on the step, and several groups of B and C
    are left out here.
    """

    name: ClassVar = "mamba2"
    label: ClassVar = "Mamba-2"
    family: ClassVar = "state-space"
    source: ClassVar = "dao2024mamba2"
    complexity: ClassVar = "T N expand d"
    bare: ClassVar = MappingProxyType({"conv_width": 1, "own_biases": False, "undecayed": False})

    N: int = option(16, "width of B and C: rows of a head's state", low=1)
    expand: int = option(2, "channels of x over the model's width", low=1)
    conv_width: int = option(4, "tokens that the convolution sees; 1 leaves each by itself", low=1)
    own_biases: bool = stock_part(
        "whether only the convolution has a bias, as with its authors, whatever the suite says"
    )
    undecayed: bool = stock_part("whether weight decay leaves A, D and the steps' biases alone")

    @property
    def inner_dim(self) -> int:
        """Number of channels of x, and of the gate."""
        return self.expand * self.model_dim

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections, the convolution, the decay rates A and the step biases b; set D and the gain to 1.

        Raises:
            UsageError: If the number of heads does not divide the number of channels of x, ``expand * model_dim``.
        """
        heads, channels = self.num_heads, self.inner_dim + 2 * self.N
        if heads < 1 or self.inner_dim % heads:
            raise UsageError(f"num_heads is {heads}; allowed: a divisor of expand x width, {self.inner_dim}")
        bias = self.bias and not self.own_biases
        self.project_in = Linear(self.model_dim, self.inner_dim + channels + heads, bias=bias, generator=generator)
        self.out = Linear(self.inner_dim, self.model_dim, bias=bias, generator=generator)
        bound = 1 / math.sqrt(self.conv_width)
        self.taps = uniform((self.conv_width, channels), bound, generator)
        self.taps_bias = uniform((channels,), bound, generator) if self.bias or self.own_biases else None
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(1, 16, generator=generator).log())
        self.step_bias = nn.Parameter(log_uniform_steps(heads, generator=generator))
        self.skip = nn.Parameter(torch.ones(heads))
        self.scale = nn.Parameter(torch.ones(self.inner_dim))
        if self.undecayed:
            exempt_from_decay(self, "step_bias", "log_rate", "skip")

    def forward(self, x: Tokens) -> Tokens:
        """Compute the outputs at all positions."""
        return self._outputs(x, first=0)

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position."""
        return self._outputs(x, first=x.shape[-2] - 1)

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update ``state`` in place."""
        return self._outputs(x, first=0, state=state)

    def _outputs(self, x: Tensor, *, first: int, state: State | None = None) -> Tensor:
        """Compute the outputs from position ``first`` on; ``first`` is 0 or the last position."""
        gate, channels, step = self.project_in(x).split(
            [self.inner_dim, self.inner_dim + 2 * self.N, self.num_heads], dim=-1
        )
        values, b, c = silu(self.convolve(channels, state)).split([self.inner_dim, self.N, self.N], dim=-1)
        values = values.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        step = softplus(step + self.step_bias)
        log_decay = -self.log_rate.exp() * step
        mixed = decayed(
            c[..., None, first:, :],
            b.unsqueeze(-3),
            step.mT.unsqueeze(-1) * values,
            log_decay.mT.unsqueeze(-1),
            state=state,
        )
        y = mixed.transpose(-2, -3) + self.skip.unsqueeze(-1) * values[..., first:, :].transpose(-2, -3)
        gated = y.flatten(-2) * silu(gate[..., first:, :])
        return self.out(rms_norm(gated, gated.shape[-1:], eps=1e-5) * self.scale)

    def convolve(
        self, x: Float[Tensor, "*batch length channels"], state: State | None = None
    ) -> Float[Tensor, "*batch length channels"]:
        """Convolve each channel causally with its own taps; the last tap multiplies the current token."""
        length, width = x.shape[-2], self.conv_width
        seen = x if state is None else state.append("convolution", x, most=width - 1)
        padded = pad(seen, (0, 0, width - 1 + length - seen.shape[-2], 0))
        shifted = [
            padded[..., tap : tap + length, :] * self.taps[..., tap : tap + 1, :] for tap in range(self.conv_width)
        ]
        convolved = torch.stack(shifted).sum(0)
        return convolved if self.taps_bias is None else convolved + self.taps_bias

    def state_elements(self, length: int) -> int:
        """Count the numbers in the states of all heads, and in the convolution's past inputs."""
        kept = kept_by_convolution(self.conv_width, self.inner_dim + 2 * self.N, length)
        return self.inner_dim * self.N + kept
