"""Checks of a component and their results: each check is made, not only those before the first that fails."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from synthbench.errors import ContractError

State = Literal["passed", "warning", "FAILED", "not tried"]


class CheckWarning(Exception):  # noqa: N818 - it is no error: the component is trained and ranked
    """Something that the author should know, raised by a check that holds."""


class Check(NamedTuple):
    """One thing that every component of a kind must do."""

    name: str
    meaning: str
    """What must hold, as half a sentence."""
    make: Callable[[], None]
    """Raises :class:`ContractError` if it does not hold, :class:`CheckWarning` if it holds but for a remark."""
    is_needed: bool = False
    """Whether the checks after it mean nothing where this one fails."""


@dataclass(frozen=True)
class CheckResult:
    """Whether one check holds."""

    check: str
    meaning: str
    state: State
    detail: str = ""
    """What was seen, where and how large; empty if it passed."""


def require_all(checks: Iterable[Check]) -> None:
    """Make checks in order.

    Raises:
        ContractError: At the first that fails.
    """
    for result in _results(checks):
        if result.state == "FAILED":
            raise ContractError(result.detail)


def make_all(checks: Iterable[Check]) -> list[CheckResult]:
    """Make every check, even after one failed, unless that one is needed for the rest."""
    return list(_results(checks))


def first_failure(results: Iterable[CheckResult]) -> str | None:
    """The first failed check in words; None if none failed."""
    return next((result.detail for result in results if result.state == "FAILED"), None)


def _results(checks: Iterable[Check]) -> Iterator[CheckResult]:
    is_pointless = False
    for check in checks:
        state: State = "not tried"
        detail = ""
        if not is_pointless:
            state, detail = _made(check)
        is_pointless = is_pointless or (state == "FAILED" and check.is_needed)
        yield CheckResult(check.name, check.meaning, state, detail)


def _made(check: Check) -> tuple[State, str]:
    try:
        check.make()
    except CheckWarning as remark:
        return "warning", str(remark)
    except ContractError as problem:
        return "FAILED", str(problem)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - foreign code may raise anything
        return "FAILED", f"{type(problem).__name__}: {problem}"
    return "passed", ""
