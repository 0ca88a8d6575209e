"""Fourier REWA: the overlap of power spectra."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.shapes import KeyRows
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism
from synthbench.mechanisms.rewa._operators import WitnessMap
from synthbench.options import option


@mechanism
class RewaFourier(FeatureAttention):
    r"""Linear attention whose kernel is the overlap of two power spectra, computed from the query and the key.

    The overlap is :math:`\frac{1}{2\pi}\int_0^{2\pi} |f_q(\omega)|^2 |f_k(\omega)|^2 d\omega`.

    A query or key x defines the function :math:`f_x(\omega) = \sum_{n<K} a_n(x) e^{i \omega n}`. Its K real
    coefficients are a linear map of x. The index n counts coefficients, not positions. The product of two spectra is a
    trigonometric polynomial of degree 2K - 2, so the integral is exactly its mean over 2K - 1 equidistant frequencies.
    Since the coefficients are real, the spectrum is the same at ω and -ω, so K of these frequencies suffice. The
    features are the K values of a spectrum, each times the square root of its quadrature weight; they are nonnegative.

    State: ``K * (value_dim + 1)`` numbers per head.

    Source: Phadke (2025), eq. 63 and 64. In the paper, the integral runs over all frequencies and diverges, since f is
    periodic. Here, the overlap is the mean over a period.
    """

    name: ClassVar = "rewa-fourier"
    label: ClassVar = "Fourier REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T K d"

    K: int = option(16, "Fourier coefficients of a token", low=1, high=1024)
    shared: bool = option(True, "whether queries and keys share the map to coefficients")  # noqa: FBT003

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the map to coefficients and compute the quadrature weights of the frequencies."""
        self.witness = WitnessMap(self.num_heads, self.head_dim, self.K, shared=self.shared, generator=generator)
        weights = torch.full((self.K,), 2 / (2 * self.K - 1))
        weights[0] /= 2  # frequency 0 has no mirror image
        self.root_weights = nn.Buffer(weights.sqrt(), persistent=False)

    def features(self, x: KeyRows, side: Side) -> Float[Tensor, "*batch length K"]:
        """Compute the power at K frequencies, each times the root of the frequency's quadrature weight."""
        spectrum = torch.fft.rfft(self.witness(x, side), n=2 * self.K - 1, dim=-1)
        power: Tensor = spectrum.real.square() + spectrum.imag.square()
        return power * self.root_weights
