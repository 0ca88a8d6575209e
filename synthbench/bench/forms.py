"""Forms of a mechanism, that is, ways to compute it; and calls on random inputs with 8 heads of width 32.

``layer`` is the whole mechanism with its projections. ``attend`` is the part between the projections: from queries,
keys and values to the outputs of the heads. ``layer`` and ``attend`` use the algorithm that the mechanism chooses. The
other forms compute the same outputs as ``attend``, each by a fixed algorithm. Attention by features, that is, linear
attention, has these forms:

===============  =====================================================================================================
form             algorithm for attention by features
===============  =====================================================================================================
``gram``         naive: the masked matrix of kernel values
``recurrent``    one token at a time, as in decoding
``chunked``      linear in the length, with the features of all tokens in memory
``streamed``     like ``chunked``, but features are computed block by block, and again in the backward pass
``kernel``       a Triton kernel, on a GPU
``published``    as in the papers' code: prefix sums, or a loop over chunks and quadrature nodes
===============  =====================================================================================================

Attention by scores computes a score for each pair of tokens; it has the forms ``dense``, ``blocked``, ``tiled`` and
``kernel``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from synthbench.bench.instruments import Call
from synthbench.bench.published import published
from synthbench.errors import UsageError
from synthbench.forms import linear, scores, streaming, yat_tiles
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import Attention, FeatureAttention, Mechanism, ScoreAttention
from synthbench.options import coerce

MODEL_DIM, NUM_HEADS = 256, 8

DIRECTIONS = ("forward", "forward+backward")
FORMS = (
    *("layer", "attend"),
    *("gram", "recurrent", "chunked", "streamed", "dense", "blocked", "tiled", "kernel", "published"),
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

Takes = Literal["layer", "heads"]
Inputs = dict[Takes, tuple[Tensor, ...]]
"""Arguments for calls of forms, by kind of input."""


@dataclass(frozen=True)
class Form:
    """One way to compute a mechanism."""

    name: str
    takes: Takes
    """Kind of input: ``layer`` for token vectors [batch, length, width], ``heads`` for q, k and v of all heads."""
    call: Callable[..., Tensor]
    counted: Callable[..., Tensor] | None = None
    """A call that does the same arithmetic with PyTorch's operations, which can be counted; None if ``call`` does so
    itself."""


@dataclass(frozen=True)
class Setting:
    """Settings of a measured call: direction, length, batch size, device and number type."""

    direction: str
    length: int
    batch_size: int
    device: torch.device
    dtype: torch.dtype


def forms_of(unit: Mechanism, setting: Setting) -> list[Form]:
    """List the forms (ways to compute) of a mechanism that can run on the device of ``setting``.

    All forms whose inputs are queries, keys and values (``heads``) give equal outputs.
    """
    forms = [Form("layer", "layer", unit.forward)]
    if not isinstance(unit, Attention):
        return forms
    forms.append(Form("attend", "heads", unit.attend))
    if isinstance(unit, FeatureAttention):
        guard: dict[str, Any] = {"guard": unit.guard, "delta": unit.delta}

        def by_factors(form: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return form(unit.factors(q, "query"), unit.factors(k, "key"), v, **guard)

        forms += [
            Form("gram", "heads", partial(by_factors, linear.gram)),
            Form("recurrent", "heads", partial(by_factors, linear.recurrent)),
            Form("chunked", "heads", partial(by_factors, linear.chunked)),
            Form("streamed", "heads", partial(streaming.streamed, unit.factors, **guard)),
            Form("published", "heads", partial(published, unit)),
        ]
    elif isinstance(unit, ScoreAttention):
        forms += [
            Form(name, "heads", partial(form, unit.scores, unit.normaliser, power=unit.softermax_power))
            for name, form in (("dense", scores.dense), ("blocked", scores.blocked))
        ]
        if (tiled := yat_tiles.of(unit)) is not None:
            forms.append(Form("tiled", "heads", tiled))
    if isinstance(unit, FeatureAttention | ScoreAttention):
        zero = torch.zeros((), device=setting.device, dtype=setting.dtype)
        sample = zero.expand(1, NUM_HEADS, setting.length, unit.head_dim)  # takes no memory
        kernel = unit.gpu_kernel(sample, sample, sample)
        if kernel is not None:
            name = "streamed" if isinstance(unit, FeatureAttention) else "blocked"
            by_torch = next(form.call for form in forms if form.name == name)
            forms.append(Form("kernel", "heads", kernel, counted=by_torch))
    return forms


def built(name: str, arguments: Mapping[str, Any], setting: Setting) -> Mechanism:
    """Build a mechanism of width 256 with 8 heads, for sequences of the setting's length."""
    unit = MECHANISMS[name]
    given: dict[str, Any] = coerce("mechanism", unit, dict(arguments))
    mechanism = unit(
        model_dim=MODEL_DIM,
        num_heads=NUM_HEADS,
        max_length=setting.length,
        generator=torch.Generator().manual_seed(0),
        **given,
    )
    return mechanism.to(setting.device, setting.dtype)


def inputs_of(setting: Setting) -> Inputs:
    """Draw random token vectors, and random queries, keys and values."""
    generator = torch.Generator(setting.device).manual_seed(setting.length)
    about: dict[str, Any] = {"generator": generator, "device": setting.device, "dtype": setting.dtype}

    def draw(*shape: int) -> Tensor:
        return torch.randn(setting.batch_size, *shape, **about)

    head = (NUM_HEADS, setting.length, MODEL_DIM // NUM_HEADS)
    return {"layer": (draw(setting.length, MODEL_DIM),), "heads": (draw(*head), draw(*head), draw(*head))}


def call_of(form: Form, inputs: Inputs, setting: Setting) -> Call:
    """Return a function that runs a form (way to compute a mechanism) on ``inputs``.

    The function runs the forward pass and, unless the setting's direction is ``forward``, the backward pass too.
    """
    given = inputs[form.takes]

    def forward() -> None:
        with torch.no_grad():
            form.call(*given)

    def forward_and_backward() -> None:
        torch.autograd.backward(form.call(*(tensor.detach().requires_grad_() for tensor in given)).sum())

    return forward if setting.direction == "forward" else forward_and_backward


def dtype_of(name: str) -> torch.dtype:
    """Return the PyTorch number type with the given name.

    Raises:
        UsageError: If the name is not one of ``DTYPES``.
    """
    if name not in DTYPES:
        raise UsageError(f"dtype is {name!r}; allowed: {', '.join(DTYPES)}")
    return DTYPES[name]
