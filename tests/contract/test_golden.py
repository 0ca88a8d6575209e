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
from tests.contract import _golden
from tests.contract._computed import COMPONENTS, COMPUTED, entry_of, unit_of
from tests.contract._golden import FOLDER, Entry, changes, outline, read, rewritten
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
    _golden.write(path, entries)


HELD: Entry = {
    "version": 2,
    "options": {"M": 64},
    "rff": {"outputs": [1.0, -3.0], "float32 outputs": [1.0, -3.0], "exact floor": [0.5, 0.0], "init_seed": [2**62]},
    "rff:M=32": {"outputs": [2.0]},
}


def changed(entry: Entry, change: Entry) -> Entry:
    """An entry with other values; None takes one out."""
    return {name: value for name, value in {**entry, **change}.items() if value is not None}


def lists(change: Entry) -> Entry:
    return {"rff": changed(HELD["rff"], change)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lists({"outputs": [1.0, -3.0003]}), "computes other outputs as 'rff': if that is meant, raise `version` of"),
        (lists({"outputs": [1.0, -3.0, 2.0]}), "computes other outputs as 'rff'"),
        (lists({"outputs": [1.0, float("nan")]}), "computes other outputs as 'rff'"),
        (lists({"float32 outputs": [1.0, -3.0004]}), "computes other float32 outputs as 'rff'"),
        (lists({"init_seed": [2**62 + 1]}), "computes other init_seed as 'rff'"),
        (lists({"exact floor": [0.50001, 0.0]}), "other exact floor as 'rff', which changes the skill of every row"),
        (lists({"exact floor": None}), "other exact floor as 'rff', which changes the skill"),
        ({"options": {"M": 64, "bias": True}}, "new option 'bias': declare the value that changes nothing"),
        ({"options": {"M": 32}}, "had the option M=64, now 32 among its options: raise `version`"),
        ({"options": {}, "additions": {"M": 64}}, "had the option M=64, now 'none such' among its options"),
        ({"version": 1}, "version 1 is below 2"),
        ({"rff:M=32": None, "rff:M=16": {"outputs": [2.0]}}, "computes nothing as 'rff:M=32', which is held: raise"),
    ],
)
def test_a_change_without_a_new_version_is_named_and_not_written(change: Entry, message: str) -> None:
    now = changed(HELD, change)
    (found,) = changes("mechanism 'rff'", HELD, now)

    assert message in found
    assert "mechanism 'rff'" in found
    assert rewritten("mechanism 'rff'", HELD, now) == HELD


@pytest.mark.parametrize(
    ("now", "is_new"),
    [
        ({**HELD, "additions": {"bias": True}}, True),
        ({**HELD, "rff:bias=false": {"outputs": [4.0]}}, True),
        ({**HELD, "rff:M=32": {"outputs": [2.0], "sizes": [3]}}, True),
        ({"version": 3, "options": {}, "rff": {"outputs": [2.0]}}, True),
        ({**HELD, **lists({"outputs": [1.0 + 1e-9, -3.0], "float32 outputs": [1.0 + 1e-4, -3.0]})}, False),
    ],
)
def test_what_is_new_beside_what_is_held_is_written_and_digits_of_another_processor_are_not(
    now: Entry, *, is_new: bool
) -> None:
    assert changes("mechanism 'rff'", HELD, now) == []
    assert (outline(now) != outline(HELD)) == is_new
    assert rewritten("mechanism 'rff'", HELD, now) == (now if is_new else HELD)


@pytest.fixture(scope="module")
def golden() -> dict[Path, dict[str, Entry]]:
    paths = {file_of(kind) for kind, _ in COMPONENTS}
    if os.environ.get(_golden.SWITCH) == "1":
        for path in paths:
            rewrite(path)
    return {path: read(path) for path in paths}


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=map(" ".join, COMPONENTS))
def test_a_component_computes_what_its_version_did(golden: dict[Path, dict[str, Entry]], kind: str, name: str) -> None:
    held = golden[file_of(kind)].get(key_of(kind, name))

    _golden.check_unchanged(f"{kind} {name!r}", held, entry_of(kind, name))


@pytest.mark.parametrize(("kind", "name"), [of for of in COMPONENTS if of[0] != TASKS.kind])
def test_rounding_of_a_processor_decides_nothing_held(
    golden: dict[Path, dict[str, Entry]], kind: str, name: str
) -> None:
    held = golden[file_of(kind)][key_of(kind, name)]
    with rounded_otherwise(seed=0):
        moved = COMPUTED[kind](unit_of(kind, name))

    assert not (found := _golden.fragile(held, moved)), f"{kind} {name!r}: rounding decides {found}"


def test_the_golden_files_have_no_other_components(golden: dict[Path, dict[str, Entry]]) -> None:
    held = [key for path in sorted(golden) for key in golden[path]]

    assert held == [key_of(kind, name) for kind, name in COMPONENTS]
