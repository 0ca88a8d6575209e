"""What the page of a report shows of a task's own code; the caller of a report provides it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Token(NamedTuple):
    """A token, and what is to be predicted there."""

    input: int
    target: int | None
    """None where nothing is scored."""


@dataclass(frozen=True)
class Example:
    """One sequence in up to two pieces."""

    pieces: tuple[tuple[Token, ...], ...]
    num_hidden: int
    """Tokens between the pieces."""
    length: int
    vocab_size: int
    is_bottleneck: bool
    """Whether all answers are read from the last position."""


class Description(NamedTuple):
    """What the task's own code says, where it is at hand in the version that the rows were made with."""

    summary: str
    """First sentences of its documentation."""
    not_tested: str
    """What a high score does not show; may be empty."""
    example: Example | None


Describe = Callable[[str, str, str], Description | None]
"""What the code of a task says: by its name, its version and its arguments as JSON, as a row has them."""
