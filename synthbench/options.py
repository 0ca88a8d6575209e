"""Options of components (``slay:R=3,P=8``), and selection of components by lists, globs, ``@category``, ``!name``.

A component, such as a task or a mechanism, is a dataclass. Its fields made by :func:`option` are its options. The
functions here check, print and parse the options of any component, and select components by name.
"""

import dataclasses
import inspect
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from synthbench.errors import ContractError, UnknownName, UsageError

MAX_SEEDS = 10_000
"""Limit on the number of seeds in one command, since more would exhaust memory before any training."""
LARGEST = 2**24
"""Largest sequence length, and largest whole number allowed in an option; more would only exhaust the memory."""
LARGEST_SEED = 2**63 - 1
"""Largest seed that a row can hold."""

Value = bool | int | float | str
VALUES: tuple[Any, ...] = get_args(Value)
"""Types of an option's value."""
Number = int | float


@dataclass(frozen=True)
class Option:
    """Type, default, range or choices, and meaning of one option of a component."""

    name: str
    type: type
    default: Value
    low: Number | None
    high: Number | None
    choices: tuple[str, ...]
    meaning: str
    absent: Value | None = None
    """Value at which the option affects neither run ids nor seeds. None: the option always affects them."""
    is_location: bool = False
    """True if the option is a path to data; such an option affects neither run ids nor seeds."""

    def allowed(self) -> str:
        """Describe the allowed values, e.g. ``int from 1 to 64``."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        bounds = "".join(
            f" {word} {bound:g}" for word, bound in (("from", self.low), ("to", self.high)) if bound is not None
        )
        return self.type.__name__ + bounds


def option(
    default: Value,
    meaning: str,
    *,
    low: Number | None = None,
    high: Number | None = None,
    is_addition: bool = False,
    absent: Value | None = None,
    is_location: bool = False,
) -> Any:
    """Declare an option of a component: a dataclass field with a range (both ends included) and a one-line explanation.

    To add an option to a component that already has stored rows, set ``absent`` to the value that gives the same
    results as before. At this value, the option affects neither run ids nor seeds, so the stored rows stay valid.
    ``is_addition=True`` sets ``absent`` to the default. ``is_location=True`` marks the path of a file or folder. A
    component with such an option needs a second option, which holds the hash of the content at this path.
    """
    absent = default if is_addition else absent
    # Name, type and choices are those of the field, once there is one.
    declared = Option("", type(default), default, low, high, (), meaning, absent, is_location)
    return dataclasses.field(default=default, metadata={"option": declared})


def options_of(unit: type) -> Mapping[str, Option]:
    """Return the options of a component by name, in the order of declaration.

    Raises:
        ContractError: If the annotation of an option is neither a type in ``VALUES`` nor a ``Literal`` of texts.
    """
    return _options_of(unit)


@cache  # a plan calls this several times for every cell, and reading annotations is slow
def _options_of(unit: type) -> Mapping[str, Option]:
    hints = get_type_hints(unit)
    options = {}
    for field in dataclasses.fields(unit):
        if (declared := field.metadata.get("option")) is not None:
            hint = hints[field.name]
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            kind = str if choices else hint
            if kind not in VALUES or not all(isinstance(choice, str) for choice in choices):
                raise ContractError(
                    f"option {field.name!r} of {unit.__name__} is annotated {inspect.formatannotation(hint)}; allowed: "
                    "bool, int, float, str, or a Literal of texts; a value such as 0 can stand for none"
                )
            options[field.name] = dataclasses.replace(declared, name=field.name, type=kind, choices=choices)
    return MappingProxyType(options)


def arguments_of(unit: object) -> dict[str, Value]:
    """Return the values of an instance's options by name, except options that :func:`with_defaults` omits."""
    return with_defaults(type(unit), {name: getattr(unit, name) for name in options_of(type(unit))})


def with_defaults(unit: type, arguments: dict[str, Value]) -> dict[str, Value]:
    """Return the value of each option of a class by name: the value in ``arguments``, or else the default.

    Two kinds of options are left out: paths of files or folders (``is_location``), and options at their ``absent``
    value, at which they have no effect.
    """
    values = {name: (arguments.get(name, declared.default), declared) for name, declared in options_of(unit).items()}
    return {
        name: value
        for name, (value, declared) in values.items()
        if not (declared.is_location or (declared.absent is not None and value == declared.absent))
    }


def absent_values(unit: type) -> dict[str, Value]:
    """Return the ``absent`` values of a class's options, by the names of the options.

    An option has no effect at its ``absent`` value, and is then not written to rows. So if a stored row lacks the
    option, the run used the ``absent`` value, not the default. Options without an ``absent`` value are left out, and so
    are those whose default equals it.
    """
    return {
        name: declared.absent
        for name, declared in options_of(unit).items()
        if declared.absent is not None and declared.absent != declared.default
    }


def term_of(unit: type, arguments: dict[str, Value], *, is_complete: bool = False) -> str:
    """Write a component's name and arguments as one term, such as ``aether:norm=pre``.

    Arguments equal to the defaults are written only if ``is_complete``.
    """
    options = options_of(unit)
    given = {name: value for name, value in arguments.items() if is_complete or value != options[name].default}
    texts = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in given.items()]
    return ":".join([getattr(unit, "name", unit.__name__), ",".join(texts)]) if texts else unit.name  # type: ignore[attr-defined]


def command_line(command: str, options: Mapping[str, object]) -> str:
    """Write a command as a shell reads it; an option is left out if it is None, and repeated if it is a list.

    >>> command_line("run", {"suite": "my suite", "task": None, "plugin": ["a.py", "b.py"]})
    "synthbench run --suite 'my suite' --plugin a.py --plugin b.py"
    """
    given = [
        (name, each) for name, value in options.items() for each in (value if isinstance(value, list) else [value])
    ]
    words = [word for name, value in given if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["synthbench", command, *words])


def parse_term(term: str) -> tuple[str, dict[str, str]]:
    """Split a term such as ``slay:R=3,P=8`` into the name ``slay`` and the options ``R=3`` and ``P=8``.

    Raises:
        UsageError: If an option is not of the form ``name=value``, or if it appears twice.
    """
    name, colon, text = term.partition(":")
    arguments: dict[str, str] = {}
    for piece in text.split(",") if colon else ():
        argument, equals, value = piece.partition("=")
        if not (equals and argument and value):
            raise UsageError(f"argument {piece!r} of {name!r} is malformed; allowed: name=value")
        if argument.strip() in arguments:
            raise UsageError(f"argument {argument.strip()!r} of {name!r} is given twice; allowed: once")
        arguments[argument.strip()] = value.strip()
    return name, arguments


def resolve(kind: str, name: str, labels: Mapping[str, str]) -> str:
    """Return the registered name of a component, given its name or table label in any spelling.

    Case, spaces, ``-`` and ``_`` are ignored. If ``name`` matches the registered name of one component and the label of
    another, the registered name is chosen. If nothing matches, ``name`` is returned unchanged.

    Args:
        kind: Kind of component for the error message, such as ``mechanism``.
        name: Name or label as the user wrote it.
        labels: Table label of each component, by registered name.

    Raises:
        UsageError: If several components match, which never happens among built-in components.

    >>> resolve("mechanism", "Gated_DeltaNet", {"gated-deltanet": "Gated DeltaNet", "forgetting": "FoX"})
    'gated-deltanet'
    >>> resolve("mechanism", "fox", {"gated-deltanet": "Gated DeltaNet", "forgetting": "FoX"})
    'forgetting'
    """
    if name in labels:
        return name
    for spelled in (dict.fromkeys(labels), labels):
        meant = [known for known in labels if _folded(spelled[known] or known) == _folded(name)]
        if len(meant) > 1:
            raise UsageError(f"{kind} {name!r} may be any of {', '.join(map(repr, meant))}; name one of them")
        if meant:
            return meant[0]
    return name


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read a list of seeds from text: ``42-44,50`` means 42, 43, 44 and 50.

    Raises:
        UsageError: If the text is malformed or empty, or if a range runs backwards. It is also raised for a seed that
            appears twice or is larger than ``LARGEST_SEED``, and for more than ``MAX_SEEDS`` seeds.
    """
    seeds: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(
                f"seeds are {text!r}; {piece.strip()!r} is neither a number nor a range; allowed: as in 42-51 or 0,3,7"
            )
        if dash and int(last) < int(first):
            raise UsageError(f"seeds are {text!r}; a range begins with its lowest seed; allowed: {last}-{first}")
        named = range(int(first), int(last or first) + 1)
        if len(seeds) + named.stop - named.start > MAX_SEEDS:
            raise UsageError(f"seeds are {text!r}; allowed: up to {MAX_SEEDS} of them")
        seeds += named
    return check_seeds(seeds)


def check_seeds(seeds: Iterable[object]) -> tuple[int, ...]:
    """Check the seeds of runs and return them.

    Raises:
        UsageError: If a seed is not a whole number from 0 to ``LARGEST_SEED``, or appears twice.
    """
    checked: dict[int, None] = {}
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
            raise UsageError(f"a seed is {seed!r}; allowed: whole numbers from 0 to {LARGEST_SEED}")
        if seed in checked:
            raise UsageError(f"the seed {seed} is there twice; allowed: each once")
        checked[seed] = None
    return tuple(checked)


def parse_rates(text: str) -> tuple[float, ...]:
    """Read learning rates from a text: ``1e-2,3e-2`` is 0.01, 0.03.

    Raises:
        UsageError: If a part is not a number.
    """
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise UsageError(f"rates are {text!r}; allowed: numbers, as in 1e-2,3e-2") from None


def coerce(kind: str, unit: type, arguments: dict[str, Any]) -> dict[str, Value]:
    """Check the values of a component's options and convert each to the option's type (``1`` to ``1.0`` for a float).

    Args:
        kind: Kind of component for the error message, such as ``task``.
        unit: The class that declares the options.
        arguments: Values by option name; a string is parsed as the option's type.

    Raises:
        UnknownName: If a name is not an option of the class.
        UsageError: If a value has the wrong type, or if it lies outside the option's range.
    """
    name = getattr(unit, "name", unit.__name__)
    options = options_of(unit)
    for argument in arguments:
        if argument not in options:
            raise UnknownName(f"argument of {kind} {name!r}", argument, options)
    return {argument: _convert(f"{name}:{argument}", options[argument], value) for argument, value in arguments.items()}


def check(unit: object) -> None:
    """Check the values of all options of an instance, for use in ``__post_init__``; nothing is converted.

    Raises:
        UsageError: If a value has the wrong type (such as a string for a number), or if it lies outside its range.
    """
    name = getattr(unit, "name", type(unit).__name__)
    for option_of_unit in options_of(type(unit)).values():
        value = getattr(unit, option_of_unit.name)
        if isinstance(value, str) and not isinstance(option_of_unit.default, str):
            raise _refusal(f"{name}:{option_of_unit.name}", option_of_unit, value)
        _convert(f"{name}:{option_of_unit.name}", option_of_unit, value)


def _refusal(label: str, declared: Option, value: object) -> UsageError:
    return UsageError(f"{label} is {value!r}; allowed: {declared.allowed()}")


def _convert(label: str, declared: Option, value: Any) -> Value:
    refusal = _refusal(label, declared, value)
    if declared.choices or declared.type is str:
        if not isinstance(value, str) or (declared.choices and value not in declared.choices):
            raise refusal
        return value
    if declared.type is bool:
        if isinstance(value, str) and value.lower() in ("true", "false"):  # ``show`` prints True and False
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise refusal
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refusal
    try:
        number = declared.type(value)
    except (ValueError, OverflowError):
        raise refusal from None
    too_low = declared.low is not None and not number >= declared.low
    too_high = declared.high is not None and not number <= declared.high
    lost = isinstance(value, float) and number != value
    if too_low or too_high or lost or math.isnan(number):
        raise refusal
    if declared.type is int and abs(number) > LARGEST:
        raise UsageError(f"{label} is {value!r}; allowed: whole numbers up to {LARGEST}")
    return number  # type: ignore[no-any-return]


# Selection of components and suites by a user, on the command line or in a request.


MAIN_SUITE = "core"
"""Suite used if none is named and there are no rows of your own."""
RUN_SUITE = "paper"
"""Default suite of ``synthbench run``; ``synthbench bench`` measures the mechanisms of this suite."""

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
"""New name and description of each renamed suite, by former name. Rows keep the name under which they were made."""
STUDIED = frozenset({"digits", "digits-short", "labels", "labels-short"})
"""Suites whose tasks now belong to a study. Their rows stay in stores, but no command shows them in a table."""

Selection = dict[str, dict[str, str]]
"""Selected names in order, each with its arguments as text."""


def require_current(suite: str) -> None:
    """Raise an error if ``suite`` is a name that is no longer in use.

    Raises:
        UsageError: If the suite was renamed, or if its tasks now belong to a study. The message says what to use
            instead.
    """
    if suite in STUDIED:
        raise UsageError(
            f"suite {suite!r} is now a study: in a checkout, python -m studies.prototypes.train {suite} makes its "
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
    """Return the names that a user's expressions select, each with the options that the user sets for it.

    Args:
        kind: Kind of component for error messages, such as ``task``.
        expressions: Comma-separated lists of names, globs, ``@group`` and ``all``, with options as in ``slay:R=3``. An
            item after ``!`` is excluded, so ``all,!parity`` selects all but ``parity``. If every item begins with
            ``!``, all other names are selected. If several items select the same name, their options are combined; of
            two values for one option, the later value counts.
        names: Names to select from, in the order of the result.
        group_of: Function that returns the group of a name, for ``@group``: a task's category or a mechanism's family.
        unlisted: Further names, which only the exact name selects, never a glob, a group or ``all``. They come last in
            the result.
        labels: Labels in tables, by name; names that equal their label may be missing. A user may write the label
            instead of the name, in any spelling that :func:`resolve` accepts.

    Raises:
        UnknownName: If a name or group does not exist, or if a glob matches nothing.
        UsageError: If an expression is malformed, if no name is left, or if a name itself (not a glob or group) is
            written twice with different options.
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
    """Split a comma-separated list of items; ``P=8`` after ``slay:R=3`` belongs to the same item."""
    terms: list[str] = []
    for piece in (part.strip() for part in expression.split(",")):
        if "=" in piece and ":" not in piece.partition("=")[0] and terms:
            terms[-1] += f",{piece}"
        elif piece:
            terms.append(piece)
    return terms


def registered(term: str, resolve_name: Callable[[str], str]) -> str:
    """Replace the name in ``name:option=value``, which may have any spelling, by the registered name.

    ``all``, ``@group`` and globs stay as they are.
    """
    sign = "!" * term.startswith("!")
    name, colon, options = term.removeprefix("!").partition(":")
    return (
        term if name == "all" or any(mark in name for mark in "@*?[") else sign + resolve_name(name) + colon + options
    )


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
