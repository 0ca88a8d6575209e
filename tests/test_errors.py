"""Messages and exit codes of the exceptions."""

import pytest

from synthbench.errors import ContractError, StoreError, SynthbenchError, UnknownName, UsageError


@pytest.mark.parametrize(
    ("kind", "name", "allowed", "message"),
    [
        ("task", "coppy", ["sort", "copy", "reverse"], "no task called 'coppy'; did you mean 'copy'?"),
        ("task", "cop", ["copied", "copy"], "no task called 'cop'; did you mean 'copy' or 'copied'?"),
        ("task", "zzz", ["sort", "copy"], "no task called 'zzz'; allowed: copy, sort"),
        ("argument", "zzz", [], "no argument called 'zzz'; there is none"),
    ],
)
def test_an_unknown_name_suggests_near_ones_or_else_all(kind: str, name: str, allowed: list[str], message: str) -> None:
    error = UnknownName(kind, name, allowed)

    assert (str(error), error.kind, error.name) == (message, kind, name)


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
