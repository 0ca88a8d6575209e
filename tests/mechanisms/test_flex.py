"""FlexAttention's form of scores that are a function of one inner product: the dense form's values."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from synthbench.forms import scores
from synthbench.forms.kernels import Form
from synthbench.mechanisms import MECHANISMS, _flex
from synthbench.mechanisms.base import ScoreAttention

CASES: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {}),
    ("yat", {}),
    ("yat", {"scale": 0.5}),
    ("yat", {"normaliser": "sum"}),
    ("yat", {"normaliser": "softermax", "power": 3.0}),
    ("yat-sum", {"epsilon": 0.1}),
    ("yat-spherical", {}),
    ("yat-spherical", {"normaliser": "softmax", "scale": 0.5}),
    ("yat-spherical", {"normaliser": "softermax", "power": 0.5}),
    ("rewa-euclidean", {}),
    ("rewa-euclidean", {"power": 2}),
    ("rewa-spherical", {"shared": False}),
    ("rewa-hyperbolic", {"tau": 0.5}),
    ("rewa-operator", {}),
    ("rewa-operator", {"power": 1, "m": 3, "r": 1}),
]
IDS = [":".join([name, *map(str, arguments.values())]) for name, arguments in CASES]


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it as it stands: PyTorch traces it otherwise, which what looks at shapes does not survive."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def built(name: str, arguments: dict[str, Any], dtype: torch.dtype = torch.float64) -> ScoreAttention:
    unit = MECHANISMS[name](model_dim=15, num_heads=3, generator=torch.Generator().manual_seed(0), **arguments)
    assert isinstance(unit, ScoreAttention)
    return unit.to(dtype)


def flexible(unit: ScoreAttention) -> Form:
    """Without gradients, which PyTorch has on a GPU only."""
    form = _flex.of(unit, flex_attention)
    assert form is not None
    return torch.no_grad()(form)


def dense(unit: ScoreAttention) -> Form:
    return partial(scores.dense, unit.scores, unit.normaliser, power=unit.softermax_power)


def draw(length: int, batch: tuple[int, ...] = (2, 3), width: int = 5) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    return tuple(torch.randn(*batch, length, width, generator=generator, dtype=torch.float64) / 4 for _ in "qkv")


@pytest.mark.parametrize(
    ("name", "arguments", "length"), [*((*case, 40) for case in CASES), ("yat", {}, 1)], ids=[*IDS, "yat, one token"]
)
def test_it_is_the_dense_form(name: str, arguments: dict[str, Any], length: int) -> None:
    unit, inputs = built(name, arguments), draw(length)

    torch.testing.assert_close(flexible(unit)(*inputs), dense(unit)(*inputs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_scores_and_their_gradients_come_from_inner_products(name: str, arguments: dict[str, Any]) -> None:
    """What reaches q and k through the inner products, through numbers of the tokens and through what is learned."""
    unit = built(name, arguments)
    q, k, _ = (x.requires_grad_() for x in draw(6))
    pairing_of = _flex.pairing(unit)
    assert pairing_of is not None

    pairs = pairing_of(q, k)
    by_query, by_key = (x.unsqueeze(-1) for x in pairs.by_query), (x.unsqueeze(-2) for x in pairs.by_key)
    found = pairs.score(pairs.q @ pairs.k.mT, *by_query, *by_key)

    expected = unit.scores(q, k)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    learned = [value for part, value in unit.named_parameters() if not part.startswith(("qkv.", "out."))]
    gradients = (torch.autograd.grad(scores.sin().sum(), (q, k, *learned)) for scores in (found, expected))
    for own, true in zip(*gradients, strict=True):
        torch.testing.assert_close(own, true, rtol=1e-9, atol=1e-10)


def test_queries_that_a_kernel_gives_nothing_to_get_nothing() -> None:
    """Where all kernel values are 0 the sum is what is added to it."""
    unit = built("yat-sum", {})
    q, k, v = draw(4)
    q[..., 1, :] = 0

    out = flexible(unit)(q, k, v)

    assert float(out[..., 1, :].abs().max()) < 1e-12
    torch.testing.assert_close(out, dense(unit)(q, k, v), rtol=1e-10, atol=1e-10)


def test_axes_before_the_heads_are_kept() -> None:
    """Two sequences of two members, with parameters that differ between members."""
    unit = built("rewa-euclidean", {})
    q, k, v = draw(9, batch=(2, 2, 3))

    torch.testing.assert_close(flexible(unit)(q, k, v), dense(unit)(q, k, v), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_worked_on_as_float32(dtype: torch.dtype) -> None:
    unit = built("yat-spherical", {}, torch.float32)
    inputs = tuple(x.to(dtype) for x in draw(20))

    out = flexible(unit)(*inputs)

    assert out.dtype == dtype
    torch.testing.assert_close(out, dense(unit)(*(x.float() for x in inputs)).to(dtype))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("rewa-geometric", {}), ("rewa-fisher", {}), ("rewa-oscillatory", {}), ("local", {})],
    ids=str,
)
def test_what_takes_more_than_an_inner_product_has_no_such_form(name: str, arguments: dict[str, Any]) -> None:
    unit = MECHANISMS[name](model_dim=15, num_heads=3, **arguments)

    assert not isinstance(unit, ScoreAttention) or _flex.of(unit, flex_attention) is None


@pytest.mark.parametrize("name", ["softmax", "yat", "yat-sum", "yat-spherical", "rewa-euclidean", "rewa-operator"])
def test_what_inherits_has_none_since_its_scores_may_be_others(name: str) -> None:
    heir = type("Heir", (MECHANISMS[name],), {"scores": lambda _self, q, k: q @ k.mT})
    unit = heir(model_dim=15, num_heads=3, generator=torch.Generator().manual_seed(0))

    assert _flex.of(unit, flex_attention) is None


def test_a_geometry_that_is_left_alone_has_one() -> None:
    assert _flex.of(built("rewa-geometric", {"n": 0, "p": 0}), flex_attention) is not None


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_a_gpu_computes_what_float64_does(
    need: Callable[[str, bool, str], None], name: str, arguments: dict[str, Any]
) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    unit = built(name, arguments).to("cuda")
    true_inputs = tuple(x.to("cuda").requires_grad_() for x in draw(200))
    true = [out := dense(unit)(*true_inputs), *torch.autograd.grad(out.sin().sum(), true_inputs)]
    unit = unit.float()
    inputs = tuple(x.detach().float().requires_grad_() for x in true_inputs)
    form = _flex.of(unit, _flex.compiled())
    assert form is not None

    found = [out := form(*inputs), *torch.autograd.grad(out.sin().sum(), inputs)]

    for own, expected in zip(found, true, strict=True):
        allowed = 1e-4 * float(expected.abs().max().clamp(min=1))
        assert float((own.double() - expected).abs().max()) <= allowed


TRACED = """
import json
import sys

import torch
from torch.nn.attention import flex_attention

from synthbench.forms import scores
from synthbench.mechanisms import MECHANISMS, _flex

flex_attention._validate_device = lambda *_inputs: None  # which refuses gradients on a CPU, as its kernels there do
for name, arguments in json.loads(sys.argv[1]):
    torch.compiler.reset()
    program = torch.compile(flex_attention.flex_attention, fullgraph=True, dynamic=False, backend="aot_eager")
    generator = torch.Generator().manual_seed(0)
    unit = MECHANISMS[name](model_dim=15, num_heads=3, generator=generator, **arguments).double()
    inputs = [(torch.randn(2, 3, 12, 5, generator=generator).double() / 4).requires_grad_() for _ in "qkv"]
    inputs_and_learned = [*inputs, *(p for part, p in unit.named_parameters() if not part.startswith(("qkv", "out")))]
    found, expected = (
        torch.autograd.grad(out.sin().sum(), inputs_and_learned)
        for out in (
            _flex.of(unit, program)(*inputs),
            scores.dense(unit.scores, unit.normaliser, *inputs, power=unit.softermax_power),
        )
    )
    for own, true in zip(found, expected, strict=True):
        torch.testing.assert_close(own, true, rtol=1e-9, atol=1e-10, msg=lambda text: f"{name} {arguments}: {text}")
"""

COMPILED = """
import json
import sys

import torch

from synthbench.forms import scores
from synthbench.mechanisms import MECHANISMS, _flex

for name, arguments in json.loads(sys.argv[1]):
    torch.compiler.reset()
    generator = torch.Generator().manual_seed(0)
    unit = MECHANISMS[name](model_dim=64, num_heads=2, generator=generator, **arguments)
    inputs = [torch.randn(1, 2, 200, 32, generator=generator) / 4 for _ in "qkv"]
    with torch.no_grad():
        out = _flex.of(unit, _flex.compiled())(*inputs)
        expected = scores.dense(unit.double().scores, "softmax", *(x.double() for x in inputs))
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
"""


def run(script: str, cases: list[tuple[str, dict[str, Any]]]) -> None:
    """In a process of its own, in which nothing else looks at shapes, which PyTorch cannot trace."""
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(cases)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.end_to_end
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cases", [CASES[5::8], pytest.param(CASES, marks=pytest.mark.slow)], ids=["some", "all"])
def test_gradients_pass_what_a_compiler_traces(cases: list[tuple[str, dict[str, Any]]]) -> None:
    """All that is between PyTorch and a GPU's program: gradients of what scores read, not of inner products alone."""
    run(TRACED, cases)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_compiles_to_one_program() -> None:
    """On a CPU that is the forward pass of a softmax."""
    run(COMPILED, [("yat", {"scale": 2.0}), ("rewa-hyperbolic", {}), ("rewa-operator", {})])
