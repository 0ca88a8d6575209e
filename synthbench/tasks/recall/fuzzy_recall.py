"""The task fuzzy_recall."""

from dataclasses import dataclass
from math import perm
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._draws import distinct, previous
from synthbench.tasks.base import IGNORE, Batch, task
from synthbench.tasks.recall._base import Recall

ABSENT = -1
"""Filler that extends a motif (the tokens of a key or of a value) to the largest size."""


@task
@dataclass(frozen=True)
class FuzzyRecall(Recall):
    """Read a stream of keys and values of one or more tokens each; after a repeated key, name its value.

    With ``vocabulary=8``, ``num_keys=2`` and ``max_motif=2``::

        inputs    1 5 1 0 4 7 1 0 4 7 1 5
        targets   . . . . . . . 4 7 . 5 .

    A key consists of different tokens from 0 to 3, and a value of different tokens from 4 to 7. Each token of a value
    is the target at the position before it, so the first token of a value is the target at the last token of its key.
    Keys and values change from sequence to sequence. The id of a token shows whether it belongs to a key or a value. So
    it is clear where keys end, and the ceiling (the best possible score) is 1.

    Tests binding of several tokens to several other tokens: keys share tokens, so the whole key must be compared.

    Source: Poli et al. (2024), MAD, following its code. MAD draws keys from all possible sequences of tokens, so long
    keys hardly ever repeat, except that the last key repeats an earlier key. MAD pads the start of sequences, and all
    keys in its tests have the maximum size.

    Here, each sequence draws ``num_keys`` keys, and pairs use only these keys. The stream is cut off at the end,
    without padding. Unlike in MAD's training, sequences are always new, and only values of repeated keys are scored.
    """

    name: ClassVar = "fuzzy_recall"
    source: ClassVar = "poli2024mad"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after * copy of the last [2-9]": (
                "Two tokens hold most keys whole: comparing several is the task, and short levels would have no room."
            ),
        }
    )
    length: ClassVar = 128
    # A key comes twice on average. Keys are made of 4 tokens, so the last token alone does not identify a key; with two
    # keys it does so too often for a level.
    levels: ClassVar = tuple(
        {"load": keys, "length": 8 * keys, "num_keys": keys, "vocabulary": 8} for keys in (3, 4, 6, 8, 12, 16, 24, 32)
    )
    # With 3 or 4 keys, any value that followed the last token is mostly right.
    extended_levels: ClassVar = levels[2:]
    load: ClassVar = "keys"
    vocabulary: int = option(16, "number of tokens: those of values, and as many of keys", low=4, high=4096)
    num_keys: int = option(8, "number of keys in a sequence", low=2, high=64)
    max_motif: int = option(3, "largest number of tokens in a key, and in a value", low=2, high=5)

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are too few possible keys or value tokens.
        """
        super().__post_init__()
        self.check_at_most("max_motif", self.num_answers, "the number of tokens that values are made of")
        num_motifs = sum(perm(self.num_key_tokens, size) for size in range(1, self.max_motif + 1))
        self.check_at_most("num_keys", num_motifs, "the number of different keys")

    @property
    def num_answers(self) -> int:
        """Number of token ids of which values are made: half of the vocabulary, rounded down."""
        return self.vocabulary // 2

    @property
    def num_key_tokens(self) -> int:
        """Number of token ids of which keys are made: half of the vocabulary, rounded up."""
        return self.vocabulary - self.num_answers

    @property
    def vocab_size(self) -> int:
        """Number of ids: the option ``vocabulary``."""
        return self.vocabulary

    @property
    def min_length(self) -> int:
        """Number of tokens of all keys with their values, and one repeated key, if each has ``max_motif`` tokens."""
        return 2 * self.max_motif * self.num_keys + self.max_motif

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw different keys with a value each, then a stream of these pairs; the last pair may be cut off."""
        keys = _draw_keys(rng, batch_size, self.num_keys, self.max_motif, self.num_key_tokens)
        values = _draw_motifs(rng, batch_size * self.num_keys, self.max_motif, self.num_answers).reshape(keys.shape)
        values[values != ABSENT] += self.num_key_tokens
        # A reversed key is equally random, and ends where its value begins.
        pairs = np.concatenate([keys[:, :, ::-1], values], axis=2)
        answers = np.full_like(pairs, IGNORE)
        answers[:, :, self.max_motif - 1 : -1] = np.where(values == ABSENT, IGNORE, values)

        rows = np.arange(batch_size)[:, None]
        drawn = rng.integers(self.num_keys, size=(batch_size, (length + 1) // 2))  # a pair has two tokens or more
        is_repeat = (previous(drawn) >= 0)[:, :, None]
        inputs = pairs[rows, drawn].reshape(batch_size, -1)
        targets = np.where(is_repeat, answers[rows, drawn], IGNORE).reshape(batch_size, -1)
        is_token = inputs != ABSENT
        is_kept = is_token & (is_token.cumsum(axis=1) <= length)
        return Batch(inputs[is_kept].reshape(batch_size, length), targets[is_kept].reshape(batch_size, length))

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of one shortcut rule, which compares only the current token, not the whole key.

        The rule finds the previous occurrence of the current token, and names the token that followed it.
        """
        return {"same_token": np.take_along_axis(inputs, previous(inputs) + 1, axis=1)}


def _draw_motifs(
    rng: np.random.Generator, num_motifs: int, max_motif: int, num_tokens: int
) -> Int[np.ndarray, "motifs max_motif"]:
    """Draw motifs (keys or values) of distinct tokens; each has a uniform number of tokens from 1 to ``max_motif``."""
    sizes = rng.integers(1, max_motif + 1, size=(num_motifs, 1))
    return np.where(np.arange(max_motif) < sizes, distinct(rng, num_motifs, max_motif, num_tokens), ABSENT)


def _draw_keys(
    rng: np.random.Generator, batch_size: int, num_keys: int, max_motif: int, num_tokens: int
) -> Int[np.ndarray, "batch keys max_motif"]:
    """Draw keys, of one or more tokens, that all differ within a sequence; a repeated key is drawn again."""
    keys = _draw_motifs(rng, batch_size * num_keys, max_motif, num_tokens)
    digits = (num_tokens + 1) ** np.arange(max_motif)
    while True:
        codes = ((keys - ABSENT) @ digits).reshape(batch_size, num_keys)
        is_copy = previous(codes).ravel() >= 0
        if not is_copy.any():
            return keys.reshape(batch_size, num_keys, max_motif)
        keys[is_copy] = _draw_motifs(rng, int(is_copy.sum()), max_motif, num_tokens)
