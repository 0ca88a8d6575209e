"""Computes the built-in components' numbers in the form in which golden files hold them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from synthbench.blocks import BLOCKS
from synthbench.errors import UsageError
from synthbench.forms.state import State
from synthbench.layers import Mixer
from synthbench.mechanisms import MECHANISMS, num_parameters
from synthbench.options import Option, Value, absent_values, options_of, term_of, with_defaults
from synthbench.positions import POSITIONS
from synthbench.process import settings_restored
from synthbench.registry import Registry
from synthbench.tasks import TASKS, Batch, Task
from tests.contract._golden import Entry, Lists, rounded

REGISTRIES: tuple[Registry[Any], ...] = (TASKS, MECHANISMS, POSITIONS, BLOCKS)
COMPONENTS = [(registry.kind, name) for registry in REGISTRIES for name in list(registry) if registry.is_built_in(name)]

FEW, MANY = 2, 64
"""Sequences of a task that are held in full, and as digests."""

BATCH, LENGTH, WIDTH, HEADS = 2, 20, 16, 2
LONG = 130
"""Tokens of the outputs in float32, and of those of ``DOUBLE``."""

NEEDS: dict[str, dict[str, Value]] = {
    "scale": {"normaliser": "softmax"},
    "power": {"normaliser": "softermax"},
    "guard": {"delta": 0.5},
    "conv_on": {"conv": 4},
    **{name: {"K": 4} for name in ("L", "bits", "cell")},
}
"""Companion values that an option needs to be allowed off its default, or to change anything there."""
NUM_COORDINATES = {"n": 3}
"""Coordinates of spherical witnesses: one alone is refused."""

ROUGH = {"hgrn2", "rff", "slay-maclaurin", "slay-nystrom", "slay-tensorsketch"}
"""Mechanisms whose denominators pass near 0, where float32 loses digits; sums of hgrn2's gradients cancel."""
DOUBLE = {"rewa-functional", "rewa-topological", "slay-sketch", "string"}
"""Components that are held in float64 only, because rounding decides what they compute in float32.

Of ``rewa-topological`` it decides which keys are nearest. Denominators of ``rewa-functional`` and ``slay-sketch`` come
nearer to 0 than those above. The gradient of a frequency of ``string`` is what is left of terms that grow with the
position. ``test_golden.py`` finds such components.
"""

AROUND: dict[str, dict[str, Any]] = {
    "without bias": {"bias": False},
    "with 1 head": {"num_heads": 1},
    "with 4 heads": {"num_heads": 4},
}
"""Other settings of a suite around a mechanism."""


@cache
def entry_of(kind: str, name: str) -> Entry:
    """Declared facts of a component, then its numbers."""
    unit = unit_of(kind, name)
    options = with_defaults(unit, absent_values(unit))
    additions = {name: option.absent for name, option in options_of(unit).items() if option.absent is not None}
    declared = {"version": unit.version, "options": options, **({"additions": additions} if additions else {})}
    return {**declared, **COMPUTED[kind](unit)}


def unit_of(kind: str, name: str) -> type[Any]:
    (unit,) = (registry[name] for registry in REGISTRIES if registry.kind == kind)
    return unit


# Tasks.


def of_task(unit: type[Task]) -> dict[str, Any]:
    task, length = unit(), unit.length
    few = first_batch(task, FEW, length)
    settings = {unit.name: (task, length)}
    if unit.stretched is not Task.stretched:
        for factor in (2, 4):
            with suppress(UsageError):  # some task has none
                settings[f"{unit.name} stretched by {factor}"] = task.stretched(length, factor)
    settings |= {term_of(unit, setting): (unit(**setting), length) for setting in other_settings(unit)}
    return {
        "inputs": few.inputs.tolist(),
        "targets": few.targets.tolist(),
        **{term: facts_of_task(*setting) for term, setting in settings.items()},
    }


def first_batch(task: Task, batch_size: int, length: int) -> Batch:
    return task.sample(np.random.Generator(np.random.Philox(0)), batch_size, length)


def other_settings(unit: type[Task]) -> Iterator[dict[str, Value]]:
    """Every option at every other choice, or at the first other number that the task takes at its own length."""
    for option in options_of(unit).values():
        if option.type is str and not option.choices:
            continue  # names data of the user's, or their hash
        if option.choices:
            yield from ({option.name: value} for value in other_values(option))
        else:
            yield next({option.name: value} for value in numbers_near(option) if is_allowed(unit, {option.name: value}))


def numbers_near(option: Option) -> Iterator[Value]:
    yield from other_values(option)
    assert isinstance(option.default, int), f"no other value is allowed for {option.name}"
    yield from (option.default + 1, option.default - 1, 2 * option.default)


def is_allowed(unit: type[Task], arguments: dict[str, Value]) -> bool:
    try:
        first_batch(unit(**arguments), 1, unit.length)
    except UsageError:
        return False
    return True


def facts_of_task(task: Task, length: int) -> Lists:
    """Digests of a batch, and what else of a task decides a model's shape or a score's skill."""
    many, floor, ceiling = first_batch(task, MANY, length), task.floor(length), task.ceiling(length)
    return {
        "inputs": [digest(many.inputs)],
        "targets": [digest(many.targets)],
        "model": [digest(task.coordinates(length), task.vocab_size, task.readout)],
        f"{floor.kind} floor": rounded([floor.value, floor.standard_error]),
        f"{ceiling.kind} ceiling": rounded([ceiling.value, ceiling.standard_error]),
    }


def digest(numbers: np.ndarray, *others: object) -> str:
    """Of whole numbers, their shape and what else is named, the same on every machine."""
    whole = np.ascontiguousarray(numbers, dtype="<i8")
    assert (whole == numbers).all()
    return hashlib.sha256(f"{whole.shape, others}".encode() + whole.tobytes()).hexdigest()[:8]


# Mechanisms, position encodings and blocks.


def of_mechanism(unit: type[Any]) -> dict[str, Lists]:
    """Without the parts that ids leave out; then as its authors build it, each of these parts otherwise, and bare."""
    before = absent_values(unit)

    def computed(arguments: Mapping[str, Value], length: int = LENGTH, **around: Any) -> Lists:
        fields = {"model_dim": WIDTH, "num_heads": HEADS, "max_length": length, **around}
        mechanism = unit(**fields, generator=generator(), **{**before, **arguments})
        of_term = outputs(mechanism, mechanism.parameters(), length=length)
        states = [mechanism.state_elements(tokens) for tokens in (LENGTH, LONG)]
        return {**of_term, "sizes": [num_parameters(mechanism), *states]}

    with settings_restored():
        torch.set_default_dtype(torch.float64)
        around = {f"{unit.name} {words}": in_tens(computed({}, **fields)) for words, fields in AROUND.items()}
        conditions = {term: computed(arguments) for term, arguments in in_conditions(unit).items()}
    return by_term(unit, computed) | around | of_many_tokens(unit, partial(computed, {}, LONG)) | conditions


def in_conditions(unit: type[Any]) -> dict[str, dict[str, Value]]:
    """The options of each condition that is not what ids leave out; of stock also with each new option at others."""
    before, options = absent_values(unit), options_of(unit)
    stock = {option: options[option].default for option in before}
    settings = {"stock": stock} if stock else {}
    for option in stock:
        for value in other_values(options[option]):
            settings[f"stock, {option}={value}"] = {**stock, option: value}
    settings["bare"] = {**unit.bare}
    return {f"{unit.name} {words}": options for words, options in settings.items() if {**before, **options} != before}


def of_positions(unit: type[Any]) -> dict[str, Lists]:
    def computed(arguments: Mapping[str, Value], coordinates: Tensor | None = None, length: int = LENGTH) -> Lists:
        where = torch.arange(length).unsqueeze(-1) if coordinates is None else coordinates
        where = where.to(torch.get_default_dtype())
        fields = {"model_dim": WIDTH, "num_heads": HEADS, "length": length, "coordinates": where}
        encoding = unit(**fields, generator=generator(), **arguments)
        rotation = encoding.rotation(generator()) or nn.Identity()

        def turned(x: Tensor) -> Tensor:
            heads = encoding.embed(x).unflatten(-1, (HEADS, -1)).transpose(-2, -3)
            back: Tensor = rotation(heads).transpose(-2, -3).flatten(-2)
            return back

        return outputs(turned, [*encoding.parameters(), *rotation.parameters()], length=length)

    grid = torch.cartesian_prod(torch.arange(4), torch.arange(LENGTH // 4))
    on_grid = by_term(unit, lambda arguments: computed(arguments, grid))
    named = {f"{term} on a grid": of_term for term, of_term in on_grid.items()}
    return by_term(unit, computed) | named | of_many_tokens(unit, partial(computed, {}, length=LONG))


class Sums(Mixer):
    """The sum of the tokens so far."""

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(-2)

    def forward_last(self, x: Tensor) -> Tensor:
        return x.sum(-2, keepdim=True)

    def stream_step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        after = state.copied()
        return after.add("sum", x), after


def of_block(unit: type[Any]) -> dict[str, Lists]:
    def computed(arguments: Mapping[str, Value], length: int = LENGTH) -> Lists:
        # A convolution on queries, keys and values needs a mechanism that has some.
        attention = MECHANISMS["linear"](model_dim=WIDTH, num_heads=HEADS, max_length=length, generator=generator())
        mixer = attention if "conv_on" in arguments else Sums()
        block = unit(mixer=mixer, model_dim=WIDTH, generator=generator(), **arguments)
        of_term = outputs(block, block.parameters(), length=length)
        return {**of_term, "sizes": [num_parameters(block)]}

    return by_term(unit, computed) | of_many_tokens(unit, partial(computed, {}, LONG))


COMPUTED: dict[str, Callable[[type[Any]], dict[str, Any]]] = {
    TASKS.kind: of_task,
    MECHANISMS.kind: of_mechanism,
    POSITIONS.kind: of_positions,
    BLOCKS.kind: of_block,
}


def by_term(unit: type[Any], computed: Callable[[dict[str, Value]], Lists]) -> dict[str, Lists]:
    """Compute the numbers at the defaults, and with each option at each of its other values."""
    settings: list[dict[str, Value]] = [{}]
    for option in options_of(unit).values():
        if option.name in absent_values(unit):
            continue
        beside = {name: value for name, value in NEEDS.get(option.name, {}).items() if name in options_of(unit)}
        settings += [{option.name: value, **beside} for value in other_values(option)]
    with settings_restored():
        torch.set_default_dtype(torch.float64)
        return {term_of(unit, setting): computed(setting) for setting in settings}


def of_many_tokens(unit: type[Any], computed: Callable[[], Lists]) -> dict[str, Lists]:
    """Outputs at the defaults for many tokens, as in a run in float32."""
    is_double, precision = unit.name in DOUBLE, "rough" if unit.name in ROUGH else "float32"
    with settings_restored():
        torch.set_default_dtype(torch.float64 if is_double else torch.float32)
        of_term = in_tens(computed())
    held = {
        name if name == "sizes" else f"{precision} {name}": numbers if name == "sizes" else rounded(numbers, digits=6)
        for name, numbers in of_term.items()
    }
    return {f"{unit.name} for {LONG} tokens": of_term if is_double else held}


def in_tens(lists: Lists) -> Lists:
    """The same lists, those of positions shorter: sums over ten."""
    return {name: sums_of_ten(of) if name in {"outputs", "gradient"} else of for name, of in lists.items()}


def sums_of_ten(numbers: list[float]) -> list[float]:
    return rounded(np.asarray(numbers).reshape(-1, 10).sum(1).tolist())


def other_values(option: Option) -> list[Value]:
    """Every other choice, or one other number: half of a whole one, of others one that is clearly different."""
    if option.choices:
        return [choice for choice in option.choices if choice != option.default]
    if isinstance(option.default, bool):
        return [not option.default]
    if isinstance(option.default, int):
        half = max(option.default // 2, int(option.low or 0))
        return [NUM_COORDINATES.get(option.name, half if half != option.default else option.default + 1)]
    assert isinstance(option.default, float), f"no other value is known for {option.name}"
    larger = option.default + 0.5
    return [larger if option.high is None or larger <= option.high else option.default / 2]


def outputs(compute: Callable[[Tensor], Tensor], parameters: Iterable[nn.Parameter], *, length: int) -> Lists:
    """A number a position of the outputs and of the gradient of a weighted sum of them, and one a parameter of its own.

    The largest number of a list sets its tolerance, so these are not one sum, of which rounding is left if it cancels.

    The parameters are drawn by the component itself, since how they begin is part of what it computes, as are features
    that stay frozen. Then each is moved: one that begins at 0 would hide what it is multiplied by.
    """
    trained = list(parameters)
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(uniform(*parameter.shape, seed=1), alpha=0.1)
    x, weights = uniform(BATCH, length, WIDTH, seed=2).requires_grad_(), uniform(BATCH, length, WIDTH, seed=3)
    out = compute(x)
    d_x, *d_parameters = torch.autograd.grad((out * weights).sum(), [x, *trained], materialize_grads=True)
    of_parameters = [(d * uniform(*d.shape, seed=4)).sum() for d in d_parameters]
    of_all = torch.stack(of_parameters) if trained else torch.zeros(0)
    lists = {"outputs": (out * weights).sum((0, 2)), "gradient": (d_x * weights).sum((0, 2)), "parameters": of_all}
    return {name: rounded(numbers.tolist()) for name, numbers in lists.items()}


def uniform(*shape: int, seed: int) -> Tensor:
    """Numbers of variance 1 from NumPy's Philox, which are the same on every machine."""
    numbers = np.random.Generator(np.random.Philox(seed)).uniform(-(3**0.5), 3**0.5, shape)
    return torch.from_numpy(numbers).to(torch.get_default_dtype())


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
