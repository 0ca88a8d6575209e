"""The task long_copy."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks.base import task
from synthbench.tasks.basic.copy import Copy


@task
@dataclass(frozen=True)
class LongCopy(Copy):
    """Name the token just read, in a long sequence.

    With ``vocabulary=8``::

        inputs    3 1 4 1 5
        targets   3 1 4 1 5

    Tests whether a mechanism passes each position's own token to the output. The embedding and output layers alone
    solve the task if the mechanism does not interfere.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code, which uses 256 tokens.
    In some runs of the published table, sequences had only 128 tokens.
    """

    name: ClassVar = "long_copy"
    source: ClassVar = "slay2026"
    length: ClassVar = 256
    not_tested: ClassVar = "Long range: the answer is the token at the same position, so attention is not needed."
