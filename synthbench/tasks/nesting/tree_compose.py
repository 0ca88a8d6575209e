"""The task tree_compose."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks.base import Tokens, task
from synthbench.tasks.nesting._templates import Expansion, Spans, alternate


@task
@dataclass(frozen=True)
class TreeCompose(Expansion):
    """Read definitions of names as trees, then a main tree; complete its copy, with all names in all trees expanded.

    If A is defined as (1) and B as (2 A (3)), then (0 B) expands to (0 (2 (1) (3))). The brackets are 4 and 5, A is 6,
    B is 7, = is 8, the blank 9 and the padding 10. ``num_templates`` is the number of definitions. With
    ``num_labels=4``, ``num_templates=2`` and ``num_names=2``::

        inputs    6 4 1 5 7 4 2 6 4 3 5 5 4 0 7 5 8 4 0 4 2 9 9 9 9 9 9 9 9 10
        targets   . . . . . . . . . . . . . . . . . . . . . 4 1 5 4 3 5 5 5  .

    Tests recall of trees within trees: where a tree contains a name, the copy of the tree is interrupted by a copy of
    the named tree, and resumed afterwards. Definitions stand in random order. Each nested copy needs a hop from a name
    to its definition. A model's number of layers probably limits the number of hops. Going back to the interrupted
    trees needs a stack.

    Source: our own design; trees are written like the symbolic expressions of McCarthy (1960).
    """

    name: ClassVar = "tree_compose"
    source: ClassVar = "mccarthy1960recursive"
    length: ClassVar = 151
    # Every tree has two nodes: with one, nothing of a tree would be left to continue after the copy in it.
    levels: ClassVar = tuple(
        {
            "load": num_templates,
            "length": length,
            "fewest": 2,
            "num_labels": 8,
            "num_templates": num_templates,
            "is_shown": True,
        }
        for num_templates, length in ((2, 48), (3, 64), (4, 96), (6, 128), (8, 128), (12, 192), (16, 256))
    )
    load: ClassVar = "templates"
    num_templates: int = option(3, "number of definitions, each but the last one with a name in it", low=2, high=256)

    def lay_out(
        self,
        rng: np.random.Generator,
        trees: Int[np.ndarray, "batch trees width"],
        num_nodes: Int[np.ndarray, "batch trees"],
        wholes: Int[np.ndarray, "batch trees 2"],
        names: Int[np.ndarray, "batch names 2"],
    ) -> tuple[Spans, Spans]:
        """Choose where names stand; return the pieces that make up the sequence before and after the ``=``.

        The name of the first template (defined tree) goes into the main tree, and each further name into the template
        before it. The definitions are shuffled. The base class explains arguments and pieces.
        """
        places = self.draw_gaps(rng, trees.reshape(-1, trees.shape[2]), num_nodes.ravel(), 1)
        gaps = wholes[..., 0] + places.reshape(num_nodes.shape)
        gaps[:, -1] = wholes[:, -1, 1]
        heads = np.stack([wholes[..., 0], gaps], axis=2)
        tails = np.stack([gaps, wholes[..., 1]], axis=2)
        # The last template has no name in it: an empty piece.
        inner_names = np.append(names, tails[:, -1:], axis=1)
        definitions = np.stack([names, heads[:, 1:], inner_names[:, 1:], tails[:, 1:]], axis=2)
        main = alternate(heads[:, :1], inner_names[:, :1], tails[:, :1])
        order = rng.random(names.shape[:2]).argsort(axis=1)
        definitions = np.take_along_axis(definitions, order[..., None, None], axis=1)
        return (
            np.concatenate([definitions.reshape(len(trees), -1, 2), main], axis=1),
            np.concatenate([heads, tails[:, ::-1]], axis=1),
        )

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Extend the shortcuts by a rule that expands the name in the main tree, but no name inside its template."""
        definitions = self.definition_index(inputs)
        is_main = definitions == self.num_templates
        is_name = (inputs > self.closing) & (inputs < self.equals)
        place = (is_main & is_name).argmax(axis=1, keepdims=True)
        is_named = (inputs == np.take_along_axis(inputs, place, axis=1)) & (self.depths(inputs) == 0)
        named = np.take_along_axis(definitions, is_named.argmax(axis=1, keepdims=True), axis=1)
        is_after = np.arange(inputs.shape[1]) > place
        parts = np.select([is_main & ~is_after, definitions == named, is_main], [0, 1, 2], 3)
        return super().shortcuts(inputs) | {"one level": self.read(inputs, parts)}
