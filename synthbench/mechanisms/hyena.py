"""Hyena: long convolutions between gates, with filters computed by a small network."""

import math
from types import MappingProxyType
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.linear import widened
from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear, ShortConvolution, exempt_from_decay
from synthbench.mechanisms.base import Mechanism, convolved, kept_by_convolution, mechanism, stock_part
from synthbench.options import option

SLOWEST, FASTEST = -math.log(1e-2) / 1.5, -math.log(1e-2) / 0.3
"""Decay rates of the first and the last channel's filter, in units of 1 / (``max_length`` - 1)."""

LOWEST = 1e-4
"""Frequency of the filter network's cosine and sine inputs, in periods per ``max_length`` tokens; the lowest frequency
in the authors' code."""


@mechanism
class Hyena(Mechanism):
    r"""The Hyena operator of order 2: a convolution as long as the sequence, between two gates.

    The projections u, a and v of a token pass through a causal depthwise convolution with ``conv`` taps. With L =
    ``max_length`` and r = t / (L - 1),

    .. math::
        z_t = a_t \odot v_t, \qquad
        y_t = u_t \odot \Big( \sum_{s \le t} h_{t-s} \odot z_s + D \odot z_t \Big), \qquad
        h_t = e^{-\delta r} \odot FFN(r, \cos \omega t, -\sin \omega t)

    and the output is a projection of y. FFN is a network with three hidden layers of ``filter_dim`` units. Each unit
    computes a sine with a learned frequency, which begins at 1. The number omega is 1e-4 times 2 pi / L. Each channel
    has its own filter h, fixed decay rate delta and learned weight D. ``num_heads`` is ignored.

    The stock layer, as in the authors' code (safari, models/sequence/hyena.py), has a short convolution with a bias,
    and projections with biases. The optimiser's weight decay does not apply to FFN. The bare layer has no short
    convolution. There, the benchmark suite decides whether projections have biases, and weight decay applies to all
    parameters.

    State: the gated values z of all tokens and the last ``conv - 1`` inputs of the short convolution. A smaller state
    would require approximate filters.

    Source: Poli et al. (2023), definition 3.1 with N = 2 and section 3.3. FFN, its inputs, delta and the normal initial
    values of D are as in the authors' code. The factor :math:`e^{-\delta r}` falls to 0.01 after 1.5 times
    ``max_length`` in the first channel, and after 0.3 times ``max_length`` in the last. As in their code, filters have
    the length ``max_length``, and a shorter sequence uses the beginning of each filter. For recall tasks, the authors
    give FFN 5 inputs and initial frequencies of 10. Here, FFN has 3 inputs and initial frequencies of 1, the defaults
    of their code. The authors also train FFN's inputs, at a learning rate of 1e-5; here, the inputs are fixed.
    """

    name: ClassVar = "hyena"
    label: ClassVar = "Hyena"
    family: ClassVar = "convolution"
    source: ClassVar = "poli2023hyena"
    complexity: ClassVar = "T log T d"
    bare: ClassVar = MappingProxyType({"conv": 0, "own_biases": False, "undecayed": False})

    filter_dim: int = option(64, "units of a hidden layer of the network that writes the filters", low=1)
    conv: int = option(
        3, "tokens that the short convolution on the projections sees, 0 for none", low=0, high=64, absent=0
    )
    own_biases: bool = stock_part("whether the projections have biases, as with its authors, whatever the suite says")
    undecayed: bool = stock_part("whether weight decay leaves the network that writes the filters alone")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections, the filter network and the short convolution."""
        width, units, bias = self.model_dim, self.filter_dim, self.bias or self.own_biases
        self.project_in = Linear(width, 3 * width, bias=bias, generator=generator)
        self.out = Linear(width, width, bias=bias, generator=generator)
        self.first = Linear(3, units, bias=True, generator=generator)
        self.second, self.third = (Linear(units, units, bias=True, generator=generator) for _ in range(2))
        self.last = Linear(units, width, bias=False, generator=generator)
        # Axes for batch and tokens come first, so that runs can be stacked.
        self.frequency = nn.Parameter(torch.ones(1, 1, units))
        self.skip = nn.Parameter(torch.randn(1, 1, width, generator=generator))
        self.own_convolution = ShortConvolution(self.conv, 3 * width, generator, bias=True) if self.conv else None
        if self.undecayed:
            exempt_from_decay(self, "first", "second", "third", "last", "frequency")

    def filters(self, length: int) -> Float[Tensor, "*leading 1 length model_dim"]:
        """Compute the first ``length`` values of every channel's filter."""
        weight = self.first.weight
        steps = torch.arange(length, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device)
        place, angle = steps / max(1, self.max_length - 1), LOWEST * 2 * math.pi / self.max_length * steps
        units = torch.stack([place, angle.cos(), -angle.sin()], dim=-1).to(weight.dtype)
        units = units.expand(*weight.shape[:-2], 1, length, 3)
        for layer in (self.first, self.second, self.third):
            units = (self.frequency * layer(units)).sin()
        rates = torch.linspace(SLOWEST, FASTEST, self.model_dim, dtype=steps.dtype, device=weight.device)
        return self.last(units) * (-rates * place.unsqueeze(-1)).exp()

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update ``state`` in place."""
        return self.forward(x, state)

    def forward(self, x: Tokens, state: State | None = None) -> Tokens:
        """Compute the outputs at all positions of ``x``; if a state is given, ``x`` holds only the next token."""
        fused: Tensor = self.project_in(x)
        if self.own_convolution is not None:
            fused = convolved(self.own_convolution, fused, state)
        after, before, values = fused.chunk(3, dim=-1)
        gated = before * values
        if state is None:
            mixed = long_convolved(gated, self.filters(x.shape[-2]))
        else:
            so_far = state.append("gated", gated)
            mixed = (so_far * self.filters(so_far.shape[-2]).flip(-2)).sum(-2, keepdim=True)
        return self.out(after * (mixed + self.skip * gated))

    def state_elements(self, length: int) -> int:
        """Count the numbers in the gated values so far, and in the short convolution's past inputs."""
        return length * self.model_dim + kept_by_convolution(self.conv, 3 * self.model_dim, length)


def long_convolved(
    x: Float[Tensor, "*batch length channels"], filters: Float[Tensor, "*leading length channels"]
) -> Float[Tensor, "*batch length channels"]:
    """Convolve each channel causally with its filter by FFT, with zero padding so that nothing wraps around."""
    if not x.numel():  # MKL transforms no empty batch
        return x
    length = x.shape[-2]
    product = torch.fft.rfft(widened(x), n=2 * length, dim=-2) * torch.fft.rfft(widened(filters), n=2 * length, dim=-2)
    summed: Tensor = torch.fft.irfft(product, n=2 * length, dim=-2)[..., :length, :]
    return summed.to(x.dtype)
