"""The exact Yat kernel by tiles: the dense form's values and gradients, without its memory."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.bench.instruments import peak_bytes
from synthbench.forms import scores, yat_tiles
from synthbench.forms.kernels import Form
from synthbench.forms.yat_tiles import Tiling
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import ScoreAttention
from tests.mechanisms.loops import built
from tests.tensors import with_gradients

CASES: list[tuple[str, dict[str, Any]]] = [
    ("yat-spherical", {}),
    ("yat-spherical", {"normaliser": "softmax", "scale": 0.5}),
    ("yat-spherical", {"epsilon": 0.0}),
    ("yat", {}),
    ("yat", {"scale": 2.0}),
    ("yat", {"normaliser": "sum"}),
    ("yat-sum", {"epsilon": 0.1}),
]
IDS = [":".join([name, *map(str, arguments.values())]) for name, arguments in CASES]


@pytest.fixture(params=[Tiling(2, 4, 3), Tiling(5, 1, 8)], ids=str)
def small_tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yat_tiles, "tiling", lambda _device: request.param)


def made(name: str, **arguments: Any) -> Any:
    return built(MECHANISMS[name], model_dim=15, num_heads=3, **arguments)


def tiled(unit: ScoreAttention) -> Any:
    return yat_tiles.of(unit)


def dense(unit: ScoreAttention) -> Form:
    return partial(scores.dense, unit.scores, unit.normaliser)


def draw(length: int, *, queries: int | None = None, batch: tuple[int, ...] = (2, 3)) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; every third query is a key, where the kernel peaks.

    Queries and keys are short: exponents of 1e5, which longer ones have at a peak, are known to 2e-11 only, and so are
    the weights, whatever computes them.
    """
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(*batch, length, width, generator=generator, dtype=torch.float64) for width in (5, 5, 4))
    q, k = 0.25 * q, 0.25 * k
    q[..., ::3, :] = 0.99 * k[..., ::3, :]
    return q[..., length - (queries or length) :, :].clone().requires_grad_(), k.requires_grad_(), v.requires_grad_()


def run(form: Form, inputs: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Outputs, then gradients, over their largest number where that is above 1: near a peak slopes are steep."""
    return [x / x.abs().max().clamp(min=1) for x in with_gradients(form(*inputs), inputs)]


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
@pytest.mark.parametrize(("length", "queries"), [(1, 1), (8, 8), (13, 13), (13, 6)])
def test_tiles_equal_the_dense_form(name: str, arguments: dict[str, Any], length: int, queries: int) -> None:
    unit, inputs = made(name, **arguments), draw(length, queries=queries)

    torch.testing.assert_close(run(tiled(unit), inputs), run(dense(unit), inputs), rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("name", "dtype"), [("yat", torch.float16), ("yat-spherical", torch.bfloat16)])
def test_half_precision_is_that_of_its_inputs_and_outputs_only(name: str, dtype: torch.dtype) -> None:
    form, inputs = tiled(made(name)), tuple(x.detach().to(dtype).requires_grad_() for x in draw(13))

    out = form(*inputs)
    expected = form(*(x.float() for x in inputs))

    assert out.dtype == dtype
    assert torch.equal(out, expected.to(dtype))
    assert all(x.dtype == dtype for x in torch.autograd.grad(out.sum(), inputs))


def test_a_softmax_of_huge_scores_neither_overflows_nor_is_off() -> None:
    unit = made("yat")
    q, k, v = (x.detach() for x in draw(300))

    # ‖q‖⁴ / epsilon is about 1e11 where a query is a key.
    out = tiled(unit)(100 * k, 100 * k, v)

    torch.testing.assert_close(out, dense(unit)(100 * k, 100 * k, v))
    assert tiled(unit)(100 * q.float(), 100 * k.float(), v.float()).isfinite().all()


def test_nothing_of_length_times_length_is_held() -> None:
    length = 2048
    form = tiled(made("yat"))
    inputs = [torch.randn(1, length, 8).requires_grad_() for _ in range(3)]

    def call() -> None:
        torch.autograd.backward(form(*inputs).sum(), inputs=inputs)

    assert peak_bytes(call, torch.device("cpu")) < 4 * length**2 / 4


@pytest.mark.parametrize(("length", "is_tiled"), [(16, False), (17, True)])
def test_long_sequences_are_tiled(length: int, *, is_tiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "DENSE_MAX_LENGTH", 16)
    monkeypatch.setattr(scores, "BLOCK", 4)

    out = made("yat-sum").attend(*draw(length))

    assert out.grad_fn is not None
    assert ("_Tiled" in str(out.grad_fn.next_functions)) == is_tiled


def test_a_softermax_is_cut_into_blocks_of_queries_alone() -> None:
    assert yat_tiles.of(made("yat", normaliser="softermax", power=2.0)) is None
    assert yat_tiles.of(made("softmax")) is None
