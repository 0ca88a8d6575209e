"""Reports on the checks of a component (task, mechanism, block or position encoding) or of a plugin's components."""

import dataclasses
from typing import Any

import torch

from synthbench import plugins
from synthbench.cli.facts import STATE_LENGTHS, task_facts
from synthbench.contract.checks import CheckResult, first_failure
from synthbench.contract.components import REGISTRIES, Component, Devices, check_foreign
from synthbench.contract.isolated import IsolatedProcess
from synthbench.contract.mechanisms import lazy_probe
from synthbench.errors import ContractError, UnknownName
from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.mechanisms._parameters import unused_parameters
from synthbench.mechanisms.base import num_numbers
from synthbench.options import coerce, parse_term
from synthbench.plugins import origin_of
from synthbench.registry import resolve_among, version_of
from synthbench.tasks import TASKS
from synthbench.training.ensemble import strategy_of

Report = dict[str, Any]

STRATEGIES = {"fold": "folding them into one batch", "stack": "stacking them on an axis", "loop": "taking turns"}


def check(target: str, isolated: IsolatedProcess, devices: Devices = ("cpu",)) -> list[Report]:
    """Check a component, or every component of a plugin, in a separate process.

    Args:
        target: A component's name (options as in ``slay:R=3``), or the file of a plugin.
        isolated: The separate process. If ``target`` is a plugin's file, ``isolated.plugins`` must include this file.
        devices: Devices in order of preference; each mechanism is checked on the first one on which it runs.

    Returns:
        One report (a dictionary) per component. It has the component's name, version and origin, and the results of all
            ``checks``. If no check failed, ``passed`` is True, and the report also has ``facts``.
    """
    isolated.try_plugins()
    plugins.load([*isolated.plugins, *plugins.file_of(target)])
    checks: dict[Component, list[CheckResult]] = {}
    for component in (components := _components(target)):
        try:
            checks |= check_foreign([component], isolated, devices=devices)
        except ContractError as problem:
            if len(components) == 1:
                raise
            checks[component] = [CheckResult("build", "the component must be built", "FAILED", str(problem))]
    return [_report(component, results, isolated, devices) for component, results in checks.items()]


def lines_of(report: Report) -> list[str]:
    """Format the report on a component as lines of text."""
    results = report["checks"]
    num = {state: sum(result["state"] == state for result in results) for state in ("passed", "warning")}
    lines = [f"{report['kind']} {report['name']}, version {report['version']}, from {report['origin']}", ""]
    for result in results:
        lines.append(f"  {result['state']:<10}{result['check']:<18}{result['meaning']}")
        if result["detail"]:
            lines.append(f"{'':<12}{result['detail']}")
    lines += ["", *(f"  {name}: {value}" for name, value in report["facts"].items())]
    verdict = "its rows are ranked" if report["passed"] else "refused, so it is neither trained nor ranked"
    warned = f", {num['warning']} with a warning" if num["warning"] else ""
    return [*lines, f"  {sum(num.values())} of {len(results)} checks passed{warned}; {verdict}"]


def _components(target: str) -> list[Component]:
    if target.endswith(".py"):
        return [
            Component(kind, name) for kind, name in plugins.components_of(plugins.module_of(plugins.resolved(target)))
        ]
    name, arguments = parse_term(target)
    name = resolve_among(list(REGISTRIES.values()), name)
    components = [Component(kind, name, arguments) for kind, registry in REGISTRIES.items() if name in registry]
    if components:
        return components
    raise UnknownName("component", name, [name for registry in REGISTRIES.values() for name in registry])


def _report(component: Component, results: list[CheckResult], isolated: IsolatedProcess, devices: Devices) -> Report:
    has_passed = first_failure(results) is None
    return {
        "kind": component.kind,
        "name": component.name,
        "arguments": dict(component.arguments),
        "version": version_of(component.unit),
        "origin": origin_of(component.unit),
        "passed": has_passed,
        "checks": [dataclasses.asdict(result) for result in results],
        "facts": component.attempt(isolated, facts_of, devices) if has_passed else {},
    }


def facts_of(component: Component, devices: Devices) -> dict[str, str]:
    """Describe a component that passed its checks, as a dictionary from headings to texts.

    Headings are, for example, ``category`` for a task or ``parameters`` for a mechanism. The time of a mechanism's
    forward pass is measured only if ``devices`` contains ``cpu``.
    """
    if component.kind == TASKS.kind:
        known = task_facts(component.name, component.arguments)
        return {
            "category": known["category"],
            "length": f"{known['length']} tokens of {known['vocab_size']}",
            "floor": f"{known['floor']:.4f} ({known['floor_kind']})",
            "ceiling": f"{known['ceiling']:.4f} ({known['ceiling_kind']})",
        }
    if component.kind != MECHANISMS.kind:
        return {}
    unit = component.unit
    # The arguments include the sizes of the main suite if the mechanism works only at these.
    arguments = dict(lazy_probe(unit, coerce(component.kind, unit, dict(component.arguments)), devices)().arguments)
    state = ", ".join(
        f"{unit(**arguments, max_length=length).state_elements(length)} after {length} tokens"
        for length in STATE_LENGTHS
    )
    built = unit(**arguments)
    if getattr(built, "counts_state", True):
        state += ", in numbers per layer"
    else:
        state = f"at most {state}, in numbers per layer: the size of all inputs, as it has no method state_elements"
    facts = {"parameters": _parameters(built, devices[0]), "state": state}
    if "cpu" in devices:
        from synthbench.bench.forward import next_to_softmax  # a fifth of a second, which only this process needs

        speed = ", ".join(
            f"{time['ms']:.2f} ms at length {length} ({time['times_softmax']:.1f} times softmax)"
            for length, time in next_to_softmax(component.name, arguments).items()
        )
        facts["forward"] = f"{speed}, 8 sequences on one thread"
    return {**facts, "runs trained together by": STRATEGIES[strategy_of(unit, arguments)]}


def _parameters(mechanism: Mechanism, device: str) -> str:
    """Describe a mechanism's parameters: how many there are, which are frozen, and which affect no output."""
    x = torch.randn(1, mechanism.max_length, mechanism.model_dim, device=device)
    unused = unused_parameters(mechanism.to(device), x)
    frozen = [name for name, parameter in mechanism.named_parameters() if not parameter.requires_grad]
    sizes = {name: num_numbers(parameter) for name, parameter in mechanism.named_parameters() if name not in unused}
    text = f"{sum(sizes.values())} in a layer of width {mechanism.model_dim}"
    if frozen:
        text += (
            f", {sum(sizes[name] for name in sizes if name not in frozen)} of them trained; frozen: {', '.join(frozen)}"
        )
    return text + (f"; not counted, as no output depends on them: {', '.join(unused)}" if unused else "")
