"""The likely cause of a leak is named where a probe supports it, and only there."""

from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, pad

from synthbench.contract import causes
from synthbench.contract.mechanisms import check_mechanism
from synthbench.errors import ContractError
from synthbench.mechanisms import MECHANISMS, FeatureAttention, Mechanism
from synthbench.mechanisms.base import Side
from tests.contract._toys import LEAKS, toy


class Favor(FeatureAttention):
    """Positive random features, their keys stabilised by the maximum over all positions, as in the original code."""

    name: ClassVar = "favor"

    def initialise(self, generator: torch.Generator | None) -> None:
        self.directions = nn.Buffer(torch.randn(self.head_dim, 16, generator=generator))

    def features(self, x: Tensor, side: Side) -> Tensor:
        x = x / x.shape[-1] ** 0.25
        exponents = x @ self.directions - x.square().sum(-1, keepdim=True) / 2
        highest = exponents.amax(-1 if side == "query" else (-1, -2), keepdim=True)
        return (exponents - highest).exp() + 1e-4


BATCH_NORM = toy("batch-norm", lambda _, x: elu((x - x.mean((0, 1))) / (x.var((0, 1), unbiased=False) + 1e-5).sqrt()))
OFF_BY_ONE = LEAKS["mask-off-by-one"]
WINDOW = toy("window-of-three", lambda _, x: pad(x, (0, 0, 0, 3)).unfold(-2, 4, 1).mean(-1))
KINDS = {
    Favor: causes.MAXIMUM,
    toy("mean-taken", lambda _, x: x - x.mean(-2, keepdim=True)): causes.WHOLE,
    toy("unmasked", lambda _, x: (x @ x.mT).softmax(-1) @ x): causes.WHOLE,
    BATCH_NORM: causes.WHOLE,
    LEAKS["circular-convolution"]: causes.CIRCULAR,
    OFF_BY_ONE: "position t sees t + 1 and nothing later: this looks like a mask, shift or window that is off by one",
    WINDOW: "position t sees t + 1 to t + 3 and nothing later",
}


@pytest.mark.parametrize("unit", KINDS)
def test_a_leak_is_refused_with_its_likely_cause(unit: type[Mechanism]) -> None:
    with pytest.raises(ContractError, match=r"is not causal|see each other") as refused:
        check_mechanism(unit, {})
    assert unit is BATCH_NORM or KINDS[unit] in str(refused.value)
    assert KINDS[unit] in str(cause_of(unit))


@pytest.mark.parametrize("name", ["mask-after-softmax", "hard-gate"])
def test_what_no_probe_supports_is_not_said(name: str) -> None:
    """Weights over a sum of all are of no known kind, and a threshold on a mean is no maximum."""
    assert cause_of(LEAKS[name]) is None


@pytest.mark.parametrize("name", ["softmax", "performer", "mamba2"])
def test_what_does_not_leak_has_no_cause(name: str) -> None:
    assert cause_of(MECHANISMS[name]) is None


def cause_of(unit: type[Mechanism]) -> str | None:
    mechanism = unit(model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(0)).double().eval()
    return causes.cause_of_leak(mechanism)
