"""What a check finds out: a verdict on every promise, not only the first one that is broken."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from synthbench.errors import ContractError

State = Literal["kept", "broken", "not tried"]


class Promise(NamedTuple):
    """One thing that every unit of a kind must do."""

    name: str
    meaning: str
    """What is promised, as half a sentence."""
    check: Callable[[], None]
    """Raises :class:`ContractError` if it is broken."""
    is_needed: bool = False
    """Whether the promises after it mean nothing where this one is broken."""


@dataclass(frozen=True)
class Verdict:
    """Whether one promise holds."""

    promise: str
    meaning: str
    state: State
    detail: str = ""
    """What was seen, where and how large; empty unless broken."""


def keep_all(promises: Iterable[Promise]) -> None:
    """Check promises in order.

    Raises:
        ContractError: At the first that is broken.
    """
    for promise in promises:
        promise.check()


def judge(promises: Iterable[Promise]) -> list[Verdict]:
    """Check every promise, even after one is broken, unless that one is needed for the rest."""
    verdicts = []
    is_pointless = False
    for promise in promises:
        state: State = "not tried"
        detail = ""
        if not is_pointless:
            state, detail = _state(promise)
        is_pointless = is_pointless or (state == "broken" and promise.is_needed)
        verdicts.append(Verdict(promise.name, promise.meaning, state, detail))
    return verdicts


def violation(verdicts: Iterable[Verdict]) -> str | None:
    """The first broken promise in words; None if all are kept."""
    return next((verdict.detail for verdict in verdicts if verdict.state == "broken"), None)


def _state(promise: Promise) -> tuple[State, str]:
    try:
        promise.check()
    except ContractError as problem:
        return "broken", str(problem)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - foreign code may raise anything
        return "broken", f"{type(problem).__name__}: {problem}"
    return "kept", ""
