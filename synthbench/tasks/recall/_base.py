"""Shared code of recall tasks: bounds from the number of possible answers, and keys beside values."""

from abc import abstractmethod
from dataclasses import dataclass

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import Bound, Task


@dataclass(frozen=True)
class Recall(Task):
    """A task whose answers are determined once read, and equally likely before that."""

    @property
    @abstractmethod
    def num_answers(self) -> int:
        """Number of tokens that may be an answer."""

    def floor(self, length: int) -> Bound:
        """Return the chance of a uniform guess: exchanging two answers changes no probability."""
        return Bound(1 / self.num_answers)

    def ceiling(self, length: int) -> Bound:
        """Return 1: every answer has been read."""
        return Bound(1.0)

    def check_at_most(self, option: str, most: int, reason: str) -> None:
        """Refuse an option that is too large for the others.

        Raises:
            UsageError: If it is; the message ends with the reason.
        """
        value = getattr(self, option)
        if value > most:
            raise UsageError(f"{option} of task {self.name!r} is {value}; allowed: at most {most}, {reason}")


@dataclass(frozen=True)
class Dictionary(Recall):
    """A task whose ids are keys, then as many values, then a blank."""

    vocabulary: int = option(512, "number of tokens: values, as many keys, and the blank", low=4, high=65536)
    tokens_used: int = option(
        0,
        "number of keys that pairs draw from, and of values, the first ones; 0 for all",
        low=0,
        high=32768,
        is_addition=True,
    )

    def __post_init__(self) -> None:
        """Check the options, individually and against each other.

        Raises:
            UsageError: If an option lies outside its range, or fewer keys exist than are to be used.
        """
        super().__post_init__()
        self.check_at_most("tokens_used", self.num_key_tokens, "the number of keys in the vocabulary")

    @property
    def num_answers(self) -> int:
        """Half of the vocabulary, unless fewer values are used."""
        return self.tokens_used or self.vocabulary // 2

    @property
    def num_key_tokens(self) -> int:
        """The other half of the vocabulary, without the blank."""
        return (self.vocabulary - 1) // 2

    @property
    def num_keys_used(self) -> int:
        """Number of these keys in use, the first ones."""
        return self.tokens_used or self.num_key_tokens

    @property
    def vocab_size(self) -> int:
        """The option ``vocabulary``."""
        return self.vocabulary
