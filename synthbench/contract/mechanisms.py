"""Checks that every mechanism must pass, whether it is built in or comes from a plugin.

They test causality, and properties that training and saving need, such as finite gradients. To test causality, the end
of a sequence is replaced with noise, and earlier outputs must not change. The checks run

* in float64, so that rounding does not look like a leak (an output that depends on later inputs);
* with noise up to a thousand times the input's size, since a maximum or a small constant can hide a leak at scale 1;
* with finite noise, since NaN would spread even without a leak: NaN times a masked zero is NaN;
* with parameters away from their initial values, since a gate or projection that begins at zero hides a leak.

A mechanism that refuses float64 or the CPU is checked in float32 or on another device; see :func:`lazy_probe`.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby, product
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from synthbench.contract.causality import Shape, alterations, describe_leak, shapes_of_main_suite
from synthbench.contract.causes import cause_of_difference, cause_of_leak, cause_of_mixing, draws_noted, dropouts_of
from synthbench.contract.checks import Check, CheckWarning, require_all
from synthbench.contract.setting import DOUBLE, Setting
from synthbench.contract.states import check_state, check_stream
from synthbench.errors import ContractError
from synthbench.layers import in_precision
from synthbench.mechanisms import Mechanism
from synthbench.mechanisms._module import slots_of, without_compilation
from synthbench.mechanisms._parameters import perturb, unused_parameters
from synthbench.options import MAIN_SUITE
from synthbench.plugins import blamed, described, raise_interrupt, text_of
from synthbench.suites import load_suite

SHAPE: Mapping[str, Any] = {"model_dim": 16, "num_heads": 2, "max_length": 512}
"""Default sizes of the surrounding model; arguments replace them."""

LENGTHS = (1, 2, 3, 33, 130, 400)
"""Tested lengths: 1 token, even and odd, longer than a chunk, and beyond the switch to the linear-time form."""

WHOLE_BLOCKS = tuple(Shape(size, length, length, 16, 2) for size, length in ((9, 64), (9, 128), (3, 1000), (3, 1024)))
"""Shapes whose lengths are multiples of a kernel's block size, and one with length 1000.

The mechanism is built for each of these lengths. Packaged suites train on sequences of up to 1024 tokens. Batches of
long sequences are small, since they take most of the time if a mechanism stores all pairs of tokens.
"""

MOST_COMPILED = 2
"""Limit on the shapes at which compiled code is checked; each may take seconds to compile."""

COARSE = 0.1
"""If the tolerance is larger than this, a warning says that passing the checks means little."""

AT_ONCE = 4096
"""Limit on tokens per call when altered sequences are checked: storing pairs of tokens takes much memory."""

STEPS = (1e-6, 1e-4, 1e-3)
"""Relative steps of finite differences; functions with kinks need a small step, and float32 rounding a large step."""
AGREEMENT = 1e-2
"""Largest relative difference between a gradient and finite differences that is accepted."""

OF_A_GPU = ("cuda", "gpu", "triton", "cpu", "nvidia", "driver")
"""Words in error messages of code that runs only on a GPU."""


@dataclass(frozen=True)
class Probe:
    """A mechanism to check, with the device and precision of its checks."""

    unit: type[Mechanism]
    arguments: Mapping[str, Any]
    setting: Setting = DOUBLE
    refusal: str = ""
    """The reason why the mechanism is not checked in float64; empty if it is checked in float64."""
    runs: bool = True
    """True if the mechanism runs in this setting; False if it failed in every setting that was tried."""

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism in evaluation mode, on the device and in the precision of the checks."""
        return self.build()

    @property
    def name(self) -> str:
        """The mechanism's name in messages, as in ``mechanism 'x'``."""
        return f"mechanism {getattr(self.unit, 'name', self.unit.__name__)!r}"

    def build(self, seed: int = 0, **around: Any) -> Mechanism:
        """Build the mechanism, and move its parameters away from special values such as 0.

        ``around`` replaces default sizes of the model, such as ``model_dim``.

        Raises:
            ContractError: If the mechanism cannot be built, copied or trained in float32.
        """
        built = self._built(self.unit, seed, around)
        perturb(built)
        return in_precision(built, self.setting.dtype).to(self.setting.device).eval()

    def noting_draws(self, seed: int) -> tuple[Mechanism, bytes, set[int]]:
        """Build the mechanism; return it, the global generator's state, and the seeds of the generators that it used.

        The base class seeds the global generator before initialisation, differently for each ``seed``. So if two seeds
        lead to equal states after initialisation, the mechanism itself has seeded the generator.
        """
        states, seeds, unit = [], set[int](), self.unit

        def note(given: Any, _out: Any) -> None:
            seeds.update(one.initial_seed() for one in tree_leaves(given) if isinstance(one, torch.Generator))

        def initialise(mechanism: Any, generator: torch.Generator | None) -> None:
            with _Noted(note):
                unit.initialise(mechanism, generator)
            states.append(torch.get_rng_state().numpy().tobytes())

        noting = type(unit.__name__, (unit,), {"initialise": initialise, "__module__": unit.__module__})
        return self._built(noting, seed, {}), b"".join(states), seeds

    def noise(self, *shape: int, seed: int) -> Tensor:
        """Draw random inputs of the mechanism, [*shape, model_dim]."""
        return self.setting.noise(self.mechanism, *shape, seed=seed)

    def single(self, **around: Any) -> Mechanism:
        """Build the mechanism in float32, the precision of training; ``around`` is as in :meth:`build`."""
        return in_precision(self.build(**around), torch.float32)

    def forward(self, x: Tensor, mechanism: Mechanism | None = None) -> Tensor:
        """Return the outputs of ``mechanism`` (by default, the one that this probe checks) for ``x``.

        Raises:
            ContractError: If the call raises an exception or does not return a tensor.
        """
        with self.blamed(x):
            out: Tensor = (mechanism or self.mechanism)(x)
        if not isinstance(out, Tensor):
            raise ContractError(f"{self.name} returns {type(out).__name__}; allowed: a tensor like its input")
        return out

    def blamed(self, x: Tensor) -> AbstractContextManager[None]:
        """Turn any exception in a ``with`` block into a one-line error that names the mechanism and the input ``x``.

        Raises:
            ContractError: If the ``with`` block raises any exception that is not a :class:`SynthbenchError`.
        """

        def hint(problem: BaseException) -> str:
            if "does not require grad" in text_of(problem):
                return "; evaluation keeps no gradients, so take those of forward itself within torch.enable_grad()"
            needs_gpu = x.device.type == "cpu" and any(word in text_of(problem).lower() for word in OF_A_GPU)
            return "; check it with --device cuda where there is a GPU" if needs_gpu else ""

        return blamed(f"{self.name} fails on input of shape {list(x.shape)}, {x.dtype}", self.unit, hint)

    def lengths(self, lengths: Iterable[int]) -> list[int]:
        """Sort the given lengths and drop duplicates; the mechanism's ``max_length`` replaces any longer length."""
        return sorted({min(length, self.mechanism.max_length) for length in lengths})

    def input(self) -> Tensor:
        """Draw random inputs: two sequences of 33 tokens, or of ``max_length`` tokens if these are fewer."""
        return self.noise(2, self.lengths((33,))[0], seed=0)

    def _built(self, unit: type[Mechanism], seed: int, around: Mapping[str, Any]) -> Mechanism:
        generator = torch.Generator().manual_seed(seed)
        torch.set_default_dtype(torch.float32)  # an earlier call may have changed it
        given = {**SHAPE, **around, **self.arguments}
        sizes = f"(width {given['model_dim']}, {given['num_heads']} heads)"
        with blamed(f"{self.name} cannot be built {sizes}", self.unit):
            built = unit(generator=generator, **given)
        _require_float32_parameters(self.name, built)
        return built


def _require_float32_parameters(name: str, built: Mechanism) -> None:
    for path, parameter in built.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ContractError(
                f"{name} has a parameter {path!r} without a shape, which its first call would make (nn.LazyLinear and "
                "the like); give the layer its sizes"
            )
        if parameter.dtype.is_floating_point and parameter.dtype != torch.float32:
            raise ContractError(
                f"{name} keeps {path!r} in {parameter.dtype}; models are trained, and recorded, in float32: leave it "
                "in float32 and cast it in forward"
            )
    for path, module in built.named_modules():
        for key in slots_of(type(module)):
            if hasattr(module, key) and not hasattr(copy.copy(module), key):
                raise ContractError(
                    f"{name} keeps {f'{path}.{key}'.lstrip('.')!r} in __slots__, which a copy of the module loses; "
                    "leave out __slots__"
                )
        for key, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                raise ContractError(
                    f"{name} keeps {f'{path}.{key}'.lstrip('.')!r}, which is computed from parameters, so it cannot be "
                    "copied; compute it in forward, and for torch.nn.utils.weight_norm take "
                    "torch.nn.utils.parametrizations.weight_norm"
                )


def _require_own_parameters(probe: Probe) -> None:
    """Raise an error if two instances of the mechanism share a parameter or buffer, or if a class holds a parameter.

    Such a class attribute is found even if no instance has registered it as a parameter, so that no run would train it.
    """
    one, other = (probe.build(seed) for seed in range(2))
    others = {id(part) for part in (*other.parameters(), *other.modules())}
    parts = [*one.named_parameters(), *((path, part) for path, part in one.named_modules() if [*part.buffers()])]
    shared = [path for path, part in parts if id(part) in others]
    for owner in {owner for module in one.modules() for owner in type(module).__mro__}:
        shared += [f"{owner.__name__}.{name}" for name, value in vars(owner).items() if _is_trained(value)]
    if shared:
        raise ContractError(
            f"{probe.name} shares {shared[0]!r} among all its instances, for example as a class variable; make it in "
            "the constructor, since each run trains its own"
        )


def _is_trained(tree: Any) -> bool:
    """Test if nested containers hold a tensor that is trained, or a module with one."""
    leaves = tree_leaves(tree)
    tensors = [tensor for leaf in leaves if isinstance(leaf, nn.Module) for tensor in leaf.parameters()]
    return any(leaf.requires_grad for leaf in (*leaves, *tensors) if isinstance(leaf, Tensor))


def lazy_probe(
    unit: type[Mechanism], arguments: Mapping[str, Any], devices: Sequence[str] = ("cpu",)
) -> Callable[[], Probe]:
    """Make a function that returns a :class:`Probe`, which builds and calls a mechanism for its checks.

    At its first call, the function searches for the first device on which the mechanism runs, in float64 or else in
    float32. A mechanism that fails at the small default sizes, for example because it needs wider heads, is checked at
    the sizes of the main suite.

    Args:
        unit: The mechanism's class, registered or not.
        arguments: The mechanism's options, and any model sizes (such as ``model_dim``) in place of the small defaults.
        devices: Devices in order of preference.

    Raises:
        UsageError: If an argument is not allowed.
        ContractError: If the mechanism cannot be built, or if its instances share parameters.
    """
    model = load_suite(MAIN_SUITE).model
    larger = {"model_dim": model.model_dim, "num_heads": model.num_heads, **arguments}
    sizes = [arguments, larger]
    single = Setting(dtype=torch.float32)  # a conversion would change what the instances share
    try:
        _require_own_parameters(Probe(unit, arguments, single))
    except ContractError:
        _require_own_parameters(Probe(unit, larger, single))
        sizes = [larger]

    @cache
    def probe() -> Probe:
        for given, device in product(sizes, devices):
            refusal = ""
            for dtype in (torch.float64, torch.float32):
                tried = Probe(unit, given, Setting(device, dtype), refusal)
                if not (refusal := _refusal(tried)):
                    x = tried.noise(2, tried.lengths((64,))[0], seed=0).float()  # as in training
                    inside = _lowest_precision(tried.single(), x)
                    return replace(tried, setting=tried.setting._replace(inside=inside))
        return Probe(unit, sizes[0], Setting(devices[0], torch.float32), runs=False)

    return probe


def _refusal(probe: Probe) -> str:
    """Return the reason why a mechanism fails on the device and in the precision of its probe; empty if it runs."""
    mechanism = probe.build()
    refusal = ""
    for length in probe.lengths((33, 64)):  # some take only whole blocks, which the first check reports
        x = probe.noise(2, length, seed=0).requires_grad_()
        try:
            with without_compilation():
                out = mechanism(x.clone())  # a leaf must not be changed in place
                if out.requires_grad:  # another check reports an output without a gradient
                    torch.autograd.backward(out.sum())
        except BaseException as problem:  # noqa: BLE001 - foreign code may raise anything
            raise_interrupt(problem)
            refusal = described(problem, probe.unit)
            continue
        if out.dtype != x.dtype:
            return f"it returns {out.dtype}"
        with probe.blamed(x):
            is_exact = _lowest_precision(mechanism, x.detach()) == x.dtype and _is_smooth(mechanism, x.detach())
        return "" if is_exact or x.dtype != torch.float64 else "it computes in a lower precision inside"
    return refusal


@torch.no_grad()
def _is_smooth(mechanism: Mechanism, x: Tensor) -> bool:
    """Test if doubling a tiny change of the input doubles the change of the output.

    The result is False if the mechanism computes in a precision lower than float64, since the tiny change is then
    rounded away. The result is True if the output does not change at all, since a layer may round on purpose.
    """
    step = 1e-10 * torch.ones_like(x)
    with without_compilation():
        start, again, once, twice = (mechanism(x + times * step) for times in (0, 0, 1, 2))
    change, left = (twice - start).abs().max(), (twice - 2 * once + start).abs().max()
    if not torch.equal(start, again):
        return True  # random outputs say nothing about the precision; another check reports them
    return bool(left <= 0.1 * change + 1e-14 * start.abs().max())


class _Noted(TorchDispatchMode):
    """Call ``note`` with the arguments and the result of each of PyTorch's functions in a ``with`` block."""

    supports_higher_order_operators = True

    def __init__(self, note: Callable[[Any, Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._note((args, kwargs), out)
        return out


def _numbers(tree: Any) -> dict[int, Tensor]:
    """Find the real and complex tensors in nested containers; the keys identify their memory, which views share."""
    tensors = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
    numbers = [one for one in tensors if one.is_floating_point() or one.is_complex()]
    return {one.untyped_storage()._cdata if one.layout == torch.strided else id(one): one for one in numbers}  # noqa: SLF001


@torch.no_grad()
def _lowest_precision(mechanism: Mechanism, x: Tensor) -> torch.dtype:
    """Return the lowest precision of ``x`` and of the tensors that a mechanism computes from it."""
    lowest = x.dtype
    computed = _numbers(x)  # while these tensors are stored, no other tensor gets their memory

    def note(given: Any, out: Any) -> None:
        nonlocal lowest
        if not computed.keys().isdisjoint(_numbers(given)):
            computed.update(made := _numbers(out))
            dtypes = [lowest, *(one.dtype for one in made.values())]
            lowest = max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)

    with suppress(Exception, SystemExit), without_compilation(), _Noted(note):  # another check reports what fails
        mechanism(x.clone())
    return lowest


def checks_of(probe: Callable[[], Probe]) -> list[Check]:
    """List the checks of a mechanism in order; ``probe`` is a function made by :func:`lazy_probe`.

    The docstring of a check's function states its requirement.
    """

    def check(name: str, make: Callable[[Probe], None], *, is_needed: bool = False, is_compiled: bool = False) -> Check:
        meaning = (make.__doc__ or "").partition("\n")[0].rstrip(".").replace("`", "")
        chosen = make if is_compiled else without_compilation()(make)
        return Check(name, meaning[:1].lower() + meaning[1:], lambda: chosen(probe()), is_needed)

    return [
        check("shape", _check_shape, is_needed=True),
        check("input", _check_input, is_needed=True),
        check("gradients", _check_gradients),
        check("determinism", _check_determinism, is_needed=True),
        check("derivative", _check_derivative),
        check("batch", _check_batch_independence),
        check("causality", _check_future),
        check("as trained", _check_as_trained, is_compiled=True),
        check("backward", _check_backward, is_compiled=True),
        check("prefixes", _check_prefixes),
        check("last", _check_last),
        check("state", _check_state),
        check("stream", _check_stream),
        check("copies", _check_copies),
        check("seed", _check_seed),
    ]


def check_mechanism(unit: type[Mechanism], arguments: Mapping[str, Any]) -> None:
    """Run the checks of a mechanism until one fails; the tests that ``synthbench new`` writes call this.

    Args:
        unit: The mechanism's class, registered or not.
        arguments: The mechanism's options, and any model sizes (such as ``model_dim``) in place of the small defaults.

    Raises:
        ContractError: If a check fails; the message says what is wrong, where and by how much.
    """
    require_all(checks_of(lazy_probe(unit, arguments)), unit)


@torch.no_grad()
def _check_shape(probe: Probe) -> None:
    """Must keep shape and dtype at lengths 1, 2, 3, 33, 130 and 400."""
    before = {name: parameter.shape for name, parameter in probe.mechanism.named_parameters()}
    failures: dict[int, ContractError] = {}
    lengths, single = probe.lengths(LENGTHS), probe.single()
    for length in lengths:
        x = probe.noise(2, length, seed=length)
        try:
            out = probe.forward(x)
        except ContractError as problem:
            failures[length] = problem
            continue
        after = {name: parameter.shape for name, parameter in probe.mechanism.named_parameters()}
        if changed := sorted(dict(before.items() ^ after.items())):
            raise ContractError(
                f"{probe.name} makes, drops or resizes the parameter {changed[0]!r} in its first call; make all "
                "parameters in the constructor, since the optimiser trains no others"
            )
        for given, got in ((x, out), (x.float(), probe.forward(x.float(), single))):
            if (got.shape, got.dtype, got.device) != (given.shape, given.dtype, given.device):
                kinds = f"{_kind(given)} to {_kind(got)}"
                raise ContractError(f"{probe.name} maps {kinds}; shape, dtype and device must be kept")
            _require_finite(probe, "output", got)
    if len(failures) == len(lengths):
        raise failures[lengths[0]]
    if failures:
        first = next(iter(failures.values()))
        raise ContractError(
            f"{probe.name} is not defined at {'length' if len(failures) == 1 else 'lengths'} {_words(failures)}: "
            f"{described(first.__cause__ or first, probe.unit)}; every length from 1 token on must work"
        ) from first
    if not probe.runs:
        _check_input(probe)  # a change of the input may be why the backward pass fails
        x = probe.input().requires_grad_()
        with torch.enable_grad(), probe.blamed(x):
            torch.autograd.backward(probe.mechanism(x.clone()).sum())
    if probe.refusal:
        raise CheckWarning(
            f"checked in {probe.setting} with tolerance {probe.setting.tolerance:.2g}, as it refuses float64: "
            f"{probe.refusal}"
            + ("; a smaller leak goes unnoticed, so a pass means little" * (probe.setting.tolerance > COARSE))
        )


@torch.no_grad()
def _check_input(probe: Probe) -> None:
    """A call must not change its input."""
    before = probe.input()
    for mode in (False, True):
        x = before.clone()
        probe.forward(x, probe.build().train(mode))
        if not torch.equal(x, before):
            raise ContractError(
                f"{probe.name} changes its input in place, by {_change(before, x):.2g} of its size; the residual "
                "connection around it reads the input too"
            )


@torch.no_grad()
def _check_determinism(probe: Probe) -> None:
    """Calls must be repeatable and must change nothing."""
    x, longest = probe.input(), probe.lengths(LENGTHS)[-1]
    for mode in (False, True):
        one = other = probe.build().train(mode)
        with suppress(Exception, SystemExit):  # another check reports what cannot be copied
            other = copy.deepcopy(one)
        before = {name: value.clone() for name, value in _tensors(one).items()}
        with draws_noted() as drawn:
            first, _ = probe.forward(x, one), probe.forward(probe.noise(*x.shape[:2], seed=1), other)
            for seed, called in enumerate((one, other)):
                probe.forward(probe.noise(2, longest, seed=seed), called)
            _require_unchanged(probe, one, other, before)
            outs = [probe.forward(x, called) for called in (one, other)]
            plain = _plain_values(one)  # after the first call, which may store the length for later calls
            outs.append(probe.forward(x, one))
        _require_unchanged(probe, one, other, before)
        for name, now in _plain_values(one).items():
            if not mode and now != plain.get(name):
                raise ContractError(
                    f"{probe.name} changes its own {name!r} in forward, from {plain.get(name, 'unset')} to {now}; "
                    "a call must leave the mechanism as it was"
                )
        change = _change(first, torch.stack(outs))
        if not change <= probe.setting.last_bits:
            raise ContractError(
                f"{probe.name} gives two outputs for one input in {'train' if mode else 'eval'} mode, "
                f"{change:.2g} apart; {cause_of_difference(drawn, dropouts_of(one) if mode else ())}"
            )


def _require_unchanged(probe: Probe, one: Mechanism, other: Mechanism, before: Mapping[str, Tensor]) -> None:
    """Raise an error if calls changed a tensor of ``one``; ``other`` had calls with other inputs of the same shapes.

    A call may make or resize a tensor that depends only on these shapes, such as a table of positions. ``before`` has
    the tensors before the first call.
    """
    others = _tensors(other)
    for name, value in _tensors(one).items():
        kept = [tensors[name] for tensors in (before, others) if name in tensors and tensors[name].shape == value.shape]
        if not kept or not _is_same(value, kept[0]):
            raise ContractError(
                f"{probe.name} changes its own {name!r} in forward; a call must leave the mechanism as it was"
            )


def _plain_values(mechanism: Mechanism) -> dict[str, str]:
    """Return the numbers and texts among the attributes of the mechanism and its submodules.

    Keys are attribute paths such as ``layer.scale``; numbers are converted to text.
    """
    return {
        f"{path}.{name}".removeprefix("."): repr(value)
        for path, module in mechanism.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str)
    }


@torch.no_grad()
def _check_batch_independence(probe: Probe) -> None:
    """The sequences of a batch must not see each other."""
    for length in probe.lengths((2, 33)):
        batch = probe.noise(4, length, seed=length)
        together = probe.forward(batch)
        for row in range(len(batch)):
            alone = probe.forward(batch[row : row + 1])
            change = _change(together[row], alone[0])
            if not change <= probe.setting.tolerance:
                cause = cause_of_mixing(probe.mechanism, probe.setting)
                raise ContractError(
                    f"{probe.name} lets the sequences of a batch see each other: at length {length} the output "
                    f"of row {row} changes by {change:.2g} of its size when the row is alone"
                    + (f"; {cause}" if cause else "")
                )


@torch.no_grad()
def _check_future(probe: Probe) -> None:
    """Output t must depend only on inputs 0..t, in training mode too."""
    try:
        for length in probe.lengths(LENGTHS):
            for mode in (False, True):
                probe.mechanism.train(mode)
                _check_future_at(probe, length)
    finally:
        probe.mechanism.eval()  # later checks expect evaluation mode


def _check_future_at(probe: Probe, length: int) -> None:
    x = probe.noise(2, length, seed=length)
    before = probe.forward(x)
    others = []
    for cut in sorted({1, length // 4, length // 2, length - 1} - {0, length}):
        noise = probe.noise(2, length - cut, seed=length + cut)
        others += [(cut, scale, torch.cat([x[:, :cut], scale * noise], dim=1)) for scale in probe.setting.scales]
    num_at_once = max(1, AT_ONCE // x[..., 0].numel())
    for first in range(0, len(others), num_at_once):
        several = others[first : first + num_at_once]
        together = probe.forward(torch.cat([other for *_, other in several]))
        for (cut, scale, other), after in zip(several, together.split(len(x)), strict=True):
            if not _change(before[:, :cut], after[:, :cut]) <= probe.setting.tolerance:
                alone = probe.forward(other)  # seeing other sequences of the batch is another fault
                if not _change(before[:, :cut], alone[:, :cut]) <= probe.setting.tolerance:
                    _refuse_leak(probe, before, alone, cut, scale)


def _check_as_trained(probe: Probe) -> None:
    """Causality must hold in float32, at batch shapes of suite core and lengths 64, 128, 1000 and 1024."""
    first, *others = WHOLE_BLOCKS
    # Compiled code is checked only at the first two shapes: a whole block in both modes, and the suite's shortest.
    for mechanism, x, modes in _as_trained(probe, (first, *shapes_of_main_suite(), *others)):
        noise = probe.setting.noise(mechanism, *x.shape[:2], seed=1).float()
        for is_training in modes:
            mechanism.train(is_training)
            with torch.set_grad_enabled(is_training):
                before = probe.forward(x.clone().requires_grad_(is_training), mechanism).detach()
                _require_finite(probe, "output", before)
                is_later = (torch.arange(x.shape[1]) >= alterations(*x.shape[:2])[:, None]).to(x.device)
                other = torch.where(is_later[..., None], noise, x)
                after = probe.forward(other.requires_grad_(is_training), mechanism).detach()
                leak = describe_leak(
                    before, after, ~is_later, is_training=is_training, tolerance=probe.setting.tolerance_in_training
                )
                if leak is not None:
                    raise ContractError(f"{probe.name} {leak}")


def _check_backward(probe: Probe) -> None:
    """Outputs up to t must give no gradient to later inputs or other sequences."""
    for mechanism, x, _ in _as_trained(probe, WHOLE_BLOCKS):
        length = x.shape[1]
        for cut in (length // 3, length - 2):
            values = x.clone().requires_grad_()
            out = probe.forward(values, mechanism.train())  # once a cut: compiled code frees its buffers in backward
            _require_finite(probe, "output", out)
            if not out.requires_grad:
                return  # another check reports it
            torch.autograd.backward(out[0, : cut + 1].square().sum())
            if values.grad is None:
                continue
            _require_finite(probe, "gradient of the input", values.grad)
            seen = values.grad.abs().amax(-1) / _size(values.grad)
            for of_what, unseen in (("later inputs", seen[0, cut + 1 :]), ("other sequences", seen[1:])):
                if not float(unseen.max()) <= probe.setting.tolerance_in_training:
                    raise ContractError(
                        f"{probe.name} leaks in its backward pass: the outputs of a sequence up to position {cut} give "
                        f"{of_what} a gradient of {float(unseen.max()):.2g} of the largest gradient (length {length}, "
                        f"batch size {len(x)}, float32)"
                    )


def _as_trained(probe: Probe, shapes: Iterable[Shape]) -> Iterator[tuple[Mechanism, Tensor, tuple[bool, ...]]]:
    """Yield, for each shape, the mechanism in float32, random inputs, and the modes to check.

    A mode is True for training, False for evaluation.
    A mechanism that compiles code gets only the first two shapes.
    """
    before, num_checked = _num_compiled(), 0
    for (max_length, model_dim, num_heads), alike in groupby(shapes, key=lambda shape: shape[2:5]):
        mechanism = probe.single(max_length=max_length, model_dim=model_dim, num_heads=num_heads)
        for shape in alike:
            if num_checked >= MOST_COMPILED and _num_compiled() > before:
                return
            num_checked += 1
            length = min(shape.length, mechanism.max_length)
            x = probe.setting.noise(mechanism, shape.batch_size, length, seed=length).float()
            yield mechanism, x, shape.modes


def _num_compiled() -> int:
    """Count the functions that ``torch.compile`` has handled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


def _refuse_leak(probe: Probe, before: Tensor, after: Tensor, cut: int, scale: float) -> NoReturn:
    difference = (before - after)[:, :cut].abs().amax((0, 2)) / _size(before[:, :cut])
    first = int((~(difference <= probe.setting.tolerance)).nonzero()[0])  # NaN is a change too
    cause = cause_of_leak(probe.mechanism, probe.setting)
    raise ContractError(
        f"{probe.name} is not causal: replacing the inputs from position {cut} onwards (length {before.shape[1]}) with "
        f"noise of scale {scale:g} changes the output at position {first} by {difference[first]:.2g} of the largest "
        "output; output t may depend only on inputs 0..t" + (f"; {cause}" if cause else "")
    )


@torch.no_grad()
def _check_prefixes(probe: Probe) -> None:
    """The first tokens alone must give the same outputs as in a longer sequence."""
    for length in probe.lengths(LENGTHS[1:]):
        x = probe.noise(2, length, seed=length)
        whole = probe.forward(x)
        for cut in sorted({1, length // 2, length - 1}):
            change = _change(whole[:, :cut], probe.forward(x[:, :cut]))
            if not change <= probe.setting.tolerance:
                raise ContractError(
                    f"{probe.name} depends on later inputs or the sequence length: removing the tokens from position "
                    f"{cut} onwards (length {length}) changes the outputs before position {cut} by {change:.2g} of the "
                    "largest output; do not compute a constant from the length, or reshape across positions"
                )


@torch.no_grad()
def _check_last(probe: Probe) -> None:
    """``forward_last`` must equal the last output of forward."""
    for length in probe.lengths((1, 2, 33)):
        x = probe.noise(2, length, seed=length)
        expected, last = probe.forward(x)[:, -1:], probe.mechanism.forward_last(x)
        if last.shape != expected.shape or not _change(expected, last) <= probe.setting.tolerance:
            raise ContractError(
                f"{probe.name} has a forward_last that differs from the last output of forward at length {length}: in "
                f"its shape, {list(last.shape)} instead of {list(expected.shape)}, or by more than rounding; set "
                "takes_last_queries only if attend accepts fewer queries than keys"
            )


def _check_gradients(probe: Probe) -> None:
    """Outputs and gradients must be finite; all parameters should be used."""
    # In float32, as in training: float64 would hide an overflow.
    for scale in (1.0, 30.0):
        single = probe.single().train()
        x = (scale * probe.input()).float().requires_grad_()
        out = probe.forward(x, single)
        _require_finite(probe, "output", out, scale)
        if not out.requires_grad:
            cause = "; leave out torch.inference_mode() in forward" if out.is_inference() else ""
            raise ContractError(f"{probe.name} gives an output without a gradient; it can never be trained{cause}")
        torch.autograd.backward(out.square().mean())
        if x.grad is None or (scale == 1.0 and not x.grad.any()):
            raise ContractError(f"{probe.name} gives the input no gradient; nothing before it could be trained")
        gradients = {name: value.grad for name, value in single.named_parameters() if value.grad is not None}
        for name, gradient in {"the input": x.grad, **gradients}.items():
            _require_finite(probe, f"gradient of {name}", gradient, scale, x.shape[1])
    _remark_on_unused(probe)


def _remark_on_unused(probe: Probe) -> None:
    """Look for parameters on which no output depends, either at all tested lengths or only at short ones.

    This is done in training mode, since evaluation may use merged or stored weights.

    Raises:
        CheckWarning: If there are such parameters.
    """
    length, remarks = probe.input().shape[1], []
    unused = unused_parameters(probe.single().train(), probe.input().float())
    for longer in probe.lengths(LENGTHS):
        if unused and longer > length:
            still = unused_parameters(probe.single().train(), probe.noise(1, longer, seed=0).float())
            if used := [name for name in unused if name not in still]:
                remarks.append(f"no output depends on {', '.join(used)} at {length} tokens, but at {longer}")
            length, unused = longer, [name for name in unused if name in still]
    if unused:
        remarks.append(f"no output depends on {', '.join(unused)} at up to {length} tokens")
    if remarks:
        raise CheckWarning(f"{'; '.join(remarks)}; a run counts no parameter that is not used at its length")


def _require_finite(probe: Probe, what: str, values: Tensor, scale: float = 1, length: int | None = None) -> None:
    num_bad = int((~values.isfinite()).sum())
    if num_bad:
        fault = "gives NaN" if scale == 1 and values.isnan().any() else "overflows"
        raise ContractError(
            f"{probe.name} {fault}: {num_bad} of {values.numel()} values of the {what} are not finite for inputs of "
            f"scale {scale:g} in {str(values.dtype).removeprefix('torch.')} (length {length or values.shape[1]})"
        )


def _check_derivative(probe: Probe) -> None:
    """Gradients should match finite differences.

    Those of the input and of each parameter are compared along random directions.

    Raises:
        CheckWarning: If they differ. This is not an error, since a straight-through estimator or a detached normaliser
            differs on purpose.
    """
    if probe.setting.dtype != torch.float64:
        return  # float32 leaves too few digits
    mechanism = probe.build().train()  # some layers take gradients of their gradients in training only
    length = probe.lengths((9,))[0]
    x, weights = probe.noise(2, length, seed=0).requires_grad_(), probe.noise(2, length, seed=1)
    trained = {name: value for name, value in mechanism.named_parameters() if value.requires_grad}

    def loss() -> Tensor:
        return (probe.forward(x, mechanism) * weights).sum()

    if not (start := loss()).requires_grad:
        return  # another check reports it
    torch.autograd.backward(start)
    wrong = []
    for name, values in {"the input": x, **trained}.items():
        if values.grad is not None:
            ratios = [_slope_ratio(loss, values, values.grad, step) for step in STEPS]
            if not any(abs(ratio - 1) <= AGREEMENT for ratio in ratios):
                wrong.append(f"{name} ({ratios[0]:.3g} of it)")
    if wrong:
        raise CheckWarning(
            f"{probe.name} has a backward pass that is not the derivative of its forward pass, as finite differences "
            f"show for {', '.join(wrong[:3])}{' and others' if len(wrong) > 3 else ''}; this is right only if it is "
            "meant, as in a straight-through estimator"
        )


@torch.no_grad()
def _slope_ratio(loss: Callable[[], Tensor], values: Tensor, gradient: Tensor, step: float) -> float:
    """Divide the slope that ``gradient`` gives along a random direction by the slope of finite differences.

    The result is 1 if the two slopes differ only by rounding.

    Args:
        loss: Function that computes a number from the current ``values``.
        values: Tensor that is varied and then restored.
        gradient: The claimed gradient of the loss with respect to ``values``.
        step: Step of the differences, relative to the root mean square of the values.
    """
    generator = torch.Generator().manual_seed(values.numel())
    direction = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)
    said = float((gradient.conj() * direction).real.sum())
    step *= float(values.abs().square().mean().sqrt().clamp(min=1e-3))
    before, ends = values.clone(), []
    for way in (1, -1):
        values.copy_(before + way * step * direction)
        ends.append(loss())
    values.copy_(before)
    found = float(ends[0] - ends[1]) / (2 * step)
    rounding = 1e-13 * max(1.0, float(ends[0].abs())) / step
    return 1.0 if abs(said - found) <= rounding else said / found if found else float("inf")


def _check_state(probe: Probe) -> None:
    """The state must be no larger than state_elements says."""
    check_state(probe.mechanism, probe.setting)


def _check_stream(probe: Probe) -> None:
    """Token by token, outputs must be the same, and the state must have state_elements numbers."""
    check_stream(probe.mechanism, probe.setting)


@torch.no_grad()
def _check_copies(probe: Probe) -> None:
    """Deepcopy and state_dict must reproduce the outputs, also after training."""
    x = probe.input()
    expected, other = probe.forward(x), probe.build(seed=1)
    with blamed(f"{probe.name} cannot load its own state_dict", probe.unit):
        other.load_state_dict(probe.mechanism.state_dict())
    with blamed(f"{probe.name} does not survive deepcopy", probe.unit):
        copied = copy.deepcopy(probe.mechanism)
        copied(x)
    for how, module in (("deepcopy", copied), ("state_dict", other)):
        out = probe.forward(x, module)
        if not _change(expected, out) <= probe.setting.last_bits:
            raise ContractError(
                f"{probe.name} does not survive {how}: the copy's outputs differ by "
                f"{_change(expected, out):.2g} of their size; random features must be buffers, and layers submodules, "
                "as in nn.ModuleList"
            )
    _require_no_stale_values(probe, x)


def _require_no_stale_values(probe: Probe, x: Tensor) -> None:
    """Call a mechanism, change its parameters, and raise an error if its outputs differ from those of a new copy."""
    used, fresh = probe.build(), probe.build(seed=1).train()
    for mode in (False, True):
        probe.forward(x, used.train(mode))
    perturb(used)  # in training mode, as by a step of the optimiser
    fresh.load_state_dict(used.state_dict())
    for mode in (True, False):
        change = _change(probe.forward(x, fresh.train(mode)), probe.forward(x, used.train(mode)))
        if not change <= probe.setting.last_bits:
            raise ContractError(
                f"{probe.name} keeps results of old parameters: after a call and a change of its parameters, its "
                f"outputs differ by {change:.2g} of their size from those of a new copy with the same values, in "
                f"{'training' if mode else 'evaluation'} mode; compute anew what depends on parameters"
            )


@torch.no_grad()
def _check_seed(probe: Probe) -> None:
    """The generator must decide all random draws."""
    x = probe.input()
    with draws_noted() as drawn:
        again = probe.build()
    first, second = probe.forward(x), probe.forward(x, again)
    if not _change(first, second) <= probe.setting.last_bits:
        source = f"it draws from {' and '.join(sorted(drawn))}; " if drawn else ""
        raise ContractError(
            f"{probe.name} built twice with one seed gives outputs {_change(first, second):.2g} of their size "
            f"apart; {source}draw every parameter and feature with PyTorch"
        )
    (one, left, one_seeds), (other, left_by_other, other_seeds) = probe.noting_draws(0), probe.noting_draws(1)
    if left and left == left_by_other:  # two seeds, one state: it was set again; constants alone leave the states apart
        others = _tensors(other)
        for name, values in _tensors(one).items():
            is_varied = (values.flatten() != values.flatten()[:1]).any()
            if is_varied and _is_same(values, others[name]):
                raise ContractError(
                    f"{probe.name} has the same {name!r} for every seed: it seeds PyTorch's global generator itself, "
                    "which is already seeded from the run's; leave out torch.manual_seed"
                )
    if fixed := one_seeds & other_seeds:
        raise CheckWarning(
            f"it draws from a generator of its own, seeded with {min(fixed)} in every run: seeds do not vary these "
            "values, so intervals over seeds leave out how they change scores; to vary them, draw from the run's "
            "generator"
        )


def _tensors(mechanism: Mechanism) -> dict[str, Tensor]:
    """Return the parameters and buffers by name; the sparse ones as ordinary (dense) tensors."""
    tensors = {**dict(mechanism.named_parameters()), **dict(mechanism.named_buffers())}
    return {name: value if value.layout == torch.strided else value.to_dense() for name, value in tensors.items()}


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Test if two tensors have the same shape and values; NaN equals NaN."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _change(before: Tensor, after: Tensor) -> float:
    """Divide the largest difference of two tensors by the largest size in ``before``; NaN if one has a NaN."""
    return float((before - after).abs().max() / _size(before))


def _size(values: Tensor) -> Tensor:
    return values.abs().max().clamp(min=torch.finfo(values.dtype).tiny)


def _kind(x: Tensor) -> str:
    return f"{list(x.shape)} {x.dtype}" + ("" if x.device.type == "cpu" else f" on {x.device}")


def _words(numbers: Iterable[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
