"""Reference scores on a text: the bits per byte of simple predictors (lower is better)."""

import lzma

import numpy as np
from jaxtyping import Float, UInt8

from synthbench.tasks.real._corpus import Corpus

MOST_SCORED = 1 << 20
"""Largest number of bytes that are scored, from the beginning of the test split."""
MOST_READ = 1 << 22
"""Largest number of bytes of training text, from its end, that are compressed together with the test text."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}]
"""Compression filters; their window of 8 MiB holds all bytes read and scored."""


def reference_lines(corpus: Corpus) -> dict[str, float]:
    """Return the bits per byte of simple predictors on the test split, with the predictors' names as keys.

    The predictors learn from the training split.

    ``unigram`` predicts from the frequencies of bytes. ``bigram`` predicts from the frequencies of pairs of bytes,
    smoothed by ``unigram``. ``lzma`` compresses the end of the training text, once alone and once followed by the test
    text. The score is the difference between the two compressed sizes, in bits per byte of test text.
    """
    train, test = corpus.splits["train"], corpus.splits["test"][:MOST_SCORED]
    alone, paired = unigram(train), bigram(train)
    return {
        "unigram": float(-np.log2(alone[test[1:]]).mean()),
        "bigram": float(-np.log2(paired[test[:-1], test[1:]]).mean()),
        "lzma": 8 * _added(train[-MOST_READ:].tobytes(), test.tobytes()) / len(test),
    }


def unigram(text: UInt8[np.ndarray, " bytes"]) -> Float[np.ndarray, "256"]:
    """Compute the probability of each byte value from its count plus one (Laplace smoothing)."""
    counts = np.bincount(text, minlength=256) + 1.0
    shares: Float[np.ndarray, 256] = counts / counts.sum()
    return shares


def bigram(text: UInt8[np.ndarray, " bytes"]) -> Float[np.ndarray, "256 256"]:
    """Compute the probability of each byte value (column) given the byte before it (row).

    The probability is proportional to the count of the pair of bytes plus the second byte's probability in
    :func:`unigram`.
    """
    pairs = text[:-1].astype(np.int64) * 256 + text[1:]
    counts = np.bincount(pairs, minlength=256 * 256).reshape(256, 256) + unigram(text)
    shares: Float[np.ndarray, "256 256"] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _added(read: bytes, scored: bytes) -> int:
    before, after = (len(lzma.compress(text, lzma.FORMAT_RAW, filters=_FILTERS)) for text in (read, read + scored))
    return after - before
