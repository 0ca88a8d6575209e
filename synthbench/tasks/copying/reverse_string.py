"""The task reverse_string."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks._transduction import string_levels
from synthbench.tasks.base import task
from synthbench.tasks.copying._rearrangement import Rearrangement


@task
@dataclass(frozen=True)
class ReverseString(Rearrangement):
    """Read a string and a separator, then write the string backwards.

    With ``num_symbols=8``, the separator is 8, the blank 9 and the padding 10::

        inputs    3 1 4 8 9 9 9 10 10
        targets   . . . . 4 1 3  .  .

    Tests memory like a stack: the last symbol read is the first written. Networks with a stack or a tape as memory
    solve the task at any length. Other recurrences, and attention with absolute positions, solve it only at training
    lengths.

    Source: Delétang et al. (2023), one of their deterministic context-free tasks. They use 2 symbols; the separator is
    our addition.
    """

    name: ClassVar = "reverse_string"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 81
    levels: ClassVar = string_levels(12)
    # Strings of the first level have 4 or 5 symbols, so rules guess too well where they end.
    extended_levels: ClassVar = levels[1:]
    load: ClassVar = "symbols"
    order: ClassVar = "backwards"
