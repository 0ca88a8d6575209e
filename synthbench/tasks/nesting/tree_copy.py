"""The task tree_copy."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.tasks.base import task
from synthbench.tasks.nesting._templates import Expansion, Spans, alternate


@task
@dataclass(frozen=True)
class TreeCopy(Expansion):
    """Read definitions of names as trees, then a main tree with names; complete its copy, with all names expanded.

    If A is defined as (1) and B as (2 (3)), then (0 B (1) A) expands to (0 (2 (3)) (1) (1)). The brackets are 4 and 5,
    A is 6, B is 7, = is 8, the blank 9 and the padding 10. With ``num_labels=4`` and ``num_names=2``::

        inputs    6 4 1 5 7 4 2 4 3 5 5 4 0 7 4 1 5 6 5 8 4 0 4 2 9 9 9 9 9 9 9 9 9 9 9 10
        targets   . . . . . . . . . . . . . . . . . . . . . . . . 4 3 5 5 4 1 5 4 1 5 5  .

    Tests recall of a tree by its name, and the return to the main tree. After the named tree, the copy continues with
    the tokens that follow the name in the main tree. Names may repeat, so a tree may be copied several times or not at
    all. Recall alone gives labels but not the end of a copied tree; a stack alone gives the end but not the labels.

    Source: our own design; trees are written like the symbolic expressions of McCarthy (1960).
    """

    name: ClassVar = "tree_copy"
    source: ClassVar = "mccarthy1960recursive"
    length: ClassVar = 149
    # Every tree has two nodes: in a larger one, most tokens are those that followed the same tokens in its definition.
    levels: ClassVar = tuple(
        {
            "load": num_templates,
            "length": length,
            "fewest": 2,
            "num_labels": 8,
            "num_templates": num_templates,
            "is_shown": True,
        }
        for num_templates, length in ((1, 32), (2, 48), (3, 64), (4, 96), (6, 128), (8, 128), (12, 192), (16, 256))
    )
    load: ClassVar = "templates"

    def lay_out(
        self,
        rng: np.random.Generator,
        trees: Int[np.ndarray, "batch trees width"],
        num_nodes: Int[np.ndarray, "batch trees"],
        wholes: Int[np.ndarray, "batch trees 2"],
        names: Int[np.ndarray, "batch names 2"],
    ) -> tuple[Spans, Spans]:
        """Put ``num_templates`` names into the main tree; each name is drawn uniformly, so names may repeat."""
        gaps = self.draw_gaps(rng, trees[:, 0], num_nodes[:, 0], self.num_templates)
        cuts = np.concatenate([wholes[:, 0, :1], gaps, wholes[:, 0, 1:]], axis=1)
        parts = np.stack([cuts[:, :-1], cuts[:, 1:]], axis=2)
        templates = wholes[:, 1:]
        chosen = rng.integers(self.num_templates, size=gaps.shape)[..., None]
        main = alternate(parts[:, :-1], np.take_along_axis(names, chosen, axis=1))
        expanded = alternate(parts[:, :-1], np.take_along_axis(templates, chosen, axis=1))
        return (
            np.concatenate([alternate(names, templates), main, parts[:, -1:]], axis=1),
            np.concatenate([expanded, parts[:, -1:]], axis=1),
        )
