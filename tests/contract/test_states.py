"""The state that a mechanism says it keeps, against what its outputs depend on."""

from typing import ClassVar

import pytest
import torch
from torch import Tensor

from synthbench.blocks.base import conv_elements
from synthbench.contract import states
from synthbench.contract.states import MARGIN, MOST, check_state, check_stream, numbers_carried, streamed
from synthbench.errors import ContractError
from synthbench.forms.state import State
from synthbench.layers import ShortConvolution
from synthbench.mechanisms import MECHANISMS, Attention, Mechanism
from synthbench.mechanisms.gla import Gla
from synthbench.positions import POSITIONS
from tests.mechanisms.loops import built, moved
from tests.tensors import normal


@pytest.mark.parametrize("name", ["cosformer", "deltanet", "gla", "identity", "linear", "lstm", "mean"])
def test_what_these_carry_is_what_they_say_they_keep(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "SMALLEST", 1e-10)  # these compute in float64 throughout
    unit = MECHANISMS[name]
    mechanism = built(unit, 0, **unit.bare)  # what convolutions keep of one token is of one input
    said = mechanism.state_elements(16)

    assert numbers_carried(mechanism, 16, said + MARGIN) == said


def test_softmax_carries_every_input() -> None:
    assert numbers_carried(built(MECHANISMS["softmax"]), 8, 100) == 8 * 8


class Sums(Mechanism):
    """Sums and sums of squares of what came before."""

    name: ClassVar = "sums"
    claimed = 2

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(-2) * x.square().cumsum(-2)

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - the same at any length
        return self.claimed * self.model_dim


@pytest.mark.parametrize(("claimed", "is_enough"), [(0, False), (1, False), (2, True), (3, True), (MOST, True)])
def test_a_state_that_is_too_small_is_named(claimed: int, *, is_enough: bool) -> None:
    mechanism = built(Sums)
    mechanism.claimed = claimed

    assert numbers_carried(mechanism, 16, 100) == 2 * 8
    if is_enough:
        check_state(mechanism)
    else:
        with pytest.raises(ContractError, match=f"it keeps {8 * claimed} numbers .* depend on at least"):
            check_state(mechanism)


def test_of_a_hybrid_all_parts_are_counted() -> None:
    unit = MECHANISMS["lstm+deltanet"]
    mechanism = built(unit, 0, **unit.bare)

    assert numbers_carried(mechanism, 16, 100) > mechanism.state_elements(16)  # that is the mean
    check_state(mechanism)
    check_stream(mechanism)


ATTENTION = [name for name in MECHANISMS if issubclass(MECHANISMS[name], Attention)]


@pytest.mark.parametrize("name", ATTENTION)
def test_positions_and_a_short_convolution_go_on_too(name: str) -> None:
    mechanism, generator = built(MECHANISMS[name]), torch.Generator().manual_seed(0)
    assert isinstance(mechanism, Attention)
    places = torch.arange(64.0).unsqueeze(-1)
    encoding = POSITIONS["rope"](model_dim=8, num_heads=2, length=64, coordinates=places, generator=generator)
    mechanism.turn_by(encoding.rotations(mechanism.turned_widths, generator))
    mechanism.convolution = ShortConvolution(4, 24, generator)
    moved(mechanism)
    x = normal(2, 21, 8)

    outs, kept = streamed(mechanism, x)

    torch.testing.assert_close(outs, mechanism(x), rtol=1e-9, atol=1e-9)
    assert kept is not None
    assert kept[-1] == mechanism.state_elements(21) + conv_elements(4, "qkv", 8)


@pytest.mark.parametrize("name", ["gated-deltanet", "mamba1", "softmax", "path"])
def test_a_state_is_a_place_from_which_two_continuations_go_on(name: str) -> None:
    mechanism, x = built(MECHANISMS[name]), normal(3, 8)
    _, state = mechanism.stream_step(x[:1], mechanism.init_state())

    first, _ = mechanism.stream_step(x[1:2], state)
    mechanism.stream_step(x[2:], state)
    again, _ = mechanism.stream_step(x[1:2], state)

    assert torch.equal(first, again)


class Gated(Gla):
    """Overrides forward alone, so that the form of its parent for single tokens is not its own."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid() * super().forward(x)


class Doubled(Gla):
    """Overrides an attend that takes a state by one that takes none."""

    def attend(self, *heads: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * super().attend(*heads)


@pytest.mark.parametrize("unit", [Gated, Doubled])
def test_what_computes_something_else_keeps_every_input(unit: type[Mechanism]) -> None:
    mechanism = built(unit)
    x = normal(2, 5, 8)

    outs, kept = streamed(mechanism, x)

    torch.testing.assert_close(outs, mechanism(x))
    torch.testing.assert_close(mechanism.forward_last(x), outs[:, -1:])
    assert kept is None


class Forgetful(Sums):
    """Goes token by token without the sums of squares."""

    def advance(self, x: Tensor, state: State) -> Tensor:
        return state.add("sum", x) * x.square()


class Wasteful(Sums):
    """Keeps a number that it does not need."""

    def advance(self, x: Tensor, state: State) -> Tensor:
        state.append("spare", x[..., :1], most=1)
        return state.add("sum", x) * state.add("squares", x.square())


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (Forgetful, "other outputs token by token .*length 37.* at position 1 differs"),
        (Wasteful, "keeps 17 numbers after 1 tokens .* state_elements says 16"),
    ],
)
def test_a_wrong_form_for_single_tokens_is_named(unit: type[Mechanism], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        check_stream(built(unit))
