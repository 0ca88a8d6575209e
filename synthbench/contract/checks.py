"""Checks of a component (a task, mechanism, position encoding or block) and their results."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from synthbench.errors import ContractError, SynthbenchError
from synthbench.plugins import described, place_of, raise_interrupt, reason

State = Literal["passed", "warning", "FAILED", "not tried"]


class CheckWarning(Exception):  # noqa: N818 - it is no error: the component is trained and ranked
    """A remark for the author of a component, raised by a check that the component passes."""


class Check(NamedTuple):
    """One requirement that every component of a kind, such as every task, must meet."""

    name: str
    meaning: str
    """The requirement, as a short clause."""
    make: Callable[[], None]
    """A call that raises :class:`ContractError` if the check fails, :class:`CheckWarning` if it passes with a
    remark."""
    is_needed: bool = False
    """True if later checks mean nothing when this one fails."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    check: str
    meaning: str
    state: State
    detail: str = ""
    """The message of a failure or remark, with place and size; otherwise empty."""


def require_all(checks: Iterable[Check], unit: type) -> None:
    """Run checks of a component's class in order until one fails.

    Raises:
        ContractError: If a check fails.
    """
    failure = first_failure(make_all(checks, unit))
    if failure is not None:
        raise ContractError(failure)


def make_all(checks: Iterable[Check], unit: type) -> Iterator[CheckResult]:
    """Run the checks of a component in order, and yield one result for each check.

    ``unit`` is the component's class; the message of a failure names a line of the class's file, if it has one.

    If a check fails, the later checks still run. However, if ``is_needed`` is True for the failed check, the later
    checks do not run, and their state is ``not tried``.
    """
    is_pointless = False
    for check in checks:
        made: tuple[State, str] = ("not tried", "") if is_pointless else _made(check, unit)
        is_pointless |= made[0] == "FAILED" and check.is_needed
        yield CheckResult(check.name, check.meaning, *made)


def first_failure(results: Iterable[CheckResult]) -> str | None:
    """Return the message of the first failed check; return None if no check failed."""
    return next((result.detail for result in results if result.state == "FAILED"), None)


def _made(check: Check, unit: type) -> tuple[State, str]:
    try:
        check.make()
    except CheckWarning as remark:
        return "warning", str(remark)
    except ContractError as problem:
        place = "" if problem.__cause__ else place_of(unit)  # a cause already names the line
        return "FAILED", f"{problem} ({place})" if place else str(problem)
    except BaseException as problem:  # noqa: BLE001 - foreign code may raise anything
        raise_interrupt(problem)
        return "FAILED", reason(problem) if isinstance(problem, SynthbenchError) else described(problem, unit)
    return "passed", ""
