"""The task in_context_language."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, task

NUM_AUTOMATA = 2**14
"""Number of automata from which the ceiling is estimated."""


class Automata(NamedTuple):
    """Finite automata, one per sequence: each edge leads from one state to another and writes a symbol.

    State 0 is the start. The arrays have room for equally many edges at each state, but only the first ``num_edges``
    edges of a state exist.
    """

    num_edges: Int[np.ndarray, "batch states"]
    symbols: Int[np.ndarray, "batch states edges"]
    ends: Int[np.ndarray, "batch states edges"]


@task
@dataclass(frozen=True)
class InContextLanguage(Task):
    """Read strings written by a random automaton, each after a separator; at each position, name the next symbol.

    With ``num_symbols=4``, the separator is 4; the end of a string cannot be known and is not scored::

        inputs    4 0 1 3 0 4 0 2 4 0 1 3 3 4 0
        targets   0 1 3 0 . 0 2 . 0 1 3 3 . 0 1

    Tests learning a language from context. A model can look at earlier copies of the last few tokens and count which
    symbols followed, as n-gram heads do. Tracking the automaton's state gives better predictions than counting.
    Attention should beat recurrent mechanisms, and a short convolution should close part of the gap.

    Each sequence has its own automaton. There are so many automata that training and test sequences almost surely share
    no automaton. In tests beyond the training length, each automaton writes more strings.

    Source: Akyürek et al. (2024). Here, the numbers of states and symbols are fixed, and no edge leads from a state to
    itself. Only the actual next symbol is right, whereas their task accepts any symbol that the automaton allows.
    """

    name: ClassVar = "in_context_language"
    source: ClassVar = "akyurek2024icll"
    length: ClassVar = 256
    not_tested: ClassVar = (
        "The state of the automaton: counting what followed the last two tokens scores nearly as much as knowing it."
    )
    num_states: int = option(8, "states of an automaton, some of which may be out of reach", low=2, high=64)
    num_symbols: int = option(6, "number of symbols, the separator not counted", low=2, high=32)
    most_edges: int = option(3, "most edges that leave a state; the fewest are 1", low=1, high=32)
    longest_string: int = option(24, "symbols of the longest string; the shortest has 1", low=1, high=256)

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or a state could have more edges than there are symbols.
        """
        super().__post_init__()
        if self.most_edges > self.num_symbols:
            raise UsageError(
                f"{self.name}:most_edges is {self.most_edges}; allowed: up to num_symbols={self.num_symbols}, "
                "for the edges that leave a state have different symbols"
            )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols and the separator."""
        return self.num_symbols + 1

    @property
    def min_length(self) -> int:
        """Number of tokens of a separator and the first symbol."""
        return 2

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw an automaton for each sequence, and strings that this automaton writes."""
        automata = draw_automata(rng, batch_size, self.num_states, self.num_symbols, self.most_edges)
        tokens, _ = walk(rng, automata, self.num_symbols, self.longest_string, length + 1)
        following = tokens[:, 1:]
        return Batch(tokens[:, :-1].copy(), np.where(following == self.num_symbols, IGNORE, following))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess: all symbols are equally likely."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Estimate the accuracy of a predictor that knows the automaton's state and guesses an edge of this state."""
        return _ceiling(self, length)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of three n-gram rules: name the symbol that most often followed the last 0, 1 or 2 tokens.

        With 0 tokens, this is the most frequent symbol so far. In a tie, or if these tokens have not occurred in this
        order before, the rule with fewer tokens decides.
        """
        (batch_size, length), vocab = inputs.shape, self.vocab_size
        rows = np.arange(batch_size)
        # A sequence begins with a separator; assume another one before it.
        before = np.concatenate([np.full((batch_size, 1), self.num_symbols), inputs[:, :-1]], axis=1)
        contexts = {"unigram": np.zeros_like(inputs), "bigram": inputs, "trigram": before * vocab + inputs}
        counts = {name: np.zeros((batch_size, vocab**order, vocab), np.int32) for order, name in enumerate(contexts)}
        predictions = {name: np.empty_like(inputs) for name in contexts}
        for position in range(length):
            votes = np.zeros((batch_size, self.num_symbols))
            for order, (name, context) in enumerate(contexts.items()):
                if position:
                    counts[name][rows, context[:, position - 1], inputs[:, position]] += 1
                # A longer context outvotes all shorter ones together.
                seen = counts[name][rows, context[:, position], : self.num_symbols]
                votes += seen * float(length + 1) ** order
                predictions[name][:, position] = votes.argmax(axis=1)
        return predictions


def draw_automata(
    rng: np.random.Generator, batch_size: int, num_states: int, num_symbols: int, most_edges: int
) -> Automata:
    """Draw random automata: each state has 1 to ``most_edges`` edges to other states, with distinct symbols."""
    shape = (batch_size, num_states, most_edges)
    num_edges = rng.integers(1, most_edges + 1, size=shape[:2])
    symbols = distinct(rng, batch_size * num_states, most_edges, num_symbols).reshape(shape)
    ends = rng.integers(num_states - 1, size=shape)
    ends += ends >= np.arange(num_states)[:, None]
    return Automata(num_edges, symbols, ends)


def walk(
    rng: np.random.Generator, automata: Automata, separator: int, longest_string: int, num_tokens: int
) -> tuple[Int[np.ndarray, "batch tokens"], Int[np.ndarray, "batch tokens"]]:
    """Draw strings from each automaton, following random edges from its start; a separator precedes each string.

    String lengths are uniform from 1 to ``longest_string`` symbols; the last string of a sequence may be cut off.

    Returns:
        Two arrays: the tokens, and the automaton's state before each token was drawn. The states of separators are
        meaningless.
    """
    batch_size, num_states, most_edges = automata.symbols.shape
    num_strings = num_tokens // 2 + 1
    lengths = rng.integers(1, longest_string + 1, size=(batch_size, num_strings))
    is_separator = np.zeros((batch_size, num_tokens + 1), dtype=bool)
    is_separator[:, 0] = True
    np.put_along_axis(is_separator, np.minimum((lengths + 1).cumsum(axis=1), num_tokens), values=True, axis=1)
    # The loop handles all sequences at once: positions are the first axis, and states and edges are numbered across
    # sequences.
    is_separator = is_separator.T
    choices = rng.random((num_tokens, batch_size))
    starts = num_states * np.arange(batch_size)
    num_edges, symbols = automata.num_edges.ravel(), automata.symbols.ravel()
    ends = (automata.ends + starts[:, None, None]).ravel()
    tokens = np.empty((num_tokens, batch_size), dtype=np.int64)
    states = np.empty_like(tokens)
    state = starts
    for position in range(num_tokens):
        states[position] = state
        edge = most_edges * state + (choices[position] * num_edges[state]).astype(np.int64)
        tokens[position] = symbols[edge]
        state = np.where(is_separator[position], starts, ends[edge])
    tokens[is_separator[:num_tokens]] = separator
    return tokens.T.copy(), (states - starts).T


@cache
def _ceiling(task: InContextLanguage, length: int) -> Bound:
    """Compute the accuracy of a predictor that knows the automaton's state and guesses one of its edges.

    This is the mean of ``1 / num_edges`` over the states in which symbols are drawn.

    The standard error comes only from the sampling of automata. For each automaton, the probability of each state is
    exact.
    """
    rng = np.random.Generator(np.random.Philox(0))
    automata = draw_automata(rng, NUM_AUTOMATA, task.num_states, task.num_symbols, task.most_edges)
    guess = 1 / automata.num_edges
    edge_chance = guess[:, :, None] * (np.arange(task.most_edges) < automata.num_edges[:, :, None])
    ends = (automata.ends + task.num_states * np.arange(NUM_AUTOMATA)[:, None, None]).ravel()
    state_chance: Float[np.ndarray, "automata states"] = np.zeros(guess.shape)
    state_chance[:, 0] = 1
    accuracy = np.zeros(NUM_AUTOMATA)
    for share in _shares(task.longest_string, length):
        accuracy += share * (state_chance * guess).sum(axis=1)
        moved = (state_chance[:, :, None] * edge_chance).ravel()
        state_chance = np.bincount(ends, moved, minlength=guess.size).reshape(guess.shape)
    return Bound(float(accuracy.mean()), "bound", float(accuracy.std() / np.sqrt(NUM_AUTOMATA)))


def _shares(longest_string: int, length: int) -> Float[np.ndarray, " symbols"]:
    """Compute the fraction of scored symbols that are the first of their string, the second, and so on."""
    # A string follows each separator, and the next separator follows the string.
    has_separator = np.zeros(length + 1)
    has_separator[0] = 1
    for position in range(2, length + 1):
        has_separator[position] = has_separator[max(0, position - longest_string - 1) : position - 1].sum()
        has_separator[position] /= longest_string
    ranks = np.arange(1, min(longest_string, length) + 1)
    has_rank = 1 - (ranks - 1) / longest_string
    scored = has_separator.cumsum()[length - ranks] * has_rank
    shares: Float[np.ndarray, " symbols"] = scored / scored.sum()
    return shares
