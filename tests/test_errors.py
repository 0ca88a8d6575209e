"""Messages of the exceptions."""

import pytest

from synthbench.errors import UnknownName


@pytest.mark.parametrize(
    ("kind", "name", "allowed", "message"),
    [
        ("task", "coppy", ["sort", "copy", "reverse"], "no task called 'coppy'; did you mean 'copy'?"),
        ("task", "mqar:level=3", ["sort", "mqar"], "no task called 'mqar:level=3'; did you mean 'mqar'?"),
        ("task", "cop", ["copied", "copy"], "no task called 'cop'; did you mean 'copy' or 'copied'?"),
        ("task", "zzz", ["sort", "copy"], "no task called 'zzz'; allowed: copy, sort"),
        ("argument", "zzz", [], "no argument called 'zzz'; there is none"),
    ],
)
def test_an_unknown_name_suggests_near_ones_or_else_all(kind: str, name: str, allowed: list[str], message: str) -> None:
    error = UnknownName(kind, name, allowed)

    assert (str(error), error.kind, error.name) == (message, kind, name)
