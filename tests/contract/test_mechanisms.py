"""The contract holds for every registered mechanism in every form, and catches what breaks it."""

import itertools
import random
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from synthbench.contract.checks import make_all
from synthbench.contract.mechanisms import checks_of, lazy_probe
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, FeatureAttention, Mechanism, ScoreAttention
from synthbench.mechanisms.rewa.rewa_mixture import RewaMixture
from synthbench.suites import load_suite
from tests.contract._said import assert_refused, is_said
from tests.contract._toys import LEAKS, Toy, divide_by_sequence_norm, softmax_of, stated, toy

PUBLISHED = {name: options for name, options in load_suite("paper").mechanisms.items() if options}
WHOLE = {
    "cosformer", "gla", "performer", "performer-exp", "rewa-euclidean", "rewa-fourier", "slay", "yat", "yat-spherical",
    "yat-sum",
}  # fmt: skip
"""Mechanisms that attend as others do, and have a form or features by position of their own."""
SHORT = 150
"""Tokens that are enough elsewhere: more than two chunks. Scores and features are of tokens, not of lengths."""


def around(name: str) -> dict[str, Any]:
    """The longest sequences, shorter where what a mechanism does with many tokens is tried by another one."""
    form = getattr(MECHANISMS[name], "attend", None)
    is_shared = form in (ScoreAttention.attend, FeatureAttention.attend, RewaMixture.attend)
    return {"max_length": SHORT} if is_shared and name not in WHOLE else {}


def remarks_on(unit: type[Mechanism], arguments: Mapping[str, Any] = MappingProxyType({})) -> dict[str, str]:
    """Failures and warnings of a mechanism, by check."""
    results = make_all(checks_of(lazy_probe(unit, arguments)), object)
    return {result.check: f"{result.state}: {result.detail}" for result in results if result.state != "passed"}


@pytest.mark.parametrize("name", [name for name in MECHANISMS if not around(name)])
@pytest.mark.end_to_end
def test_every_mechanism_keeps_the_contract(name: str) -> None:
    """Its gradients are those of finite differences, and it trains every parameter."""
    assert remarks_on(MECHANISMS[name]) == {}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, around(name)) for name in MECHANISMS if around(name)),
        *((name, {"max_length": SHORT, **PUBLISHED[name]}) for name in PUBLISHED),
        ("cosformer", {"max_length": 10}),  # shorter than most lengths that are tried
        ("yat", {"max_length": SHORT, "normaliser": "softmax", "scale": 0.1}),
        ("yat", {"max_length": SHORT, "normaliser": "softermax", "power": 0.5}),
        ("yat-spherical", {"max_length": SHORT, "normaliser": "softermax", "power": 3.0}),
    ],
)
@pytest.mark.end_to_end
@pytest.mark.usefixtures("few_shapes")
def test_what_shares_a_form_and_published_settings_keep_the_contract(name: str, arguments: dict[str, Any]) -> None:
    assert remarks_on(MECHANISMS[name], arguments) == {}


class Unstorable(Toy):
    """A state dict of one object has other names than that of the next; a class, since the message names its line."""

    name: ClassVar = "unstorable"
    count: ClassVar = itertools.count()

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.register_parameter(f"scale_{next(self.count)}", nn.Parameter(torch.randn(1)))

    def forward(self, x: Tensor) -> Tensor:
        return next(self.parameters()) * x


def linear_layer(mechanism: Any, _generator: torch.Generator) -> nn.Linear:
    return nn.Linear(mechanism.model_dim, mechanism.model_dim)


def count_in_a_submodule(self: Any, x: Tensor) -> Tensor:
    """Change after many calls; no tensor counts them."""
    self.inner.calls += 1
    return x if self.inner.calls < 1000 else 2 * x


def note_the_length(self: Any, x: Tensor) -> Tensor:
    """A module's notes on its last input, and a count while it trains, change no output."""
    self.length = x.shape[-2]
    self.steps = getattr(self, "steps", 0) + self.training
    return x


def submodule_with_a_count(*_: Any) -> nn.Module:
    inner = nn.Identity()
    inner.calls = 0  # type: ignore[assignment]
    return inner


def refuse_odd_lengths(_: Any, x: Tensor) -> Tensor:
    if x.shape[-2] % 2:
        raise ValueError("length must be even")
    return x


def guarded_table(one: Any, _generator: torch.Generator) -> nn.Buffer:
    """Numbers of which the last, NaN, is never read."""
    return nn.Buffer(torch.tensor([*range(one.model_dim), torch.nan]))


def sparse_shift(one: Any, _generator: torch.Generator) -> nn.Buffer:
    return nn.Buffer(torch.eye(one.model_dim).roll(1, 0).to_sparse())


def see_the_last_at_third(_: Any, x: Tensor) -> Tensor:
    return torch.cat([x[..., :2, :], x[..., 2:3, :] + x[..., -1:, :], x[..., 3:, :]], -2) if x.shape[-2] > 3 else x


def constant_scale(mechanism: Any, _generator: torch.Generator) -> nn.Parameter:
    """The same for every seed, since nothing is drawn."""
    return nn.Parameter(torch.linspace(1, 2, mechanism.model_dim))


def unseeded_scale(*_: Any) -> nn.Parameter:
    """No seed of a run reaches NumPy or Python."""
    return nn.Parameter(torch.tensor(np.random.rand() + random.random()))  # noqa: NPY002, S311 - the fault


def reseeded_layer(mechanism: Any, generator: torch.Generator) -> nn.Linear:
    torch.manual_seed(0)  # noqa: TID251 - the fault
    return linear_layer(mechanism, generator)


def layer_of_its_own_generator(mechanism: Any, _: Any) -> nn.Parameter:
    own = torch.Generator().manual_seed(0)
    return nn.Parameter(torch.randn(mechanism.model_dim, generator=own))


def add_what_came_before(one: Any, x: Tensor) -> Tensor:
    before, one.kept = getattr(one, "kept", x), [x]
    return x + before[0].mean() if isinstance(before, list) else x


def read_a_table(one: Any, x: Tensor) -> Tensor:
    """Old rotary caches do this: the first call makes a buffer, and a longer sequence enlarges it."""
    if not hasattr(one, "table") or len(one.table) < x.shape[-2]:
        positions = torch.arange(x.shape[-2], dtype=x.dtype).unsqueeze(-1)
        one.register_buffer("table", positions.cos(), persistent=False)
    table: Tensor = one.table[: x.shape[-2]]
    return x * table


def centre_by_the_first_input(one: Any, x: Tensor) -> Tensor:
    one.centre = centre = getattr(one, "centre", x.mean((0, 1)))
    return x.sub(centre)


def note_the_first_input(one: Any, x: Tensor) -> Tensor:
    if not hasattr(one, "centre"):
        one.register_buffer("centre", x.mean((0, 1)))
    return centre_by_the_first_input(one, x)


def stretch_to_the_longest(one: Any, x: Tensor) -> Tensor:
    """Rotary angles that adapt to the longest sequence so far change those of shorter ones."""
    one.longest = max(getattr(one, "longest", torch.tensor(0)), torch.tensor(x.shape[-2]))
    return x.div(one.longest)


def fail_to_build(_: Any, generator: torch.Generator | None) -> None:
    raise OSError("no weights" if generator else "no generator")


def refuse_narrow(one: Any, _: Any) -> None:
    if one.model_dim < 32:
        raise ValueError("width must be at least 32")


def sum_if_wide(one: Any, x: Tensor) -> Tensor:
    refuse_narrow(one, x)
    return x.cumsum(-2)


def store_for_evaluation(one: Any, x: Tensor) -> Tensor:
    """The first scale that evaluation uses is kept for good."""
    if not one.training:
        one.stored = getattr(one, "stored", one.scale.detach().clone())
    scale: Tensor = one.scale if one.training else one.stored
    return x * scale


def leave(_: Any, x: Tensor) -> Tensor:
    raise SystemExit(1 if x.ndim else 0)


class Wordless(BaseException):
    def __str__(self) -> str:
        raise LookupError


def raise_what_has_no_text(_: Any, x: Tensor) -> Tensor:
    raise Wordless(x)


def gate_at_zero(*_: Any) -> nn.Parameter:
    return nn.Parameter(torch.zeros(1))


def zero_layer(mechanism: Any, generator: torch.Generator) -> nn.Linear:
    layer = linear_layer(mechanism, generator)
    nn.init.zeros_(layer.weight)
    return layer


def experts(one: Any, _generator: torch.Generator) -> nn.ParameterList:
    return nn.ParameterList(torch.randn(one.model_dim) for _ in range(24))


def route_by_the_past(one: Any, x: Tensor) -> Tensor:
    """All later tokens of a sequence go to nearly the same expert, so that two sequences reach only a few."""
    weight, best = one.gate(x.cumsum(-2)).softmax(-1).max(-1, keepdim=True)
    mixed: Tensor = x * weight * torch.stack([*one.experts])[best.squeeze(-1)]
    return mixed


def descend(_: Any, x: Tensor) -> Tensor:
    """Take a step of an inner training, as layers that learn at test time do."""
    with torch.enable_grad():
        start = x if x.requires_grad else x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(start.cos().sum(), start, create_graph=True)
    return x + slope.cumsum(-2)


def descend_in_training(one: Any, x: Tensor) -> Tensor:
    """Evaluation needs no gradient of the step's gradient, so that such a layer saves its memory there."""
    with torch.enable_grad():
        start = x if x.requires_grad else x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(start.cos().sum(), start, create_graph=one.training)
    return x + slope.cumsum(-2)


def infer(one: Any, x: Tensor) -> Tensor:
    with torch.inference_mode():
        inferred: Tensor = one.l(x)
    return inferred


def grow(one: Any, x: Tensor) -> Tensor:
    if not hasattr(one, "gain"):
        one.gain = nn.Parameter(torch.ones(x.shape[-1], dtype=x.dtype))
    grown: Tensor = x * one.gain
    return grown


def need_a_gpu(_: Any, x: Tensor) -> Tensor:
    raise RuntimeError(f"this kernel needs a CUDA device\n{x}")


SHARED = nn.Linear(16, 16)
IN_PLACE = toy("in-place", lambda _, x: x.mul_(0.5))
NO_GRADIENT = toy("no-gradient", lambda one, x: one.l(x).detach(), stated(l=linear_layer))
INFERENCE = toy("inference", infer, stated(l=linear_layer))
REDRAW = toy("redraw", lambda _, x: x + torch.randn(x.shape[-1], dtype=x.dtype))
PAIR = toy("pair", lambda _, x: (x, x))
CORRECT = [
    toy("notes-length", note_the_length),
    toy("constant", lambda one, x: one.scale * x, stated(scale=constant_scale)),
    toy(
        "draws-and-constants", lambda one, x: one.first(one.scale * x), stated(scale=constant_scale, first=linear_layer)
    ),
    toy("sound-zero-out", lambda one, x: one.out(one.v(x).cumsum(-2)), stated(v=linear_layer, out=zero_layer)),
    toy("nan-unread", lambda one, x: x * one.table[:-1], stated(table=guarded_table)),
    toy("sparse", lambda one, x: (one.mix @ x.flatten(0, -2).mT).mT.reshape(x.shape), stated(mix=sparse_shift)),
    toy("merged", lambda one, x: x * (one.w if one.training else one.w.detach()), stated(w=constant_scale)),
    toy("wide-built", softmax_of(0), refuse_narrow),
    toy("wide-called", sum_if_wide),
    toy("checkpoint", lambda one, x: checkpoint(one.l, x.cumsum(-2), use_reentrant=True), stated(l=linear_layer)),
    toy("table", read_a_table),
    toy("mixture", route_by_the_past, stated(gate=lambda one, _: nn.Linear(one.model_dim, 24), experts=experts)),
    toy("descends", descend),
    toy("descends-in-training", descend_in_training),
    toy("act-of-a-class", lambda one, x: one.act(one.l(x)), stated(l=linear_layer), act=nn.SiLU()),
]
FAULTS = [
    toy("length-scale", lambda _, x: x / x.shape[-2]),
    toy("heads-untransposed", lambda _, x: x.reshape(len(x), 2, x.shape[1], -1).cumsum(2).reshape(x.shape)),
    toy("batch-norm", lambda _, x: x - x.mean(0, keepdim=True) if len(x) > 1 else x),
    toy("batch-scale", lambda _, x: x / len(x)),
    toy("descends-unasked", lambda _, x: x + torch.autograd.grad(x.cos().sum(), x, create_graph=True)[0]),
    toy("no-keys", lambda _, x: (x @ x.mT + torch.full([x.shape[-2]] * 2, -torch.inf).triu()).softmax(-1) @ x),
    toy("time-first", lambda one, x: one.l(x)[0], stated(l=lambda one, _: nn.LSTM(one.model_dim, one.model_dim))),
    toy("sums-the-first-axis", lambda _, x: x.cumsum(0)),
    REDRAW,
    toy("dropping", lambda one, x: nn.functional.dropout(x, one.drop, one.training), stated(drop=lambda *_: 0.25)),
    toy(
        "dropping-twice",
        lambda one, x: nn.functional.dropout(x, one.drop + one.head_drop, one.training),
        stated(drop=lambda *_: 0.25, head_drop=lambda *_: 0.5),
    ),
    toy("redraw-in-training", lambda one, x: x + torch.randn(16, dtype=x.dtype) if one.training else x),
    toy("counter", lambda one, x: x + 0 * one.calls.add_(1), stated(calls=lambda *_: nn.Buffer(torch.zeros(())))),
    toy("ageing", count_in_a_submodule, stated(inner=submodule_with_a_count)),
    toy(
        "loose-features",  # random numbers that a state dict does not hold
        lambda one, x: x * one.direction.to(x.dtype),
        stated(direction=lambda one, g: torch.randn(one.model_dim, generator=g, dtype=torch.float64)),
    ),
    toy("overflow", lambda _, x: (x.square().sum(-1, keepdim=True)).exp() * x),
    toy("shorter", lambda _, x: x[..., :1, :] if x.shape[-2] == 3 else x),
    toy("integers", lambda _, x: x.long()),
    toy("elsewhere", lambda _, x: x.to("meta")),
    PAIR,
    IN_PLACE,
    toy("in-place-in-training", lambda one, x: x.mul_(0.5) if one.training else x * 0.5),
    toy("in-place-after-use", lambda one, x: x.add_(one.l(x)), stated(l=linear_layer)),
    toy("keeps", add_what_came_before),
    toy("first-input", centre_by_the_first_input),
    toy("first-input-noted", note_the_first_input),
    toy("longest-so-far", stretch_to_the_longest),
    toy("locked", lambda _, x: x * 2, stated(lock=lambda *_: threading.Lock())),
    toy("stale", store_for_evaluation, stated(scale=constant_scale)),
    toy("unseeded", lambda one, x: one.scale * x, stated(scale=unseeded_scale)),
    toy("reseeding", lambda one, x: one.second(one.first(x)), stated(first=linear_layer, second=reseeded_layer)),
    Unstorable,
    toy("unbuildable", softmax_of(0), fail_to_build),
    toy("exiting", leave),
    toy("wordless", raise_what_has_no_text),
    toy("wrong-last", softmax_of(0), forward_last=lambda one, x: one(x)[..., :1, :]),
    toy("even-only", refuse_odd_lengths),
    *LEAKS.values(),
    toy("leaks-in-half", lambda _, x: (x + x.mean(-2, keepdim=True)).bfloat16().to(x.dtype)),
    toy("sees-the-third", see_the_last_at_third),
    toy("lazy", lambda one, x: one.l(x), stated(l=lambda *_: nn.LazyLinear(16))),
    toy("bfloat", lambda one, x: one.l(x), stated(l=lambda *how: linear_layer(*how).bfloat16())),
    toy("computed", lambda one, x: x * one.w, stated(g=gate_at_zero, w=lambda one, _: one.g + 1)),
    toy("slots", lambda one, x: x * one.scale, stated(scale=lambda *_: 2.0), __slots__=("scale",)),
    NO_GRADIENT,
    INFERENCE,
    toy("in-a-list", lambda one, x: one.l[0](x.float()).to(x.dtype), stated(l=lambda *how: [linear_layer(*how)])),
    toy("grows", grow),
    toy("gpu", need_a_gpu),
    toy("one-layer-for-all", lambda one, x: one.l(x), stated(l=lambda *_: SHARED)),
    toy("layer-of-a-class", lambda one, x: one.layers[0](x), layers=[nn.LayerNorm(16)]),
    toy(
        "scale-of-a-class",
        lambda one, x: one.l(x) * one.scale,
        stated(l=linear_layer),
        scale=nn.Parameter(torch.ones(1)),
    ),
]
WARNED = [
    toy("unused", lambda _, x: x * 2, stated(weight=lambda *_: nn.Parameter(torch.randn(3)))),
    toy("detached", lambda one, x: x * 2 + 0 * one.weight, stated(weight=lambda *_: nn.Parameter(torch.randn(1)))),
    toy(
        "from-64",
        lambda one, x: x * (2 + one.gate * (torch.arange(x.shape[-2]) >= 64).unsqueeze(-1)),
        stated(gate=gate_at_zero),
    ),
    toy("half", lambda one, x: one.linear(x) + one.linear(x).detach(), stated(linear=linear_layer)),
    toy("own-seed", lambda one, x: one.scale * x, stated(scale=layer_of_its_own_generator)),
    toy("single-precision", lambda _, x: x.float()),
    # The product with a float32 matrix is one that float64 refuses.
    toy("default-zeros", lambda _, x: x @ torch.eye(x.shape[-1])),
    toy("in-half", lambda _, x: x.bfloat16().cumsum(-2).to(x.dtype)),
    toy("beside-half", lambda _, x: x + x.bfloat16().cumsum(-2).to(x.dtype)),
    toy("in-eighth", lambda _, x: x.to(torch.float8_e4m3fn).to(x.dtype)),
    toy("rounding", lambda _, x: x.float().cumsum(-2).to(x.dtype)),
]


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("unit", CORRECT)
@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_correct_toys_and_habits_of_trained_layers_pass(unit: type[Mechanism]) -> None:
    assert remarks_on(unit) == {}


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("unit", FAULTS, ids=lambda unit: unit.name)
def test_faults_are_named_in_one_line(unit: type[Mechanism]) -> None:
    assert "\n" not in assert_refused(unit) or unit is Unstorable


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("unit", WARNED, ids=lambda unit: unit.name)
def test_what_may_be_meant_is_a_warning(unit: type[Mechanism]) -> None:
    ((check, remark),) = remarks_on(unit).items()

    assert is_said(unit.name, f"{check}: {remark}"), remark


LEAKY = ["causality", "as trained", "backward", "prefixes"]


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize(
    ("unit", "fails"),
    [
        (toy("gated", lambda one, x: x + one.gate * x.flip(-2), stated(gate=gate_at_zero)), LEAKY),
        (toy("zero-out", lambda one, x: one.out(x - x.mean(-2, keepdim=True)), stated(out=zero_layer)), LEAKY),
        (LEAKS["sequence-norm"], LEAKY),
        (toy("in-training", lambda one, x: divide_by_sequence_norm(one, x) if one.training else x), LEAKY[:3]),
        (REDRAW, ["determinism"]),
        (IN_PLACE, ["input"]),
        (PAIR, ["shape"]),
    ],
)
def test_a_fault_fails_the_checks_that_see_it_and_misleads_no_other(unit: type[Mechanism], fails: list[str]) -> None:
    """A leak hides nothing of what else is wrong, even behind a gate or projection that begins at zero.

    What fails alone stops the others: two outputs for one input would look like a leak, a batch whose sequences
    interact, or a wrong backward pass.
    """
    remarks = remarks_on(unit)
    others = {check: remark for check, remark in remarks.items() if not remark.startswith("FAILED")}

    assert [check for check in remarks if check not in others] == fails
    assert set(others.values()) <= {"not tried: "}
    assert ({"derivative", "batch", "causality"} <= others.keys()) == (len(fails) == 1)


@pytest.mark.parametrize("unit", [NO_GRADIENT, INFERENCE], ids=lambda unit: unit.name)
@pytest.mark.usefixtures("few_shapes")
def test_an_output_without_a_gradient_fails_a_single_check(unit: type[Mechanism]) -> None:
    assert list(remarks_on(unit)) == ["gradients"]


@pytest.mark.parametrize(("longest", "fails"), [(200, ["shape"]), (500, ["as trained", "backward"])])
@pytest.mark.usefixtures("few_shapes")
def test_outputs_that_are_no_numbers_at_a_length_are_no_leak(longest: int, fails: list[str]) -> None:
    scale = stated(scale=constant_scale)
    unit = toy(f"nan-{longest}", lambda one, x: x * one.scale * (torch.nan if x.shape[-2] > longest else 1), scale)
    remarks = remarks_on(unit)

    assert [check for check, remark in remarks.items() if not remark.startswith("not tried")] == fails
    assert all(is_said(unit.name, remarks[check]) for check in fails)


def test_arguments_reach_the_mechanism() -> None:
    with pytest.raises(UsageError, match="slay:R is 65"):
        lazy_probe(MECHANISMS["slay"], {"R": 65})
