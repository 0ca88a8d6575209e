"""Options: read from a class, checked, and set from strings; and the names that select components."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from synthbench.errors import UnknownName, UsageError
from synthbench.options import (
    arguments_of,
    check,
    coerce,
    option,
    options_of,
    parse_seeds,
    parse_term,
    resolve,
    select,
    split_terms,
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


def test_options_are_the_declared_fields_in_order() -> None:
    options = options_of(Unit)

    assert list(options) == ["count", "rate", "is_fast", "shape", "label"]
    assert [declared.type for declared in options.values()] == [int, float, bool, str, str]
    assert (options["count"].default, options["count"].low, options["count"].high) == (3, 1, 8)
    assert options["count"].meaning == "how many"
    assert options["shape"].choices == ("round", "square")
    assert [declared.allowed() for declared in options.values()] == [
        *("int from 1 to 8", "float from 0", "bool", "one of round, square", "str")
    ]


def test_arguments_are_the_values_of_the_options() -> None:
    expected = {"count": 5, "rate": 0.5, "is_fast": False, "shape": "round", "label": "none"}
    assert arguments_of(Unit(count=5, hidden=9)) == expected


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("count", "4", 4),
        ("count", 8, 8),
        ("count", 4.0, 4),
        ("rate", "1e3", 1000.0),
        ("rate", 2, 2.0),
        ("is_fast", "true", True),
        ("is_fast", "false", False),
        ("is_fast", "True", True),
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
    ("argument", "value"),
    [
        ("count", "9"),
        ("count", 2.5),
        ("count", "many"),
        ("count", True),
        ("count", None),
        ("count", float("nan")),
        ("rate", -0.1),
        ("rate", "nan"),
        ("rate", False),
        ("is_fast", 1),
        ("is_fast", "yes"),
        ("shape", "oval"),
        ("shape", 1),
        ("label", 1),
    ],
)
def test_a_value_outside_what_is_allowed_is_refused(argument: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        coerce("unit", Unit, {argument: value})

    assert str(caught.value) == f"unit:{argument} is {value!r}; allowed: {options_of(Unit)[argument].allowed()}"


@pytest.mark.parametrize(("name", "hint"), [("cuont", "; did you mean 'count'"), ("hidden", "")])
def test_what_is_no_option_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UnknownName, match=f"no argument of unit 'unit' called '{name}'{hint}"):
        coerce("unit", Unit, {name: 1})


def test_an_instance_is_checked_as_a_whole() -> None:
    check(Unit())
    with pytest.raises(UsageError, match="unit:count is 9; allowed: int from 1 to 8"):
        check(Unit(count=9))


def test_an_addition_at_its_default_is_no_argument() -> None:
    plain = Unit(count=5)

    assert arguments_of(Extended(count=5)) == arguments_of(plain)
    assert with_defaults(Extended, {"count": 5, "added": 2}) == with_defaults(Unit, {"count": 5})
    assert term_of(Extended, arguments_of(Extended(count=5)), is_complete=True) == term_of(
        Unit, arguments_of(plain), is_complete=True
    )


def test_an_addition_at_another_value_is_an_argument() -> None:
    unit = Extended(added=3)

    assert arguments_of(unit) == {**arguments_of(Unit()), "added": 3}
    assert with_defaults(Extended, {"is_bold": True}) == {**arguments_of(Unit()), "is_bold": True}
    assert term_of(Extended, arguments_of(unit)) == "unit:added=3"


def test_an_addition_is_checked_and_read_like_any_option() -> None:
    assert coerce("unit", Extended, {"added": "2"}) == {"added": 2}
    with pytest.raises(UsageError, match="unit:added is -1; allowed: int from 0"):
        check(Extended(added=-1))


NAMES = ["copy", "sort", "reverse", "kv_recall", "parity"]
GROUPS = {"copy": "basic", "sort": "basic", "reverse": "basic", "kv_recall": "memory", "parity": "arithmetic"}


def selected(*expressions: str) -> list[str]:
    return list(select("task", expressions, NAMES, GROUPS.__getitem__, unlisted=["mine", "other"]))


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (["all"], NAMES),
        (["copy"], ["copy"]),
        (["parity", "copy"], ["copy", "parity"]),
        (["@basic"], ["copy", "sort", "reverse"]),
        (["*r*"], ["sort", "reverse", "kv_recall", "parity"]),
        (["!parity"], ["copy", "sort", "reverse", "kv_recall"]),
        (["@basic,!s*"], ["copy", "reverse"]),
        (["!@basic"], ["kv_recall", "parity"]),
        (["*"], NAMES),
        (["!copy"], NAMES[1:]),
        (["mine,copy"], ["copy", "mine"]),
        (["all", "mine", "other"], [*NAMES, "mine", "other"]),
        (["@basic,mine,!mine"], ["copy", "sort", "reverse"]),
    ],
)
def test_expressions_select_in_the_order_of_the_suite_and_unlisted_names_only_by_themselves(
    expressions: list[str], expected: list[str]
) -> None:
    assert selected(*expressions) == expected


def test_an_unlisted_name_takes_arguments_and_one_setting() -> None:
    assert select("task", ["mine:R=2"], NAMES, GROUPS.__getitem__, unlisted=["mine"]) == {"mine": {"R": "2"}}


def test_arguments_stay_with_their_name() -> None:
    assert split_terms("slay:R=3,P=8,linear") == ["slay:R=3,P=8", "linear"]
    assert parse_term("slay:R=3,P=8") == ("slay", {"R": "3", "P": "8"})
    assert select("task", ["copy:length=9,sort"], NAMES, GROUPS.__getitem__) == {"copy": {"length": "9"}, "sort": {}}


@pytest.mark.parametrize(
    "expressions", [["all,copy:length=9"], ["copy:length=9", "@basic"], ["copy:length=9,copy:length=9"]]
)
def test_one_setting_beside_a_pattern_or_itself_is_taken(expressions: list[str]) -> None:
    assert select("task", expressions, NAMES, GROUPS.__getitem__)["copy"] == {"length": "9"}


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (["KV-Recall"], {"kv_recall": {}}),
        (["Keys and values,!kv recall,Sort"], {"sort": {}}),
        (["keys_and-VALUES:length=9"], {"kv_recall": {"length": "9"}}),
        (["Copy"], {"copy": {}}),  # not the label of another
    ],
)
def test_a_name_may_be_a_label_in_any_spelling(expressions: list[str], expected: dict[str, dict[str, str]]) -> None:
    labels = {"kv_recall": "Keys and Values", "parity": "Copy"}

    assert select("task", expressions, NAMES, GROUPS.__getitem__, labels=labels) == expected


def test_what_may_be_several_names_is_refused() -> None:
    labels = {"my_fox": "FoX", "forgetting": "FoX", "my-idea": "One", "my_idea": "Two"}

    for written in ("fox", "My Idea"):
        with pytest.raises(UsageError, match=f"mechanism '{written}' may be any of '.*', '.*'; name one of them"):
            resolve("mechanism", written, labels)
    assert resolve("mechanism", "my_idea", labels) == "my_idea"


def test_seeds_are_ranges_and_numbers() -> None:
    assert parse_seeds("42-44,7") == (42, 43, 44, 7)
