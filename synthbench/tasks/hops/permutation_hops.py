"""The task permutation_hops."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, task

MOST_HOPS = 64
"""Largest number of hops; each number of hops has its own token."""


@task
@dataclass(frozen=True)
class PermutationHops(Task):
    """Read the edges of a cycle whose nodes have several tokens each; name the node k edges after a given node.

    In the example, a node has two tokens, and an edge has four. A question starts with the token 3 for one hop, or 4
    for two hops. The edges lead from (2 0) to (1 2), from (0 1) to (2 0) and from (1 2) to (0 1). So two hops from
    (0 1) lead to (1 2). With ``num_symbols=3``, ``longest_chain=2`` and ``num_questions=1``::

        inputs    2 0 1 2 0 1 2 0 1 2 0 1 4 0 1 1
        targets   . . . . . . . . . . . . . . 1 2

    Tests composition: each hop looks up the node found by the previous hop, and must match all tokens of this node. The
    model must make all hops before it names the first token of the answer. The second token is easy: when it is asked,
    the input is the right first token, with which few nodes begin.

    The cycle has more edges than a question has hops, so a model that makes fewer hops never reaches the right node.
    All questions of a sequence start from different nodes. In tests beyond the trained lengths, the cycle grows.

    Source: after the task Depo of Allen-Zhu (2025), which also asks for k hops on a permutation with shuffled edges. In
    Depo, nodes vary in their number of tokens and have an end token, cycles vary in length, and one sequence asks for 1
    to K hops. On each of our levels, all questions ask for the same number of hops.
    """

    name: ClassVar = "permutation_hops"
    source: ClassVar = "allenzhu2025canon"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after * copy of the last [2-9]": "One hop is the task on the first level; on others it counts.",
        }
    )
    length: ClassVar = 96
    # A cycle has at least twice as many edges as there are hops: otherwise the way back would be shorter. Low levels
    # use few symbols for names.
    levels: ClassVar = tuple(
        {
            "load": num_hops,
            "length": length,
            "num_symbols": 12,
            "symbols_used": symbols_used,
            "shortest_chain": num_hops,
            "longest_chain": num_hops,
            "num_questions": num_questions,
        }
        for num_hops, length, num_questions, symbols_used in (
            (1, 24, 2, 4),
            (2, 32, 3, 4),
            (3, 48, 5, 4),
            (4, 64, 6, 4),
            (6, 96, 10, 6),
            (8, 128, 12, 6),
            (12, 192, 16, 6),
            (16, 192, 12, 6),
            (24, 256, 14, 8),
            (32, 384, 26, 10),
            (48, 512, 28, 12),
            (64, 768, 56, 12),
        )
    )
    load: ClassVar = "hops"
    num_symbols: int = option(12, "number of symbols that nodes are named with", low=2, high=1024)
    symbols_used: int = option(0, "of which the first ones are used; 0 is all", low=0, high=1024)
    tokens_per_node: int = option(2, "number of tokens of a node", low=1, high=16)
    shortest_chain: int = option(1, "fewest hops asked", low=1, high=MOST_HOPS)
    longest_chain: int = option(4, "most hops asked", low=1, high=MOST_HOPS)
    num_questions: int = option(4, "number of questions", low=1, high=4096)

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or two options contradict each other, such as too few
                symbols to name all nodes.
        """
        super().__post_init__()
        if self.shortest_chain > self.longest_chain:
            raise UsageError(
                f"{self.name}:longest_chain is {self.longest_chain}; "
                f"allowed: from shortest_chain={self.shortest_chain} on"
            )
        if self.symbols_used > self.num_symbols:
            raise UsageError(
                f"{self.name}:symbols_used is {self.symbols_used}; allowed: up to num_symbols={self.num_symbols}"
            )
        if self._most_nodes < self._fewest_nodes:
            raise UsageError(
                f"{self.name}:tokens_per_node is {self.tokens_per_node}; allowed: enough for "
                f"{self._fewest_nodes} nodes, not only {self._most_nodes}"
            )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, a token for each number of hops, and the padding."""
        return self.num_symbols + MOST_HOPS + 1

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest cycle and all questions.

        The cycle has ``longest_chain`` + 1 edges, or one edge per question if that is more.
        """
        return self._num_tokens(self._fewest_nodes)

    @property
    def _num_used(self) -> int:
        return self.symbols_used or self.num_symbols

    @property
    def _most_nodes(self) -> int:
        most: int = self._num_used**self.tokens_per_node
        return most

    @property
    def _fewest_nodes(self) -> int:
        return max(self.longest_chain + 1, self.num_questions)

    def _num_tokens(self, num_nodes: int) -> int:
        """Count the tokens of ``num_nodes`` edges and of all questions.

        An edge and a question each have as many tokens as two nodes. A question is one token for the number of hops, a
        node, and all but the last token of the answer.
        """
        return 2 * self.tokens_per_node * (num_nodes + self.num_questions)

    def _num_nodes(self, length: int) -> int:
        return length // (2 * self.tokens_per_node) - self.num_questions

    def check_length(self, length: int) -> None:
        """Check that sequences of this length are long enough, and need no more nodes than the symbols can name.

        A sequence has as many edges as fit into its length; remaining positions are padding at the front.

        Raises:
            UsageError: If the task has no sequence of this length.
        """
        super().check_length(length)
        longest = self._num_tokens(self._most_nodes + 1) - 1
        if length > longest:
            raise UsageError(
                f"length of task {self.name!r} is {length}; allowed: {self.min_length} to {longest}, "
                f"for there are {self._most_nodes} nodes of {self.tokens_per_node} tokens"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a cycle of nodes, list its edges in random order, and ask for hops from nodes on the cycle."""
        num_nodes, width = self._num_nodes(length), self.tokens_per_node
        cycle = self._spelled(distinct(rng, batch_size, num_nodes, self._most_nodes))
        order = rng.permuted(np.tile(np.arange(num_nodes), (batch_size, 1)), axis=1)
        starts = distinct(rng, batch_size, self.num_questions, num_nodes)
        num_hops = rng.integers(self.shortest_chain, self.longest_chain + 1, size=starts.shape)
        edges = np.concatenate([_take(cycle, order), _take(cycle, (order + 1) % num_nodes)], axis=2)
        answers = _take(cycle, (starts + num_hops) % num_nodes)
        numbers = self.num_symbols + num_hops[:, :, None] - 1
        questions = np.concatenate([numbers, _take(cycle, starts), answers[:, :, :-1]], axis=2)
        unscored = np.full((batch_size, self.num_questions, width), IGNORE)
        targets = np.concatenate([unscored, answers], axis=2).reshape(batch_size, -1)
        inputs = np.concatenate([edges.reshape(batch_size, -1), questions.reshape(batch_size, -1)], axis=1)
        num_left = length - inputs.shape[1]
        return Batch(
            np.pad(inputs, ((0, 0), (num_left, 0)), constant_values=self.vocab_size - 1),
            np.pad(targets, ((0, 0), (length - targets.shape[1], 0)), constant_values=IGNORE),
        )

    def _spelled(self, nodes: Int[np.ndarray, "batch nodes"]) -> Int[np.ndarray, "batch nodes tokens"]:
        """Convert each node's number to the tokens of its name: the digits of the number, highest first."""
        powers = self._num_used ** np.arange(self.tokens_per_node)[::-1]
        tokens: Int[np.ndarray, "batch nodes tokens"] = nodes[:, :, None] // powers % self._num_used
        return tokens

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess among the symbols used, which are all equally likely."""
        return Bound(1 / self._num_used)

    def ceiling(self, length: int) -> Bound:
        """Return 1: all edges stand before the questions."""
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of two shortcut rules, which make the wrong number of hops: only one hop, or one too few.

        As the answer's first token, each rule names the first token of the node that it reaches. For the later tokens,
        the inputs show the beginning of the right answer. Both rules then find the last edge whose start node has this
        beginning, and name this node's next token. If ``longest_chain`` is 1, only the second rule is used.
        """
        length, num_nodes, width = inputs.shape[1], self._num_nodes(inputs.shape[1]), self.tokens_per_node
        num_asked = 2 * width * self.num_questions
        edges = inputs[:, length - num_asked - 2 * width * num_nodes : length - num_asked]
        edges = edges.reshape(len(inputs), num_nodes, 2, width)
        questions = inputs[:, length - num_asked :].reshape(len(inputs), self.num_questions, 2 * width)
        num_hops, starts, shown = np.split(questions, [1, width + 1], axis=2)
        # Ids that are no node on the cycle are followed by themselves.
        sources, ends, asked = (self._joined(tokens) for tokens in (edges[:, :, 0], edges[:, :, 1], starts))
        following = np.tile(np.arange(self._most_nodes), (len(inputs), 1))
        np.put_along_axis(following, sources, ends, axis=1)
        one_less = asked
        for hop in range(1, self.longest_chain):
            is_before = hop <= num_hops[:, :, 0] - self.num_symbols
            one_less = np.where(is_before, np.take_along_axis(following, one_less, axis=1), one_less)
        one_hop = {} if self.longest_chain == 1 else {"one_hop": np.take_along_axis(following, asked, axis=1)}
        rest = self._with_beginning(edges[:, :, 0], shown)
        found = {}
        for name, nodes in {**one_hop, "one_hop_less": one_less}.items():
            tokens = np.zeros_like(questions)
            tokens[:, :, width] = self._spelled(nodes)[:, :, 0]
            tokens[:, :, width + 1 :] = rest
            found[name] = np.pad(tokens.reshape(len(inputs), -1), ((0, 0), (length - num_asked, 0)))
        return found

    def level_shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of :meth:`shortcuts` and of rules that guess among nodes that are not near the start node.

        The additional rules exist only if nodes have two tokens and all questions ask for the same number of hops. All
        of them leave out the start node; some also leave out nodes up to two hops away. As the answer's first token, a
        rule names the most frequent first token of the remaining nodes. As the second token, it names the largest
        second token of the remaining nodes whose first token is right.
        """
        found = self.shortcuts(inputs)
        if self.tokens_per_node != 2 or self.longest_chain != self.shortest_chain:
            return found
        length, num_nodes = inputs.shape[1], self._num_nodes(inputs.shape[1])
        num_asked = 4 * self.num_questions
        edges = inputs[:, length - num_asked - 4 * num_nodes : length - num_asked].reshape(len(inputs), num_nodes, 4)
        questions = inputs[:, length - num_asked :].reshape(len(inputs), self.num_questions, 4)
        sources, ends = self._joined(edges[:, :, :2]), self._joined(edges[:, :, 2:])
        starts = self._joined(questions[:, :, 1:3])
        onwards, back = (np.tile(np.arange(self._most_nodes), (len(inputs), 1)) for _ in range(2))
        np.put_along_axis(onwards, sources, ends, axis=1)
        np.put_along_axis(back, ends, sources, axis=1)
        is_node = np.zeros((len(inputs), self._most_nodes), dtype=bool)
        np.put_along_axis(is_node, sources, values=True, axis=1)
        is_left = np.repeat(is_node[:, None], self.num_questions, axis=1)
        ahead = behind = starts
        np.put_along_axis(is_left, starts[:, :, None], values=False, axis=2)
        found["not the start"] = self._most_likely(is_left, questions, length)
        is_either = is_left.copy()
        for hop in range(1, min(3, self.longest_chain)):
            ahead = np.take_along_axis(onwards, ahead, axis=1)
            behind = np.take_along_axis(back, behind, axis=1)
            np.put_along_axis(is_left, ahead[:, :, None], values=False, axis=2)
            found[f"none up to {hop} away"] = self._most_likely(is_left, questions, length)
            np.put_along_axis(is_either, ahead[:, :, None], values=False, axis=2)
            np.put_along_axis(is_either, behind[:, :, None], values=False, axis=2)
            found[f"none up to {hop} away either way"] = self._most_likely(is_either, questions, length)
        return found

    def _most_likely(
        self,
        is_left: Bool[np.ndarray, "batch questions nodes"],
        questions: Int[np.ndarray, "batch questions 4"],
        length: int,
    ) -> Int[np.ndarray, "batch length"]:
        """Guess the answer among the nodes that ``is_left`` marks: name their most frequent first token.

        Where the first token is shown, name the largest second token among the marked nodes that begin with it.
        """
        by_first = is_left.reshape(*is_left.shape[:2], self._num_used, self._num_used)
        tokens = np.zeros_like(questions)
        tokens[:, :, 2] = by_first.sum(axis=3).argmax(axis=2)
        shown = questions[:, :, 3, None, None].clip(max=self._num_used - 1)
        seconds = np.take_along_axis(by_first, shown, axis=2)[:, :, 0]
        tokens[:, :, 3] = self._num_used - 1 - seconds[:, :, ::-1].argmax(axis=2)
        return np.pad(tokens.reshape(len(questions), -1), ((0, 0), (length - tokens.shape[1] * 4, 0)))

    def _joined(self, tokens: Int[np.ndarray, "batch nodes tokens"]) -> Int[np.ndarray, "batch nodes"]:
        """Convert each node's tokens to its number."""
        nodes: Int[np.ndarray, "batch nodes"] = tokens @ self._num_used ** np.arange(self.tokens_per_node)[::-1]
        return nodes % self._most_nodes

    @staticmethod
    def _with_beginning(
        nodes: Int[np.ndarray, "batch nodes tokens"], shown: Int[np.ndarray, "batch questions beginning"]
    ) -> Int[np.ndarray, "batch questions beginning"]:
        """Find the latest listed node that begins with the tokens of the answer shown so far; return its next token.

        The result has one token for each possible number of tokens shown: one, two, ...
        """
        begins = np.ones((*shown.shape[:2], nodes.shape[1]), dtype=bool)
        found = np.empty_like(shown)
        for place in range(shown.shape[2]):
            begins &= shown[:, :, place, None] == nodes[:, None, :, place]
            latest = nodes.shape[1] - 1 - begins[:, :, ::-1].argmax(axis=2)
            found[:, :, place] = np.take_along_axis(nodes[:, :, place + 1], latest, axis=1)
        return found


def _take(
    nodes: Int[np.ndarray, "batch nodes tokens"], places: Int[np.ndarray, "batch places"]
) -> Int[np.ndarray, "batch places tokens"]:
    """Return the tokens of the nodes at the given places on each cycle."""
    return np.take_along_axis(nodes, places[:, :, None], axis=1)
