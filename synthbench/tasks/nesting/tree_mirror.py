"""The task tree_mirror."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks.base import Tokens, task
from synthbench.tasks.nesting._completion import TreeCompletion


@task
@dataclass(frozen=True)
class TreeMirror(TreeCompletion):
    """Read a tree, then complete its mirror image, with every node's children in reversed order.

    The brackets are 4 and 5, = is 6, the blank 7 and the padding 8. The mirror image of (0 (1) (2 (3))) is
    (0 (2 (3)) (1)). With ``num_labels=4``::

        inputs    4 0 4 1 5 4 2 4 3 5 5 5 6 4 0 4 2 7 7 7 7 7 7 7 7 8
        targets   . . . . . . . . . . . . . . . . . 4 3 5 5 4 1 5 5 .

    Tests a stack and recall together: the nesting determines the next bracket, and the position in the first tree
    determines the next label. Repeating or reversing the tokens is not enough, because each label must come right after
    its opening bracket.

    Source: our own design; trees are written like the symbolic expressions of McCarthy (1960).
    """

    name: ClassVar = "tree_mirror"
    source: ClassVar = "mccarthy1960recursive"
    length: ClassVar = 121
    levels: ClassVar = tuple(
        {"load": most, "length": length, "fewest": fewest, "num_labels": 8, "depth": 6, "is_shown": True}
        for fewest, most, length in (
            (4, 5, 32),
            (6, 7, 48),
            (8, 10, 64),
            (11, 15, 96),
            (16, 21, 128),
            (22, 31, 192),
            (32, 42, 256),
            (43, 63, 384),
            (64, 85, 512),
            (86, 127, 768),
            (128, 170, 1024),
        )
    )
    load: ClassVar = "nodes"
    fewest: int = option(4, "fewest nodes of a tree", low=1, high=4096)

    @property
    def tokens_per_node(self) -> int:
        """Number of tokens added if the tree gets one more node: 6, three each for the tree and its mirror image."""
        return 6

    @property
    def num_marks(self) -> int:
        """Number of tokens that stand neither for nodes nor for padding: one, the ``=``."""
        return 1

    def write(
        self, rng: np.random.Generator, batch_size: int, length: int
    ) -> tuple[Tokens, Int[np.ndarray, " batch"], Int[np.ndarray, " batch"]]:
        """Draw trees; write each tree, the ``=`` and the mirror image of the tree."""
        num_nodes = rng.integers(self.fewest, self.most_nodes(length), size=batch_size, endpoint=True)
        tokens = np.full((batch_size, length), self.vocab_size - 1)
        nodes = self.draw_nodes(rng, num_nodes)
        self.spell(tokens, nodes, nodes.openings)
        tokens[np.arange(batch_size), 3 * num_nodes] = self.equals
        self.spell(tokens, nodes, (3 * num_nodes + 1)[nodes.trees] + nodes.mirrored)
        return tokens, 3 * num_nodes + 1, 3 * num_nodes

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of the rule that all tree tasks share, and of two more: repeat or reverse the first tree.

        The reversed tree is written from its last token to its first, with opening and closing brackets exchanged.
        """
        size = (inputs == self.equals).argmax(axis=1, keepdims=True)
        slots = self.slots(inputs).clip(0, size - 1)
        backwards = np.take_along_axis(inputs, size - 1 - slots, axis=1)
        is_bracket = (backwards == self.opening) | (backwards == self.closing)
        return super().shortcuts(inputs) | {
            "not mirrored": np.take_along_axis(inputs, slots, axis=1),
            "reversed string": np.where(is_bracket, self.opening + self.closing - backwards, backwards),
        }
