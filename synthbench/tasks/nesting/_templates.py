"""Base class of tree completion tasks in which names stand for trees that were defined earlier."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import Tokens
from synthbench.tasks.nesting._completion import TreeCompletion

Spans = Int[np.ndarray, "batch _ 2"]
"""Pieces of table rows, in the order in which they are joined: each piece's first column and its last column + 1."""


def alternate(*spans: Spans) -> Spans:
    """Interleave lists of pieces: the first piece of each list, then the second piece of each list, and so on.

    A piece is a range of columns of a table.
    """
    return np.stack(spans, axis=2).reshape(len(spans[0]), -1, 2)


@dataclass(frozen=True)
class Expansion(TreeCompletion):
    """Base class of tasks that define names, show a main tree, and ask for the main tree with its names expanded.

    A definition is a name followed by a tree, which is called the template of the name. A name may stand wherever a
    child of a node may stand, and does not count towards ``arity``. To expand a name is to replace it by its template.
    Each sequence has new random names, one per template. The sizes of all trees are drawn independently.
    """

    num_templates: int = option(2, "number of definitions, and of names that are used", low=1, high=256)
    num_names: int = option(16, "number of different names", low=1, high=4096)

    @abstractmethod
    def lay_out(
        self,
        rng: np.random.Generator,
        trees: Int[np.ndarray, "batch trees width"],
        num_nodes: Int[np.ndarray, "batch trees"],
        wholes: Int[np.ndarray, "batch trees 2"],
        names: Int[np.ndarray, "batch names 2"],
    ) -> tuple[Spans, Spans]:
        """Choose the names in each tree; return the pieces that make up the sequence before and after the ``=``.

        A piece is a range of columns of the table that :meth:`write` builds: its first column and its last column + 1.

        Args:
            rng: Generator that draws the choice.
            trees: Tokens of the main tree, then of the templates, all padded to the same width.
            num_nodes: Number of nodes of each tree.
            wholes: For each tree, the piece that holds it.
            names: For each template (defined tree), the piece that holds its name.
        """

    @property
    def num_ids(self) -> int:
        """Number of token ids of labels, brackets and names."""
        return self.num_labels + 2 + self.num_names

    @property
    def tokens_per_node(self) -> int:
        """Number of tokens added if each tree gets one more node: per tree, three before and three after the ``=``."""
        return 6 * (self.num_templates + 1)

    @property
    def num_marks(self) -> int:
        """Number of names and ``=``: per template (defined tree), one name in its definition and one in a tree."""
        return 2 * self.num_templates + 1

    def check_length(self, length: int) -> None:
        """Refuse a length that no sequence can have; also refuse more templates (defined trees) than names.

        Raises:
            UsageError: If the task has no sequence of this length, or ``num_templates`` exceeds ``num_names``.
        """
        super().check_length(length)
        if self.num_templates > self.num_names:
            raise UsageError(
                f"num_templates of task {self.name!r} is {self.num_templates}; "
                f"allowed: up to num_names={self.num_names}"
            )

    def write(
        self, rng: np.random.Generator, batch_size: int, length: int
    ) -> tuple[Tokens, Int[np.ndarray, " batch"], Int[np.ndarray, " batch"]]:
        """Write trees, names and the ``=`` side by side into a table; join the pieces that :meth:`lay_out` returns."""
        num_trees, most = self.num_templates + 1, self.most_nodes(length)
        num_nodes = rng.integers(self.fewest, most, size=(batch_size, num_trees), endpoint=True)
        nodes = self.draw_nodes(rng, num_nodes.ravel())
        trees = np.full((batch_size, num_trees, 3 * most), self.vocab_size - 1)
        self.spell(trees.reshape(-1, 3 * most), nodes, nodes.openings)
        all_names = np.tile(np.arange(self.num_labels + 2, self.num_ids), (batch_size, 1))
        names = rng.permuted(all_names, axis=1)[:, : self.num_templates]
        equals = np.full((batch_size, 1), self.equals)
        table = np.concatenate([trees.reshape(batch_size, -1), names, equals], axis=1)
        begins = np.broadcast_to(3 * most * np.arange(num_trees), num_nodes.shape)
        wholes = np.stack([begins, begins + 3 * num_nodes], axis=2)
        marks = np.arange(table.shape[1] - num_trees, table.shape[1])
        marks = np.broadcast_to(np.stack([marks, marks + 1], axis=1), (batch_size, num_trees, 2))
        before, after = self.lay_out(rng, trees, num_nodes, wholes, marks[:, :-1])
        spans = np.concatenate([before, marks[:, -1:], after], axis=1)
        num_before, num_after = ((spans[..., 1] - spans[..., 0]).sum(axis=1) for spans in (before, after))
        return self._join(table, spans, length), num_before + 1, num_after

    def draw_gaps(
        self,
        rng: np.random.Generator,
        trees: Int[np.ndarray, "trees width"],
        num_nodes: Int[np.ndarray, " trees"],
        num_gaps: int,
    ) -> Int[np.ndarray, "trees gaps"]:
        """Draw positions in each tree where a child may stand: after a label or after another child.

        The positions of each tree are sorted and may repeat.
        """
        # One place after each label, and one after each node but the root.
        ranks = rng.integers(2 * num_nodes[:, None] - 1, size=(len(trees), num_gaps))
        num_places = np.cumsum((trees < self.num_labels) | (trees == self.closing), axis=1)
        gaps: Int[np.ndarray, "trees gaps"] = 1 + (num_places[:, None] <= np.sort(ranks)[..., None]).sum(axis=2)
        return gaps

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Extend the shortcuts of all tree tasks by a rule that copies the main tree and leaves out the names in it."""
        is_main = self.definition_index(inputs) == self.num_templates
        return super().shortcuts(inputs) | {"without names": self.read(inputs, np.where(is_main, 0, 1))}

    def definition_index(self, inputs: Tokens) -> Tokens:
        """Count the trees that end before each position; in the main tree, the count is the number of definitions."""
        is_end = (inputs == self.closing) & (self.depths(inputs) == 0)
        num_ended: Tokens = np.cumsum(is_end, axis=1) - is_end
        return num_ended

    def depths(self, inputs: Tokens) -> Tokens:
        """Count the nodes that are still open after each position; the count is meaningless after a blank."""
        return np.cumsum((inputs == self.opening).astype(np.int64) - (inputs == self.closing), axis=1)

    def read(self, inputs: Tokens, parts: Tokens) -> Tokens:
        """Return guesses that repeat, after the ``=``, the labels and brackets of given parts of the sequence.

        First come the tokens of part 0 in their order, then the tokens of part 1, and so on.

        Args:
            inputs: Tokens of the sequences.
            parts: Number of the part to which each position belongs, from 0 on; names are left out.
        """
        is_name = (inputs > self.closing) & (inputs < self.equals)
        order = np.argsort(np.where(is_name, inputs.shape[1], parts), axis=1, stable=True)
        slots = self.slots(inputs).clip(0, inputs.shape[1] - 1)
        return np.take_along_axis(inputs, np.take_along_axis(order, slots, axis=1), axis=1)

    def _join(self, table: Int[np.ndarray, "batch columns"], spans: Spans, length: int) -> Tokens:
        """Join the given ranges of columns of each row in order, and pad the result to ``length`` tokens."""
        begins = spans[..., 0].ravel()
        lengths = spans[..., 1].ravel() - begins
        totals = lengths.reshape(len(table), -1).sum(axis=1)
        columns = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(totals.sum())
        tokens = np.full((len(table), length), self.vocab_size - 1)
        tokens[np.arange(length) < totals[:, None]] = table[np.repeat(np.arange(len(table)), totals), columns]
        return tokens
