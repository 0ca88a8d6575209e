"""Golden numbers of every built-in component, held to its ``version``: a change shows as a difference in a file.

A row is known by the versions that its components declare, so whoever changes what one computes raises its ``version``.
The batches and bounds of a task are held at its own length, at 2 and 4 times that if it says how, and with every option
at another value. Of a mechanism, position encoding or block the outputs for a few tokens and their gradients are held:
at the defaults, with other options, and for more tokens in float32. Of all, the options.

What is held must be the same on every processor, so each entry is also computed as other processors might round it.
What then moves by more than a third of its tolerance is fragile: hold it otherwise, in ``_computed.py``.

The files are rewritten only when asked: ``SYNTHBENCH_REWRITE_GOLDEN=1 pytest tests/contract -k golden``. Even then the
entry of a component that changed without a new version stays, and its test fails.
"""

import os
from pathlib import Path

import pytest

from synthbench.tasks import TASKS
from tests.contract import _computed
from tests.contract._computed import COMPONENTS, COMPUTED, entry_of, unit_of
from tests.contract._golden import FOLDER, REWRITE, SWITCH, Entry, changes, fragile, outline, read, rewritten, write
from tests.contract._rounding import rounded_otherwise


def file_of(kind: str) -> Path:
    return FOLDER / ("first_batches.json" if kind == TASKS.kind else "first_outputs.json")


def key_of(kind: str, name: str) -> str:
    return name if kind == TASKS.kind else f"{kind} {name}"


def rewrite(path: Path) -> None:
    """Write a golden file anew."""
    before = read(path)
    entries = {
        key_of(kind, name): rewritten(f"{kind} {name!r}", before.get(key_of(kind, name)), entry_of(kind, name))
        for kind, name in COMPONENTS
        if file_of(kind) == path
    }
    write(path, entries)


HELD: Entry = {
    "version": 2,
    "options": {"M": 64},
    "rff": {"outputs": [1.0, -3.0], "float32 outputs": [1.0, -3.0], "exact floor": [0.5, 0.0], "init_seed": [2**62]},
    "rff:M=32": {"outputs": [2.0]},
}


def with_lists(**lists: list[float] | list[int]) -> Entry:
    return {"rff": {**HELD["rff"], **{name.replace("_in_", " "): numbers for name, numbers in lists.items()}}}


def without(entry: Entry, *names: str) -> Entry:
    return {name: value for name, value in entry.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_lists(outputs=[1.0, -3.0003]), "computes other outputs as 'rff': if that is meant, raise `version` of"),
        (with_lists(outputs=[1.0, -3.0, 2.0]), "computes other outputs as 'rff'"),
        (with_lists(outputs=[1.0, float("nan")]), "computes other outputs as 'rff'"),
        (with_lists(float32_in_outputs=[1.0, -3.0004]), "computes other float32 outputs as 'rff'"),
        (with_lists(init_seed=[2**62 + 1]), "computes other init_seed as 'rff'"),
        (with_lists(exact_in_floor=[0.50001, 0.0]), "other exact floor as 'rff', which changes the skill of every row"),
        ({"rff": without(HELD["rff"], "exact floor")}, "other exact floor as 'rff', which changes the skill"),
        ({"options": {"M": 64, "bias": True}}, "new option 'bias': declare the value that changes nothing"),
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


def test_a_setting_that_is_computed_no_more_is_named_and_not_dropped() -> None:
    now = {**without(HELD, "rff:M=32"), "rff:M=16": {"outputs": [2.0]}}
    (found,) = changes("mechanism 'rff'", HELD, now)

    assert "mechanism 'rff' computes nothing as 'rff:M=32', which is held: raise `version`" in found
    assert rewritten("mechanism 'rff'", HELD, now) == HELD


@pytest.mark.parametrize(
    "now",
    [
        {**HELD, "additions": {"bias": True}},
        {**HELD, "rff:bias=false": {"outputs": [4.0]}},
        {**HELD, "rff:M=32": {"outputs": [2.0], "sizes": [3]}},
        {"version": 3, "options": {}, "rff": {"outputs": [2.0]}},
    ],
)
def test_what_is_new_beside_what_is_held_and_a_new_version_are_written(now: Entry) -> None:
    assert changes("mechanism 'rff'", HELD, now) == []
    assert outline(now) != outline(HELD)
    assert rewritten("mechanism 'rff'", HELD, now) == now


def test_digits_of_another_processor_are_not_written() -> None:
    now = {**HELD, **with_lists(outputs=[1.0 + 1e-9, -3.0], float32_in_outputs=[1.0 + 1e-4, -3.0])}

    assert changes("mechanism 'rff'", HELD, now) == []
    assert rewritten("mechanism 'rff'", HELD, now) == HELD


@pytest.fixture(scope="module")
def golden() -> dict[Path, dict[str, Entry]]:
    paths = {file_of(kind) for kind, _ in COMPONENTS}
    if os.environ.get(SWITCH) == "1":
        for path in paths:
            rewrite(path)
    return {path: read(path) for path in paths}


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=map(" ".join, COMPONENTS))
def test_a_component_computes_what_its_version_did(golden: dict[Path, dict[str, Entry]], kind: str, name: str) -> None:
    component, now = f"{kind} {name!r}", entry_of(kind, name)
    held = golden[file_of(kind)].get(key_of(kind, name))

    assert held is not None, f"{component} is not held: {REWRITE}"
    assert not (found := changes(component, held, now)), "\n".join(found)
    assert (held["version"], outline(held)) == (now["version"], outline(now)), f"{component} has news: {REWRITE}"


@pytest.mark.parametrize(("kind", "name"), [of for of in COMPONENTS if of[0] != TASKS.kind])
def test_what_is_held_of_a_component_does_not_depend_on_how_a_processor_rounds(
    golden: dict[Path, dict[str, Entry]], kind: str, name: str
) -> None:
    held = golden[file_of(kind)][key_of(kind, name)]
    with rounded_otherwise(seed=0):
        moved = COMPUTED[kind](unit_of(kind, name))

    assert not (found := fragile(held, moved)), f"{kind} {name!r}: rounding decides {found}"


def test_what_was_held_of_neighbours_and_trees_in_float32_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were the same on an EPYC and on the oldest x86-64, and others on a Xeon with AVX-512."""
    monkeypatch.setattr(_computed, "DOUBLE", set())
    unit = unit_of("mechanism", "rewa-topological")
    held = {**COMPUTED["mechanism"](unit), "version": 1}
    with rounded_otherwise(seed=0):
        moved = COMPUTED["mechanism"](unit)

    (found,) = fragile(held, moved)
    assert "float32 gradient" in found
    assert found.endswith("as 'rewa-topological for 130 tokens'")


def test_the_golden_files_have_no_other_components(golden: dict[Path, dict[str, Entry]]) -> None:
    held = [key for path in sorted(golden) for key in golden[path]]

    assert held == [key_of(kind, name) for kind, name in COMPONENTS]
