"""Options: read from a class, checked, and set from strings; and the names that select components."""

import re
from dataclasses import dataclass, make_dataclass
from typing import Any, Literal

import pytest

from synthbench.errors import ContractError, UsageError
from synthbench.options import (
    arguments_of,
    check,
    coerce,
    option,
    options_of,
    resolve,
    select,
    term_of,
    with_defaults,
)


@dataclass(frozen=True)
class Unit:
    """A unit with an option of every type."""

    name = "unit"
    count: int = option(3, "how many", low=1.0, high=8.0)
    rate: float = option(0.5, "how often", low=0.0)
    is_fast: bool = option(default=False, meaning="whether to hurry")
    shape: Literal["round", "square"] = option("round", "what it looks like")
    label: str = option("none", "what it is called")
    hidden: int = 7


@dataclass(frozen=True)
class Extended(Unit):
    """The unit with options that were added later."""

    added: int = option(2, "how many more", low=0, is_addition=True)
    is_bold: bool = option(default=False, meaning="whether to dare", is_addition=True)


DEFAULTS = {"count": 3, "rate": 0.5, "is_fast": False, "shape": "round", "label": "none"}


def test_options_are_the_declared_fields_in_order() -> None:
    options = options_of(Unit)

    assert {name: declared.default for name, declared in options.items()} == arguments_of(Unit(hidden=9)) == DEFAULTS
    assert [declared.type for declared in options.values()] == [int, float, bool, str, str]
    assert options["count"].meaning == "how many"
    assert [declared.allowed() for declared in options.values()] == [
        *("int from 1 to 8", "float from 0", "bool", "one of round, square", "str")
    ]


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("count", "4", 4),
        ("count", 8, 8),
        ("count", 4.0, 4),
        ("rate", "1e3", 1000.0),
        ("rate", 2, 2.0),
        ("is_fast", "true", True),
        ("is_fast", "False", False),
        ("is_fast", True, True),
        ("shape", "square", "square"),
        ("label", "anything", "anything"),
    ],
)
def test_a_value_gets_the_type_of_its_option(argument: str, value: Any, expected: Any) -> None:
    result = coerce("unit", Unit, {argument: value})

    assert result == {argument: expected}
    assert type(result[argument]) is type(expected)


@pytest.mark.parametrize(
    ("argument", "values"),
    [("count", [2.5, True, None, float("nan")]), ("rate", [False]), ("is_fast", [1]), ("shape", [1]), ("label", [1])],
)
def test_a_value_of_another_type_is_refused(argument: str, values: list[Any]) -> None:
    """Texts that are not allowed are in ``tests/golden/messages.txt``."""
    for value in values:
        with pytest.raises(UsageError) as caught:
            coerce("unit", Unit, {argument: value})

        assert str(caught.value) == f"unit:{argument} is {value!r}; allowed: {options_of(Unit)[argument].allowed()}"


@pytest.mark.parametrize(
    ("kind", "written"), [(int | None, "int | None"), (list[int], "list[int]"), (Literal[1, 2], "Literal[1, 2]")]
)
def test_an_option_of_a_type_that_no_row_holds_is_named_with_what_is_allowed(kind: Any, written: str) -> None:
    wide = make_dataclass("Wide", [("hidden", kind, option(0, "how wide"))])

    with pytest.raises(
        ContractError, match=rf"^option 'hidden' of Wide is annotated .*{re.escape(written)}; allowed: bool, "
    ):
        options_of(wide)


def test_an_addition_is_an_argument_unless_it_has_its_default() -> None:
    at_default, other = Extended(count=5), Extended(added=3)

    assert arguments_of(at_default) == DEFAULTS | {"count": 5}
    assert with_defaults(Extended, {"count": 5, "added": 2}) == with_defaults(Unit, {"count": 5})
    assert term_of(Extended, arguments_of(at_default), is_complete=True) == term_of(
        Unit, arguments_of(Unit(count=5)), is_complete=True
    )
    assert arguments_of(other) == DEFAULTS | {"added": 3}
    assert with_defaults(Extended, {"is_bold": True}) == DEFAULTS | {"is_bold": True}
    assert term_of(Extended, arguments_of(other)) == "unit:added=3"


def test_an_addition_is_checked_and_read_like_any_option() -> None:
    assert coerce("unit", Extended, {"added": "2"}) == {"added": 2}
    check(Extended())
    with pytest.raises(UsageError, match="unit:added is -1; allowed: int from 0"):
        check(Extended(added=-1))


NAMES = ["copy", "sort", "reverse", "kv_recall", "parity"]
GROUPS = {"copy": "basic", "sort": "basic", "reverse": "basic", "kv_recall": "memory", "parity": "arithmetic"}
LABELS = {"kv_recall": "Keys and Values", "parity": "Copy"}


def selected(*expressions: str) -> dict[str, dict[str, str]]:
    unlisted = ["mine", "other"]
    return select("task", expressions, NAMES, GROUPS.__getitem__, unlisted=unlisted, labels=LABELS)


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (["all"], NAMES),
        (["parity", "copy"], ["copy", "parity"]),
        (["@basic"], ["copy", "sort", "reverse"]),
        (["*r*"], ["sort", "reverse", "kv_recall", "parity"]),
        (["!parity"], ["copy", "sort", "reverse", "kv_recall"]),
        (["@basic,!s*"], ["copy", "reverse"]),
        (["!@basic"], ["kv_recall", "parity"]),
        (["*"], NAMES),
        (["mine,copy"], ["copy", "mine"]),
        (["all", "mine", "other"], [*NAMES, "mine", "other"]),
        (["@basic,mine,!mine"], ["copy", "sort", "reverse"]),
        # A label, in any spelling.
        (["KV-Recall"], ["kv_recall"]),
        (["Keys and values,!kv recall,Sort"], ["sort"]),
        (["Copy"], ["copy"]),  # not the label of another
    ],
)
def test_expressions_select_in_the_order_of_the_suite_and_unlisted_names_only_by_themselves(
    expressions: list[str], expected: list[str]
) -> None:
    assert list(selected(*expressions)) == expected


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (["copy:length=9,vocabulary=4,sort"], {"copy": {"length": "9", "vocabulary": "4"}, "sort": {}}),
        (["mine:R=2"], {"mine": {"R": "2"}}),
        (["keys_and-VALUES:length=9"], {"kv_recall": {"length": "9"}}),
        # One setting beside a pattern or itself is taken.
        (["copy:length=9", "@basic"], {"copy": {"length": "9"}, "sort": {}, "reverse": {}}),
        (["copy:length=9,copy:length=9"], {"copy": {"length": "9"}}),
    ],
)
def test_arguments_stay_with_their_name(expressions: list[str], expected: dict[str, dict[str, str]]) -> None:
    assert selected(*expressions) == expected


def test_what_may_be_several_names_is_refused() -> None:
    labels = {"my_fox": "FoX", "forgetting": "FoX", "my-idea": "One", "my_idea": "Two"}

    for written in ("fox", "My Idea"):
        with pytest.raises(UsageError, match=f"mechanism '{written}' may be any of '.*', '.*'; name one of them"):
            resolve("mechanism", written, labels)
    assert resolve("mechanism", "my_idea", labels) == "my_idea"
