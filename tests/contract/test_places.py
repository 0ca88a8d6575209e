"""A mechanism that sees offsets only computes the same outputs when its tokens stand at later places."""

import pytest

from synthbench.contract.places import change_when_moved
from synthbench.mechanisms import MECHANISMS


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        *((name, {}, 0.0) for name in ("deltanet", "differential", "forgetting", "gated-deltanet", "mlstm")),
        ("based", {"window": 0}, 0.0),
        *((name, {}, 1e-3) for name in ("gla", "kda", "path", "rwkv7")),
        ("hgrn2", {}, 0.1),
        ("rewa-geometric", {"turns": "heads"}, 0.1),
    ],
)
def test_a_rotation_means_nothing_where_a_decay_or_a_reflection_acts_on_each_channel(
    name: str, options: dict[str, str | int], least: float
) -> None:
    """Elsewhere it adds offsets and no more, of mechanisms whose authors leave positions to the recurrence too."""
    changes = change_when_moved(MECHANISMS[name], options, "rope")

    assert min(changes) > least if least else max(changes) <= 1e-12


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
