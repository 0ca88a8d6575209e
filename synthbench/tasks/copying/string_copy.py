"""The task string_copy."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks._transduction import string_levels
from synthbench.tasks.base import task
from synthbench.tasks.copying._rearrangement import Rearrangement


@task
@dataclass(frozen=True)
class StringCopy(Rearrangement):
    """Read a string and a separator, then write the string.

    With ``num_symbols=8``, the separator is 8, the blank 9 and the padding 10::

        inputs    3 1 4 8 9 9 9 10 10
        targets   . . . . 3 1 4  .  .

    Tests recall by position. Attention with relative positions copies strings of any length. A fixed-size state holds
    only a limited number of symbols. Copying from a fixed distance fails, because the distance between a symbol and its
    copy varies.

    Source: Jelassi et al. (2024), their copy task. Here, the task is not autoregressive: while writing, the model reads
    blanks instead of the copy so far.
    """

    name: ClassVar = "string_copy"
    source: ClassVar = "jelassi2024repeat"
    length: ClassVar = 101
    # At 8 tokens all strings would have three symbols, so a fixed shift would copy them.
    levels: ClassVar = string_levels(12)
    load: ClassVar = "symbols"
    order: ClassVar = "forwards"
