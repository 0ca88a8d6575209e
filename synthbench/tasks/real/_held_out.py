"""What tasks on finite data share: where the data are, the hash that names them in rows, and the split."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from synthbench.errors import UsageError
from synthbench.knobs import knob
from synthbench.tasks.base import Split, Task


@dataclass(frozen=True)
class HeldOutTask(Task):
    """A task on data that are divided into splits, and named in rows by their hash, not by where they lie."""

    what: ClassVar[str]
    """What the data are, in a word: ``text``."""
    owner: ClassVar[str]
    """Whose data it is that need no path."""
    path: str = knob("", "a file or folder of the user's; none: what comes along", is_location=True)
    corpus: str = knob("", "hash that the data must have; none: filled in")
    split: Split = "train"

    def __post_init__(self) -> None:
        """Find the data, and name them by their hash.

        Raises:
            UsageError: If there are none, or they have another hash.
        """
        super().__post_init__()
        found = self.hash_there
        if self.corpus not in ("", found):
            where = f"that in {self.path!r}" if self.path else f"that of {self.owner}"
            remedy = f"put the old {self.what} back, or leave corpus out for rows of their own"
            raise UsageError(
                f"{self.name}:corpus is {self.corpus!r}, and {where} is {found!r}; "
                f"{remedy if self.path else f'name the file or folder that has it, as in {self.name}:path=notes'}"
            )
        object.__setattr__(self, "corpus", found)

    @property
    @abstractmethod
    def hash_there(self) -> str:
        """The hash of the data that lie at ``path``."""

    def of_split(self, split: Split) -> "HeldOutTask":
        """The task on the data of one split."""
        return replace(self, split=split)
