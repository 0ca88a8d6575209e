"""A model whose layers have different mechanisms, named by their pattern."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from synthbench import plugins
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, Attention, mechanism, num_parameters
from synthbench.mechanisms.slay.slay import Slay
from synthbench.registry import code_hash, is_built_in, origin_of, version_of
from synthbench.runner.match import size_of as matched_size
from synthbench.training.train import init_generator
from tests.runner.runs import plugin_text
from tests.training.cells import cell_of

PATTERNS = ["lstm+softmax", "rewa-mixture+slay"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_its_layers_are_its_parts_and_their_sizes_add_up(pattern: str) -> None:
    cell = cell_of(pattern)
    model = cell.model(init_generator(0))
    alone = [cell_of(part).model(init_generator(0)) for part in pattern.split("+")]
    size = model.size(cell.length)

    assert [layer.mixer.name for layer in model.layers] == pattern.split("+")
    mixers: list[Any] = [each.layers[0].mixer for each in alone]
    assert size.num_parameters_mixer == sum(map(num_parameters, mixers))
    states = [mixer.state_elements(cell.length) for mixer in mixers]
    assert size.state_elements == -(-sum(states) // 2) == matched_size(cell, "state")


def test_a_pattern_begins_again_and_its_options_have_the_parts_name() -> None:
    cell = cell_of("slay+softmax", block="attention_only:layers=5", slay_R="2")
    model = cell.model(init_generator(0))
    names = [layer.mixer.name for layer in model.layers]

    assert names == ["slay", "softmax", "slay", "softmax", "slay"]
    assert {layer.mixer.R for layer in model.layers[::2]} == {2}
    assert cell.identity["mech_args"]["slay_R"] == 2
    assert cell.identity["mech"] == "slay+softmax"
    assert cell.identity["mech_version"] == f"{version_of(MECHANISMS['slay'])}+{version_of(MECHANISMS['softmax'])}"


def test_positions_turn_queries_and_keys_if_every_layer_has_some() -> None:
    model = cell_of("gla+softmax", positions="rope").model(init_generator(0))

    assert all(layer.mixer.rotation is not None for layer in model.layers)
    assert not issubclass(MECHANISMS["lstm+softmax"], Attention)


def test_options_that_cannot_be_named_are_refused() -> None:
    @mechanism
    class FourTaps(Slay):
        name: ClassVar = "4-taps"

    with pytest.raises(UsageError, match="cannot name the option '4_taps_guard' of its parts"):
        MECHANISMS["4-taps+softmax"]


def test_with_a_plugins_part_it_is_that_plugins(tmp_path: Path) -> None:
    path = tmp_path / "my_part.py"
    path.write_text(plugin_text("my-part"))
    plugins.load([str(path)])
    unit, part = MECHANISMS["my-part+softmax"], MECHANISMS["my-part"]

    assert (is_built_in(unit), MECHANISMS.is_built_in(unit.name), origin_of(unit)) == (False, False, "my_part.py")
    assert unit.__module__ == part.__module__
    assert version_of(unit) == f"{version_of(part)}+{version_of(MECHANISMS['softmax'])}"
    assert code_hash(unit) != code_hash(MECHANISMS["gla+softmax"])
