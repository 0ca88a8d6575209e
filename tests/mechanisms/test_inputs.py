"""What every mechanism does with inputs out of the ordinary, in the forms for short and for long sequences."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from synthbench.forms import linear, scores, streaming, yat_tiles
from synthbench.forms.yat_tiles import Tiling
from synthbench.mechanisms import MECHANISMS, Mechanism

LENGTH = 21
"""No multiple of the chunks, blocks and tiles below."""

SIGNED = {"rff", "rewa-functional", "slay-maclaurin", "slay-nystrom", "slay-sketch", "slay-tensorsketch"}
"""Denominators can come near zero, where rounding decides."""
NO_HALF = {"rewa-fourier"}
"""A CPU has no Fourier transform of half precision, and PyTorch says so."""


@pytest.fixture(params=["short", "long"])
def forms(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take 21 tokens for a short sequence or for a long one."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "long":
            for room in (streaming, linear):
                patch.setattr(room, "CHUNK", 5)
            patch.setattr(linear, "gram_max_length", lambda *_: 4)  # for features that are trained
            patch.setattr(streaming, "BLOCK", 10)
            patch.setattr(scores, "DENSE_MAX_LENGTH", 4)
            patch.setattr(scores, "BLOCK", 4)
            patch.setattr(yat_tiles, "tiling", lambda _device: Tiling(3, 4, 5))
        yield


def built(name: str, dtype: torch.dtype) -> Mechanism:
    generator = torch.Generator().manual_seed(0)
    return MECHANISMS[name](model_dim=16, num_heads=2, max_length=32, generator=generator).to(dtype)


def draw(dtype: torch.dtype) -> Tensor:
    return torch.randn(2, LENGTH, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


@pytest.mark.usefixtures("forms")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - NO_HALF))
def test_half_precision_gives_the_right_outputs_to_its_rounding(name: str, dtype: torch.dtype) -> None:
    expected = built(name, torch.float64)(draw(torch.float64))

    out = built(name, dtype)(draw(dtype))

    assert out.dtype == dtype
    error = (out.double() - expected).abs().max() / expected.abs().max()
    assert error < 0.1 or (name in SIGNED and bool(out.isfinite().all()))


@pytest.mark.parametrize("name", sorted(NO_HALF))
def test_where_there_is_no_half_precision_the_error_names_the_type(name: str) -> None:
    with pytest.raises(RuntimeError, match="Unsupported dtype Half"):
        built(name, torch.float16)(draw(torch.float16))


@pytest.mark.usefixtures("forms")
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_token_no_sequence_and_odd_memory(name: str) -> None:
    mechanism, x = built(name, torch.float64), draw(torch.float64)
    expected = mechanism(x)

    torch.testing.assert_close(mechanism(x[:, :1]), expected[:, :1])
    torch.testing.assert_close(mechanism(x.mT.contiguous().mT), expected)
    nothing = x[:0].requires_grad_()
    assert mechanism(nothing).shape == (0, LENGTH, 16)
    mechanism(nothing).sum().backward()
    assert nothing.grad is not None
