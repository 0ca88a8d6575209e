"""The state that a mechanism says it keeps, against what its outputs depend on."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from synthbench.contract import states
from synthbench.contract.states import MARGIN, MOST, check_state, numbers_carried
from synthbench.errors import ContractError
from synthbench.mechanisms import MECHANISMS, Mechanism

SMALL: dict[str, Any] = {"model_dim": 8, "num_heads": 2, "max_length": 64}


def built(name: str) -> Mechanism:
    return MECHANISMS[name](**SMALL, generator=torch.Generator().manual_seed(0)).double().eval()


@pytest.mark.parametrize("name", ["cosformer", "deltanet", "gla", "identity", "linear", "lstm", "mean"])
def test_what_these_carry_is_what_they_say_they_keep(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "SMALLEST", 1e-10)  # these compute in float64 throughout
    mechanism = built(name)
    said = mechanism.state_elements(16)

    assert numbers_carried(mechanism, 16, said + MARGIN) == said


@pytest.mark.parametrize("name", [name for name in MECHANISMS if MECHANISMS.is_built_in(name)])
def test_none_says_less_than_it_carries(name: str) -> None:
    check_state(built(name))


def test_softmax_carries_every_input() -> None:
    assert numbers_carried(built("softmax"), 8, 100) == 8 * 8


class Sums(Mechanism):
    """Sums and sums of squares of what came before."""

    name: ClassVar = "sums"
    claimed = 2

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(-2) * x.square().cumsum(-2)

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - the same at any length
        return self.claimed * self.model_dim


@pytest.mark.parametrize(("claimed", "is_enough"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_state_that_is_too_small_is_named(claimed: int, *, is_enough: bool) -> None:
    mechanism = Sums(**SMALL).double()
    mechanism.claimed = claimed

    assert numbers_carried(mechanism, 16, 100) == 2 * 8
    if is_enough:
        check_state(mechanism)
    else:
        with pytest.raises(ContractError, match=f"it keeps {8 * claimed} numbers .* depends on at least"):
            check_state(mechanism)


def test_of_a_hybrid_all_parts_are_counted() -> None:
    mechanism = built("lstm+deltanet")

    assert numbers_carried(mechanism, 16, 100) > mechanism.state_elements(16)  # that is the mean
    check_state(mechanism)


def test_what_is_too_large_to_measure_is_passed_over() -> None:
    mechanism = Sums(**SMALL).double()
    mechanism.claimed = MOST
    check_state(mechanism)
