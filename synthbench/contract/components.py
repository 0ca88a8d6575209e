"""Check components of plugins (users' own code) in a separate process, where they may hang or crash without harm.

A component (a task, mechanism, position encoding or block) is loaded and built, then all its checks run. The results
are kept in the results folder under a hash of the component's code and options. So each version of a component is
checked only once.
"""

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import torch

import synthbench
from synthbench.bits import bits_of
from synthbench.blocks import BLOCKS
from synthbench.contract import mechanisms as of_mechanisms
from synthbench.contract import tasks as of_tasks
from synthbench.contract.causes import cause_of_difference, draws_noted, dropouts_of
from synthbench.contract.checks import Check, CheckResult, make_all
from synthbench.contract.isolated import IsolatedProcess
from synthbench.contract.setting import DOUBLE, Setting
from synthbench.errors import ContractError
from synthbench.layers import in_precision
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms._module import without_compilation
from synthbench.mechanisms._parameters import perturb
from synthbench.options import arguments_of, coerce, term_of
from synthbench.plugins import blamed
from synthbench.positions import POSITIONS
from synthbench.process import own_turn, settings_restored, usual_settings
from synthbench.registry import Registry, code_hash, version_of
from synthbench.results.store import read_plain
from synthbench.suites import load_suite, with_tasks
from synthbench.suites.config import ModelSettings
from synthbench.tasks import TASKS, Task, local_ceiling, shortcut_accuracies, sized
from synthbench.training.cell import Cell, Run
from synthbench.training.ensemble import SequenceModel, stack_models, strategy_of
from synthbench.training.train import train_group

REGISTRIES: dict[str, Registry[Any]] = {registry.kind: registry for registry in (TASKS, MECHANISMS, POSITIONS, BLOCKS)}
"""The registry of every kind of component."""

T = TypeVar("T")

Devices = tuple[str, ...]
"""Devices on which mechanisms are checked, in order of preference."""

STEPS = 400
"""Steps of the training that tests a task's ceiling."""
RATE = 3e-3
LENGTHS = (2, 33)
VOCABULARY = 11
TOLERANCE = 1e-9
PROCESS = "process"
"""Name of the check that fails if the other checks take too long or end their process."""
_MAX_BYTES = 2**20
"""Size limit of a file of earlier results: the results folder may come from a stranger."""


@dataclass(frozen=True, eq=False)
class Component:
    """A component to check (a task, mechanism, position encoding or block), with its options."""

    kind: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Options by name; for a task, its settings in a suite, which may include its length."""

    @property
    def unit(self) -> type[Any]:
        """The component's class."""
        return REGISTRIES[self.kind][self.name]

    @property
    def is_loaded(self) -> bool:
        """True if this process has loaded the component; always False for a component of an installed package."""
        return "/" not in self.name and self.name in REGISTRIES[self.kind]

    @property
    def is_in_session(self) -> bool:
        """True if the component is defined in a notebook or script, which no other process can import."""
        return self.is_loaded and self.unit.__module__ == "__main__"

    def attempt(self, isolated: IsolatedProcess, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of this component in a separate process or, if :attr:`is_in_session`, in this process."""
        if self.is_in_session:
            with own_turn(), settings_restored(), usual_settings("cpu"):
                torch.set_num_threads(1)  # for small products, more threads only wait for each other
                return function(self, *arguments)
        return isolated.attempt(f"{self.kind} {self.name!r}", function, self, *arguments)


def check_foreign(
    components: Sequence[Component], isolated: IsolatedProcess, cache: Path | None = None, devices: Devices = ("cpu",)
) -> dict[Component, list[CheckResult]]:
    """Return the results of all checks of components from plugins, with the components as keys.

    Checks of a component are not run again if the folder ``cache`` has their results for the same devices.

    Args:
        components: Components that are not built in.
        isolated: Separate process that runs the checks. Components defined in a notebook or script are checked in this
            process instead.
        cache: Folder with results of earlier checks, or None. This function only reads it.
        devices: Devices in order of preference; a mechanism is checked on the first device on which it runs.
    """
    return {component: _check_foreign(component, isolated, cache, devices) for component in components}


def record(checks: Mapping[Component, list[CheckResult]], cache: Path, devices: Devices = ("cpu",)) -> None:
    """Save the results of checks in the folder ``cache``, one file per component.

    For unchanged components and devices, :func:`check_foreign` then reads these files instead of running the checks.
    """
    cache.mkdir(parents=True, exist_ok=True)
    for component, results in checks.items():
        path = cache / f"{_key(component, devices)}.json"
        written = path.with_suffix(f".{uuid4().hex}.tmp")  # drivers on two machines may have the same process id
        known = {"kind": component.kind, "name": component.name, "version": version_of(component.unit)}
        content = {**known, "checks": [dataclasses.asdict(result) for result in results]}
        written.write_text(json.dumps(content, indent=1), encoding="utf-8")
        written.replace(path)


def examine(component: Component, devices: Devices = ("cpu",)) -> list[CheckResult]:
    """Run all checks of a component in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of a plugin, at inputs that only a check uses
        return list(make_all(_checks(component, devices), component.unit))


def built(component: Component) -> str:
    """Test that a component can be built, and return the hash of its source code."""
    _checks(component)
    return code_hash(component.unit)


_examined: WeakKeyDictionary[type[Any], tuple[object, list[CheckResult]]] = WeakKeyDictionary()
"""Latest results for each class that this process has loaded, with the code, options and devices that were checked.

The checks run again only if one of these has changed.
"""


def _check_foreign(
    component: Component, isolated: IsolatedProcess, cache: Path | None, devices: Devices
) -> list[CheckResult]:
    if not component.is_loaded:
        return _results(component, isolated, cache, devices)
    asked = (code_hash(component.unit), dict(component.arguments), devices)
    if _examined.get(component.unit, (None,))[0] == asked:
        return _examined[component.unit][1]
    results = _results(component, isolated, cache, devices)
    if not any(result.check == PROCESS for result in results):  # with more time or memory, the process may finish
        _examined[component.unit] = asked, results
    return results


def _results(
    component: Component, isolated: IsolatedProcess, cache: Path | None, devices: Devices
) -> list[CheckResult]:
    if component.is_in_session:
        return component.attempt(isolated, examine, devices)
    code = component.attempt(isolated, built)
    known = recorded(_key(component, devices, code), cache)
    if known is not None:
        return known
    try:
        return component.attempt(isolated, examine, devices)
    except ContractError as problem:
        return [CheckResult(PROCESS, "the checks must finish without ending their process", "FAILED", str(problem))]


def _key(component: Component, devices: Devices, code: str | None = None) -> str:
    decisive = [
        component.kind, component.name, code or code_hash(component.unit), sorted(component.arguments.items()), devices,
        synthbench.__version__, torch.__version__,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


def recorded(key: str, cache: Path | None) -> list[CheckResult] | None:
    """Read the results of checks that :func:`record` saved under a key; None if there are none that can be read."""
    try:
        content = json.loads(read_plain(cache / f"{key}.json", _MAX_BYTES)) if cache else None
        return [CheckResult(**result) for result in content["checks"]] if content else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # then it is checked again


def _checks(component: Component, devices: Devices = ("cpu",)) -> list[Check]:
    with blamed(f"{component.kind} {component.name!r} cannot be built", component.unit):
        return _checks_of_kind(component, component.unit, devices)


def _checks_of_kind(component: Component, unit: type[Any], devices: Devices) -> list[Check]:
    if component.kind == TASKS.kind:
        length, options = sized(component.name, component.arguments)
        task = unit(**options)
        return [
            *of_tasks.checks_of(task, length),
            Check("ceiling", "no small model may score above the ceiling", lambda: _check_ceiling(task, length)),
        ]
    arguments = coerce(component.kind, unit, dict(component.arguments))
    tokens = "tokens", "in a whole model, later tokens must not change earlier logits"
    if component.kind == MECHANISMS.kind:
        probe = of_mechanisms.lazy_probe(unit, arguments, devices)

        def check_tokens() -> None:
            _check_tokens(component.name, probe().arguments, "attention_only", "learned", probe().setting)

        return [*of_mechanisms.checks_of(probe), Check(*tokens, check_tokens)]
    term = term_of(unit, arguments)
    if arguments.get("conv"):
        _check_convolution(term)
    around = ("attention_only", term) if component.kind == POSITIONS.kind else (term, "learned")
    _model("softmax", {}, *around, length=LENGTHS[0])
    return [
        Check(*tokens, lambda: _check_tokens("softmax", {}, *around), is_needed=True),
        Check("determinism", "the same tokens must give the same logits in training", lambda: _check_twice(*around)),
        Check("runs", "batched runs must give the same logits as each run alone", lambda: _check_runs(*around)),
    ]


def _check_ceiling(task: Task, length: int) -> None:
    """Train a small model; raise an error if it scores above the task's ceiling (the best possible score).

    First, simple rules are measured on many sequences, as for each row of results.
    """
    if task.measure != "bits":
        with blamed(f"task {task.name!r}, length {length}: simple rules cannot be measured", type(task)):
            local_ceiling(task, length)
            shortcut_accuracies(task, length)
    stated = task.ceiling(length)
    if stated.value >= (0 if task.measure == "bits" else 1):
        return
    smoke = load_suite("smoke")
    suite = smoke.model_copy(update={"training": smoke.training.model_copy(update={"steps": STEPS})})
    cell = Cell(with_tasks(suite, {task.name: {}}), task.name, length, arguments_of(task), "softmax", {}, "cpu")
    (trained,) = train_group([Run(cell, 0, RATE)], torch.device("cpu")).runs
    if trained.score is None:
        return
    reached = -bits_of(trained.score.loss) if task.measure == "bits" else trained.score.accuracy
    error = max(trained.score.std_over_sequences, 0.01) / math.sqrt(suite.evaluation.test_sequences)
    if reached > stated.value + of_tasks.NUM_STANDARD_ERRORS * (error + stated.standard_error):
        raise ContractError(
            f"task {task.name!r}, length {length}: a model trained for {STEPS} steps scores {reached:.4f}, above the "
            f"ceiling {stated.value:.4f}; the ceiling is the score of the best causal predictor"
        )


def _model(
    mechanism: str,
    arguments: Mapping[str, Any],
    block: str,
    positions: str,
    *,
    length: int,
    seed: int = 0,
    setting: Setting = DOUBLE,
) -> SequenceModel:
    """Build a small model, and move its parameters away from special values such as 0."""
    fields = {**of_mechanisms.SHAPE, **arguments}
    settings = ModelSettings(
        block=block,
        positions=positions,
        model_dim=fields["model_dim"],
        num_heads=fields["num_heads"],
        num_layers=2,
        bias=True,
    )
    layers = MECHANISMS[mechanism].layers_of(fields, settings.num_layers)
    model = SequenceModel(settings, VOCABULARY, length, layers, torch.Generator().manual_seed(seed))
    perturb(model)
    return in_precision(model, setting.dtype).to(setting.device).eval()


@without_compilation()
@torch.no_grad()
def _check_tokens(
    mechanism: str, arguments: Mapping[str, Any], block: str, positions: str, setting: Setting = DOUBLE
) -> None:
    for length in LENGTHS:
        model = _model(mechanism, arguments, block, positions, length=length, setting=setting)
        tokens = _tokens(3, length).to(setting.device)
        before = model(tokens)
        for cut in sorted({1, length // 2, length - 1}):
            after = model(torch.cat([tokens[:, :cut], (tokens[:, cut:] + 1) % VOCABULARY], dim=1))
            change = float((before - after)[:, :cut].abs().max() / before.abs().max())
            if not change <= setting.tolerance:
                raise ContractError(
                    f"a model of {mechanism!r} in block {block!r} with positions {positions!r} is not causal: "
                    f"changing the tokens from position {cut} onwards (length {length}) changes the logits before "
                    f"position {cut} by {change:.2g} of the largest logit"
                )


def _check_convolution(block: str) -> None:
    """Raise an error if a block creates a short convolution but does not use it."""
    model = _model("softmax", {}, block, "learned", length=LENGTHS[0])
    torch.autograd.backward(model(_tokens(3, LENGTHS[0])).square().sum())
    if any(name.endswith("convolution.weight") and value.grad is None for name, value in model.named_parameters()):
        raise ContractError(f"block {block!r} does not use its convolution; let its `around` call `mix`")


@torch.no_grad()
def _check_twice(block: str, positions: str) -> None:
    model = _model("softmax", {}, block, positions, length=LENGTHS[-1]).train()
    tokens = _tokens(3, LENGTHS[-1])
    with draws_noted() as drawn:
        first, second = model(tokens), model(tokens)
    if not torch.equal(first, second):
        raise ContractError(
            f"block {block!r} with positions {positions!r} gives different logits for the same tokens in train mode; "
            f"{cause_of_difference(drawn, dropouts_of(model))}"
        )


@torch.no_grad()
def _check_runs(block: str, positions: str) -> None:
    models = [_model("softmax", {}, block, positions, length=LENGTHS[-1], seed=seed) for seed in range(2)]
    tokens = torch.stack([_tokens(3, LENGTHS[-1]), _tokens(3, LENGTHS[-1]).flip(-1)])
    alone = torch.stack([model(rows) for model, rows in zip(models, tokens, strict=True)])
    together = stack_models(models, strategy_of(MECHANISMS["softmax"], dict(of_mechanisms.SHAPE)))(tokens)
    change = float((together - alone).abs().max() / alone.abs().max())
    if not change <= TOLERANCE:
        raise ContractError(
            f"block {block!r} with positions {positions!r}: two batched runs give logits that differ by {change:.2g} "
            "of the largest from those of each run alone; use layers that support batched runs (synthbench.layers)"
        )


def _tokens(batch_size: int, length: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch_size, length), generator=torch.Generator().manual_seed(length))
