"""CountSketches (random projections), and the convolution of two sketches, which is a sketch of a tensor product."""

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms.linear import widened


def count_sketch(*shape: int, generator: torch.Generator | None) -> Float[Tensor, "..."]:
    """Draw CountSketch matrices, [..., inner, width]: each row has one nonzero entry, ±1 in a random column.

    The matrices are dense: at the width of a head, multiplying by them is faster than adding up entries by index.

    Source: Charikar, Chen & Farach-Colton (2002).
    """
    *rows, width = shape
    places = torch.randint(width, (*rows, 1), generator=generator)
    signs = 2 * torch.randint(2, (*rows, 1), generator=generator) - 1
    return torch.zeros(shape).scatter_(-1, places, signs.to(torch.get_default_dtype()))


def circular_convolution(
    a: Float[Tensor, "*batch width"], b: Float[Tensor, "*batch width"]
) -> Float[Tensor, "*batch width"]:
    """Convolve a and b circularly; if they are sketches of a' and b', the result is a sketch of a' ⊗ b'.

    Entry k is Σ_i a_i b_j with j = k - i modulo the width. In the sketch of a' ⊗ b', the column of an entry is the sum
    of the columns of its two factors, modulo the width. The sign of the entry is the product of the factors' signs.

    Source: Pham & Pagh (2013).
    """
    # PyTorch has no Fourier transform of half-precision numbers on a CPU.
    product = torch.fft.rfft(widened(a), dim=-1) * torch.fft.rfft(widened(b), dim=-1)
    convolved: Tensor = torch.fft.irfft(product, n=a.shape[-1], dim=-1)
    return convolved.to(a.dtype)
