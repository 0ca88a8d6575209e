"""The task odds_first."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks._transduction import string_levels
from synthbench.tasks.base import task
from synthbench.tasks.copying._rearrangement import Rearrangement


@task
@dataclass(frozen=True)
class OddsFirst(Rearrangement):
    """Read a string and a separator; write the symbols at odd places (1st, 3rd, ...), then those at even places.

    With ``num_symbols=8``, the separator is 8, the blank 9 and the padding 10::

        inputs    3 1 4 2 5 8 9 9 9 9 9 10
        targets   . . . . . . 3 4 5 1 2  .

    Tests addressing by position: the distance between a symbol and its copy varies. Networks with a tape as memory
    solve the task at any length.

    Source: Delétang et al. (2023), one of their context-sensitive tasks. Their code begins with the symbols at even
    places. They use 2 symbols; the separator is our addition.
    """

    name: ClassVar = "odds_first"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 81
    levels: ClassVar = string_levels(12)
    load: ClassVar = "symbols"
    order: ClassVar = "odds first"
