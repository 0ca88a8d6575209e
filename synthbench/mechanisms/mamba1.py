"""Mamba: a selective state space with a decay for every channel and state."""

import math
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import silu, softplus

from synthbench.forms.selective_scan import selective_scan
from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear, ShortConvolution, exempt_from_decay
from synthbench.mechanisms._recurrent import log_uniform_steps
from synthbench.mechanisms.base import Mechanism, convolved, kept_by_convolution, mechanism, stock_part
from synthbench.options import option


@mechanism
class Mamba1(Mechanism):
    r"""A state space model with N states per channel; its step sizes and the vectors B and C depend on the token.

    One projection of the token gives a gate z and values x, each with ``expand * model_dim`` channels. The values pass
    through a causal depthwise convolution with ``conv`` taps and SiLU. A projection of x then gives an input vector B,
    an output vector C and a vector delta of width ``rank``. B and C have width N, and all channels share them. For
    channel c and state n,

    .. math::
        h_t = e^{-A_{cn} \Delta_{tc}} h_{t-1} + \Delta_{tc} B_{tn} x_{tc}, \qquad
        y_{tc} = \sum_n C_{tn} h_{tcn} + D_c x_{tc}, \qquad \Delta_t = softplus(\delta_t W + b)

    and the output is a projection of :math:`y \odot silu(z)`. ``num_heads`` is ignored.

    The stock layer follows the authors' code (mamba, modules/mamba_simple.py). It has a convolution with a bias, no
    bias in the input and output projections, and no weight decay of A, D and b. The bare layer has no convolution.
    There, the benchmark suite decides whether the input and output projections have biases, and weight decay applies to
    all parameters.

    State: ``expand * model_dim * N`` numbers, and the last ``conv - 1`` inputs of the convolution.

    Source: Gu & Dao (2024), algorithm 2, section 3 and figure 3. Initial values follow the paper: A_{cn} = n for n from
    1 to N, and D = 1. The softplus of b is log-uniform in [0.001, 0.1], and W is uniform in ±1/√rank. With ``rank=0``,
    the rank is a sixteenth of the model's width, rounded up. B is discretised by Euler's rule, as in the authors' code.
    """

    name: ClassVar = "mamba1"
    label: ClassVar = "Mamba"
    family: ClassVar = "state-space"
    source: ClassVar = "gu2024mamba"
    complexity: ClassVar = "T N expand d"
    bare: ClassVar = MappingProxyType({"conv": 0, "own_biases": False, "undecayed": False})

    N: int = option(16, "states per channel", low=1)
    expand: int = option(2, "channels of x over the model's width", low=1)
    rank: int = option(0, "numbers through which the steps are read off x; 0 for a sixteenth of the width", low=0)
    conv: int = option(4, "tokens that the short convolution on x sees, 0 for none", low=0, high=64, absent=0)
    own_biases: bool = stock_part("whether no projection has a bias, as with its authors, whatever the suite says")
    undecayed: bool = stock_part("whether weight decay leaves A, D and the steps' biases alone")

    @property
    def inner_dim(self) -> int:
        """Number of channels of x, and of the gate."""
        return self.expand * self.model_dim

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections, the convolution and the biases b of the steps; set A and D to their initial values."""
        inner, rank = self.inner_dim, self.rank or math.ceil(self.model_dim / 16)
        bias = self.bias and not self.own_biases
        self.project_in = Linear(self.model_dim, 2 * inner, bias=bias, generator=generator)
        self.read = Linear(inner, rank + 2 * self.N, bias=False, generator=generator)
        self.step = Linear(rank, inner, bias=False, generator=generator)
        self.out = Linear(inner, self.model_dim, bias=bias, generator=generator)
        self.step_bias = nn.Parameter(log_uniform_steps(1, 1, inner, generator=generator))
        # Axes for batch and tokens come before channels and states, so that runs can be stacked.
        self.log_rate = nn.Parameter(torch.arange(1.0, self.N + 1).log().expand(1, 1, inner, self.N).clone())
        self.skip = nn.Parameter(torch.ones(1, 1, inner))
        self.own_convolution = ShortConvolution(self.conv, inner, generator, bias=True) if self.conv else None
        if self.undecayed:
            exempt_from_decay(self, "step_bias", "log_rate", "skip")

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update ``state`` in place."""
        return self.forward(x, state)

    def forward(self, x: Tokens, state: State | None = None) -> Tokens:
        """Compute the outputs at all positions of ``x``; if a state is given, ``x`` holds only the next token."""
        gate, channels = self.project_in(x).chunk(2, dim=-1)
        if self.own_convolution is not None:
            channels = convolved(self.own_convolution, channels, state)
        channels = silu(channels)
        fused = self.read(channels)
        delta, b, c = fused.split([fused.shape[-1] - 2 * self.N, self.N, self.N], dim=-1)
        step = softplus(self.step(delta) + self.step_bias)
        y = selective_scan(step, -self.log_rate.exp(), b, c, channels, state=state) + self.skip * channels
        return self.out(y * silu(gate))

    def state_elements(self, length: int) -> int:
        """Count the numbers in the states of all channels, and in the convolution's past inputs."""
        return self.inner_dim * self.N + kept_by_convolution(self.conv, self.inner_dim, length)
