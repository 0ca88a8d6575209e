"""The task ngram_lookup."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from synthbench.knobs import knob
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class NgramLookup(Task):
    """Read a string and a separator, then an n-gram of the string; at its end, name what followed it in the string.

    With ``num_symbols=8``, ``order=2`` and ``num_decoys=1``, the separator is 8; the n-gram is 3 1, the decoy 5 1 6::

        inputs    0 3 1 4 7 5 1 6 2 8 3 1
        targets   . . . . . . . . . . . 4

    Tests lookup by several tokens in a row. Everywhere in the string the n-gram is followed by the same symbol. A decoy
    repeats all of it but its first token and goes on differently, so that shorter n-grams are ambiguous: they match in
    ``num_decoys`` more places. An induction head over one token fails; heads over n tokens need depth or a convolution.

    Source: Jelassi et al. (2024), n-gram lookup. The decoys are ours.
    """

    name: ClassVar = "ngram_lookup"
    source: ClassVar = "jelassi2024repeat"
    length: ClassVar = 128
    sizes: ClassVar = {
        "tiny": {"length": 24, "num_symbols": 8, "order": 2, "num_decoys": 1},
        "small": {"length": length},
        "hard": {"length": 512, "order": 5, "num_decoys": 15},
    }
    num_symbols: int = knob(16, "number of symbols that strings are made of", low=2, high=65536)
    order: int = knob(3, "number of tokens of the n-gram", low=1, high=64)
    num_decoys: int = knob(
        3, "places where all but the first token of the n-gram stands, followed by another", low=0, high=1024
    )

    @property
    def vocab_size(self) -> int:
        """The symbols and the separator."""
        return self.num_symbols + 1

    @property
    def min_length(self) -> int:
        """The n-gram and the decoys with what follows them, the separator and the n-gram again."""
        return (self.num_decoys + 1) * (self.order + 1) + 1 + self.order

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Plant the n-gram and the decoys at random places of a uniform string, in random order."""
        self.check_length(length)
        num_plants, width = self.num_decoys + 1, self.order + 1
        strings = rng.integers(self.num_symbols, size=(batch_size, length - width))
        grams = rng.integers(self.num_symbols, size=(batch_size, width))
        plants = np.repeat(grams[:, None], num_plants, axis=1)
        # Another symbol is one to num_symbols - 1 steps away, around the circle.
        steps = rng.integers(1, self.num_symbols, size=(batch_size, num_plants, 2))
        steps[np.arange(batch_size), rng.integers(num_plants, size=batch_size)] = 0
        plants[:, :, [0, -1]] = (plants[:, :, [0, -1]] + steps) % self.num_symbols
        room = length - width - num_plants * width
        starts = np.sort(rng.integers(room + 1, size=(batch_size, num_plants)), axis=1) + width * np.arange(num_plants)
        places = (starts[:, :, None] + np.arange(width)).reshape(batch_size, -1)
        np.put_along_axis(strings, places, plants.reshape(batch_size, -1), axis=1)
        _agree(strings, grams)
        separator = np.full((batch_size, 1), self.num_symbols)
        inputs = np.concatenate([strings, separator, grams[:, :-1]], axis=1)
        return Batch(inputs, score_last(grams[:, -1], length))

    def floor(self, length: int) -> Bound:
        """One in ``num_symbols``, whatever the length."""
        self.check_length(length)
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """The n-gram is in the string, and all that follows it there is the answer."""
        self.check_length(length)
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """What followed the latest copy of fewer of the last tokens."""
        strings = inputs[:, : -self.order - 1]
        return {
            f"last {order} of the n-gram": score_last(_latest_follower(strings, inputs[:, -order:]), inputs.shape[1])
            for order in range(1, self.order)
        }


def _agree(strings: Int[np.ndarray, "batch length"], grams: Int[np.ndarray, "batch width"]) -> None:
    """Write the last symbol of the gram after all copies of the symbols before it, in place.

    What is written may end one copy and make another, so this is repeated. It ends: in each round the first copy with a
    wrong follower is made right, and nothing in front of it ever changes.
    """
    width = grams.shape[1]
    rows = np.arange(len(strings))
    while len(rows):
        is_wrong = _copies(strings[rows], grams[rows, :-1])
        is_wrong &= strings[rows, width - 1 :] != grams[rows, -1:]
        wrong, starts = np.nonzero(is_wrong)
        strings[rows[wrong], starts + width - 1] = grams[rows[wrong], -1]
        rows = rows[np.unique(wrong)]


def _copies(
    strings: Int[np.ndarray, "batch length"], grams: Int[np.ndarray, "batch order"]
) -> Bool[np.ndarray, "batch starts"]:
    """Where copies of the gram begin that are followed by a symbol."""
    num_starts = strings.shape[1] - grams.shape[1]
    is_copy = np.ones((len(strings), num_starts), dtype=bool)
    for index, symbols in enumerate(grams.T):
        is_copy &= strings[:, index : index + num_starts] == symbols[:, None]
    return is_copy


def _latest_follower(
    strings: Int[np.ndarray, "batch length"], grams: Int[np.ndarray, "batch order"]
) -> Int[np.ndarray, " batch"]:
    """What follows the latest copy of each gram; the first symbol if there is none."""
    places = np.arange(grams.shape[1], strings.shape[1])
    latest = (_copies(strings, grams) * places).max(axis=1, keepdims=True)
    followers: Int[np.ndarray, " batch"] = np.take_along_axis(strings, latest, axis=1)[:, 0]
    return followers
