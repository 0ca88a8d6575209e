"""Messages and exit codes of the exceptions."""

import pytest

from synthbench.errors import ContractError, StoreError, SynthbenchError, UnknownName, UsageError


def test_an_unknown_name_suggests_the_nearest() -> None:
    error = UnknownName("task", "coppy", ["sort", "copy", "reverse"])

    assert str(error) == "no task called 'coppy'; did you mean 'copy'?"
    assert (error.kind, error.name) == ("task", "coppy")


def test_an_unknown_name_suggests_several_near_ones() -> None:
    assert str(UnknownName("task", "cop", ["copied", "copy"])).endswith("did you mean 'copy' or 'copied'?")


def test_an_unknown_name_without_a_near_one_lists_what_is_allowed() -> None:
    assert str(UnknownName("task", "zzz", ["sort", "copy"])) == "no task called 'zzz'; allowed: copy, sort"


def test_an_unknown_name_where_there_are_none_says_so() -> None:
    assert str(UnknownName("argument", "zzz", [])) == "no argument called 'zzz'; there is none"


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (SynthbenchError, 1),
        (UsageError, 2),
        (UnknownName, 2),
        (StoreError, 3),
        (ContractError, 4),
    ],
)
def test_each_exception_has_its_exit_code(error: type[SynthbenchError], exit_code: int) -> None:
    assert error.exit_code == exit_code
    assert issubclass(error, SynthbenchError)
