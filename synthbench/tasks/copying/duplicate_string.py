"""The task duplicate_string."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks._transduction import string_levels
from synthbench.tasks.base import task
from synthbench.tasks.copying._rearrangement import Rearrangement


@task
@dataclass(frozen=True)
class DuplicateString(Rearrangement):
    """Read a string and a separator, then write the string twice.

    With ``num_symbols=8``, the separator is 8, the blank 9 and the padding 10::

        inputs    3 1 8 9 9 9 9 10 10 10
        targets   . . . 3 1 3 1  .  .  .

    Tests copying twice: nothing marks the end of the first copy, so a model must know the string's length. Networks
    with a tape as memory solve the task at any length. Networks with a queue give only half of the answers, because the
    first copy empties the queue.

    Source: Delétang et al. (2023), one of their context-sensitive tasks. They use 2 symbols; the separator is our
    addition.
    """

    name: ClassVar = "duplicate_string"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 121
    levels: ClassVar = string_levels(16, tokens_per_symbol=3)
    load: ClassVar = "symbols"
    tokens_per_symbol: ClassVar = 3
    order: ClassVar = "twice"
