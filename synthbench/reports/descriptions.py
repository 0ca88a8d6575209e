"""Descriptions of tasks for the HTML page of a report, made from their code by a function that the caller passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Token(NamedTuple):
    """An input token, and the target to predict at its position."""

    input: int
    target: int | None
    """The target; None if nothing is scored here."""


@dataclass(frozen=True)
class Example:
    """An example sequence of a task; if it is long, only its beginning and its end are shown."""

    pieces: tuple[tuple[Token, ...], ...]
    num_hidden: int
    """Number of tokens between the beginning and the end, which are not shown."""
    length: int
    vocab_size: int
    is_bottleneck: bool
    """True if all answers are read from the last position."""


class Description(NamedTuple):
    """A description of a task for reports, made from the task's code.

    It is made only if the installed version of the task is the version in the rows (results of runs).
    """

    summary: str
    """First sentences of its documentation."""
    not_tested: str
    """Abilities that a high score does not show; may be empty."""
    example: Example | None


Describe = Callable[[str, str, str], Description | None]
"""Function that describes a task, given its name, version and arguments (JSON) as in a row."""
