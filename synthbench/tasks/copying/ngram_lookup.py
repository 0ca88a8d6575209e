"""The task ngram_lookup."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import LENGTHS, Batch, Bound, Task, Tokens, task


@task
@dataclass(frozen=True)
class NgramLookup(Task):
    """Read a string and a separator, then an n-gram of the string; name the symbol that followed the n-gram.

    With ``num_symbols=8``, ``order=2`` and ``num_decoys=1``, the separator is 8; the n-gram is 3 1, the decoy 5 1::

        inputs    0 3 1 4 7 5 1 6 2 8 3 1
        targets   . . . . . . . . . . . 4

    Tests lookup by several tokens in a row. Wherever the n-gram occurs in the string, it has the same follower (next
    symbol). The string also contains ``num_decoys`` decoys: copies of the n-gram with a changed first token and another
    follower. A look-up that ignores the first token also finds the decoys. An induction head that matches one token
    fails; matching n tokens needs several layers or a convolution.

    There are also ``num_openings`` openings: copies with a changed last token, so a look-up of the first token alone is
    ambiguous as well. With ``shares_follower``, all decoys and openings have the same follower. Without this option, a
    model could look up each token of the n-gram separately, and take the most frequent result.

    Source: Jelassi et al. (2024), their n-gram lookup task; decoys and openings are our additions.
    """

    name: ClassVar = "ngram_lookup"
    source: ClassVar = "jelassi2024repeat"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after * copy of the last [2-9]": "What followed the whole n-gram is the answer.",
        }
    )
    length: ClassVar = 128
    # With fewer symbols, long strings repeat the n-gram by chance, so the most frequent follower of its last token is
    # the answer.
    levels: ClassVar = tuple(
        {
            "load": length,
            "length": length,
            "num_symbols": 32,
            "order": 2,
            "num_decoys": 1,
            "num_openings": 1,
            "shares_follower": True,
        }
        for length in LENGTHS
        if length >= 12
    )
    num_symbols: int = option(16, "number of symbols that strings are made of", low=2, high=65536)
    order: int = option(3, "number of tokens of the n-gram", low=1, high=64)
    num_decoys: int = option(
        3, "places where all but the first token of the n-gram stands, followed by another", low=0, high=1024
    )
    num_openings: int = option(
        0,
        "places where all but the last token of the n-gram stands, followed by another",
        low=0,
        high=1024,
        is_addition=True,
    )
    shares_follower: bool = option(
        default=False, meaning="whether the same symbol follows all decoys and openings", is_addition=True
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols and the separator."""
        return self.num_symbols + 1

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence.

        This sequence consists of the n-gram and its changed copies, each with a follower, then the separator and the
        n-gram again.
        """
        return self._num_plants * (self.order + 1) + 1 + self.order

    @property
    def _num_plants(self) -> int:
        """Number of n-grams put into the string: the one asked about, and its changed copies (decoys and openings)."""
        return 1 + self.num_decoys + self.num_openings

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Put the n-gram and its changed copies in random order at random places of a string of uniform symbols."""
        num_plants, width = self._num_plants, self.order + 1
        strings = rng.integers(self.num_symbols, size=(batch_size, length - width))
        grams = rng.integers(self.num_symbols, size=(batch_size, width))
        plants = np.repeat(grams[:, None], num_plants, axis=1)
        # Other symbols are 1 to num_symbols - 1 steps away, modulo num_symbols.
        steps = rng.integers(1, self.num_symbols, size=(batch_size, num_plants, 2))
        genuine = rng.integers(num_plants, size=batch_size)
        if self.shares_follower:
            steps[:, :, 1] = steps[:, :1, 1]
        steps[np.arange(batch_size), genuine] = 0
        changed = self._draw_changed(rng, genuine)
        changed_tokens = np.take_along_axis(plants, changed, axis=2) + steps[:, :, :1]
        np.put_along_axis(plants, changed, changed_tokens % self.num_symbols, axis=2)
        plants[:, :, -1] = (plants[:, :, -1] + steps[:, :, 1]) % self.num_symbols
        room = length - width - num_plants * width
        starts = np.sort(rng.integers(room + 1, size=(batch_size, num_plants)), axis=1) + width * np.arange(num_plants)
        places = (starts[:, :, None] + np.arange(width)).reshape(batch_size, -1)
        np.put_along_axis(strings, places, plants.reshape(batch_size, -1), axis=1)
        _agree(strings, grams)
        separator = np.full((batch_size, 1), self.num_symbols)
        inputs = np.concatenate([strings, separator, grams[:, :-1]], axis=1)
        return Batch(inputs, score_last(grams[:, -1], length))

    def _draw_changed(
        self, rng: np.random.Generator, genuine: Int[np.ndarray, " batch"]
    ) -> Int[np.ndarray, "batch plants 1"]:
        """Choose the openings at random; return the index of the token to change in each copy of the n-gram.

        The two kinds of changed copies are openings, where the last token changes, and decoys, where the first does.
        The n-gram asked about also has the index 0, but is not changed.
        """
        changed = np.zeros((len(genuine), self._num_plants), dtype=np.int64)
        if self.num_openings:
            others = np.arange(1, self._num_plants)
            is_opening = rng.permuted(np.tile(others <= self.num_openings, (len(genuine), 1)), axis=1)
            places = (genuine[:, None] + others) % self._num_plants
            np.put_along_axis(changed, places, (self.order - 1) * is_opening, axis=1)
        return changed[:, :, None]

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Return 1: the n-gram occurs in the string, always followed by the answer."""
        return Bound(1.0)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of shortcut rules that look up only the n-gram's last or first 1, 2, ... tokens.

        If several places match, a rule takes the latest place. There are rules for the first tokens only if the string
        has openings (copies of the n-gram with a changed last token).
        """
        strings, length = inputs[:, : -self.order - 1], inputs.shape[1]
        found = {}
        for order in range(1, self.order):
            last = inputs[:, -order:]
            found[f"last {order} of the n-gram"] = score_last(_latest_follower(strings, last), length)
            if self.num_openings:
                first = inputs[:, -self.order : length - self.order + order]
                followers = _latest_follower(strings, first, self.order - order)
                found[f"first {order} of the n-gram"] = score_last(followers, length)
        return found

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of three rules in which single tokens vote for an answer.

        Wherever a token of the n-gram occurs in the string, it votes for the symbol that would follow if the whole
        n-gram stood there. The first rule counts only votes of the n-gram's last token, the second only votes of its
        first token, and the third all votes.
        """
        strings, length = inputs[:, : -self.order - 1], inputs.shape[1]
        votes = np.zeros((self.order, len(inputs), self.num_symbols))
        for distance in range(1, self.order + 1):
            is_equal = strings[:, :-distance] == inputs[:, -distance, None]
            rows, places = np.nonzero(is_equal)
            np.add.at(votes[distance - 1], (rows, strings[rows, places + distance]), 1)
        return {
            **self.shortcuts(inputs),
            "most frequent after the last": score_last(votes[0].argmax(axis=1), length),
            "most frequent after the first": score_last(votes[-1].argmax(axis=1), length),
            "votes of all tokens": score_last(votes.sum(axis=0).argmax(axis=1), length),
        }


def _agree(strings: Tokens, grams: Int[np.ndarray, "batch width"]) -> None:
    """Change ``strings`` in place so that every copy of the n-gram is followed by the same symbol, the follower.

    A row of ``grams`` is an n-gram and its follower. Writing a follower may create a new copy, so the function repeats
    until all followers are right.
    """
    width = grams.shape[1]
    rows = np.arange(len(strings))
    while len(rows):
        is_wrong = _copies(strings[rows], grams[rows, :-1])
        is_wrong &= strings[rows, width - 1 :] != grams[rows, -1:]
        wrong, starts = np.nonzero(is_wrong)
        strings[rows[wrong], starts + width - 1] = grams[rows[wrong], -1]
        rows = rows[np.unique(wrong)]


def _copies(strings: Tokens, grams: Int[np.ndarray, "batch order"], gap: int = 0) -> Bool[np.ndarray, "batch starts"]:
    """Mark the start of each copy of the n-gram, if at least ``gap + 1`` symbols come after the copy."""
    num_starts = strings.shape[1] - grams.shape[1] - gap
    is_copy = np.ones((len(strings), num_starts), dtype=bool)
    for index, symbols in enumerate(grams.T):
        is_copy &= strings[:, index : index + num_starts] == symbols[:, None]
    return is_copy


def _latest_follower(strings: Tokens, grams: Int[np.ndarray, "batch order"], gap: int = 0) -> Int[np.ndarray, " batch"]:
    """Find the symbol ``gap + 1`` places after the end of the latest copy of the n-gram.

    If there is no copy, return the first symbol of the string.
    """
    places = np.arange(grams.shape[1] + gap, strings.shape[1])
    latest = (_copies(strings, grams, gap) * places).max(axis=1, keepdims=True)
    followers: Int[np.ndarray, " batch"] = np.take_along_axis(strings, latest, axis=1)[:, 0]
    return followers
