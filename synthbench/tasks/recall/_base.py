"""What recall tasks share: a floor and a ceiling that follow from the number of possible answers."""

from abc import abstractmethod
from dataclasses import dataclass

from synthbench.errors import UsageError
from synthbench.tasks.base import Bound, Task


@dataclass(frozen=True)
class Recall(Task):
    """A task whose answers follow from what has been read, and are all alike before that."""

    @property
    @abstractmethod
    def num_answers(self) -> int:
        """Number of tokens that may be an answer."""

    def floor(self, length: int) -> Bound:
        """One answer in all: exchanging two of them changes no probability."""
        self.check_length(length)
        return Bound(1 / self.num_answers)

    def ceiling(self, length: int) -> Bound:
        """Whatever is asked has been read."""
        self.check_length(length)
        return Bound(1.0)

    def check_at_most(self, knob: str, most: int, reason: str) -> None:
        """Refuse a knob that is too large for the others.

        Raises:
            UsageError: If it is; the message ends with the reason.
        """
        value = getattr(self, knob)
        if value > most:
            raise UsageError(f"{knob} of task {self.name!r} is {value}; allowed: at most {most}, {reason}")
