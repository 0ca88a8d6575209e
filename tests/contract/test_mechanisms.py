"""The contract holds for every registered mechanism in every form, and catches what breaks it."""

import random
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import elu

from synthbench.contract import mechanisms as contract
from synthbench.contract.mechanisms import check_causality, check_mechanism, promises_of
from synthbench.contract.verdicts import judge
from synthbench.errors import ContractError, UsageError
from synthbench.forms import linear, scores
from synthbench.forms.linear import Factors
from synthbench.mechanisms import MECHANISMS, FeatureAttention, Mechanism, ScoreAttention

X = Float[Tensor, "*batch length dim"]
FORMS = [linear.gram, linear.chunked, linear.recurrent]
LINEAR = [name for name in MECHANISMS if issubclass(MECHANISMS[name], FeatureAttention)]
EXACT = [name for name in MECHANISMS if issubclass(MECHANISMS[name], ScoreAttention)]
PUBLISHED: dict[str, dict[str, Any]] = {
    "slay": {"R": 2, "P": 32, "D": 16, "epsilon": 1e-6, "guard": "clamp"},
    "slay-laplace": {"R": 2, "M": 32, "epsilon": 1e-6, "guard": "clamp"},
    "slay-hadamard": {"R": 2, "M": 32, "epsilon": 1e-6, "guard": "clamp"},
    "yat-spherical": {"epsilon": 1e-6},
    "performer": {"M": 64},
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_keeps_the_contract(name: str) -> None:
    check_mechanism(MECHANISMS[name], {})


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_keep_the_contract(name: str) -> None:
    check_mechanism(MECHANISMS[name], PUBLISHED[name])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LINEAR)
def test_every_form_keeps_the_contract(name: str, form: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(query_factors: Factors, key_factors: Factors, v: Tensor, **guard: Any) -> Tensor:
        has_few_queries = query_factors[0].shape[-2] < v.shape[-2]
        return (linear.gram if has_few_queries else form)(query_factors, key_factors, v, **guard)

    monkeypatch.setattr(linear, "attend", attend)
    monkeypatch.setattr(linear, "CHUNK", 8)
    monkeypatch.setattr(contract, "LENGTHS", (1, 2, 3, 33))

    check_mechanism(MECHANISMS[name], {})


@pytest.mark.parametrize("name", EXACT)
def test_blocks_of_queries_keep_the_contract(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "DENSE_MAX_LENGTH", 4)
    monkeypatch.setattr(scores, "BLOCK", 8)
    monkeypatch.setattr(contract, "LENGTHS", (1, 2, 3, 33))

    check_mechanism(MECHANISMS[name], {})


@pytest.mark.parametrize("name", LINEAR)
def test_all_forms_of_a_mechanism_agree_and_so_do_their_gradients(name: str) -> None:
    mechanism = MECHANISMS[name](model_dim=32, num_heads=2, generator=torch.Generator().manual_seed(0)).double()
    assert isinstance(mechanism, FeatureAttention)
    generator = torch.Generator().manual_seed(1)
    # Small inputs keep the signed features of rff away from a denominator of zero.
    qkv = [
        (0.3 * torch.randn(2, 2, 70, 16, generator=generator, dtype=torch.float64)).requires_grad_() for _ in range(3)
    ]

    results = []
    for form in FORMS:
        factors = mechanism.factors(qkv[0], "query"), mechanism.factors(qkv[1], "key")
        out = form(*factors, qkv[2], guard=mechanism.guard, delta=mechanism.delta)
        results.append([out.detach(), *torch.autograd.grad(out.sin().sum(), qkv)])

    torch.testing.assert_close(results[0], results[2], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(results[1], results[2], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", MECHANISMS)
def test_float64_gradients_are_those_of_finite_differences(name: str) -> None:
    mechanism = MECHANISMS[name](
        model_dim=4, num_heads=2, max_length=8, generator=torch.Generator().manual_seed(0)
    ).double()
    x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()

    assert torch.autograd.gradcheck(mechanism, [x])


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_quick_check_passes(name: str) -> None:
    check_causality(MECHANISMS[name], {})


class Toy(Mechanism):
    """A mechanism of one file that keeps no state and has no knobs."""

    def state_elements(self, length: int) -> int:
        return length * self.model_dim


def weights_of(x: Tensor) -> tuple[Tensor, Tensor]:
    scores = x @ x.mT / x.shape[-1] ** 0.5
    return scores, torch.ones_like(scores, dtype=torch.bool).tril()


def linear_features(x: Tensor) -> Tensor:
    return elu(x) + 1


class MaskedSoftmax(Toy):
    name: ClassVar = "masked-softmax"

    def forward(self, x: X) -> X:
        scores, mask = weights_of(x)
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ x


class CumulativeSum(Toy):
    name: ClassVar = "cumulative-sum"

    def forward(self, x: X) -> X:
        phi = linear_features(x)
        state = (phi.unsqueeze(-1) * x.unsqueeze(-2)).cumsum(-3)
        return (phi.unsqueeze(-2) @ state).squeeze(-2) / (phi * phi.cumsum(-2)).sum(-1, keepdim=True)


def convolve(x: Tensor, size: int) -> Tensor:
    decay = torch.arange(x.shape[-2], dtype=x.dtype).neg().exp2().unsqueeze(-1)
    product = torch.fft.rfft(x, n=size, dim=-2) * torch.fft.rfft(decay, n=size, dim=-2)
    whole: Tensor = torch.fft.irfft(product, n=size, dim=-2)
    return whole[..., : x.shape[-2], :]


class PaddedConvolution(Toy):
    name: ClassVar = "padded-convolution"

    def forward(self, x: X) -> X:
        return convolve(x, 2 * x.shape[-2])


class CircularConvolution(Toy):
    name: ClassVar = "circular-convolution"

    def forward(self, x: X) -> X:
        return convolve(x, max(x.shape[-2], 2))


class MaskAfterSoftmax(Toy):
    name: ClassVar = "mask-after-softmax"

    def forward(self, x: X) -> X:
        scores, mask = weights_of(x)
        return (scores.softmax(-1) * mask) @ x


class MaskOffByOne(Toy):
    name: ClassVar = "mask-off-by-one"

    def forward(self, x: X) -> X:
        scores, mask = weights_of(x)
        sees_next = torch.ones_like(mask).tril(1)
        return scores.masked_fill(~sees_next, -torch.inf).softmax(-1) @ x


class SequenceNorm(Toy):
    name: ClassVar = "sequence-norm"

    def forward(self, x: X) -> X:
        return x / (1 + x.square().mean((-1, -2), keepdim=True)).sqrt()


class NormInTraining(SequenceNorm):
    name: ClassVar = "norm-in-training"

    def forward(self, x: X) -> X:
        return super().forward(x) if self.training else x


class HardGate(Toy):
    """Gradients do not see this leak."""

    name: ClassVar = "hard-gate"

    def forward(self, x: X) -> X:
        return x * (x.mean((-1, -2), keepdim=True) > 0).to(x.dtype) + x


class KeyMax(Toy):
    """At scale 1 this leak is 1e-3 of the output: it cancels but for the guard."""

    name: ClassVar = "key-max"

    def forward(self, x: X) -> X:
        query, exponents = x.exp() / x.exp().sum(-1, keepdim=True), x - x.square().sum(-1, keepdim=True) / 2
        key = (exponents - exponents.amax((-1, -2), keepdim=True)).exp()
        kernel = (query @ key.mT).tril()
        return kernel @ x / (kernel.sum(-1, keepdim=True) + 1e-6)


class LengthScale(Toy):
    name: ClassVar = "length-scale"

    def forward(self, x: X) -> X:
        return x / x.shape[-2]


class BatchNorm(Toy):
    name: ClassVar = "batch-norm"

    def forward(self, x: X) -> X:
        return x - x.mean(0, keepdim=True) if len(x) > 1 else x


class Redraw(Toy):
    name: ClassVar = "redraw"

    def forward(self, x: X) -> X:
        return x + torch.randn(x.shape[-1], dtype=x.dtype)


class RedrawInTraining(Toy):
    name: ClassVar = "redraw-in-training"

    def forward(self, x: X) -> X:
        return x + torch.randn(x.shape[-1], dtype=x.dtype) if self.training else x


class Counter(Toy):
    name: ClassVar = "counter"

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.calls = nn.Buffer(torch.zeros(()))

    def forward(self, x: X) -> X:
        self.calls.add_(1)
        return x


class Ageing(Toy):
    """Counts its calls where no tensor does, and changes after a few of them."""

    name: ClassVar = "ageing"

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.inner = nn.Identity()
        self.inner.calls = 0  # type: ignore[assignment]

    def forward(self, x: X) -> X:
        self.inner.calls += 1  # type: ignore[operator, assignment]
        return x if self.inner.calls < 1000 else 2 * x  # type: ignore[operator]


class NotesLength(Toy):
    """What a module notes of its last input, and a count while it trains, changes no output."""

    name: ClassVar = "notes-length"

    def forward(self, x: X) -> X:
        self.length = x.shape[-2]
        self.steps = getattr(self, "steps", 0) + self.training
        return x


class LooseFeatures(Toy):
    """Random numbers that a state dict does not hold."""

    name: ClassVar = "loose-features"

    def initialise(self, generator: torch.Generator | None) -> None:
        self.direction = torch.randn(self.model_dim, generator=generator, dtype=torch.float64)

    def forward(self, x: X) -> X:
        return x * self.direction.to(x.dtype)


class Unused(Toy):
    name: ClassVar = "unused"

    def initialise(self, generator: torch.Generator | None) -> None:
        self.weight = nn.Parameter(torch.randn(3, generator=generator))

    def forward(self, x: X) -> X:
        return x * 2


class Detached(Toy):
    name: ClassVar = "detached"

    def initialise(self, generator: torch.Generator | None) -> None:
        self.weight = nn.Parameter(torch.randn(1, generator=generator))

    def forward(self, x: X) -> X:
        return x * 2 + 0 * self.weight


class Overflow(Toy):
    name: ClassVar = "overflow"

    def forward(self, x: X) -> X:
        return (x.square().sum(-1, keepdim=True)).exp() * x


class Shorter(Toy):
    name: ClassVar = "shorter"

    def forward(self, x: X) -> Tensor:
        return x[..., :1, :] if x.shape[-2] == 3 else x


class SinglePrecision(Toy):
    name: ClassVar = "single-precision"

    def forward(self, x: X) -> X:
        return x.float()


class EvenOnly(Toy):
    name: ClassVar = "even-only"

    def forward(self, x: X) -> X:
        if x.shape[-2] % 2:
            raise ValueError("length must be even")
        return x


class WrongLast(MaskedSoftmax):
    name: ClassVar = "wrong-last"

    def forward_last(self, x: X) -> X:
        return self.forward(x)[..., :1, :]  # the first, where the last is asked for


class Integers(Toy):
    name: ClassVar = "integers"

    def forward(self, x: X) -> Tensor:
        return x.long()


class Elsewhere(Toy):
    name: ClassVar = "elsewhere"

    def forward(self, x: X) -> Tensor:
        return x.to("meta")


class Pair(Toy):
    name: ClassVar = "pair"

    def forward(self, x: X) -> Any:
        return x, x


class InPlace(Toy):
    name: ClassVar = "in-place"

    def forward(self, x: X) -> X:
        return x.mul_(0.5)


class OrdinaryLayers(Toy):
    name: ClassVar = "ordinary-layers"

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.linear = nn.Linear(self.model_dim, self.model_dim)

    def forward(self, x: X) -> X:
        out: Tensor = self.linear(x)
        return out


class Unseeded(Toy):
    """No seed of a run reaches NumPy or Python."""

    name: ClassVar = "unseeded"

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.scale = nn.Parameter(torch.tensor(np.random.rand() + random.random()))  # noqa: NPY002, S311 - the fault

    def forward(self, x: X) -> X:
        return self.scale * x


class Reseeding(Toy):
    """Every seed of a suite gets the same weights, but for those of the first layer."""

    name: ClassVar = "reseeding"

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.first = nn.Linear(self.model_dim, self.model_dim)
        torch.manual_seed(0)  # noqa: TID251 - the fault
        self.second = nn.Linear(self.model_dim, self.model_dim)

    def forward(self, x: X) -> X:
        out: Tensor = self.second(self.first(x))
        return out


class Constant(Toy):
    """Nothing is drawn, so every seed has the same tensors."""

    name: ClassVar = "constant"

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.scale = nn.Parameter(torch.linspace(1, 2, self.model_dim))

    def forward(self, x: X) -> X:
        return self.scale * x


class DrawsAndConstants(Constant):
    name: ClassVar = "draws-and-constants"

    def initialise(self, generator: torch.Generator | None) -> None:
        super().initialise(generator)
        self.shift = nn.Parameter(torch.randn(self.model_dim))

    def forward(self, x: X) -> X:
        return self.scale * x + self.shift


class Dropping(Toy):
    name: ClassVar = "dropping"

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        self.drop = nn.Dropout(0.25)

    def forward(self, x: X) -> X:
        out: Tensor = self.drop(x)
        return out


class SeesTheThird(Toy):
    """Only the output at position 2 depends on what comes later."""

    name: ClassVar = "sees-the-third"

    def forward(self, x: X) -> X:
        return torch.cat([x[..., :2, :], x[..., 2:3, :] + x[..., -1:, :], x[..., 3:, :]], -2) if x.shape[-2] > 3 else x


class Unstorable(Toy):
    """Its parameters have the names of the first object built."""

    name: ClassVar = "unstorable"
    num_built: ClassVar = 0

    def initialise(self, generator: torch.Generator | None) -> None:
        assert generator is not None
        Unstorable.num_built += 1
        self.register_parameter(f"scale_{self.num_built}", nn.Parameter(torch.randn(1)))

    def forward(self, x: X) -> X:
        return next(self.parameters()) * x


class Unbuildable(MaskedSoftmax):
    name: ClassVar = "unbuildable"

    def initialise(self, generator: torch.Generator | None) -> None:
        raise OSError("no weights" if generator else "no generator")


class Exiting(Toy):
    name: ClassVar = "exiting"

    def forward(self, x: X) -> X:
        raise SystemExit(1 if x.ndim else 0)


CORRECT = [
    MaskedSoftmax, CumulativeSum, PaddedConvolution, OrdinaryLayers, NotesLength, Constant, DrawsAndConstants,
]  # fmt: skip


@pytest.mark.parametrize("unit", CORRECT)
def test_correct_toys_pass(unit: type[Mechanism]) -> None:
    check_mechanism(unit, {})
    check_causality(unit, {})


LEAKS = [MaskAfterSoftmax, MaskOffByOne, SequenceNorm, HardGate, KeyMax, CircularConvolution]


@pytest.mark.parametrize("unit", LEAKS)
def test_leaks_are_caught_by_both_checks(unit: type[Mechanism]) -> None:
    for check in (check_mechanism, check_causality):
        with pytest.raises(ContractError, match=f"'{unit.name}' is not causal: .* the output at position .* changes"):
            check(unit, {})


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (LengthScale, "depends on the length: the first 1 of 2 tokens"),
        (BatchNorm, "lets the sequences of a batch see each other: at length 2 the output of row 0 changes by"),
        (Redraw, "two outputs for one input in eval mode, .* apart; it draws from PyTorch's global generator"),
        (Dropping, r"in train mode, .* apart; drop \(Dropout, p=0.25\) drops values while it trains"),
        (RedrawInTraining, "two outputs for one input in train mode"),
        (Counter, "changes its own 'calls' in forward"),
        (Ageing, r"changes its own 'inner.calls' in forward, from \d+ to \d+"),
        (LooseFeatures, "does not survive state_dict"),
        (Unused, "gives weight no gradient"),
        (Detached, "gives weight a gradient of 0 everywhere"),
        (Overflow, "values of the output are not finite for inputs of scale 30 in float32"),
        (Shorter, r"maps \[2, 3, 16\] torch.float64 to \[2, 1, 16\]"),
        (SinglePrecision, "shape, dtype and device must be kept"),
        (Integers, r"to \[2, 1, 16\] torch.int64; shape, dtype and device must be kept"),
        (Elsewhere, "on meta; shape, dtype and device must be kept"),
        (Pair, "returns tuple; allowed: a tensor like its input"),
        (InPlace, "changes its input in place, by 0.5 of its size"),
        (Unseeded, "gives outputs .* of their size apart; it draws from Python's random and numpy.random"),
        (Reseeding, "has the same 'second.weight' for every seed: it seeds PyTorch's global generator itself"),
        (Unstorable, r"(?s)cannot load its own state_dict: RuntimeError: .* \(test_mechanisms.py:\d+\)"),
        (Unbuildable, "'unbuildable' cannot be built: OSError: no weights"),
        (Exiting, "SystemExit: 1"),
        (WrongLast, "computes another last position alone than with the others"),
        (EvenOnly, r"fails on input of shape \[2, 1, 16\], torch.float64: ValueError: length must be even"),
    ],
)
def test_other_faults_are_named(unit: type[Mechanism], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        check_mechanism(unit, {})


def test_a_leak_is_located() -> None:
    """The mask that is off by one shows each position the next: the last before the cut changes."""
    with pytest.raises(ContractError, match=r"from position 1 of 2 on replaced .* output at position 0 changes"):
        check_mechanism(MaskOffByOne, {})


def test_the_first_position_that_sees_a_later_one_is_named() -> None:
    with pytest.raises(ContractError, match=r"from position 8 of 33 on replaced .* output at position 2 changes"):
        check_mechanism(SeesTheThird, {})


def test_what_is_random_is_judged_no_further() -> None:
    """Two outputs for one input would look like a leak, and like sequences that see each other."""
    states = {verdict.promise: verdict.state for verdict in judge(promises_of(Redraw, {}))}

    assert states["determinism"] == "broken"
    assert states["batch"] == states["causality"] == "not tried"


def test_every_promise_has_a_verdict() -> None:
    """A leak hides nothing of what else is wrong, and without a shape there is nothing to say."""
    leaking = {verdict.promise: verdict.state for verdict in judge(promises_of(SequenceNorm, {}))}
    shapeless = [verdict.state for verdict in judge(promises_of(Pair, {}))]

    assert {name for name, state in leaking.items() if state == "broken"} == {"causality", "prefixes"}
    assert set(shapeless[1:]) == {"not tried"}
    assert shapeless[0] == "broken"


def test_a_leak_in_training_alone_breaks_no_other_promise() -> None:
    assert [one.promise for one in judge(promises_of(NormInTraining, {})) if one.state != "kept"] == ["causality"]


def test_arguments_reach_the_mechanism() -> None:
    with pytest.raises(UsageError, match="slay:R is 65"):
        check_mechanism(MECHANISMS["slay"], {"R": 65})


def test_no_sequence_is_longer_than_the_model_allows() -> None:
    for check in (check_mechanism, check_causality):
        check(MECHANISMS["cosformer"], {"max_length": 10})
