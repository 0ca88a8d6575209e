"""Golden file of what the contract says of each faulty component in these tests."""

import re

import pytest

from synthbench.contract.mechanisms import check_mechanism
from synthbench.errors import ContractError
from synthbench.mechanisms import Mechanism
from tests.contract._golden import FOLDER

SAID: dict[str, str] = dict(
    re.findall(r"^([\w-]+): (.*)$", (FOLDER / "contract.txt").read_text(encoding="utf-8"), re.MULTILINE)
)
"""By the name of a component, how a message ends; three dots stand for anything."""


def is_said(name: str, message: str) -> bool:
    pattern = re.escape(SAID[name]).replace(r"\.\.\.", ".*")
    return re.search(rf"{pattern}\Z", message, re.DOTALL) is not None


def assert_refused(unit: type[Mechanism]) -> str:
    """The message with which a mechanism is refused, which ends as the file says."""
    with pytest.raises(ContractError) as refused:
        check_mechanism(unit, {})
    message = str(refused.value)
    assert is_said(unit.name, message), message
    return message
