"""Golden files: what is held of a version, beside what is computed now, and what may be written anew.

An entry has a ``version``, the ``options`` and ``additions`` of a component, and terms: what it computes in a setting,
a list or lists by name. Fractions may differ by a tolerance, everything else must be equal.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Entry = Mapping[str, Any]
Lists = dict[str, list[Any]]

FOLDER = Path(__file__).parents[1] / "golden"
REWRITE = "SYNTHBENCH_REWRITE_GOLDEN=1 pytest tests/contract -k golden adds it"
SWITCH = "SYNTHBENCH_REWRITE_GOLDEN"

TOLERANCE = 1e-9
"""Of the largest number of a list. Processors round float64 apart by up to 4e-11."""

TOLERANCES = {"float32": 1e-4, "rough": 3e-3}
"""The same for lists whose name begins with one of these words.

Measured between a processor with AVX-512 and the oldest x86-64 (``make test-other-processor``): float32 differs by up
to 6e-6, losses of training by 2e-7. It is ``rough``, up to 3e-4, where a mechanism divides by sums that pass near 0.
"""


def changes(component: str, held: Entry, now: Entry, *, number: str | None = None) -> list[str]:
    """List differences between a component and its held version, and what to do about them.

    Args:
        component: How messages name it: ``mechanism 'rff'``.
        held: The entry in the file.
        now: The entry of the code.
        number: What is to be raised; default: its ``version``.
    """
    version, number = now["version"], number or f"`version` of {component}"
    if version != held["version"]:
        is_higher = version > held["version"]
        return [] if is_higher else [f"{component}: version {version} is below {held['version']}, which is held"]
    way_out = f"raise {number} above {version}"
    added = [
        f"{component} has a new option {option!r}: declare the value that changes nothing that was computed as "
        f"absent, otherwise {way_out}"
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
    gone = [
        f"{component} computes nothing as {term!r}, which is held: {way_out}"
        for term in terms_of(held)
        if term not in now
    ]
    other = [
        f"{component} computes other {where} as {term!r}{_consequence(where)}: if that is meant, {way_out}"
        for term in terms_of(now)
        if term in held and (where := differing(term, held[term], now[term]))
    ]
    return added + altered + gone + other


def check_unchanged(component: str, held: Entry | None, now: Entry, *, number: str | None = None) -> None:
    """Fail with what differs from what is held, or with what is new beside it."""
    assert held is not None, f"{component} is not held: {REWRITE}"
    assert not (found := changes(component, held, now, number=number)), "\n".join(found)
    assert (held["version"], outline(held)) == (now["version"], outline(now)), f"{component} has news: {REWRITE}"


def _consequence(where: str) -> str:
    is_bound = "floor" in where or "ceiling" in where
    return ", which changes the skill of every row" if is_bound else ""


def terms_of(entry: Entry) -> list[str]:
    return [term for term in entry if term not in {"version", "options", "additions"}]


def outline(entry: Entry) -> list[tuple[str, list[str]]]:
    """The names in an entry, in order: whether anything is new beside what is held."""
    return [(term, list(value) if isinstance(value, Mapping) else []) for term, value in entry.items()]


def fragile(held: Entry, moved: Entry) -> list[str]:
    """Numbers that move by more than a third of their tolerance when only rounding differs."""
    terms = [term for term in terms_of(held) if term in moved]
    return [
        f"{where} as {term!r}" for term in terms if (where := differing(term, held[term], moved[term], share=1 / 3))
    ]


def differing(term: str, held: Any, now: Any, *, share: float = 1.0) -> str:
    """The names of the lists that are gone or differ by more than a share of the tolerance; empty if none does."""
    lists, others = (value if isinstance(value, Mapping) else {term: value} for value in (held, now))
    return " and ".join(
        name for name in lists if name not in others or not is_near(name, lists[name], others[name], share=share)
    )


def is_near(name: str, held: list[Any], now: list[Any], *, share: float = 1.0) -> bool:
    numbers, others = np.asarray(held), np.asarray(now)
    if numbers.dtype.kind != "f":
        return held == now
    tolerance = share * TOLERANCES.get(name.partition(" ")[0], TOLERANCE)
    return numbers.shape == others.shape and bool(
        (abs(others - numbers) <= tolerance * abs(numbers).max(initial=0)).all()  # NaN is near nothing
    )


def rewritten(component: str, held: Entry | None, now: Entry) -> Entry:
    """The entry to write: what is held if it changed without a new version, and digits that are held where near."""
    if held is None or now["version"] > held["version"]:
        return now
    if changes(component, held, now):
        return held
    return {**now, **{term: _merged(held[term], now[term]) for term in terms_of(now) if term in held}}


def _merged(held: Any, now: Any) -> Any:
    return {**now, **held} if isinstance(held, Mapping) and isinstance(now, Mapping) else held


def read(path: Path) -> dict[str, Entry]:
    entries: dict[str, Entry] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return entries


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """One line a term, so that a difference names a component and shows its numbers."""
    texts = (
        f'  "{key}": {{\n'
        + ",\n".join(f"    {json.dumps(term)}: {json.dumps(entry[term], separators=(',', ':'))}" for term in entry)
        + "\n  }"
        for key, entry in entries.items()
    )
    path.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")


def rounded(numbers: Sequence[float], *, digits: int = 12) -> list[float]:
    return [float(f"{number:.{digits}g}") for number in numbers]
