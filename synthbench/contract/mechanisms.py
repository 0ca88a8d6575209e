"""What every mechanism must satisfy, built-in or plugin: causality first, then what training and saving rely on.

Causality is tested by replacing the end of a sequence with noise and looking for a change before the cut. Float64,
since rounding must not look like a leak; noise up to a thousand times the size of the input, since a maximum or a
small constant hides a leak at scale 1; finite noise, since NaN times a masked zero is NaN without any leak.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NoReturn

import torch
from torch import Tensor

from synthbench.contract.causality import TOLERANCE as FLOAT32_TOLERANCE
from synthbench.contract.causality import Shape, alterations, describe_leak, find_leak, shapes_of_main_suite
from synthbench.contract.causes import cause_of_difference, cause_of_leak, draws_noted, dropouts_of
from synthbench.contract.states import check_state, check_stream
from synthbench.contract.verdicts import Promise, keep_all
from synthbench.errors import ContractError, SynthbenchError
from synthbench.mechanisms import Mechanism
from synthbench.options import MAIN_SUITE
from synthbench.plugins import described

SHAPE: Mapping[str, Any] = {"model_dim": 16, "num_heads": 2, "max_length": 512}
"""The model around the mechanism, where the arguments do not say otherwise."""

LENGTHS = (1, 2, 3, 33, 130, 400)
"""One token, an even and an odd length, more than a chunk, and past the switch to the linear-time form."""

WHOLE_BLOCKS = (Shape(9, 64, 64, 16, 2), Shape(9, 128, 128, 16, 2), Shape(3, 1000, 1000, 16, 2))
"""Lengths of whole blocks and a long one, each for a mechanism built for just that many tokens.

A long batch is small, since it is most of the check's time where pairs of tokens are held.
"""

AT_ONCE = 4096
"""Tokens of sequences with other futures that pass through at once: more take memory where pairs of tokens are held."""

SCALES = (1.0, 10.0, 1e3)
TOLERANCE = 1e-7
"""Largest change, relative to the largest output, that counts as rounding: a padded FFT needs 1e-9."""
LAST_BITS = 1e-12
"""The same between two calls on one input: where a tensor lies in memory decides the last bits of its sums."""


def promises_of(unit: type[Mechanism], arguments: Mapping[str, Any]) -> list[Promise]:
    """All that is promised of a mechanism, in the order in which it is checked.

    Args:
        unit: The class, registered or not.
        arguments: Its hyper-parameters, and what of the model around it should not be small.

    Raises:
        UsageError: If an argument is not allowed.
        ContractError: If the mechanism cannot be built.
    """
    mechanism = _build(unit, arguments)

    def promise(name: str, meaning: str, check: Callable[[Mechanism], None], *, is_needed: bool = False) -> Promise:
        return Promise(name, meaning, lambda: check(mechanism), is_needed)

    return [
        promise("shape", f"keeps shape and dtype at lengths {_words(LENGTHS)}", _check_shape, is_needed=True),
        promise("input", "leaves its input as it was", _check_input),
        promise("gradients", "finite outputs and gradients at scales 1 and 30; all is trained", _check_gradients),
        promise("determinism", "one input, one output; a call changes nothing", _check_determinism, is_needed=True),
        promise("batch", "the sequences of a batch do not see each other", _check_batch_independence),
        promise(
            "causality",
            "output t depends on inputs 0..t, in training too",
            _check_future,
        ),
        promise(
            "as trained",
            f"the same in float32, at the lengths and batches of suite {MAIN_SUITE}, at whole blocks and far",
            lambda _mechanism: _check_as_trained(unit, arguments),
        ),
        promise(
            "backward",
            "outputs up to t give later inputs and other sequences no gradient",
            lambda _mechanism: _check_backward(unit, arguments),
        ),
        promise("prefixes", "the length changes nothing that came before", _check_prefixes),
        promise("last", "the last position alone is the last of all", _check_last),
        promise("state", "what follows depends on no more numbers than state_elements says", check_state),
        promise("stream", "token by token gives the same, and keeps state_elements numbers", check_stream),
        promise(
            "copies",
            "deepcopy and state_dict give the same outputs",
            lambda mechanism: _check_copies(mechanism, _build(unit, arguments, seed=1)),
        ),
        promise(
            "seed",
            "the generator decides all that is drawn",
            lambda mechanism: _check_seed(mechanism, lambda seed: _build_noting_draws(unit, arguments, seed)),
        ),
    ]


def check_mechanism(unit: type[Mechanism], arguments: Mapping[str, Any]) -> None:
    """Check all that is promised of a mechanism.

    Args:
        unit: The class, registered or not.
        arguments: Its hyper-parameters, and what of the model around it should not be small.

    Raises:
        ContractError: At the first promise broken; the message says which, where and by how much.
    """
    keep_all(promises_of(unit, arguments))


def _build(unit: type[Mechanism], arguments: Mapping[str, Any], seed: int = 0) -> Mechanism:
    generator = torch.Generator().manual_seed(seed)
    try:
        return unit(generator=generator, **{**SHAPE, **arguments}).double().eval()
    except SynthbenchError:
        raise
    except (Exception, SystemExit) as error:
        raise ContractError(
            f"mechanism {getattr(unit, 'name', unit.__name__)!r} cannot be built: {described(error, unit)}"
        ) from error


def _build_noting_draws(unit: type[Mechanism], arguments: Mapping[str, Any], seed: int) -> tuple[Mechanism, bytes]:
    """The mechanism, and how it leaves PyTorch's global generator, which :class:`Mechanism` seeds from its own."""
    states = []

    def initialise(self: Any, generator: torch.Generator | None) -> None:
        unit.initialise(self, generator)
        states.append(torch.get_rng_state().numpy().tobytes())

    noting = type(unit.__name__, (unit,), {"initialise": initialise, "__module__": unit.__module__})
    return _build(noting, arguments, seed), b"".join(states)


def _noise(mechanism: Mechanism, *shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, mechanism.model_dim, generator=generator, dtype=torch.float64)


def _forward(mechanism: Mechanism, x: Tensor) -> Tensor:
    try:
        out: Tensor = mechanism(x)
    except SynthbenchError:
        raise
    except (Exception, SystemExit) as error:
        raise ContractError(
            f"{_name(mechanism)} fails on input of shape {list(x.shape)}, {x.dtype}: "
            f"{described(error, type(mechanism))}"
        ) from error
    if not isinstance(out, Tensor):
        raise ContractError(f"{_name(mechanism)} returns {type(out).__name__}; allowed: a tensor like its input")
    return out


@torch.no_grad()
def _check_shape(mechanism: Mechanism) -> None:
    single = copy.deepcopy(mechanism).float()
    for length in _allowed(mechanism, LENGTHS):
        for module, dtype in ((mechanism, torch.float64), (single, torch.float32)):
            x = _noise(mechanism, 2, length, seed=length).to(dtype)
            out = _forward(module, x)
            if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device):
                raise ContractError(
                    f"{_name(mechanism)} maps {_kind(x)} to {_kind(out)}; shape, dtype and device must be kept"
                )


@torch.no_grad()
def _check_input(mechanism: Mechanism) -> None:
    x = _noise(mechanism, 2, _allowed(mechanism, (33,))[0], seed=0)
    before = x.clone()
    _forward(mechanism, x)
    if not torch.equal(x, before):
        raise ContractError(
            f"{_name(mechanism)} changes its input in place, by {_change(before, x):.2g} of its size; the residual "
            "connection around it reads the input too"
        )


@torch.no_grad()
def _check_determinism(mechanism: Mechanism) -> None:
    x = _noise(mechanism, 2, _allowed(mechanism, (33,))[0], seed=0)
    for mode in (False, True):
        trained = copy.deepcopy(mechanism).train(mode)
        before = {name: value.clone() for name, value in _tensors(trained).items()}
        with draws_noted() as drawn:
            first = _forward(trained, x)
            plain = _plain_values(trained)  # after the first call, which may note the length for the next one
            second = _forward(trained, x)
        for name, value in _tensors(trained).items():
            if name not in before or not torch.equal(value, before[name]):
                raise ContractError(
                    f"{_name(mechanism)} changes its own {name!r} in forward; a call must leave the mechanism as it was"
                )
        if not mode:
            _refuse_changes(mechanism, plain, _plain_values(trained))
        if not _change(first, second) <= LAST_BITS:
            cause = cause_of_difference(drawn, dropouts_of(trained) if mode else [])
            raise ContractError(
                f"{_name(mechanism)} gives two outputs for one input in {'train' if mode else 'eval'} mode, "
                f"{_change(first, second):.2g} apart; {f'{cause}; ' if cause else ''}"
                "what is random is drawn once, when it is built"
            )


def _plain_values(mechanism: Mechanism) -> dict[str, str]:
    """The numbers and texts that the mechanism and its submodules hold, written out, by the attribute's path."""
    return {
        f"{path}.{name}".removeprefix("."): repr(value)
        for path, module in mechanism.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str)
    }


def _refuse_changes(mechanism: Mechanism, before: dict[str, str], after: dict[str, str]) -> None:
    for name, value in after.items():
        if value != before.get(name):
            raise ContractError(
                f"{_name(mechanism)} changes its own {name!r} in forward, from {before.get(name, 'unset')} to {value}; "
                "a call must leave the mechanism as it was"
            )


@torch.no_grad()
def _check_batch_independence(mechanism: Mechanism) -> None:
    for length in _allowed(mechanism, (2, 33)):
        batch = _noise(mechanism, 4, length, seed=length)
        together = _forward(mechanism, batch)
        for row in range(len(batch)):
            alone = _forward(mechanism, batch[row : row + 1])
            change = _change(together[row], alone[0])
            if not change <= TOLERANCE:
                raise ContractError(
                    f"{_name(mechanism)} lets the sequences of a batch see each other: at length {length} the output "
                    f"of row {row} changes by {change:.2g} of its size when the row is alone"
                )


@torch.no_grad()
def _check_future(mechanism: Mechanism) -> None:
    try:
        for length in _allowed(mechanism, LENGTHS):
            for mode in (False, True):
                _check_future_at(mechanism.train(mode), length)
    finally:
        mechanism.eval()  # the promises after this one are tried as if it had been kept


def _check_future_at(mechanism: Mechanism, length: int) -> None:
    x = _noise(mechanism, 2, length, seed=length)
    before = _forward(mechanism, x)
    others = []
    for cut in sorted({1, length // 4, length // 2, length - 1} - {0, length}):
        noise = _noise(mechanism, 2, length - cut, seed=length + cut)
        others += [(cut, scale, torch.cat([x[:, :cut], scale * noise], dim=1)) for scale in SCALES]
    num_at_once = max(1, AT_ONCE // x[..., 0].numel())
    for first in range(0, len(others), num_at_once):
        several = others[first : first + num_at_once]
        together = _forward(mechanism, torch.cat([other for *_, other in several]))
        for (cut, scale, other), after in zip(several, together.split(len(x)), strict=True):
            if not _change(before[:, :cut], after[:, :cut]) <= TOLERANCE:
                alone = _forward(mechanism, other)  # that it sees the other sequences of its batch is another fault
                if not _change(before[:, :cut], alone[:, :cut]) <= TOLERANCE:
                    _refuse_leak(mechanism, before, alone, cut, scale)


def _check_as_trained(unit: type[Mechanism], arguments: Mapping[str, Any]) -> None:
    for mechanism, x, modes in _as_trained(unit, arguments, (*shapes_of_main_suite(), *WHOLE_BLOCKS)):
        noise = _noise(mechanism, *x.shape[:2], seed=1).float()
        for is_training in modes:
            mechanism.train(is_training)
            with torch.set_grad_enabled(is_training):
                before = _forward(mechanism, x.clone().requires_grad_(is_training)).detach()
                is_later = torch.arange(x.shape[1]) >= alterations(*x.shape[:2])[:, None]
                other = torch.where(is_later[..., None], noise, x)
                after = _forward(mechanism, other.requires_grad_(is_training)).detach()
                leak = find_leak(before, after, ~is_later)
                if leak is not None:
                    raise ContractError(f"{_name(mechanism)} {describe_leak(leak, before, is_training=is_training)}")


def _check_backward(unit: type[Mechanism], arguments: Mapping[str, Any]) -> None:
    for mechanism, x, _ in _as_trained(unit, arguments, WHOLE_BLOCKS):
        length = x.shape[1]
        values = x.requires_grad_()
        out = _forward(mechanism.train(), values)
        for cut in (length // 3, length - 2):
            (gradient,) = torch.autograd.grad(out[0, : cut + 1].square().sum(), values, retain_graph=True)
            seen = gradient.abs().amax(-1) / _size(gradient)
            for of_what, unseen in (("later inputs", seen[0, cut + 1 :]), ("other sequences", seen[1:])):
                if not float(unseen.max()) <= FLOAT32_TOLERANCE:
                    raise ContractError(
                        f"{_name(mechanism)} has a backward pass that sees what it must not: the outputs of a sequence "
                        f"up to position {cut} of {length} give {of_what} a gradient of {float(unseen.max()):.2g} of "
                        f"the largest, at batch {len(x)} in float32"
                    )


def _as_trained(
    unit: type[Mechanism], arguments: Mapping[str, Any], shapes: Iterable[Shape]
) -> Iterator[tuple[Mechanism, Tensor, tuple[bool, ...]]]:
    """Yield the mechanism in float32, built for each of some shapes, a batch of that shape, and the shape's modes."""
    for (max_length, model_dim, num_heads), alike in groupby(shapes, key=lambda shape: shape[2:5]):
        around = {"max_length": max_length, "model_dim": model_dim, "num_heads": num_heads}
        mechanism = _build(unit, {**around, **arguments}).float()
        for shape in alike:
            length = min(shape.length, mechanism.max_length)
            yield mechanism, _noise(mechanism, shape.batch_size, length, seed=length).float(), shape.modes


def _refuse_leak(mechanism: Mechanism, before: Tensor, after: Tensor, cut: int, scale: float) -> NoReturn:
    difference = (before - after)[:, :cut].abs().amax((0, 2)) / _size(before[:, :cut])
    first = int((~(difference <= TOLERANCE)).nonzero()[0])  # NaN is a change too
    cause = cause_of_leak(mechanism, TOLERANCE)
    raise ContractError(
        f"{_name(mechanism)} is not causal: with the inputs from position {cut} of {before.shape[1]} on replaced by "
        f"noise of scale {scale:g}, the output at position {first} changes, by {difference[first]:.2g} of its size; "
        "output t may depend on inputs 0..t only" + (f"; {cause}" if cause else "")
    )


@torch.no_grad()
def _check_prefixes(mechanism: Mechanism) -> None:
    for length in _allowed(mechanism, LENGTHS[1:]):
        x = _noise(mechanism, 2, length, seed=length)
        whole = _forward(mechanism, x)
        for cut in sorted({1, length // 2, length - 1}):
            change = _change(whole[:, :cut], _forward(mechanism, x[:, :cut]))
            if not change <= TOLERANCE:
                raise ContractError(
                    f"{_name(mechanism)} depends on the length: the first {cut} of {length} tokens by themselves give "
                    f"outputs that differ by {change:.2g} of their size; take no constant from the length at hand"
                )


@torch.no_grad()
def _check_last(mechanism: Mechanism) -> None:
    for length in _allowed(mechanism, (1, 2, 33)):
        x = _noise(mechanism, 2, length, seed=length)
        expected, last = _forward(mechanism, x)[:, -1:], mechanism.forward_last(x)
        if last.shape != expected.shape or not _change(expected, last) <= TOLERANCE:
            raise ContractError(
                f"{_name(mechanism)} computes another last position alone than with the others: forward_last gives "
                f"{list(last.shape)} where forward ends in {list(expected.shape)}, or differs by more than rounding "
                f"at length {length}; set takes_last_queries only if attend takes fewer queries than keys"
            )


def _check_gradients(mechanism: Mechanism) -> None:
    # float32, in which training overflows if it does; float64 would hide it.
    for scale in (1.0, 30.0):
        single = copy.deepcopy(mechanism).float().train()
        x = (scale * _noise(mechanism, 2, _allowed(mechanism, (33,))[0], seed=0)).float().requires_grad_()
        out = _forward(single, x)
        _require_finite(mechanism, "output", out, scale)
        torch.autograd.backward(out.square().mean())
        gradients = {name: value.grad for name, value in single.named_parameters() if value.requires_grad}
        for name, gradient in {"the input": x.grad, **gradients}.items():
            if gradient is None:
                raise ContractError(
                    f"{_name(mechanism)} gives {name} no gradient; what is not trained must be a buffer, "
                    "what is trained must reach the output"
                )
            _require_finite(mechanism, f"gradient of {name}", gradient, scale)
            if scale == 1.0 and not gradient.any():
                raise ContractError(
                    f"{_name(mechanism)} gives {name} a gradient of 0 everywhere: it can never be trained"
                )


def _require_finite(mechanism: Mechanism, what: str, values: Tensor, scale: float) -> None:
    num_bad = int((~values.isfinite()).sum())
    if num_bad:
        raise ContractError(
            f"{_name(mechanism)} overflows: {num_bad} of {values.numel()} values of the {what} are not finite "
            f"for inputs of scale {scale:g} in float32"
        )


@torch.no_grad()
def _check_copies(mechanism: Mechanism, other: Mechanism) -> None:
    x = _noise(mechanism, 2, _allowed(mechanism, (33,))[0], seed=0)
    expected = _forward(mechanism, x)
    try:
        other.load_state_dict(mechanism.state_dict())
    except RuntimeError as error:
        raise ContractError(
            f"{_name(mechanism)} cannot load its own state_dict: {described(error, type(mechanism))}"
        ) from error
    for how, module in (("deepcopy", copy.deepcopy(mechanism)), ("state_dict", other)):
        out = _forward(module, x)
        if not _change(expected, out) <= LAST_BITS:
            raise ContractError(
                f"{_name(mechanism)} does not survive {how}: the copy's outputs differ by "
                f"{_change(expected, out):.2g} of their size; random features must be buffers"
            )


@torch.no_grad()
def _check_seed(mechanism: Mechanism, build: Callable[[int], tuple[Mechanism, bytes]]) -> None:
    x = _noise(mechanism, 2, _allowed(mechanism, (33,))[0], seed=0)
    with draws_noted() as drawn:
        again, left = build(0)
    first, second = _forward(mechanism, x), _forward(again, x)
    if not _change(first, second) <= LAST_BITS:
        cause = cause_of_difference(drawn, [])
        raise ContractError(
            f"{_name(mechanism)} built twice with one seed gives outputs {_change(first, second):.2g} of their size "
            f"apart; {f'{cause}; ' if cause else ''}draw every parameter and feature with PyTorch"
        )
    other, left_by_other = build(1)
    if left and left == left_by_other:  # two seeds, one state: it was set again; constants alone leave the states apart
        _refuse_equal_draws(again, other)


def _refuse_equal_draws(mechanism: Mechanism, other: Mechanism) -> None:
    others = _tensors(other)
    for name, values in _tensors(mechanism).items():
        is_varied = (values.flatten() != values.flatten()[:1]).any()
        if is_varied and torch.equal(values, others[name]):
            raise ContractError(
                f"{_name(mechanism)} has the same {name!r} for every seed: it seeds PyTorch's global generator itself, "
                "which is already seeded from the run's; leave out torch.manual_seed"
            )


def _allowed(mechanism: Mechanism, lengths: tuple[int, ...]) -> list[int]:
    return sorted({min(length, mechanism.max_length) for length in lengths})


def _tensors(mechanism: Mechanism) -> dict[str, Tensor]:
    return {**dict(mechanism.named_parameters()), **dict(mechanism.named_buffers())}


def _change(before: Tensor, after: Tensor) -> float:
    """Largest difference relative to the largest value; NaN, which no comparison accepts, if either has one."""
    return float((before - after).abs().max() / _size(before))


def _size(values: Tensor) -> Tensor:
    return values.abs().max().clamp(min=torch.finfo(values.dtype).tiny)


def _kind(x: Tensor) -> str:
    return f"{list(x.shape)} {x.dtype}" + ("" if x.device.type == "cpu" else f" on {x.device}")


def _words(numbers: Iterable[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}"


def _name(mechanism: Mechanism) -> str:
    return f"mechanism {getattr(mechanism, 'name', type(mechanism).__name__)!r}"
