"""CountSketches, and what makes the sketch of a tensor product of two of them."""

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms.linear import widened


def count_sketch(*shape: int, generator: torch.Generator | None) -> Float[Tensor, "..."]:
    """Matrices [..., inner, width] with one ±1 per row, its place and sign drawn at random.

    Source: Charikar, Chen & Farach-Colton (2002). A dense matrix: at the width of a head a product with it is faster
    than adding up by index.
    """
    *rows, width = shape
    places = torch.randint(width, (*rows, 1), generator=generator)
    signs = 2 * torch.randint(2, (*rows, 1), generator=generator) - 1
    return torch.zeros(shape).scatter_(-1, places, signs.to(torch.get_default_dtype()))


def circular_convolution(
    a: Float[Tensor, "*batch width"], b: Float[Tensor, "*batch width"]
) -> Float[Tensor, "*batch width"]:
    """Σ_i a_i b_(k - i mod width): the sketches of a' and b' give that of a' ⊗ b'.

    Source: Pham & Pagh (2013). The place of an entry of the product is the sum of the two places, mod the width; its
    sign is the product of the two signs.
    """
    # A CPU has no transforms of half precision.
    product = torch.fft.rfft(widened(a), dim=-1) * torch.fft.rfft(widened(b), dim=-1)
    convolved: Tensor = torch.fft.irfft(product, n=a.shape[-1], dim=-1)
    return convolved.to(a.dtype)
