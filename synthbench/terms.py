"""Reads what a user names: lists, globs, ``@category``, ``all``, ``!name``, and arguments as in ``slay:R=3,P=8``."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeVar

from synthbench.errors import UnknownName, UsageError
from synthbench.knobs import Value, coerce, parse_term, resolve
from synthbench.registry import Registry

T = TypeVar("T")

MAIN_SUITE = "core"
"""The suite that is meant where none is named and there are no rows of one's own."""
RUN_SUITE = "paper"
"""The suite of ``run`` where none is named; benches measure its mechanisms in its model."""

_AS_BUILT = "the layers as their authors build them"
MOVED = MappingProxyType(
    {
        "climb": ("core", f"{_AS_BUILT}; it shows the rows of climb that still hold"),
        "climb.extra": ("core.extra", f"{_AS_BUILT}; it shows the rows of climb.extra that still hold"),
        "climb-small": ("core-small", _AS_BUILT),
        "climb-large": ("core-large", _AS_BUILT),
        "climb-long": ("core.extra", "the same two tasks with the steps of core; load('packaged') has the longer runs"),
    }
)
"""Names that suites had: where each went, and what is there in words. Rows keep the name that they were made under."""
STUDIED = frozenset({"digits", "digits-short", "labels", "labels-short"})
"""Suites whose tasks are those of a study by now. Their rows stay in stores, and no command shows them in a table."""

Selection = dict[str, dict[str, str]]
"""Selected names in order, each with the arguments that were given as text."""


def require_current(suite: str) -> None:
    """Refuse a name that a suite had before.

    Raises:
        UsageError: If it is one of ``MOVED`` or ``STUDIED``; the message says where it went.
    """
    if suite in STUDIED:
        raise UsageError(
            f"suite {suite!r} is a study by now: in a checkout, python -m studies.prototypes.train {suite} makes its "
            "runs (docs/upgrading.md)"
        )
    if suite in MOVED:
        now, words = MOVED[suite]
        raise UsageError(f"suite {suite!r} is now {now!r}: {words} (docs/upgrading.md)")


def select(
    kind: str,
    expressions: Sequence[str],
    names: Sequence[str],
    group_of: Callable[[str], str],
    *,
    unlisted: Sequence[str] = (),
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Selection:
    """The names that some expressions select, and the arguments given with them.

    Args:
        kind: What is selected, for messages: ``task``.
        expressions: What the user wrote, one an option; each is a comma list. ``!`` before a term takes names away, so
            ``all,!parity`` is all but one; if every term takes away, they take from all.
        names: What can be selected, in the order in which it is returned.
        group_of: The group of a name, which ``@group`` selects: the category of a task, the family of a mechanism.
        unlisted: Further names, which only the name itself selects: no glob, no group, not ``all``. They come last.
        labels: What tables print instead of a name, where that differs; it selects too, and so does any spelling that
            :func:`synthbench.knobs.resolve` knows.

    Raises:
        UnknownName: If a name or group does not exist, or a glob matches nothing.
        UsageError: If an expression is malformed, nothing is left, or a name is given twice with other arguments, of
            which only one could be taken. After ``all``, a group or a glob, arguments of a name change those it has.
    """
    known = {name: labels.get(name, name) for name in [*names, *unlisted]}
    terms = [
        registered(term, lambda name: resolve(kind, name, known)) for text in expressions for term in split_terms(text)
    ]
    if not terms:
        raise UsageError(f"no {kind} is named; allowed: {', '.join(names)}, a glob, @group, all or !name")
    _refuse_two_settings(kind, terms, [*names, *unlisted])
    chosen: dict[str, dict[str, str]] = {}
    if all(term.startswith("!") for term in terms):
        chosen = {name: {} for name in names}
    for term in terms:
        is_exclusion = term.startswith("!")
        pattern, arguments = parse_term(term.removeprefix("!"))
        for name in [pattern] if pattern in unlisted else _matches(kind, pattern, names, group_of, unlisted):
            if is_exclusion:
                chosen.pop(name, None)
            else:
                chosen[name] = {**chosen.get(name, {}), **arguments}
    if not chosen:
        raise UsageError(f"{','.join(expressions)!r} leaves no {kind}")
    return {name: chosen[name] for name in [*names, *unlisted] if name in chosen}


def split_terms(expression: str) -> list[str]:
    """Split a comma list; ``P=8`` after ``slay:R=3`` belongs to the term before it."""
    terms: list[str] = []
    for piece in (part.strip() for part in expression.split(",")):
        if "=" in piece and ":" not in piece.partition("=")[0] and terms:
            terms[-1] += f",{piece}"
        elif piece:
            terms.append(piece)
    return terms


def registered(term: str, resolve_name: Callable[[str], str]) -> str:
    """A term with the registered name in place of what the user wrote; ``all``, groups and globs stay as they are."""
    sign = "!" * term.startswith("!")
    name, colon, options = term.removeprefix("!").partition(":")
    return (
        term if name == "all" or any(mark in name for mark in "@*?[") else sign + resolve_name(name) + colon + options
    )


def configured(registry: Registry[T], term: str) -> tuple[type[T], dict[str, Value]]:
    """The unit that ``name`` or ``name:argument=value`` names, and its arguments.

    Raises:
        UnknownName: If a name does not exist.
        UsageError: If a value is out of range.
    """
    name, arguments = parse_term(term)
    unit = registry[name]
    return unit, coerce(registry.kind, unit, arguments)


def _refuse_two_settings(kind: str, terms: Sequence[str], names: Sequence[str]) -> None:
    first: dict[str, str] = {}
    for term in terms:
        name, arguments = parse_term(term)
        if name in names and parse_term(first.setdefault(name, term))[1] != arguments:
            raise UsageError(
                f"{kind} {name!r} is named twice, as {first[name]!r} and {term!r}; allowed: one setting of a {kind} "
                "in a command; run it once for each"
            )


def _matches(
    kind: str, pattern: str, names: Sequence[str], group_of: Callable[[str], str], unlisted: Sequence[str]
) -> list[str]:
    if pattern == "all":
        return list(names)
    if pattern.startswith("@"):
        groups = {name: group_of(name) for name in names}
        if pattern[1:] not in groups.values():
            raise UnknownName(f"group of {kind}s", pattern[1:], set(groups.values()))
        return [name for name, group in groups.items() if group == pattern[1:]]
    is_glob = any(sign in pattern for sign in "*?[")
    matching = [name for name in names if (fnmatchcase(name, pattern) if is_glob else name == pattern)]
    if not matching:
        raise UnknownName(kind, pattern, names if is_glob else [*names, *unlisted])
    return matching
