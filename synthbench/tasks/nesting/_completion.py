"""Shared code of the tree completion tasks: trees as symbolic expressions, and the hidden end of one.

A tree is written ``( label child* )``, three tokens a node. The ids are the labels, the brackets, the names of
templates if there are any, then ``=``, the blank and the padding.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._draws import previous
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens
from synthbench.tasks.nesting._trees import Law, grow

NUM_TOKENS = 2**18
"""Size of the sample that estimates a floor."""


class LabelledNodes(NamedTuple):
    """The nodes of many trees in any order."""

    trees: Int[np.ndarray, " nodes"]
    sizes: Int[np.ndarray, " nodes"]
    labels: Int[np.ndarray, " nodes"]
    openings: Int[np.ndarray, " nodes"]
    """Place of the opening bracket of a node in its tree."""
    mirrored: Int[np.ndarray, " nodes"]
    """Place of that bracket if the children of every node stand in reversed order."""


@dataclass(frozen=True)
class TreeCompletion(Task):
    """Trees, an ``=`` and a tree that follows from them, whose end is hidden behind blanks.

    Sizes of trees are uniform. The tree is cut at a uniform place that hides at least one token. With ``is_shown``
    nothing is hidden, and each token of the tree but the first is asked at the previous one.
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
        """Number of tokens per node, if all trees of a sequence are equally large."""

    @property
    @abstractmethod
    def num_marks(self) -> int:
        """Number of other tokens in a sequence."""

    @property
    def num_ids(self) -> int:
        """Number of labels, brackets and names, if a task has any."""
        return self.num_labels + 2

    @abstractmethod
    def write(
        self, rng: np.random.Generator, batch_size: int, length: int
    ) -> tuple[Tokens, Int[np.ndarray, " batch"], Int[np.ndarray, " batch"]]:
        """Write sequences with nothing hidden; return also the start and the length of the tree to complete."""

    @property
    def opening(self) -> int:
        """Id of the bracket before a node."""
        return self.num_labels

    @property
    def closing(self) -> int:
        """Id of the bracket after a node."""
        return self.num_labels + 1

    @property
    def equals(self) -> int:
        """Id of the token before the tree to complete."""
        return self.num_ids

    @property
    def vocab_size(self) -> int:
        """All ids, with the =, the blank and the padding."""
        return self.num_ids + 3

    @property
    def min_length(self) -> int:
        """Trees of the fewest nodes."""
        return self.tokens_per_node * self.fewest + self.num_marks

    def most_nodes(self, length: int) -> int:
        """Count the nodes of the largest tree, if all trees of a sequence are equally large."""
        return (length - self.num_marks) // self.tokens_per_node

    def check_length(self, length: int) -> None:
        """Refuse trees with more nodes than there is room for.

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
        """Draw trees; hide the end of the last one, or ask for all of it token by token."""
        tokens, begins, lengths = self.write(rng, batch_size, length)
        positions = np.arange(length)
        if self.is_shown:
            is_asked = (positions >= begins[:, None]) & (positions < (begins + lengths)[:, None] - 1)
            return Batch(tokens, np.where(is_asked, np.roll(tokens, -1, axis=1), IGNORE))
        cuts = begins + rng.integers(lengths)
        is_hidden = (positions >= cuts[:, None]) & (positions < (begins + lengths)[:, None])
        return Batch(np.where(is_hidden, self.equals + 1, tokens), np.where(is_hidden, tokens, IGNORE))

    def floor(self, length: int) -> Bound:
        """Guess the most frequent bracket at each position, or any label; estimated on a sample."""
        return _sampled_floor(self, length)

    def ceiling(self, length: int) -> Bound:
        """Return 1: every token of the tree follows from those before the =."""
        return Bound(1.0)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Repeat the latest label shown or, if the tree is shown, the follower of the same tokens earlier."""
        if self.is_shown:
            return {"induction": self._induced(inputs)}
        latest = np.maximum.accumulate(np.where(inputs < self.num_labels, np.arange(inputs.shape[1]), 0), axis=1)
        return {"latest label": np.take_along_axis(inputs, latest, axis=1)}

    def slots(self, inputs: Tokens) -> Tokens:
        """Number the tokens of the last tree by the position that asks for them, from 0; negative before it."""
        equals = (inputs == self.equals).argmax(axis=1, keepdims=True)
        slots: Tokens = np.arange(inputs.shape[1]) - equals - 1 + self.is_shown
        return slots

    def _induced(self, inputs: Tokens) -> Tokens:
        """Find the follower of the latest earlier copy of the last tokens: the most of up to four that have one."""
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
        """Draw random trees of these sizes; before conditioning on size, all numbers of children are equally likely."""
        law = Law((1 / (self.arity + 1),) * (self.arity + 1), inner=1, levels=self.depth)
        levels = grow(rng, law, sizes)
        trees = np.concatenate([nodes.trees for nodes in levels])
        starts = np.concatenate([nodes.starts for nodes in levels])
        subtree_sizes = np.concatenate([nodes.sizes for nodes in levels])
        level = np.repeat(np.arange(len(levels)), [len(nodes.trees) for nodes in levels])
        labels = rng.integers(self.num_labels, size=len(trees))
        # Two tokens for each node that was begun before, and one for each that has ended: all but those around it.
        openings = 3 * starts - level
        mirrored = 3 * (sizes[trees] - starts - subtree_sizes) + 2 * level
        return LabelledNodes(trees, subtree_sizes, labels, openings, mirrored)

    def spell(
        self, tokens: Int[np.ndarray, "rows length"], nodes: LabelledNodes, openings: Int[np.ndarray, " nodes"]
    ) -> None:
        """Write nodes into the rows of their trees, each from its opening bracket on."""
        tokens[nodes.trees, openings] = self.opening
        tokens[nodes.trees, openings + 1] = nodes.labels
        tokens[nodes.trees, openings + 3 * nodes.sizes - 1] = self.closing


@cache
def _sampled_floor(task: TreeCompletion, length: int) -> Bound:
    """Score the most frequent bracket or any label at each position.

    Labels are equally likely, so their frequencies are pooled. The choice is made on one half of the sample and scored
    on the other, and vice versa: scored on the same half, it would be too high.
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
    num_scored = (targets != IGNORE).sum(axis=1)
    accuracy = right.sum() / num_scored.sum()
    standard_error = float(np.sqrt(((right - accuracy * num_scored) ** 2).sum()) / num_scored.sum())
    return Bound(float(accuracy), standard_error=standard_error)
