"""The likely cause of a leak is named where a probe supports it, and only there."""

from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, pad

from synthbench.contract import causes
from synthbench.contract.mechanisms import TOLERANCE, check_mechanism
from synthbench.errors import ContractError
from synthbench.mechanisms import MECHANISMS, Attention, FeatureAttention, Mechanism
from synthbench.mechanisms.base import Side


class Favor(FeatureAttention):
    """Positive random features, their keys stabilised by the maximum over all positions, as in the original code."""

    name: ClassVar = "favor"
    over: ClassVar[tuple[int, ...]] = (-1, -2)

    def initialise(self, generator: torch.Generator | None) -> None:
        self.directions = nn.Buffer(torch.randn(self.head_dim, 16, generator=generator))

    def features(self, x: Tensor, side: Side) -> Tensor:
        x = x / x.shape[-1] ** 0.25
        exponents = x @ self.directions - x.square().sum(-1, keepdim=True) / 2
        highest = exponents.amax(-1 if side == "query" else self.over, keepdim=True)
        return (exponents - highest).exp() + 1e-4


class FavorByPosition(Favor):
    """The sound form: each key has its own maximum."""

    name: ClassVar = "favor-by-position"
    over: ClassVar = (-1,)


class Plain(Mechanism):
    def state_elements(self, length: int) -> int:
        return length * self.model_dim


class MeanTaken(Plain):
    name: ClassVar = "mean-taken"

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(-2, keepdim=True)


class Unmasked(Attention):
    name: ClassVar = "unmasked"

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).softmax(-1) @ v


class OffByOne(Attention):
    name: ClassVar = "off-by-one"
    ahead: ClassVar = 1

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT
        sees = torch.ones_like(scores, dtype=torch.bool).tril(self.ahead)
        return scores.masked_fill(~sees, -torch.inf).softmax(-1) @ v


class WindowOfThree(Plain):
    name: ClassVar = "window-of-three"

    def forward(self, x: Tensor) -> Tensor:
        return pad(x, (0, 0, 0, 3)).unfold(-2, 4, 1).mean(-1)


class Circular(Plain):
    name: ClassVar = "circular"

    def forward(self, x: Tensor) -> Tensor:
        decay = torch.arange(x.shape[-2], dtype=x.dtype).neg().exp2().unsqueeze(-1)
        out: Tensor = torch.fft.irfft(torch.fft.rfft(x, dim=-2) * torch.fft.rfft(decay, dim=-2), n=x.shape[-2], dim=-2)
        return out


class MaskTooLate(Attention):
    """None of the known kinds: each weight is divided by a sum over all positions."""

    name: ClassVar = "mask-too-late"

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).softmax(-1).tril() @ v


class HardGate(Plain):
    """A threshold on a mean is no maximum, though most replacements do not cross it."""

    name: ClassVar = "hard-gate"

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.mean((-1, -2), keepdim=True) > 0).to(x.dtype) + x.cumsum(-2)


class BatchNormed(Plain):
    """Statistics over the batch and the sequence."""

    name: ClassVar = "batch-normed"

    def forward(self, x: Tensor) -> Tensor:
        return elu((x - x.mean((0, 1))) / (x.var((0, 1), unbiased=False) + 1e-5).sqrt())


KINDS = {
    Favor: causes.MAXIMUM,
    MeanTaken: causes.WHOLE,
    Unmasked: causes.WHOLE,
    BatchNormed: causes.WHOLE,
    Circular: causes.CIRCULAR,
    OffByOne: "position t sees t + 1 and nothing later: this looks like a mask, shift or window that is off by one",
    WindowOfThree: "position t sees t + 1 to t + 3 and nothing later",
}


@pytest.mark.parametrize("unit", KINDS)
def test_a_leak_is_refused_with_its_likely_cause(unit: type[Mechanism]) -> None:
    with pytest.raises(ContractError, match=r"is not causal|see each other") as refused:
        check_mechanism(unit, {})
    assert unit is BatchNormed or KINDS[unit] in str(refused.value)
    assert KINDS[unit] in str(cause_of(unit))


def test_the_refusal_of_a_stabiliser_names_it() -> None:
    with pytest.raises(ContractError, match=r"maximum over all positions, such as the key stabiliser of FAVOR\+"):
        check_mechanism(Favor, {})
    check_mechanism(FavorByPosition, {})


@pytest.mark.parametrize("unit", [MaskTooLate, HardGate])
def test_what_no_probe_supports_is_not_said(unit: type[Mechanism]) -> None:
    assert cause_of(unit) is None
    with pytest.raises(ContractError, match="is not causal"):
        check_mechanism(unit, {})


@pytest.mark.parametrize("name", ["softmax", "performer", "mamba2"])
def test_what_does_not_leak_has_no_cause(name: str) -> None:
    assert cause_of(MECHANISMS[name]) is None


def cause_of(unit: type[Mechanism]) -> str | None:
    mechanism = unit(model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(0)).double().eval()
    return causes.cause_of_leak(mechanism, TOLERANCE)
