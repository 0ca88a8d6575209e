"""Spectra of the tangent kernels of layers of Yat products and of ReLUs, for a section of the page."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from synthbench.reports.render.markdown import plain_table
from synthbench.reports.table import fixed

NUM_INPUTS = 256
NUM_UNITS = 2048
DIMS = (4, 16, 64)
EPSILONS = (1e-2, 1.0)
MIDDLE = slice(7, 128)
"""Eigenvalues 8 to 128, to which a power of the rank is fitted."""
PART = 0.9

Points = Float[np.ndarray, "points dim"]
Kernel = Float[np.ndarray, "points points"]


def relu_kernel(inputs: Points, weights: Points) -> Kernel:
    """Compute the tangent kernel of a layer of ReLUs, in the same way as :func:`yat_kernel`."""
    products = inputs @ weights.T
    values, slopes = np.maximum(products, 0), (products > 0).astype(float)
    kernel: Kernel = (values @ values.T + (slopes @ slopes.T) * (inputs @ inputs.T)) / len(weights)
    return kernel


def yat_kernel(inputs: Points, weights: Points, epsilon: float) -> Kernel:
    """Compute the tangent kernel of ``f(x) = sum_i a_i (w_i @ x)**2 / (|w_i - x|**2 + epsilon)``, as a mean over units.

    A sample of weights estimates the expectation of proposition 6. The kernel adds the products of the derivatives by
    a_i and of the gradients by w_i. A gradient by w_i is p x + r w_i, with two numbers p and r for each input and unit.
    Source: Neural Matter Networks, proposition 6.
    """
    products = inputs @ weights.T
    squares = (weights**2).sum(1)
    distances = (inputs**2).sum(1)[:, None] + squares - 2 * products + epsilon
    ratios = products / distances
    values, along_inputs, along_weights = ratios * products, 2 * ratios + 2 * ratios**2, -2 * ratios**2
    mixed = (along_inputs * products) @ along_weights.T
    gradients = (along_inputs @ along_inputs.T) * (inputs @ inputs.T) + mixed + mixed.T
    gradients += (along_weights * squares) @ along_weights.T
    kernel: Kernel = (values @ values.T + gradients) / len(weights)
    return kernel


def drawn() -> Iterator[tuple[int, Points, Points]]:
    """Draw random unit vectors as inputs, and normal weights with a mean square norm of 1, in each dimension."""
    rng = np.random.Generator(np.random.Philox(0))
    for dim in DIMS:
        inputs = rng.normal(size=(NUM_INPUTS, dim))
        weights = rng.normal(size=(NUM_UNITS, dim)) / dim**0.5
        yield dim, inputs / np.linalg.norm(inputs, axis=1, keepdims=True), weights


class Spectrum(NamedTuple):
    """Decay of the eigenvalues of a kernel."""

    exponent: float
    """Exponent of the power of the rank that is fitted to the eigenvalues in ``MIDDLE``."""
    num_of_part: int
    """Number of the largest eigenvalues that make up the share ``PART`` of the trace."""


def spectrum(kernel: Kernel) -> Spectrum:
    """Compute the decay of the eigenvalues of a kernel."""
    values = np.linalg.eigvalsh(kernel)[::-1]
    ranks = np.arange(1, len(values) + 1)
    exponent = float(np.polyfit(np.log(ranks[MIDDLE]), np.log(values[MIDDLE]), 1)[0])
    return Spectrum(exponent, 1 + int((values.cumsum() < PART * values.sum()).sum()))


def paragraphs() -> Iterator[str]:
    """Yield a heading, a description of the computation, and a table."""
    lines, num_flatter, num_faster = [], 0, 0
    for dim, inputs, weights in drawn():
        of_relu = spectrum(relu_kernel(inputs, weights))
        lines.append([dim, "ReLU", "", fixed(of_relu.exponent, 1), of_relu.num_of_part])
        for epsilon in EPSILONS:
            of_yat = spectrum(yat_kernel(inputs, weights, epsilon))
            lines.append([dim, "Yat", f"{epsilon:g}", fixed(of_yat.exponent, 1), of_yat.num_of_part])
            num_flatter += of_yat.num_of_part > of_relu.num_of_part
            num_faster += of_yat.exponent < of_relu.exponent
    num_cases = len(DIMS) * len(EPSILONS)
    yield "## The spectrum of the tangent kernel"
    yield (
        "In figure 8 of the Neural Matter Networks paper the eigenvalues of the tangent kernel of Yat products fall "
        f"faster than those of ReLU; it names no inputs. Here, with {NUM_INPUTS} random unit vectors and "
        f"{NUM_UNITS:,} normal units, those of Yat fall faster at ranks 8 to 128 in {num_faster} of {num_cases} cases. "
        f"In {num_flatter} of {num_cases} it takes more of the largest to make up {100 * PART:.0f} % of the trace. So "
        "it depends on the dimension and on ε, without training."
    )
    yield plain_table(
        lines, ["dimension", "unit", "ε", "exponent of the rank", f"eigenvalues of {100 * PART:.0f} % of the trace"]
    )
