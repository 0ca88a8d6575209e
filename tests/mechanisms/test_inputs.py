"""Behaviour of mechanisms on unusual inputs, in the forms for short and for long sequences."""

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms import MECHANISMS, Mechanism
from tests.mechanisms.loops import built
from tests.tensors import is_repeatable, normal

SHORT, LONG = 21, 1100
LONG_FORMS = ["performer", "rewa-fourier", "rewa-euclidean", "yat-sum", "gla", "deltanet", "local"]
"""One mechanism for each form of long sequences: streamed, in chunks, in blocks, in tiles, recurrent, banded."""
SIGNED = {"rff", "rewa-functional", "slay-maclaurin", "slay-nystrom", "slay-sketch", "slay-tensorsketch"}
"""Denominators can come near zero, where rounding decides."""
NO_HALF = "rewa-fourier"
"""A CPU has no Fourier transform of half precision, and PyTorch says so."""


def made(name: str, dtype: torch.dtype) -> Mechanism:
    return built(MECHANISMS[name], model_dim=16, max_length=LONG).to(dtype)


def draw(length: int, dtype: torch.dtype) -> Tensor:
    return normal(1 if length == LONG else 2, length, 16).to(dtype)


@pytest.mark.parametrize(
    ("name", "length", "dtype"),
    [
        *[(name, SHORT, torch.bfloat16) for name in MECHANISMS],
        *[(name, LONG, torch.float16 if name == "yat-sum" else torch.bfloat16) for name in LONG_FORMS],
    ],
)
def test_half_precision_gives_the_right_outputs_to_its_rounding(name: str, length: int, dtype: torch.dtype) -> None:
    if name == NO_HALF:
        with pytest.raises(RuntimeError, match="Unsupported dtype"):
            made(name, dtype)(draw(length, dtype))
        return
    expected = made(name, torch.float64)(draw(length, torch.float64))

    out = made(name, dtype)(draw(length, dtype))

    assert out.dtype == dtype
    error = (out.double() - expected).abs().max() / expected.abs().max()
    assert error < 0.1 or (name in SIGNED and bool(out.isfinite().all()))


@pytest.mark.parametrize(
    ("name", "length"), [*[(name, SHORT) for name in MECHANISMS], *[(name, LONG) for name in LONG_FORMS]]
)
def test_no_sequence_odd_memory_and_a_second_backward_pass(name: str, length: int) -> None:
    mechanism, x = made(name, torch.float64), draw(length, torch.float64)

    odd = x.mT.contiguous().mT.requires_grad_()
    out = mechanism(odd)
    torch.testing.assert_close(out, mechanism(x))
    assert is_repeatable(out, [odd])
    nothing = x[:0].requires_grad_()
    assert mechanism(nothing).shape == (0, length, 16)
    mechanism(nothing).sum().backward()
    assert nothing.grad is not None
