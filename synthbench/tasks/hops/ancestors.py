"""The task ancestors."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._bounds import sampled
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, task

PLAIN = ("whole graph", "any order", "child")
WITH_END = ("whole graph, end when ready", "child, end when ready")

NUM_GRAPHS = 2**13
"""Number of graphs from which the floor is estimated."""


@task
@dataclass(frozen=True)
class Ancestors(Task):
    """Read the edges of an acyclic graph; list all ancestors of a node, each after its own parents, then an end token.

    The query token is 5, the end token 6 and the padding 7. Edges lead from 2 to 0, 4 to 2, 4 to 1 and 1 to 2, so the
    ancestors of 0 are 4, 1 and 2. With ``num_nodes=4`` and ``node_ids=5``::

        inputs    2 0 4 2 4 1 1 2 5 0 4 1 2 7
        targets   . . . . . . . . . 4 1 2 6 .

    Tests search with memory. Ancestors are the nodes from which a path of edges leads to the node asked about. If
    several ancestors may come next, the answer is the one that appears first in the list of edges. Each right answer is
    also the input at the next position.

    A graph is drawn node by node. Each node but the first has one or two parents, which are among the ``reach`` nodes
    drawn right before it. The question is about a random node among the quarter of the nodes that were drawn last.

    Source: after the task Brevo of Allen-Zhu (2025), which asks for the ancestors of a node in topological order. In
    Brevo, any topological order is right, the number of edges varies, and graphs have several roots (nodes without
    parents). Also, a node has up to four parents, which can be any nodes before it. Our graphs have one root, which is
    always the first answer.
    """

    name: ClassVar = "ancestors"
    source: ClassVar = "allenzhu2025canon"
    length: ClassVar = 64
    # In graphs with four nodes, naming the ancestors in any order is nearly always right.
    levels: ClassVar = tuple(
        {"load": num_nodes, "length": length, "num_nodes": num_nodes, "node_ids": 64, "ids_used": max(num_nodes, 8)}
        for num_nodes, length in (
            (6, 24),
            (8, 32),
            (12, 48),
            (16, 64),
            (24, 96),
            (32, 128),
            (48, 192),
            (64, 256),
        )
    )
    # In graphs with up to 8 nodes, most nodes are ancestors.
    extended_levels: ClassVar = levels[2:]
    load: ClassVar = "nodes"
    num_nodes: int = option(16, "number of nodes of a graph", low=2, high=1024)
    node_ids: int = option(64, "number of ids of nodes", low=2, high=4096)
    ids_used: int = option(0, "of which the first ones are used; 0 is all", low=0, high=4096)
    reach: int = option(4, "how far back, at most, a parent stands in the order of the graph", low=1, high=1024)

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are fewer ids than nodes.
        """
        super().__post_init__()
        if not self.num_nodes <= self._num_ids <= self.node_ids:
            name = "ids_used" if self.ids_used else "node_ids"
            raise UsageError(
                f"{self.name}:{name} is {self._num_ids}; "
                f"allowed: from num_nodes={self.num_nodes} to node_ids={self.node_ids}"
            )

    @property
    def _num_ids(self) -> int:
        return self.ids_used or self.node_ids

    @property
    def _num_edges(self) -> int:
        """Number of edges: one to each node but the first, and a second to half of those that can have two parents."""
        return self.num_nodes - 1 + self._num_second

    @property
    def _num_second(self) -> int:
        return (self.num_nodes - 2) // 2 if self.reach > 1 else 0

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the nodes, the query, the end and the padding."""
        return self.node_ids + 3

    @property
    def min_length(self) -> int:
        """Number of tokens of all edges, the query, the node asked about, and as many ancestors as possible."""
        return 2 * self._num_edges + 1 + self.num_nodes

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw graphs, list their edges in random order, and ask for the ancestors of one of the last nodes drawn."""
        edges, asked = self._draw(rng, batch_size)
        is_ancestor, answers = _topological(*_parents(edges, self.num_nodes), asked)
        ids = distinct(rng, batch_size, self.num_nodes, self._num_ids)
        num_read, slots = 2 * self._num_edges + 2, np.arange(self.num_nodes)
        num_answers = is_ancestor.sum(axis=1)[:, None]
        query, end, padding = self.node_ids + np.arange(3)
        inputs = np.full((batch_size, length), padding)
        inputs[:, : num_read - 2] = np.take_along_axis(ids, edges, axis=1)
        inputs[:, num_read - 2] = query
        inputs[:, num_read - 1] = ids[np.arange(batch_size), asked]
        named = np.take_along_axis(ids, answers, axis=1)
        shown = inputs[:, num_read : num_read + self.num_nodes - 1]
        shown[:] = np.where(slots < num_answers, named, padding)[:, :-1]
        targets = np.full((batch_size, length), IGNORE)
        targets[:, num_read - 1 : num_read - 1 + self.num_nodes] = np.where(
            slots < num_answers, named, np.where(slots == num_answers, end, IGNORE)
        )
        return Batch(inputs, targets)

    def _draw(
        self, rng: np.random.Generator, batch_size: int
    ) -> tuple[Int[np.ndarray, "batch ends"], Int[np.ndarray, " batch"]]:
        """Draw the edges of a graph, each as parent and child, and the node asked about.

        Nodes are numbered from 0 in the order in which they first appear in the list of edges.
        """
        nodes = np.broadcast_to(np.arange(1, self.num_nodes), (batch_size, self.num_nodes - 1))
        choices = np.minimum(nodes, self.reach)
        first = rng.integers(choices)
        # The second parent is one of the other choices.
        second = (first + rng.integers(1, np.maximum(choices, 2))) % choices
        has_second = 1 + rng.permuted(nodes[:, :-1], axis=1)[:, : self._num_second]
        seconds = np.take_along_axis(second, has_second - 1, axis=1)
        children = np.concatenate([nodes, has_second], axis=1)
        parents = children - 1 - np.concatenate([first, seconds], axis=1)
        order = rng.permuted(np.tile(np.arange(self._num_edges), (batch_size, 1)), axis=1)
        edges = np.stack([parents, children], axis=2)
        edges = np.take_along_axis(edges, order[:, :, None], axis=1).reshape(batch_size, -1)
        asked = self.num_nodes - 1 - rng.integers(max(1, self.num_nodes // 4), size=batch_size)
        names = _in_order_of_appearance(edges, self.num_nodes)
        return np.take_along_axis(names, edges, axis=1), names[np.arange(batch_size), asked]

    def floor(self, length: int) -> Bound:
        """Estimate, on sampled graphs, the accuracy of the best constant at each position: a node or the end token."""
        return _floor(self)

    def ceiling(self, length: int) -> Bound:
        """Return 1: all edges stand before the question."""
        return Bound(1.0)

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return a task with ``factor`` times as many nodes, and that task's shortest sequence length in tokens.

        The options ``node_ids`` and ``ids_used`` stay the same, so they must already provide enough ids.
        """
        larger = replace(self, num_nodes=factor * self.num_nodes)
        return larger, larger.min_length

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of three shortcut rules, each of which chooses among the nodes not named so far.

        The first rule names a node whose parents have all been named, even if it is no ancestor. The second rule names
        an ancestor, even if its parents have not been named. The third rule names a child of the node read last. If
        several nodes qualify, a rule takes the node that appears first in the list of edges. If no node qualifies, the
        rule names the end token.
        """
        return {name: answers for name, answers in self._guesses(inputs).items() if name in PLAIN}

    def level_shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Extend :meth:`shortcuts` by variants of the first and the third rule there.

        The variants name the end token once all parents of the node asked about are named.
        """
        return self._guesses(inputs)

    def _guesses(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        rows, num_read = np.arange(len(inputs)), 2 * self._num_edges + 2
        # Nodes in the order in which they first appear in the sequence, that is in the list of edges.
        firsts = np.full((len(inputs), self.vocab_size), inputs.shape[1])
        for position in reversed(range(num_read - 2)):
            firsts[rows, inputs[:, position]] = position
        ids = np.argsort(firsts, axis=1)[:, : self.num_nodes]
        names = np.argsort(np.argsort(firsts, axis=1), axis=1)
        tokens = np.take_along_axis(names, inputs, axis=1).clip(max=self.num_nodes)
        parents, children = _parents(tokens[:, : num_read - 2], self.num_nodes)
        is_ancestor, _ = _topological(parents, children, tokens[:, num_read - 1])
        end = np.full((len(inputs), 1), self.node_ids + 1)
        found = {name: np.zeros_like(inputs) for name in (*PLAIN, *WITH_END)}
        is_left = np.ones((len(inputs), self.num_nodes + 1), dtype=bool)
        is_left[:, self.num_nodes] = False
        missing = parents.sum(axis=2)
        for position in range(num_read - 1, num_read - 1 + self.num_nodes):
            last = tokens[:, position]
            if position >= num_read:
                is_left[rows, last] = False
                missing -= np.where(
                    last[:, None] < self.num_nodes, children[rows, last.clip(max=self.num_nodes - 1)], 0
                )
            candidates = {
                "whole graph": is_left[:, :-1] & (missing == 0),
                "any order": is_left[:, :-1] & is_ancestor,
                "child": is_left[:, :-1] & children[rows, last.clip(max=self.num_nodes - 1)],
            }
            for name, is_candidate in candidates.items():
                choice = np.append(ids, end, axis=1)[
                    rows, np.where(is_candidate.any(axis=1), is_candidate.argmax(axis=1), self.num_nodes)
                ]
                found[name][:, position] = choice
                if name in PLAIN[::2]:
                    is_done = missing[rows, tokens[:, num_read - 1]] == 0
                    found[f"{name}, end when ready"][:, position] = np.where(is_done, end[:, 0], choice)
        return found


def _in_order_of_appearance(edges: Int[np.ndarray, "batch ends"], num_nodes: int) -> Int[np.ndarray, "batch nodes"]:
    """Compute each node's rank in the order in which nodes first appear in the list of edges."""
    firsts = np.empty((len(edges), num_nodes), dtype=np.int64)
    for place in reversed(range(edges.shape[1])):
        firsts[np.arange(len(edges)), edges[:, place]] = place
    return firsts.argsort(axis=1).argsort(axis=1)


def _parents(
    edges: Int[np.ndarray, "batch ends"], num_nodes: int
) -> tuple[Bool[np.ndarray, "batch nodes nodes"], Bool[np.ndarray, "batch nodes nodes"]]:
    """Return two masks, each over sequence, node and other node.

    The first is True if the other node is a parent of the node, and the second if it is a child.
    """
    is_parent = np.zeros((len(edges), num_nodes, num_nodes), dtype=bool)
    is_parent[np.arange(len(edges))[:, None], edges[:, 1::2], edges[:, 0::2]] = True
    return is_parent, is_parent.swapaxes(1, 2)


def _topological(
    parents: Bool[np.ndarray, "batch nodes nodes"],
    children: Bool[np.ndarray, "batch nodes nodes"],
    asked: Int[np.ndarray, " batch"],
) -> tuple[Bool[np.ndarray, "batch nodes"], Int[np.ndarray, "batch nodes"]]:
    """Return a mask of the ancestors of the node asked about, and these ancestors in the order of the answer.

    The list of ancestors is filled up with arbitrary nodes.
    """
    rows = np.arange(len(asked))
    is_ancestor = parents[rows, asked]
    for _ in range(parents.shape[1]):
        above = (parents & is_ancestor[:, :, None]).any(axis=1) | is_ancestor
        if (above == is_ancestor).all():
            break
        is_ancestor = above
    is_left, missing = is_ancestor.copy(), parents.sum(axis=2)
    named = np.zeros(is_ancestor.shape, dtype=np.int64)
    for place in range(int(is_ancestor.sum(axis=1).max())):
        named[:, place] = node = (is_left & (missing == 0)).argmax(axis=1)
        is_left[rows, node] = False
        missing -= children[rows, node]
    return is_ancestor, named


@cache
def _floor(task: Ancestors) -> Bound:
    """Estimate, on sampled graphs, the accuracy of the best constant at each position, a node or the end token.

    All node ids are equally likely, so only the distribution of the number of ancestors determines at which positions
    the end token is the better guess.
    """
    edges, asked = task._draw(np.random.Generator(np.random.Philox(0)), NUM_GRAPHS)  # noqa: SLF001  its own task
    is_ancestor, _ = _topological(*_parents(edges, task.num_nodes), asked)
    num_answers, slots = is_ancestor.sum(axis=1)[:, None], np.arange(task.num_nodes)
    share_of_node = (slots < num_answers) / task._num_ids  # noqa: SLF001
    is_end = slots == num_answers
    right = np.where(is_end.mean(axis=0) > share_of_node.mean(axis=0), is_end, share_of_node).sum(axis=1)
    return sampled(right, num_answers[:, 0] + 1)
