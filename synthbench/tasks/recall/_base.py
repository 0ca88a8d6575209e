"""Base classes of recall tasks, with the floor, the ceiling, and the ids of keys and values."""

from abc import abstractmethod
from dataclasses import dataclass

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import Bound, Task


@dataclass(frozen=True)
class Recall(Task):
    """Base class of tasks in which all answers are equally likely, and the tokens read determine the right one."""

    @property
    @abstractmethod
    def num_answers(self) -> int:
        """Number of token ids that can be an answer."""

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess, since all answers are equally likely."""
        return Bound(1 / self.num_answers)

    def ceiling(self, length: int) -> Bound:
        """Return 1: the tokens read determine every answer."""
        return Bound(1.0)

    def check_at_most(self, option: str, most: int, reason: str) -> None:
        """Check that the value of an option does not exceed a limit that follows from other options.

        Raises:
            UsageError: If the value is larger than ``most``; the error message ends with ``reason``.
        """
        value = getattr(self, option)
        if value > most:
            raise UsageError(f"{option} of task {self.name!r} is {value}; allowed: at most {most}, {reason}")


@dataclass(frozen=True)
class Dictionary(Recall):
    """Base class of recall tasks whose token ids are keys, then values, then one blank.

    There are as many values as keys, or one more.
    """

    vocabulary: int = option(512, "number of tokens: values, as many keys, and the blank", low=4, high=65536)
    tokens_used: int = option(
        0,
        "number of keys that pairs draw from, and of values, the first ones; 0 for all",
        low=0,
        high=32768,
        is_addition=True,
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or ``tokens_used`` exceeds the number of keys.
        """
        super().__post_init__()
        self.check_at_most("tokens_used", self.num_key_tokens, "the number of keys in the vocabulary")

    @property
    def num_answers(self) -> int:
        """Number of values that occur: ``tokens_used``, where 0 stands for half of the vocabulary, rounded down."""
        return self.tokens_used or self.vocabulary // 2

    @property
    def num_key_tokens(self) -> int:
        """Number of token ids that are keys: half of ``vocabulary - 1`` (without the blank), rounded down."""
        return (self.vocabulary - 1) // 2

    @property
    def num_keys_used(self) -> int:
        """Number of keys that may occur in a sequence; these are the keys with the smallest ids."""
        return self.tokens_used or self.num_key_tokens

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the value of the option ``vocabulary``."""
        return self.vocabulary
