"""The task pointer_chasing."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks._targets import score_at
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class PointerChasing(Task):
    """Read a cycle's edges in random order, then hop marks and a node; go one edge per mark, and name the node reached.

    A hop mark is 6, the query 7 and the padding 8. The two marks ask for two hops from 4.
    With ``num_nodes=6`` and ``longest_chain=3``::

        inputs    0 2 4 1 2 4 1 0 7 6 6 4 8
        targets   . . . . . . . . . . . 0 .

    Tests composition: each hop looks up the node that the previous hop found. The start node comes after the marks, so
    all hops must be made at the position of this node. Attention needs a depth that grows with the logarithm of the
    number of hops; a recurrent state needs room for all edges.

    The nodes are a random subset of all node ids. The cycle has more edges than the question has hops, so a model that
    makes fewer hops never reaches the right node. On all levels, the cycle has at least twice as many edges as the
    question has hops.

    With ``num_starts`` above 1, several start nodes follow the marks, and the same number of hops is asked from each.

    Source: Peng, Narayanan & Papadimitriou (2024), iterated function composition; the layout of sequences is new. With
    one mark per hop, a test can ask for more hops than training did. A separate token for each number of hops would not
    allow this.
    """

    name: ClassVar = "pointer_chasing"
    source: ClassVar = "peng2024limitations"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after *": "One hop is the task on the first level, and gives a wrong node on all others.",
        }
    )
    length: ClassVar = 70
    # A cycle has at least twice as many edges as there are hops: otherwise the way back would be shorter. More node ids
    # would allow more hops, but slow down learning: with 64, even one hop is not learned in 500 steps of all levels.
    levels: ClassVar = tuple(
        {
            "load": num_hops,
            "length": length,
            "shortest_chain": num_hops,
            "longest_chain": num_hops,
            "num_starts": num_starts,
        }
        for num_hops, length, num_starts in (
            (1, 12, 2),
            (2, 16, 3),
            (3, 24, 4),
            (4, 32, 5),
            (6, 48, 9),
            (8, 64, 11),
            (12, 96, 19),
            (16, 96, 15),
        )
    )
    load: ClassVar = "hops"
    num_nodes: int = option(32, "number of node ids; a sequence uses as many as it has edges", low=2, high=4096)
    shortest_chain: int = option(1, "fewest hops asked", low=1, high=1024)
    longest_chain: int = option(4, "most hops asked", low=1, high=1024)
    num_starts: int = option(1, "number of nodes from which they are asked", low=1, high=4096, is_addition=True)

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are too few nodes for the hops or the start nodes.
        """
        super().__post_init__()
        if not self.shortest_chain <= self.longest_chain < self.num_nodes:
            raise UsageError(
                f"{self.name}:longest_chain is {self.longest_chain}; "
                f"allowed: from shortest_chain={self.shortest_chain} to below num_nodes={self.num_nodes}"
            )
        if self.num_starts > self.num_nodes:
            raise UsageError(f"{self.name}:num_starts is {self.num_starts}; allowed: up to num_nodes={self.num_nodes}")

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the nodes, the hop mark, the query and the padding."""
        return self.num_nodes + 3

    @property
    def min_length(self) -> int:
        """Number of tokens in the shortest sequence: the edges of the shortest cycle, then the question.

        The shortest cycle has ``longest_chain`` + 1 edges, or one edge per start node if that is more.
        """
        return self._num_tokens(max(self.longest_chain + 1, self.num_starts))

    def _num_tokens(self, num_edges: int) -> int:
        """Count the tokens of a sequence: two per edge, the query, the start nodes, and ``longest_chain`` hop marks.

        Sequences with fewer hops have padding instead of the missing marks.
        """
        return 2 * num_edges + 1 + self.longest_chain + self.num_starts

    def _num_edges(self, length: int) -> int:
        return (length - self._num_tokens(0)) // 2

    def check_length(self, length: int) -> None:
        """Check that sequences of this length are long enough, and have no room for more edges than there are node ids.

        An edge takes two tokens. With a single start node, also check that no token is left unused.

        Raises:
            UsageError: If the task has no sequence of this length.
        """
        super().check_length(length)
        longest = self._num_tokens(self.num_nodes)
        # With several starts, a sequence may end with one more padding token, so all lengths are allowed.
        step, steps = (1, "") if self.num_starts > 1 else (2, " in steps of 2, an edge each,")
        if (longest - length) % step or length > longest:
            raise UsageError(
                f"length of task {self.name!r} is {length}; allowed: {self.min_length} to {longest}{steps} "
                f"with longest_chain={self.longest_chain} and num_nodes={self.num_nodes}"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a cycle of nodes, list its edges in random order, and ask for hops from nodes on the cycle."""
        num_edges = self._num_edges(length)
        mark, query, padding = self.num_nodes, self.num_nodes + 1, self.num_nodes + 2
        cycle = rng.permuted(np.tile(np.arange(self.num_nodes), (batch_size, 1)), axis=1)[:, :num_edges]
        order = rng.permuted(np.tile(np.arange(num_edges), (batch_size, 1)), axis=1)
        num_hops = rng.integers(self.shortest_chain, self.longest_chain + 1, size=(batch_size, 1))
        # The cycle is random and its edges are shuffled, so its first node is as good a start as any other.
        starts = np.zeros((batch_size, self.num_starts), dtype=np.int64)
        starts[:, 1:] = 1 + distinct(rng, batch_size, self.num_starts - 1, num_edges - 1)
        asked = 2 * num_edges + 1 + num_hops + np.arange(self.num_starts)
        inputs = np.full((batch_size, length), padding)
        inputs[:, 0 : 2 * num_edges : 2] = np.take_along_axis(cycle, order, axis=1)
        inputs[:, 1 : 2 * num_edges : 2] = np.take_along_axis(cycle, (order + 1) % num_edges, axis=1)
        inputs[:, 2 * num_edges] = query
        inputs[:, 2 * num_edges + 1 :][np.arange(length - 2 * num_edges - 1) < num_hops] = mark
        np.put_along_axis(inputs, asked, np.take_along_axis(cycle, starts, axis=1), axis=1)
        answers = np.take_along_axis(cycle, (starts + num_hops) % num_edges, axis=1)
        return Batch(inputs, score_at(answers, asked, length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess among all node ids."""
        return Bound(1 / self.num_nodes)

    def ceiling(self, length: int) -> Bound:
        """Return 1: all edges stand before the question."""
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of two shortcut rules, which make the wrong number of hops: only one hop, or one too few.

        If ``longest_chain`` is 1, only the second rule is used.
        """
        num_edges = self._num_edges(inputs.shape[1])
        num_hops = (inputs == self.num_nodes).sum(axis=1, keepdims=True)
        # Ids that are no node on the cycle are followed by themselves.
        following = np.tile(np.arange(self.vocab_size), (len(inputs), 1))
        np.put_along_axis(following, inputs[:, 0 : 2 * num_edges : 2], inputs[:, 1 : 2 * num_edges : 2], axis=1)
        one_less = inputs
        for hop in range(1, self.longest_chain):
            one_less = np.where(hop < num_hops, np.take_along_axis(following, one_less, axis=1), one_less)
        one_hop = {} if self.longest_chain == 1 else {"one_hop": np.take_along_axis(following, inputs, axis=1)}
        return one_hop | {"one_hop_less": one_less}
