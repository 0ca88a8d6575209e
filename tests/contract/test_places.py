"""A mechanism that sees offsets only computes the same outputs when its tokens stand at later places."""

import pytest

from synthbench.contract.places import change_when_moved
from synthbench.mechanisms import MECHANISMS

NO_POSITIONS = ["deltanet", "forgetting", "gated-deltanet", "gla", "kda", "mlstm", "path", "rwkv7"]
"""Mechanisms whose authors leave positions to the recurrence."""


@pytest.mark.parametrize("name", NO_POSITIONS)
def test_a_rotation_means_nothing_where_a_decay_or_a_reflection_acts_on_each_channel(name: str) -> None:
    """Elsewhere it adds offsets and no more."""
    changes = change_when_moved(MECHANISMS[name], {}, "rope")

    assert (min(changes) > 1e-3) == (name in ("gla", "kda", "path", "rwkv7"))
    assert min(changes) > 1e-3 or max(changes) <= 1e-12


@pytest.mark.parametrize(
    ("name", "options"),
    [("hgrn2", {}), ("rewa-geometric", {"turns": "heads"}), ("based", {"window": 0}), ("differential", {})],
)
def test_what_is_turned_decides(name: str, options: dict[str, str | int]) -> None:
    changes = change_when_moved(MECHANISMS[name], options, "rope")

    assert (min(changes) > 0.1) == (name in ("hgrn2", "rewa-geometric"))


def test_features_of_the_position_are_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of cosformer see offsets; their keys' alone do not."""
    unit = MECHANISMS["cosformer"]
    assert max(change_when_moved(unit, {}, "none")) <= 1e-12
    of_positions = unit.position_features  # type: ignore[attr-defined]
    monkeypatch.setattr(
        unit,
        "position_features",
        lambda self, positions, side: of_positions(self, positions if side == "key" else 0 * positions, side),
    )
    assert max(change_when_moved(unit, {}, "none")) > 1e-3


def test_a_hybrid_moves_all_its_layers() -> None:
    assert max(change_when_moved(MECHANISMS["softmax+gla"], {})) <= 1e-12
    assert min(change_when_moved(MECHANISMS["gla+linear"], {})) > 1e-3
