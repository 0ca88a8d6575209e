"""What every built-in component computes, held to its ``version``: a change of numbers shows as a difference in a file.

A row is known by the versions that its components declare, so whoever changes what one computes raises its ``version``.
Of a task the first batch is held; of a mechanism, position encoding or block the outputs for a few tokens and their
gradients, at the defaults and with every option at other values; of all of them the options.

The files are rewritten only when asked: ``SYNTHBENCH_REWRITE_GOLDEN=1 pytest tests/contract/test_golden.py``. Even then
the entry of a component that changed without a new version stays, and its test fails.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from synthbench.blocks import BLOCKS
from synthbench.knobs import Knob, Value, knobs_of, term_of, with_defaults
from synthbench.layers import Mixer
from synthbench.mechanisms import MECHANISMS
from synthbench.positions import POSITIONS
from synthbench.registry import Registry
from synthbench.tasks import TASKS

Entry = Mapping[str, Any]
Lists = dict[str, list[float]]

FOLDER = Path(__file__).parents[1] / "golden"
REWRITE = "SYNTHBENCH_REWRITE_GOLDEN=1 pytest tests/contract/test_golden.py adds it"

REGISTRIES: tuple[Registry[Any], ...] = (TASKS, MECHANISMS, POSITIONS, BLOCKS)
COMPONENTS = [(registry.kind, name) for registry in REGISTRIES for name in list(registry) if registry.is_built_in(name)]

TOLERANCE = 1e-9
"""Of the largest number of a list; processors round float64 apart by less."""

BATCH, LENGTH, WIDTH, HEADS = 2, 20, 16, 2

NEEDS: dict[str, dict[str, Value]] = {
    "scale": {"normaliser": "softmax"},
    "power": {"normaliser": "softermax"},
    "guard": {"delta": 0.5},
    **{name: {"K": 4} for name in ("L", "bits", "cell")},
}
"""What an option needs beside it to be allowed at another value than its default, or to change anything there."""
NUM_COORDINATES = {"n": 3}
"""Coordinates of spherical witnesses: one alone is refused."""


def file_of(kind: str) -> Path:
    return FOLDER / ("first_batches.json" if kind == TASKS.kind else "first_outputs.json")


@cache
def entry_of(kind: str, name: str) -> Entry:
    """What a component declares, then what it computes."""
    (unit,) = (registry[name] for registry in REGISTRIES if registry.kind == kind)
    options = with_defaults(unit, {})
    additions = {option: knob.default for option, knob in knobs_of(unit).items() if knob.is_addition}
    declared = {"version": unit.version, "options": options, **({"additions": additions} if additions else {})}
    return {**declared, **COMPUTED[kind](unit)}


def first_batch(unit: type[Any]) -> dict[str, Any]:
    task = unit()
    inputs, targets = task.sample(np.random.Generator(np.random.Philox(0)), 2, task.length)
    return {"inputs": inputs.tolist(), "targets": targets.tolist()}


def outputs_of_mechanism(unit: type[Any]) -> dict[str, Lists]:
    def computed(arguments: dict[str, Value]) -> Lists:
        mechanism = unit(model_dim=WIDTH, num_heads=HEADS, max_length=LENGTH, generator=generator(), **arguments)
        return outputs(mechanism, mechanism.parameters())

    return by_term(unit, computed)


def outputs_of_positions(unit: type[Any]) -> dict[str, Lists]:
    line = torch.arange(LENGTH).unsqueeze(-1)
    grid = torch.cartesian_prod(torch.arange(4), torch.arange(LENGTH // 4))

    def computed(arguments: dict[str, Value], coordinates: Tensor) -> Lists:
        fields = {"model_dim": WIDTH, "num_heads": HEADS, "length": LENGTH, "coordinates": coordinates.double()}
        encoding = unit(**fields, generator=generator(), **arguments)
        rotation = encoding.rotation(generator()) or nn.Identity()

        def turned(x: Tensor) -> Tensor:
            heads = encoding.embed(x).unflatten(-1, (HEADS, -1)).transpose(-2, -3)
            back: Tensor = rotation(heads).transpose(-2, -3).flatten(-2)
            return back

        return outputs(turned, [*encoding.parameters(), *rotation.parameters()])

    on_grid = by_term(unit, lambda arguments: computed(arguments, grid))
    return by_term(unit, lambda arguments: computed(arguments, line)) | {
        f"{term} on a grid": found for term, found in on_grid.items()
    }


class Sums(Mixer):
    """The sum of the tokens so far."""

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(-2)

    def forward_last(self, x: Tensor) -> Tensor:
        return x.sum(-2, keepdim=True)


def outputs_of_block(unit: type[Any]) -> dict[str, Lists]:
    def computed(arguments: dict[str, Value]) -> Lists:
        block = unit(mixer=Sums(), model_dim=WIDTH, generator=generator(), **arguments)
        return outputs(block, block.parameters())

    return by_term(unit, computed)


COMPUTED: dict[str, Callable[[type[Any]], dict[str, Any]]] = {
    TASKS.kind: first_batch,
    MECHANISMS.kind: outputs_of_mechanism,
    POSITIONS.kind: outputs_of_positions,
    BLOCKS.kind: outputs_of_block,
}


def by_term(unit: type[Any], computed: Callable[[dict[str, Value]], Lists]) -> dict[str, Lists]:
    """What is computed at the defaults, and with each option at each of its other values."""
    settings: list[dict[str, Value]] = [{}]
    for knob in knobs_of(unit).values():
        beside = {name: value for name, value in NEEDS.get(knob.name, {}).items() if name in knobs_of(unit)}
        settings += [{knob.name: value, **beside} for value in other_values(knob)]
    with float64():
        return {term_of(unit, setting): computed(setting) for setting in settings}


def other_values(knob: Knob) -> list[Value]:
    """Every other choice, or one other number: half of a whole one, of others one that is clearly different."""
    if knob.choices:
        return [choice for choice in knob.choices if choice != knob.default]
    if isinstance(knob.default, bool):
        return [not knob.default]
    if isinstance(knob.default, int):
        half = max(knob.default // 2, int(knob.low or 0))
        return [NUM_COORDINATES.get(knob.name, half if half != knob.default else knob.default + 1)]
    assert isinstance(knob.default, float), f"no other value is known for {knob.name}"
    larger = knob.default + 0.5
    return [larger if knob.high is None or larger <= knob.high else knob.default / 2]


def outputs(compute: Callable[[Tensor], Tensor], parameters: Iterable[nn.Parameter]) -> Lists:
    """A number a position of the outputs and of the gradient of a weighted sum of them, and one of the parameters'.

    The parameters are drawn by the component itself, since how they begin is part of what it computes, as are features
    that stay frozen. Then each is moved: one that begins at 0 would hide what it is multiplied by.
    """
    trained = list(parameters)
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(uniform(*parameter.shape, seed=1), alpha=0.1)
    x, weights = uniform(BATCH, LENGTH, WIDTH, seed=2).requires_grad_(), uniform(BATCH, LENGTH, WIDTH, seed=3)
    out = compute(x)
    d_x, *d_parameters = torch.autograd.grad((out * weights).sum(), [x, *trained], materialize_grads=True)
    of_parameters = [(d * uniform(*d.shape, seed=4)).sum() for d in d_parameters]
    return {
        "outputs": rounded((out * weights).sum((0, 2))),
        "gradient": rounded((d_x * weights).sum((0, 2))),
        "parameters": rounded(torch.stack(of_parameters).sum(0, keepdim=True)) if trained else [],
    }


def uniform(*shape: int, seed: int) -> Tensor:
    """Numbers of variance 1 from NumPy's Philox, which are the same on every machine."""
    return torch.from_numpy(np.random.Generator(np.random.Philox(seed)).uniform(-(3**0.5), 3**0.5, shape))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@contextmanager
def float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def rounded(numbers: Tensor) -> list[float]:
    return [float(f"{number:.12g}") for number in numbers.tolist()]


def changes(component: str, held: Entry, now: Entry) -> list[str]:
    """What a component declares or computes otherwise than is held of its version, and what to do about it."""
    version = now["version"]
    if version != held["version"]:
        is_higher = version > held["version"]
        return [] if is_higher else [f"{component}: version {version} is below {held['version']}, which is held"]
    way_out = f"raise `version` of {component} above {version}"
    added = [
        f"{component} has a new option {option!r}: declare it with is_addition=True if its default changes nothing "
        f"that was computed, otherwise {way_out}"
        for option in now["options"]
        if option not in held["options"]
    ]
    altered = [
        f"{component} had the option {option}={default!r}, now {now.get(key, {}).get(option, 'none such')!r} among its "
        f"{key}: {way_out}"
        for key in ("options", "additions")
        for option, default in held.get(key, {}).items()
        if now.get(key, {}).get(option) != default
    ]
    other = [
        f"{component} computes other {where} as {term!r}: if that is meant, {way_out}"
        for term in computed_terms(now)
        if term in held and (where := differing(term, held[term], now[term]))
    ]
    return added + altered + other


def computed_terms(entry: Entry) -> list[str]:
    return [term for term in entry if term not in {"version", "options", "additions"}]


def differing(term: str, held: Any, now: Any) -> str:
    """The names of the lists that differ by more than the tolerance; empty if none does."""
    lists = held if isinstance(held, dict) else {term: held}
    others = now if isinstance(now, dict) else {term: now}
    return " and ".join(name for name in lists if not is_near(np.asarray(lists[name]), np.asarray(others[name])))


def is_near(held: np.ndarray, now: np.ndarray) -> bool:
    return held.shape == now.shape and bool(
        (abs(now - held) <= TOLERANCE * abs(held).max(initial=0)).all()  # NaN is near nothing
    )


def rewritten(component: str, held: Entry | None, now: Entry) -> Entry:
    """The entry to write: what is held if it changed without a new version, and digits that are held where near."""
    if held is None or now["version"] > held["version"]:
        return now
    if changes(component, held, now):
        return held
    return {**now, **{term: held[term] for term in computed_terms(now) if term in held}}


def rewrite(path: Path) -> None:
    """Write a golden file anew."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    entries = {
        key_of(kind, name): rewritten(f"{kind} {name!r}", before.get(key_of(kind, name)), entry_of(kind, name))
        for kind, name in COMPONENTS
        if file_of(kind) == path
    }
    path.write_text(as_json(entries), encoding="utf-8")


def key_of(kind: str, name: str) -> str:
    return name if kind == TASKS.kind else f"{kind} {name}"


def as_json(entries: Mapping[str, Entry]) -> str:
    """One line a term, so that a difference names a component and shows its numbers."""
    texts = (
        f'  "{key}": {{\n'
        + ",\n".join(f"    {json.dumps(term)}: {json.dumps(entry[term])}" for term in entry)
        + "\n  }"
        for key, entry in entries.items()
    )
    return "{\n" + ",\n".join(texts) + "\n}\n"


HELD: Entry = {"version": 2, "options": {"M": 64}, "rff": {"outputs": [1.0, -3.0]}, "rff:M=32": {"outputs": [2.0]}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rff": {"outputs": [1.0, -3.0003]}}, "computes other outputs as 'rff': if that is meant, raise `version` of"),
        ({"rff": {"outputs": [1.0, -3.0, 2.0]}}, "computes other outputs as 'rff'"),
        ({"rff": {"outputs": [1.0, float("nan")]}}, "computes other outputs as 'rff'"),
        ({"options": {"M": 64, "bias": True}}, "new option 'bias': declare it with is_addition=True"),
        ({"options": {"M": 32}}, "had the option M=64, now 32 among its options: raise `version`"),
        ({"options": {}, "additions": {"M": 64}}, "had the option M=64, now 'none such' among its options"),
        ({"version": 1}, "version 1 is below 2"),
    ],
)
def test_a_change_without_a_new_version_is_named_and_not_written(change: Entry, message: str) -> None:
    now = {**HELD, **change}
    (found,) = changes("mechanism 'rff'", HELD, now)

    assert message in found
    assert "mechanism 'rff'" in found
    assert rewritten("mechanism 'rff'", HELD, now) == HELD


@pytest.mark.parametrize("change", [{"additions": {"bias": True}}, {"rff:bias=false": {"outputs": [4.0]}}])
def test_what_is_new_beside_what_is_held_is_written(change: Entry) -> None:
    now = {**HELD, **change}

    assert changes("mechanism 'rff'", HELD, now) == []
    assert rewritten("mechanism 'rff'", HELD, now) == now


def test_a_new_version_is_written() -> None:
    now = {"version": 3, "options": {}, "rff": {"outputs": [2.0]}}

    assert changes("mechanism 'rff'", HELD, now) == []
    assert rewritten("mechanism 'rff'", HELD, now) == now


def test_digits_of_another_processor_are_not_written() -> None:
    now = {**HELD, "rff": {"outputs": [1.0 + 1e-9, -3.0]}}

    assert changes("mechanism 'rff'", HELD, now) == []
    assert rewritten("mechanism 'rff'", HELD, now) == HELD


@pytest.fixture(scope="module")
def golden() -> dict[Path, dict[str, Entry]]:
    paths = {file_of(kind) for kind, _ in COMPONENTS}
    if os.environ.get("SYNTHBENCH_REWRITE_GOLDEN") == "1":
        for path in paths:
            rewrite(path)
    return {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=map(" ".join, COMPONENTS))
def test_a_component_computes_what_its_version_did(golden: dict[Path, dict[str, Entry]], kind: str, name: str) -> None:
    component, now = f"{kind} {name!r}", entry_of(kind, name)
    held = golden[file_of(kind)].get(key_of(kind, name))

    assert held is not None, f"{component} is not held: {REWRITE}"
    assert not (found := changes(component, held, now)), "\n".join(found)
    assert (held["version"], list(held)) == (now["version"], list(now)), f"{component} has news: {REWRITE}"


def test_the_golden_files_have_no_other_components(golden: dict[Path, dict[str, Entry]]) -> None:
    held = [key for path in sorted(golden) for key in golden[path]]

    assert held == [key_of(kind, name) for kind, name in COMPONENTS]
