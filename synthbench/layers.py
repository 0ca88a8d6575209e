"""The few layers of which every model is made; each works for one run or for several stacked runs.

A *run* trains one mechanism on one task with one seed and learning rate. *Stacked* runs train together: every weight
and every activation has a leading run axis. A layer recognises stacked runs by the number of axes of its weight.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from synthbench.errors import UsageError

M = TypeVar("M", bound=nn.Module)
ToTensor = Callable[..., Tensor]
"""Type of a layer as a function that returns one tensor; a call of an ``nn.Module`` would have type ``Any``."""


class UndecayedParameter(nn.Parameter):
    """A parameter that is exempt from weight decay, as in the code of the mechanism's authors."""


def exempt_from_decay(module: nn.Module, *names: str) -> None:
    """Exempt named parameters of a module from weight decay: ``gate.weight``, or ``gate`` for all parameters in it."""
    for path, parameter in list(module.named_parameters()):
        if any(f"{path}.".startswith(f"{name}.") for name in names):
            owner, _, leaf = path.rpartition(".")
            setattr(module.get_submodule(owner), leaf, UndecayedParameter(parameter.detach()))


def in_precision(module: M, dtype: torch.dtype) -> M:
    """Convert a module in place to float32 or float64; complex tensors get the complex type of the same precision.

    >>> in_precision(nn.ParameterList([torch.ones(1, dtype=torch.complex64)]), torch.float64)[0].dtype
    torch.complex128
    """
    # Not `module.to(dtype)`, which would drop imaginary parts.
    module = module.double() if dtype == torch.float64 else module.float()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_complex():
            tensor.data = tensor.data.to(dtype.to_complex())
    return module


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator | None) -> nn.Parameter:
    """Draw a parameter uniformly from [-bound, bound].

    >>> uniform((2, 3), 0.1, torch.Generator()).shape
    torch.Size([2, 3])
    """
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


def project(
    x: Float[Tensor, "*leading rows inner"], weight: Float[Tensor, "*leading_of_weight inner columns"]
) -> Float[Tensor, "*leading rows columns"]:
    """Multiply ``x`` by a matrix, or by a batch of matrices whose leading axes broadcast against those of ``x``.

    The result is that of ``x @ weight``, but the weight is not copied along axes that only ``x`` has.

    >>> project(torch.zeros(8, 4, 32, 16), torch.zeros(4, 16, 5)).shape  # one matrix for each of four heads
    torch.Size([8, 4, 32, 5])
    """
    return torch.einsum("...td,...dm->...tm", x, weight)


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute ``x weight + bias`` for one run, or for stacked runs (trained together, all tensors with a run axis)."""
    if weight.ndim == 2:
        return nn.functional.linear(x, weight.mT, bias)
    rows = x.flatten(1, -2)
    product = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, weight)
    return product.reshape(*x.shape[:-1], product.shape[-1])


def _beside(values: Tensor, x: Tensor) -> Tensor:
    """Reshape values [dim], or [runs, dim] if ``x`` has a run axis, to broadcast along the last axis of ``x``."""
    return values if values.ndim == 1 else values.view(len(values), *[1] * (x.ndim - 2), values.shape[-1])


class Mixer(nn.Module, ABC):
    """The sequence mixer of a block: one mechanism, or one mechanism for each of several runs that train together."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Mix positions causally; the output has the shape of ``x``."""

    def forward_last(self, x: Tensor) -> Tensor:
        """Compute ``forward`` at the last position only, for tasks that score no other position."""
        return self.forward(x)[..., -1:, :]

    @abstractmethod
    def stream_step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Compute ``forward`` for one next token ``x`` per sequence, [..., model_dim]; return output and new state."""

    def enter_phase(self, phase: int) -> None:
        """Enter phase 1, 2, 3 or 4 of training, for a mechanism that computes attention from several geometries.

        Phase 1 uses one geometry (a way to measure distance), and later phases add others. For other mechanisms, this
        method does nothing.
        """

    @property
    def has_phases(self) -> bool:
        """True if the mixer is one mechanism with several geometries, which a curriculum activates in turn."""
        return False

    def metrics(self, x: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - for those that have some
        """Return statistics of the trained layer by name, such as a learned scale; they are stored in the run's row.

        ``x`` is a sample of the layer's inputs, on which the statistics may depend. The last axis of each value indexes
        the heads. If several runs train together, the first axis indexes the runs. The caller flattens all axes but the
        run axis.
        """
        return {}


class FieldModule(nn.Module):
    """A module that is also a dataclass: its options are fields made by :func:`synthbench.options.option`."""

    # Not `Self`, which beartype cannot check under jaxtyping's import hook.
    def __new__(cls, *_args: object, **_fields: object) -> "FieldModule":  # noqa: PYI034
        """Initialise the module before the dataclass sets its fields."""
        module = super().__new__(cls)
        nn.Module.__init__(module)
        return module


class RunLayer(nn.Module):
    """A layer for one run, or for several runs that train together.

    If several runs train together, all tensors of the layer have a leading run axis.
    """


class Rotation(RunLayer, ABC):
    """A rotation of queries and keys by position, so that inner products depend on offsets between positions."""

    __call__: ToTensor

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "*leading batch heads length head_dim"], first: int = 0
    ) -> Float[Tensor, "*leading batch heads length head_dim"]:
        """Rotate queries or keys at ``length`` consecutive positions, beginning with position ``first``."""


class Linear(RunLayer):
    """``x W + b`` with PyTorch's default initialisation: W and b are uniform in ±1/√fan_in.

    ``weight`` is [in, out]. If several runs train together, it is [runs, in, out], and ``x`` begins with the run axis.
    ``bias`` has no default, so that no mechanism forgets to pass on the value that the suite sets.

    >>> gate = Linear(16, 16, bias=True, generator=torch.Generator().manual_seed(0))
    >>> gate(torch.zeros(8, 32, 16)).shape
    torch.Size([8, 32, 16])
    """

    __call__: ToTensor

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool, generator: torch.Generator | None = None
    ) -> None:
        """Draw weight, then bias, from ``generator`` (the process-wide one if None)."""
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        self.weight = uniform((in_features, out_features), bound, generator)
        self.bias = uniform((out_features,), bound, generator) if bias else None

    def forward(self, x: Float[Tensor, "*leading in_features"]) -> Float[Tensor, "*leading out_features"]:
        """Apply the layer to the last axis."""
        return _affine(x, self.weight, self.bias)

    def by_part(self, *inputs: Float[Tensor, "*leading in_features"]) -> Float[Tensor, "*leading out_features"]:
        """Apply each part of the layer to an input of its own, and join the outputs.

        The parts are equal pieces of the layer along its output axis, one per input.
        """
        weights = self.weight.chunk(len(inputs), dim=-1)
        biases = [None] * len(inputs) if self.bias is None else self.bias.chunk(len(inputs), dim=-1)
        parts = [_affine(x, weight, bias) for x, weight, bias in zip(inputs, weights, biases, strict=True)]
        return torch.cat(parts, dim=-1)


class LayerNorm(RunLayer):
    """Normalisation to zero mean and unit variance over the last axis, then a gain and a shift (initially 1 and 0).

    ``weight`` and ``bias`` are [dim]. If several runs train together, both are [runs, dim], and ``x`` begins with the
    run axis.

    >>> LayerNorm(16)(torch.zeros(8, 32, 16)).shape
    torch.Size([8, 32, 16])

    Source: Ba et al. (2016), eq. 4; epsilon as in PyTorch.
    """

    epsilon = 1e-5

    def __init__(self, dim: int) -> None:
        """Create gain and shift."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Float[Tensor, "*leading dim"]) -> Float[Tensor, "*leading dim"]:
        """Normalise every vector independently."""
        if self.weight.ndim == 1:
            return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon)
        normal = nn.functional.layer_norm(x, x.shape[-1:], eps=self.epsilon)
        return torch.addcmul(_beside(self.bias, x), normal, _beside(self.weight, x))


class RmsNorm(RunLayer):
    """Division by the root mean square over the last axis, then a gain (initially 1).

    ``weight`` is [dim]. If several runs train together, it is [runs, dim], and ``x`` begins with the run axis.

    >>> RmsNorm(16)(torch.zeros(8, 32, 16)).shape
    torch.Size([8, 32, 16])

    Source: Zhang & Sennrich (2019), eq. 4.
    """

    __call__: ToTensor

    def __init__(self, dim: int, epsilon: float = 1e-5) -> None:
        """Create the gain; ``epsilon`` is added to the mean square."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*leading dim"]) -> Float[Tensor, "*leading dim"]:
        """Normalise every vector independently."""
        return nn.functional.rms_norm(x, x.shape[-1:], eps=self.epsilon) * _beside(self.weight, x)


class ShortConvolution(RunLayer):
    r"""Causal filter per channel: :math:`y_t = b + \sum_{j < n} w_j \odot x_{t - j}`, with zeros before the start.

    ``weight`` is [width, dim]; its first row multiplies the newest token. ``bias``, if there is one, is [dim]. Both are
    drawn uniformly in ±1/√width, as in PyTorch's convolutions. If several runs train together, ``weight``, ``bias`` and
    ``x`` have a leading run axis.

    >>> ShortConvolution(4, 16)(torch.zeros(8, 32, 16)).shape
    torch.Size([8, 32, 16])
    """

    __call__: ToTensor

    def __init__(self, width: int, dim: int, generator: torch.Generator | None = None, *, bias: bool = False) -> None:
        """Draw the filters, then the bias, from ``generator`` (the process-wide one if None)."""
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = uniform((width, dim), bound, generator)
        self.bias = uniform((dim,), bound, generator) if bias else None

    def forward(self, x: Float[Tensor, "*leading length dim"]) -> Float[Tensor, "*leading length dim"]:
        """Filter every channel."""
        newest, *earlier = self.weight.unbind(-2)
        y = x * _beside(newest, x)
        if self.bias is not None:
            y = y + _beside(self.bias, x)
        # Shifted sums allow any leading axes, cost as much as a grouped convolution, and add in a fixed order on a GPU.
        for distance, taps in enumerate(earlier, start=1):
            if distance < x.shape[-2]:
                y = y + nn.functional.pad(x[..., :-distance, :] * _beside(taps, x), (0, 0, distance, 0))
        return y


class TokenShift(RunLayer):
    r"""Mixes of every token with the previous one: :math:`x_t + m \odot (x_{t-1} - x_t)`, with zeros before the start.

    ``weight``, [mixes, dim], holds the coefficients m of one mix in each row. The result is a list of mixes, each of
    the same shape as ``x``. If several runs train together, ``weight`` and ``x`` have a leading run axis.

    >>> [mix.shape for mix in TokenShift(torch.rand(2, 16))(torch.zeros(8, 32, 16))]
    [torch.Size([8, 32, 16]), torch.Size([8, 32, 16])]

    Source: Peng et al. (2025), section 4.
    """

    def __init__(self, shares: Float[Tensor, "mixes dim"]) -> None:
        """Set the initial shares m of the previous token."""
        super().__init__()
        self.weight = nn.Parameter(shares.clone())

    def forward(
        self, x: Float[Tensor, "*leading length dim"], first: Float[Tensor, "*leading 1 dim"] | None = None
    ) -> list[Float[Tensor, "*leading length dim"]]:
        """Return the mixes; ``first`` is the token before the start of ``x`` (zeros if None)."""
        start = torch.zeros_like(x[..., :1, :]) if first is None else first
        change = torch.cat([start, x[..., :-1, :]], dim=-2) - x
        return [torch.addcmul(x, change, _beside(share, x)) for share in self.weight.unbind(-2)]


class YatProduct(RunLayer):
    r"""The Yat product of the input with every unit: :math:`s (w_i \cdot x + b_i)^2 / (\|w_i - x\|^2 + \epsilon)`.

    No activation function is needed after this layer. As x grows along a unit vector u, the product tends to
    :math:`s (w_i \cdot u)^2`. The scale is :math:`s = (n / \log(1 + n))^\alpha` with n units and a learned
    :math:`\alpha`, initially 1. Squared distances are computed from inner products, in at least float32, and clamped to
    at least 0.

    ``weight`` is [in, units], ``bias`` [units] and ``alpha`` [1]. If several runs train together, these parameters and
    ``x`` have a leading run axis.

    Source: Bouhsine (2026), sections 2.1 and 2.3. The paper sums over units; here, the linear layer that follows does
    so. The paper does not give the initial weights; ours are uniform in ±1/√fan_in, as in :class:`Linear`.

    >>> units = YatProduct(16, 64, bias=True, generator=torch.Generator().manual_seed(0))
    >>> units(torch.zeros(8, 32, 16)).shape
    torch.Size([8, 32, 64])
    """

    def __init__(
        self,
        in_features: int,
        num_units: int,
        *,
        bias: bool,
        epsilon: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> None:
        """Draw weight, then bias, from ``generator`` (the process-wide one if None).

        Raises:
            UsageError: If ``epsilon`` is not positive.
        """
        super().__init__()
        if not epsilon > 0:
            raise UsageError(f"epsilon is {epsilon:g}; allowed: a positive number")
        bound = 1 / math.sqrt(in_features)
        self.weight = uniform((in_features, num_units), bound, generator)
        self.bias = uniform((num_units,), bound, generator) if bias else None
        self.alpha = nn.Parameter(torch.ones(1))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*leading in_features"]) -> Float[Tensor, "*leading units"]:
        """Apply the layer to the last axis."""
        # If w and x are close, the distance would be lost to rounding in half precision.
        dtype = torch.promote_types(x.dtype, torch.float32)
        wide, weight = x.to(dtype), self.weight.to(dtype)
        inner = _affine(wide, weight, None)
        norms = wide.square().sum(-1, keepdim=True) + _beside(weight.square().sum(-2), x)
        distances = (norms - 2 * inner).clamp(min=0)
        aligned = inner if self.bias is None else inner + _beside(self.bias, x)
        return (self.scale(x) * aligned.square() / (distances + self.epsilon)).to(x.dtype)

    def scale(self, x: Float[Tensor, "*leading in_features"]) -> Tensor:
        """Compute the scale s, one per run, in a shape that broadcasts against the output for ``x``."""
        num_units = self.weight.shape[-1]
        return (_beside(self.alpha, x) * math.log(num_units / math.log1p(num_units))).exp()


class Embedding(RunLayer):
    """A table of N(0, 1) vectors, looked up by token id.

    ``weight`` is [tokens, dim]. If several runs train together, it is [runs, tokens, dim], and the token ids begin with
    the run axis.

    >>> Embedding(10, 16, generator=torch.Generator().manual_seed(0))(torch.tensor([[1, 4, 1]])).shape
    torch.Size([1, 3, 16])
    """

    def __init__(self, num_tokens: int, dim: int, *, generator: torch.Generator | None = None) -> None:
        """Draw the table from ``generator`` (the process-wide one if None)."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_tokens, dim).normal_(generator=generator))

    def forward(self, ids: Int[Tensor, "*leading length"]) -> Float[Tensor, "*leading length dim"]:
        """Look up the vectors of ``ids``."""
        if self.weight.ndim == 2:
            return nn.functional.embedding(ids, self.weight)
        runs, num_tokens, dim = self.weight.shape
        offsets = torch.arange(0, runs * num_tokens, num_tokens, device=ids.device)
        ids = ids + offsets.view(-1, *[1] * (ids.ndim - 1))
        return nn.functional.embedding(ids, self.weight.view(runs * num_tokens, dim))
