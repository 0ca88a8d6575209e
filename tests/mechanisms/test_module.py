"""Any causal ``nn.Module`` is a mechanism, and stays the class that it was; patterns of several are mechanisms too."""

import math
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor, nn

from synthbench import plugins
from synthbench.errors import ContractError, UsageError
from synthbench.mechanisms import MECHANISMS, Attention, Mechanism, mechanism, num_parameters
from synthbench.mechanisms.base import ModuleMechanism, mechanism_made_of
from synthbench.mechanisms.slay.slay import Slay
from synthbench.mechanisms.softmax import Softmax
from synthbench.options import coerce, options_of
from synthbench.plugins import is_built_in, origin_of
from synthbench.registry import code_hash, version_of
from synthbench.runner.match import size_of as matched_size
from synthbench.training.train import init_generator
from tests.runner.runs import plugin_text
from tests.tensors import normal
from tests.test_registry import unit_from
from tests.training.cells import cell_of


class Passing(nn.Module):
    """Module to which a test's case adds its constructor or class variables."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class GatedLSTM(nn.Module):
    """Calls its base in the old way, asks for two sizes and has an option."""

    def __init__(self, d_model: int, num_heads: int, hidden: int = 8) -> None:
        super(GatedLSTM, self).__init__()  # noqa: UP008 - as older code does
        self.heads = num_heads
        self.lstm = nn.LSTM(d_model, hidden, batch_first=True)
        self.out = nn.Linear(hidden, d_model)
        self.start = nn.Parameter(torch.randn(d_model))

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.out(self.lstm(x)[0]) + self.start
        return mixed


def constructed_by(parameters: str) -> type[nn.Module]:
    """A module whose constructor has these parameters, and keeps what it gets for them in ``given``."""
    content: dict[str, Any] = {"Literal": Literal, "math": math, "nn": nn, "torch": torch}
    body = f"def __init__(self, {parameters}):\n    given = dict(locals())\n    nn.Module.__init__(self)\n"
    exec(body + "    self.given = {name: value for name, value in given.items() if name != 'self'}", content)  # noqa: S102
    return type("Demanding", (Passing,), {"__init__": content["__init__"]})


def built(name: str, *, seed: int = 0, **fields: Any) -> Mechanism:
    return MECHANISMS[name](model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(seed), **fields)


def weights(one: Mechanism) -> Tensor:
    return torch.cat([values.detach().flatten() for values in one.parameters()])


def test_a_plain_module_stays_what_it_was() -> None:
    assert mechanism(GatedLSTM) is GatedLSTM
    alone = GatedLSTM(4, 1)
    assert alone(torch.zeros(2, 3, 4)).shape == (2, 3, 4)
    assert not isinstance(alone, Mechanism)
    unit = MECHANISMS["gated_lstm"]
    assert (unit.label, unit.family, unit.source) == ("GatedLSTM", "other", "unpublished")
    assert unit.__module__ == __name__
    one, x = built("gated_lstm"), normal(2, 3, 16).float()
    assert isinstance(one, ModuleMechanism)
    assert torch.equal(one(x), one.module(x))


def test_what_is_given_or_declared_comes_before_what_follows_from_the_name() -> None:
    declared = type("Declared", (Passing,), {"name": "stated", "family": "convolution", "label": "Stated"})

    assert mechanism(label="Given", source="graves2014ntm")(declared) is declared
    unit = MECHANISMS["stated"]
    assert (unit.label, unit.family, unit.source) == ("Given", "convolution", "graves2014ntm")


def test_facts_may_be_given_for_a_mechanism_too() -> None:
    own = type("ByKeyword", (Softmax,), {})
    mechanism(name="by-keyword", label="By keyword", family="softmax", source="unpublished")(own)

    assert MECHANISMS["by-keyword"] is own


SUPPLIED = "width: int, dim: int, model_dim: int, in_features: int, num_heads: int, n_heads: int, max_length: int"
OPTIONS = "hidden: int = 8, eps: float = 1, act: Literal['tanh', 'relu'] = 'tanh', scale=2"
"""An option needs no annotation."""


@pytest.mark.parametrize(
    ("parameters", "chosen", "given"),
    [
        (SUPPLIED, {}, (16, 16, 16, 16, 2, 2, 33)),
        ("seq_len: int, bias: bool, device: torch.device | None = None, **others: object", {}, (33, False, None, {})),
        (OPTIONS, {"hidden": 5, "eps": 1.0, "act": "relu", "scale": 2}, (5, 1.0, "relu", 2)),
        # What is called like a fact of a mechanism keeps its own default.
        ("name: str = 'm', label: str = 'l', family: str = 'f', version: int = 7", {}, ("m", "l", "f", 7)),
        ("source: str = 's', complexity: str = 'T'", {}, ("s", "T")),
        # A default that is no finite value of its type is no option.
        ("clip: float = math.inf, a: int = 0.5, on: bool = 1, size: int = 3", {"size": 4}, (math.inf, 0.5, 1, 4)),
        ("low: float = math.nan, act: Literal['tanh'] = 'relu'", {}, (math.nan, "relu")),
    ],
)
def test_sizes_are_given_and_defaults_options(parameters: str, chosen: dict[str, Any], given: tuple[Any, ...]) -> None:
    mechanism(constructed_by(parameters), name="other", label="Other")
    module: Any = built("other", max_length=33, bias=False, **chosen).module

    assert list(options_of(MECHANISMS["other"])) == list(chosen)
    assert tuple(module.given.values()) == given


def test_an_option_of_a_module_has_a_type_a_default_and_choices() -> None:
    unit = mechanism_made_of(constructed_by(OPTIONS), {}, __name__)
    options = {name: (one.type, one.default, one.choices) for name, one in options_of(unit).items()}

    assert options == {
        "hidden": (int, 8, ()),
        "eps": (float, 1.0, ()),
        "act": (str, "tanh", ("tanh", "relu")),
        "scale": (int, 2, ()),
    }


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("window: int", "requires 'window'; supplied by name: width, dim, .*; give every other parameter a default"),
        ("d_modl: int", "requires 'd_modl'; .*; did you mean 'd_model'?"),
        ("width: int, /", "requires 'width'; .*; 'width' is positional-only: remove the '/' after it"),
    ],
)
def test_what_cannot_be_supplied_is_named(parameter: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"Demanding.* cannot be built as a mechanism: its constructor {message}"):
        mechanism(constructed_by(parameter))


def test_only_a_class_of_a_module_is_a_mechanism() -> None:
    thing: Any
    for thing in (nn.Linear(2, 2), len, int):
        with pytest.raises(UsageError, match=r"allowed: a class derived from nn\.Module"):
            mechanism(thing)


def test_the_seed_decides_what_ordinary_layers_draw_and_nothing_else_notices() -> None:
    mechanism(GatedLSTM)
    before = torch.get_rng_state()
    first, after = weights(built("gated_lstm")), torch.get_rng_state()
    again, other = weights(built("gated_lstm")), weights(built("gated_lstm", seed=1))

    assert torch.equal(before, after)
    assert torch.equal(first, again)
    assert not torch.isclose(first, other).any()
    generator = torch.Generator().manual_seed(0)
    asking: Any = mechanism_made_of(constructed_by("generator: torch.Generator"), {}, __name__)
    assert asking(generator=generator).module.given == {"generator": generator}
    layer, next_layer = (weights(MECHANISMS["gated_lstm"](generator=generator)) for _ in range(2))
    assert not torch.isclose(layer, next_layer).any()


def test_parameters_and_state_are_counted() -> None:
    class Remembers(GatedLSTM):
        def state_elements(self, length: int) -> int:
            return 16 * length.bit_length()

    mechanism(GatedLSTM)
    mechanism(Remembers)

    assert num_parameters(built("gated_lstm")) == num_parameters(GatedLSTM(16, 2)) == 992
    assert built("gated_lstm").state_elements(10) == 10 * 16  # every input so far: no state needs more
    assert built("remembers").state_elements(10) == 16 * 4


def test_a_complex_parameter_counts_as_two_numbers() -> None:
    one = nn.Module()
    one.poles = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    one.gain = nn.Parameter(torch.zeros(5))

    assert num_parameters(one) == 2 * 3 + 5


@pytest.mark.parametrize(
    ("fact", "value"),
    [("label", 3), ("label", ""), ("label", "a\nb"), ("family", " "), ("source", b"x"), ("name", 3)]
    + [("version", version) for version in (True, "2.1", 0)],
)
def test_a_class_variable_of_another_kind_is_no_fact(fact: str, value: object) -> None:
    mechanism(type("Own", (Passing,), {fact: value}))
    unit = MECHANISMS["own"]

    assert (unit.label, unit.family, unit.source, unit.version) == ("Own", "other", "unpublished", 1)
    assert version_of(unit) == f"1+{code_hash(unit)}"


def test_only_the_version_that_a_module_declares_itself_counts() -> None:
    base = type("Base", (Passing,), {"version": 3})
    mechanism(base)
    mechanism(type("Heir", (base,), {}))

    assert version_of(MECHANISMS["base"]) == "3"
    assert version_of(MECHANISMS["heir"]) == f"1+{code_hash(MECHANISMS['heir'])}"


def test_a_constructor_that_passes_everything_on_is_read_at_its_base() -> None:
    of_base = (
        r"LSTM cannot be built .*: its constructor, that of RNNBase, requires 'mode'; .*; write a class of nn\.Module"
    )
    with pytest.raises(UsageError, match=of_base):
        mechanism(nn.LSTM)


class Hiding(type):
    """Its ``__call__`` hides the constructor's parameters from ``inspect.signature``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class BuiltByMetaclass(GatedLSTM, metaclass=Hiding):
    """Its own parameters are read in the same way."""

    def __init__(self, d_model: int, num_heads: int, hidden: int = 8) -> None:
        super().__init__(d_model, num_heads, hidden)


class BuiltByNew(GatedLSTM):
    def __new__(cls, *_: Any, **__: Any) -> Any:
        return super().__new__(cls)

    def __init__(self, d_model: int, num_heads: int, hidden: int = 8) -> None:
        super().__init__(d_model, num_heads, hidden)


class Scaled(GatedLSTM):
    """Has an option of its own, and passes everything else on."""

    def __init__(self, *args: Any, gain: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gain = gain


@pytest.mark.parametrize("unit", [BuiltByMetaclass, BuiltByNew, Scaled])
def test_parameters_hidden_behind_args_and_kwargs_are_supplied(unit: type[nn.Module]) -> None:
    made = mechanism_made_of(unit, {}, __name__)
    given: dict[str, Any] = dict(coerce("mechanism", made, {"hidden": "5"}))
    module: Any = made(model_dim=16, num_heads=2, **given).module

    assert (module.lstm.input_size, module.lstm.hidden_size, module.heads) == (16, 5, 2)


def test_a_constructor_that_refuses_its_arguments_is_told_like_one_that_asks_for_more() -> None:
    class Hidden(Passing):
        def __init__(self, width: int, **others: int) -> None:
            super().__init__()
            self.size = self.sized(width, **others)

        def sized(self, width: int, window: int) -> int:
            return width * window

    mechanism(Hidden)

    message = (
        r"Hidden \(test_module.py:\d+\) cannot be built as a mechanism: .*'window'; supplied by name: width, dim, "
    )
    with pytest.raises(ContractError, match=message):
        built("hidden")


def test_the_hash_is_that_of_the_file_which_registers_and_not_of_pytorch() -> None:
    mechanism(GatedLSTM)
    mechanism(nn.Identity, name="mine")

    assert code_hash(MECHANISMS["mine"]) == code_hash(MECHANISMS["gated_lstm"])


def test_the_hash_covers_the_file_that_defines_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "unit_gate", None)  # so that it is forgotten
    hashes: list[str] = []
    for factor in (2, 2, 3):
        text = f"from torch import nn\nclass Unit(nn.Module):\n    def forward(self, x):\n        return {factor} * x\n"
        mechanism(unit_from(tmp_path / "unit_gate.py", text + "# a comment\n" * len(hashes)))
        hashes.append(code_hash(MECHANISMS["unit"]))

    assert hashes[0] == hashes[1] != hashes[2]


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
