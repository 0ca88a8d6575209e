"""Examines a unit, or all units of a plugin, and says what a person can act on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from synthbench import plugins
from synthbench.bench.forward import next_to_softmax
from synthbench.cli.facts import STATE_LENGTHS, task_facts
from synthbench.contract.trial import REGISTRIES, Subject, Trial, vet
from synthbench.contract.verdicts import Verdict, violation
from synthbench.errors import UnknownName
from synthbench.mechanisms import MECHANISMS, num_parameters
from synthbench.options import coerce, parse_term
from synthbench.registry import origin_of, resolve_among, version_of
from synthbench.tasks import TASKS
from synthbench.training.ensemble import strategy_of

Report = dict[str, Any]


def check(target: str, named: Sequence[str], timeout_s: float | None = None) -> list[Report]:
    """Check the contract of a unit, or of every unit of a plugin, in a process of its own.

    Args:
        target: A unit's name, with arguments as in ``slay:R=3``, or the file of a plugin.
        named: Other plugins that are loaded first.
        timeout_s: Seconds after which a unit that does not come back is given up; 300 if None.

    Returns:
        For each unit what it is, ``verdicts`` on all promises, whether it ``passed``, and ``facts`` if it did.
    """
    names = list(named)
    if target.endswith(".py"):
        names.append(plugins.resolved(target))
    with Trial(names, timeout_s) as trial:
        trial.try_plugins()
        plugins.load(names)
        subjects = _subjects(target)
        findings = vet(subjects, trial)
        return [_report(subject, verdicts, trial) for subject, verdicts in findings.items()]


def lines_of(report: Report) -> list[str]:
    """A report in words."""
    verdicts = report["verdicts"]
    kept = sum(verdict["state"] == "kept" for verdict in verdicts)
    lines = [f"{report['kind']} {report['name']}, version {report['version']}, from {report['origin']}", ""]
    for verdict in verdicts:
        state = verdict["state"].upper() if verdict["state"] == "broken" else verdict["state"]
        lines.append(f"  {state:<10}{verdict['promise']:<18}{verdict['meaning']}")
        if verdict["detail"]:
            lines.append(f"{'':<12}{verdict['detail']}")
    lines += ["", *(f"  {name}: {value}" for name, value in report["facts"].items())]
    verdict = "passed, its rows are ranked" if report["passed"] else "refused, it is not trained and not ranked"
    return [*lines, f"  {kept} of {len(verdicts)} promises kept: {verdict}"]


def _subjects(target: str) -> list[Subject]:
    if target.endswith(".py"):
        return [Subject(kind, name) for kind, name in plugins.units_of(plugins.module_of(plugins.resolved(target)))]
    name, arguments = parse_term(target)
    name = resolve_among(list(REGISTRIES.values()), name)
    subjects = [Subject(kind, name, arguments) for kind, registry in REGISTRIES.items() if name in registry]
    if subjects:
        return subjects
    raise UnknownName("unit", name, [name for registry in REGISTRIES.values() for name in registry])


def _report(subject: Subject, verdicts: list[Verdict], trial: Trial) -> Report:
    has_passed = violation(verdicts) is None
    return {
        "kind": subject.kind,
        "name": subject.name,
        "arguments": dict(subject.arguments),
        "version": version_of(subject.unit),
        "origin": origin_of(subject.unit),
        "passed": has_passed,
        "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
        "facts": _facts(subject, trial) if has_passed else {},
    }


def _facts(subject: Subject, trial: Trial) -> dict[str, str]:
    if subject.is_in_session:
        return facts_of(subject)
    return trial.attempt(f"{subject.kind} {subject.name!r}", facts_of, subject)


def facts_of(subject: Subject) -> dict[str, str]:
    """What is worth knowing of a unit that keeps its contract, in words."""
    if subject.kind == TASKS.kind:
        known = task_facts(subject.name, subject.arguments)
        return {
            "category": known["category"],
            "length": f"{known['length']} tokens of {known['vocab_size']}",
            "floor": f"{known['floor']:.4f} ({known['floor_kind']})",
            "ceiling": f"{known['ceiling']:.4f} ({known['ceiling_kind']})",
        }
    if subject.kind != MECHANISMS.kind:
        return {}
    arguments = coerce(subject.kind, subject.unit, dict(subject.arguments))
    state = ", ".join(
        f"{subject.unit(**arguments, max_length=length).state_elements(length)} after {length} tokens"
        for length in STATE_LENGTHS
    )
    speed = ", ".join(
        f"{time['ms']:.2f} ms at length {length} ({time['times_softmax']:.1f} times softmax)"
        for length, time in next_to_softmax(subject.name, arguments).items()
    )
    return {
        "parameters": f"{num_parameters(subject.unit(**arguments))} in a layer of width 64",
        "state": f"{state}, in numbers a layer",
        "forward": f"{speed}, 8 sequences on one thread",
        "members": f"trained together by: {strategy_of(subject.unit, arguments)}",
    }
