import pytest

from synthbench.errors import UnknownName, UsageError
from synthbench.options import parse_term, resolve, select, split_terms

NAMES = ["copy", "sort", "reverse", "kv_recall", "parity"]
GROUPS = {"copy": "basic", "sort": "basic", "reverse": "basic", "kv_recall": "memory", "parity": "arithmetic"}


def selected(*expressions: str) -> list[str]:
    return list(select("task", expressions, NAMES, GROUPS.__getitem__))


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
    ],
)
def test_expressions_select_in_the_order_of_the_suite(expressions: list[str], expected: list[str]) -> None:
    assert selected(*expressions) == expected


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (["*"], NAMES),
        (["!copy"], NAMES[1:]),
        (["mine,copy"], ["copy", "mine"]),
        (["all", "mine", "other"], [*NAMES, "mine", "other"]),
        (["@basic,mine,!mine"], ["copy", "sort", "reverse"]),
    ],
)
def test_an_unlisted_name_is_selected_by_nothing_but_itself(expressions: list[str], expected: list[str]) -> None:
    chosen = select("task", expressions, NAMES, GROUPS.__getitem__, unlisted=["mine", "other"])

    assert list(chosen) == expected


def test_an_unlisted_name_takes_arguments_and_one_setting() -> None:
    assert select("task", ["mine:R=2"], NAMES, GROUPS.__getitem__, unlisted=["mine"]) == {"mine": {"R": "2"}}
    with pytest.raises(UsageError, match="named twice"):
        select("task", ["mine:R=2", "mine:R=3"], NAMES, GROUPS.__getitem__, unlisted=["mine"])
    for wrong, nearest in (("mime", "mine"), ("coppy", "copy")):
        with pytest.raises(UnknownName, match=f"did you mean '{nearest}'"):
            select("task", [wrong], NAMES, GROUPS.__getitem__, unlisted=["mine"])
    with pytest.raises(UnknownName, match=r"no task called 'mi\*'; allowed: copy, kv_recall, parity, reverse, sort$"):
        select("task", ["mi*"], NAMES, GROUPS.__getitem__, unlisted=["mine"])


def test_arguments_stay_with_their_name() -> None:
    assert split_terms("slay:R=3,P=8,linear") == ["slay:R=3,P=8", "linear"]
    assert parse_term("slay:R=3,P=8") == ("slay", {"R": "3", "P": "8"})
    assert select("task", ["copy:length=9,sort"], NAMES, GROUPS.__getitem__) == {"copy": {"length": "9"}, "sort": {}}


@pytest.mark.parametrize("term", ["slay:", "slay:R", "slay:R=", "slay:=3"])
def test_a_malformed_argument_is_refused(term: str) -> None:
    with pytest.raises(UsageError, match="allowed: name=value"):
        parse_term(term)


def test_an_argument_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="argument 'R' of 'slay' is given twice"):
        parse_term("slay:R=3,R=4")


@pytest.mark.parametrize(
    ("expression", "nearest"), [("coppy", "copy"), ("@basik", "basic"), ("!sorrt", "sort"), ("zz*", "copy")]
)
def test_an_unknown_name_names_the_nearest(expression: str, nearest: str) -> None:
    with pytest.raises(UnknownName, match=nearest):
        selected(expression)


@pytest.mark.parametrize("expressions", [["copy,!copy"], [""], ["all,!*"]])
def test_an_empty_selection_is_refused(expressions: list[str]) -> None:
    with pytest.raises(UsageError):
        selected(*expressions)


@pytest.mark.parametrize("expressions", [["copy:length=9", "copy:length=16"], ["copy,copy:length=9"]])
def test_two_settings_of_one_name_are_refused_and_none_is_dropped(expressions: list[str]) -> None:
    with pytest.raises(UsageError, match=r"'copy' is named twice, as 'copy.*' and 'copy:length=.*'"):
        selected(*expressions)


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
