"""Base class of the tree completion tasks, which show trees and ask for the tokens of one more tree.

A tree is written ``( label child* )``, three tokens per node. The ids are, in this order, the labels, the brackets, the
names of trees (in tasks that have them), ``=``, the blank and the padding.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._bounds import sampled
from synthbench.tasks._draws import previous
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens
from synthbench.tasks.nesting._trees import Law, grow

NUM_TOKENS = 2**18
"""Number of tokens in the sample that estimates a floor."""


class LabelledNodes(NamedTuple):
    """The nodes of many trees, in any order: one entry per node in each array."""

    trees: Int[np.ndarray, " nodes"]
    sizes: Int[np.ndarray, " nodes"]
    labels: Int[np.ndarray, " nodes"]
    openings: Int[np.ndarray, " nodes"]
    """Position of each node's opening bracket in its tree."""
    mirrored: Int[np.ndarray, " nodes"]
    """Position of each node's opening bracket if the children of every node are reversed."""


@dataclass(frozen=True)
class TreeCompletion(Task):
    """Base class of tasks that show trees and an ``=``, then ask for another tree, which the shown trees determine.

    The number of nodes of each shown tree is drawn uniformly. Blanks hide the last tree from a random position to its
    end, and the model names the token that each blank hides. With ``is_shown``, nothing is hidden. Instead, at each
    token of the last tree except the final token, the model names the next token.
    """

    fewest: int = option(1, "fewest nodes of a tree", low=1, high=4096)
    num_labels: int = option(16, "number of labels of nodes", low=2, high=4096)
    depth: int = option(4, "most levels of a tree", low=1, high=256)
    arity: int = option(3, "most children of a node", low=1, high=16)
    is_shown: bool = option(
        default=False,
        meaning="whether the tree is shown, each token after it was asked; else its end is hidden",
        is_addition=True,
    )

    @property
    @abstractmethod
    def tokens_per_node(self) -> int:
        """Number of tokens by which a sequence grows if each of its trees gets one more node."""

    @property
    @abstractmethod
    def num_marks(self) -> int:
        """Number of tokens of a sequence besides nodes and padding: the ``=`` and names of trees."""

    @property
    def num_ids(self) -> int:
        """Number of token ids of labels and brackets, and of names of trees in tasks that have such names."""
        return self.num_labels + 2

    @abstractmethod
    def write(
        self, rng: np.random.Generator, batch_size: int, length: int
    ) -> tuple[Tokens, Int[np.ndarray, " batch"], Int[np.ndarray, " batch"]]:
        """Draw sequences with no token hidden; return the tokens, and the start and length of each tree to complete."""

    @property
    def opening(self) -> int:
        """Token id of the opening bracket, which begins a node."""
        return self.num_labels

    @property
    def closing(self) -> int:
        """Token id of the closing bracket, which ends a node after its children."""
        return self.num_labels + 1

    @property
    def equals(self) -> int:
        """Token id of the ``=``, which stands before the tree to complete."""
        return self.num_ids

    @property
    def vocab_size(self) -> int:
        """Number of token ids, including the ``=``, the blank and the padding."""
        return self.num_ids + 3

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence, whose trees have ``fewest`` nodes each."""
        return self.tokens_per_node * self.fewest + self.num_marks

    def most_nodes(self, length: int) -> int:
        """Return the largest number of nodes per tree such that all trees fit into ``length`` tokens."""
        return (length - self.num_marks) // self.tokens_per_node

    def check_length(self, length: int) -> None:
        """Refuse a length below ``min_length``, or a length with room for larger trees than the options allow.

        Raises:
            UsageError: If the task has no sequence of this length.
        """
        super().check_length(length)
        most = sum(self.arity**level for level in range(self.depth))
        if self.most_nodes(length) > most:
            longest = self.tokens_per_node * (most + 1) + self.num_marks - 1
            raise UsageError(
                f"length of task {self.name!r} is {length}; allowed: {self.min_length} to {longest}, for trees of "
                f"depth={self.depth} and arity={self.arity} have no more nodes than {most}"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw trees; hide the end of the last tree or, with ``is_shown``, show it and ask for each of its tokens."""
        tokens, begins, lengths = self.write(rng, batch_size, length)
        positions = np.arange(length)
        if self.is_shown:
            is_asked = (positions >= begins[:, None]) & (positions < (begins + lengths)[:, None] - 1)
            return Batch(tokens, np.where(is_asked, np.roll(tokens, -1, axis=1), IGNORE))
        cuts = begins + rng.integers(lengths)
        is_hidden = (positions >= cuts[:, None]) & (positions < (begins + lengths)[:, None])
        return Batch(np.where(is_hidden, self.equals + 1, tokens), np.where(is_hidden, tokens, IGNORE))

    def floor(self, length: int) -> Bound:
        """Estimate, on a sample, the accuracy of guessing the most frequent bracket or label at each position."""
        return _sampled_floor(self, length)

    def ceiling(self, length: int) -> Bound:
        """Return 1: the tokens before the ``=`` determine every token of the tree after it."""
        return Bound(1.0)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of one rule: name the latest label or, with ``is_shown``, use an induction rule.

        The induction rule finds the latest earlier copy of the last tokens read, and names the token after this copy.
        """
        if self.is_shown:
            return {"induction": self._induced(inputs)}
        latest = np.maximum.accumulate(np.where(inputs < self.num_labels, np.arange(inputs.shape[1]), 0), axis=1)
        return {"latest label": np.take_along_axis(inputs, latest, axis=1)}

    def slots(self, inputs: Tokens) -> Tokens:
        """Compute, for each position, the index (from 0) of the token of the last tree that the model must name there.

        The index is negative at positions before the last tree.
        """
        equals = (inputs == self.equals).argmax(axis=1, keepdims=True)
        slots: Tokens = np.arange(inputs.shape[1]) - equals - 1 + self.is_shown
        return slots

    def _induced(self, inputs: Tokens) -> Tokens:
        """Find the token that followed the latest earlier copy of the last tokens read.

        The copy has as many tokens as possible, but at most four.
        """
        found = np.zeros_like(inputs)
        recent = np.zeros_like(inputs)
        for num_tokens in range(4):
            # Tokens before the first one are no id.
            older = np.pad(inputs, ((0, 0), (num_tokens, 0)), constant_values=self.vocab_size)[:, : inputs.shape[1]]
            recent = recent * (self.vocab_size + 1) + older
            copies = previous(recent)
            followers = np.take_along_axis(inputs, copies + 1, axis=1)
            found = np.where(copies < 0, found, followers)
        return found

    def draw_nodes(self, rng: np.random.Generator, sizes: Int[np.ndarray, " trees"]) -> LabelledNodes:
        """Draw one random tree for each given number of nodes.

        Each node above the last level gets 0 to ``arity`` children with equal probability, conditioned on the given
        number of nodes.
        """
        law = Law((1 / (self.arity + 1),) * (self.arity + 1), inner=1, levels=self.depth)
        levels = grow(rng, law, sizes)
        trees = np.concatenate([nodes.trees for nodes in levels])
        starts = np.concatenate([nodes.starts for nodes in levels])
        subtree_sizes = np.concatenate([nodes.sizes for nodes in levels])
        level = np.repeat(np.arange(len(levels)), [len(nodes.trees) for nodes in levels])
        labels = rng.integers(self.num_labels, size=len(trees))
        # Before it stand two tokens of each earlier node, and one more of each that has ended: all but its ancestors.
        openings = 3 * starts - level
        mirrored = 3 * (sizes[trees] - starts - subtree_sizes) + 2 * level
        return LabelledNodes(trees, subtree_sizes, labels, openings, mirrored)

    def spell(
        self, tokens: Int[np.ndarray, "rows length"], nodes: LabelledNodes, openings: Int[np.ndarray, " nodes"]
    ) -> None:
        """Write each node's brackets and label into the row of its tree; ``openings`` has each node's position."""
        tokens[nodes.trees, openings] = self.opening
        tokens[nodes.trees, openings + 1] = nodes.labels
        tokens[nodes.trees, openings + 3 * nodes.sizes - 1] = self.closing


@cache
def _sampled_floor(task: TreeCompletion, length: int) -> Bound:
    """Estimate the accuracy of naming, at each position, the best constant: a bracket or a label.

    Labels are equally likely, so the estimate counts them together. The constants are chosen on one half of a sample
    and scored on the other half, and vice versa, so the estimate is not too high.
    """
    rng = np.random.Generator(np.random.Philox(0))
    targets = task.sample(rng, max(256, NUM_TOKENS // length), length).targets
    is_right = np.stack(
        [targets == task.opening, targets == task.closing, (targets >= 0) & (targets < task.num_labels)]
    )
    scores = is_right * np.array([1.0, 1.0, 1 / task.num_labels])[:, None, None]
    half = len(targets) // 2
    best = [scores[:, half:].sum(axis=1).argmax(axis=0), scores[:, :half].sum(axis=1).argmax(axis=0)]
    positions = np.arange(length)
    right = np.concatenate(
        [scores[best[0], :half, positions].sum(axis=0), scores[best[1], half:, positions].sum(axis=0)]
    )
    return sampled(right, (targets != IGNORE).sum(axis=1))
