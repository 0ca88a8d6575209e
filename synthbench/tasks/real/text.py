"""The task text."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from jaxtyping import Bool

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Split, Task, Tokens, task
from synthbench.tasks.real._corpus import Corpus, corpus_at
from synthbench.tasks.real._lines import reference_lines

CONTEXT = 4
"""Number of bytes: a position is *repeated* if the last ``CONTEXT`` bytes up to it occurred before."""


@task
@dataclass(frozen=True)
class Text(Task):
    """Predict the next byte of a text.

    ::

        inputs     t  h  e     c  a  t     a  n  d     t  h  e     c
        targets    h  e     c  a  t     a  n  d     t  h  e     c  a

    Sequences are windows at random positions of one split (training, validation or test) of a text. Each file belongs
    to only one split, so the test text is not trained on. If files are too few or too large, they are cut into
    contiguous parts, each of which belongs to one split. A zero byte separates files or parts. The default text
    consists of the help topics of Python 3.11 and the docstrings of the standard library's modules that are written in
    Python. With the option ``path``, as in ``text:path=notes``, the text is your own file or folder. Rows of results
    record only a hash of the text.

    The score is in bits per byte, for all positions of a window and separately for two kinds of positions. A position
    is *repeated* if the four bytes that end at the position occurred earlier in the window. The two occurrences may
    overlap, and different bytes may follow them. All other positions are *other*.

    Source: documentation of Python, under the PSF licence. The splits are ours, and so are the kinds of positions,
    which are modelled on Arora et al. (2024).
    """

    name: ClassVar = "text"
    source: ClassVar = "python2023stdlib"
    length: ClassVar = 128
    measure: ClassVar = "bits"
    not_tested: ClassVar = "A small model on a small text: nothing about long contexts, knowledge or other texts."
    path: str = option("", "a file or folder of UTF-8 text; none: docstrings of Python", is_location=True)
    corpus: str = option("", "hash that the text must have; none: filled in")
    split: Split = "train"

    def __post_init__(self) -> None:
        """Read the text, and set ``corpus`` to the text's hash.

        Raises:
            UsageError: If there is no text, or if ``corpus`` was given and is not the hash of the text.
        """
        super().__post_init__()
        found = self._text.name
        if self.corpus not in ("", found):
            where = f"that in {self.path!r}" if self.path else "that of synthbench"
            remedy = (
                "put the old text back, or leave corpus out for rows of their own"
                if self.path
                else "name the file or folder that has it, as in text:path=notes"
            )
            raise UsageError(f"text:corpus is {self.corpus!r}, and {where} is {found!r}; {remedy}")
        object.__setattr__(self, "corpus", found)

    def of_split(self, split: Split) -> "Text":
        """Return the task whose sequences come from one split of the text, such as ``test``."""
        return replace(self, split=split)

    @property
    def _text(self) -> Corpus:
        return corpus_at(self.path)

    @property
    def vocab_size(self) -> int:
        """Number of byte values, 256: each byte is a token."""
        return 256

    def check_length(self, length: int) -> None:
        """Refuse a window that does not fit into the smallest split.

        Raises:
            UsageError: If a split has fewer than ``length + 1`` bytes.
        """
        super().check_length(length)
        shortest, size = min(((name, len(text)) for name, text in self._text.splits.items()), key=lambda part: part[1])
        if length > size - 1:
            allowed = f"1 to {size - 1}" if size > 1 else "none"
            raise UsageError(
                f"length of task 'text' is {length}; allowed: {allowed}, as split {shortest!r} has {size} bytes; "
                f"give more text{', or a shorter length, as in text:length=32' if size > 1 else ''}"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Cut windows out of the split's text at uniformly random positions; the targets are the next bytes."""
        text = self._text.splits[self.split]
        places = rng.integers(len(text) - length, size=(batch_size, 1)) + np.arange(length + 1)
        windows = text[places].astype(np.int64)
        return Batch(windows[:, :-1].copy(), windows[:, 1:].copy())

    def floor(self, length: int) -> Bound:
        """Return the negative bits per byte of ``unigram``, the predictor that knows only the frequencies of bytes."""
        return Bound(-self.references(length)["unigram"], "bound")

    def ceiling(self, length: int) -> Bound:
        """Return 0 (bits per byte), which is only a bound, because nobody knows how predictable a text is."""
        return Bound(0.0, "bound")

    def references(self, length: int) -> dict[str, float]:
        """Return the bits per byte of ``unigram``, ``bigram`` and ``lzma``, all learned from the training split."""
        return dict(_lines(self._text))

    def kinds(self, inputs: Tokens) -> dict[str, Bool[np.ndarray, "batch length"]]:
        """Return two masks: ``repeated`` where the last :data:`CONTEXT` bytes occurred before, ``other`` elsewhere."""
        is_repeated = repeats(inputs, CONTEXT)
        return {"repeated": is_repeated, "other": ~is_repeated}


def repeats(inputs: Tokens, context: int) -> Bool[np.ndarray, "batch length"]:
    """Mark positions where the last ``context`` bytes have occurred earlier in the sequence; ``context`` is at most 7.

    >>> repeats(np.frombuffer(b"abcabc", np.uint8)[None].astype(np.int64), 2).astype(int).tolist()
    [[0, 0, 0, 0, 1, 1]]
    """
    found = np.zeros(inputs.shape, dtype=bool)
    length = inputs.shape[1]
    if length < context:
        return found
    names = np.zeros((len(inputs), length - context + 1), dtype=np.int64)
    for first in range(context):
        names = names << 8 | inputs[:, first : length - context + 1 + first]
    order = np.argsort(names, axis=1, kind="stable")
    ordered = np.take_along_axis(names, order, axis=1)
    np.put_along_axis(found[:, context - 1 :], order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return found


_lines = lru_cache(maxsize=4)(reference_lines)
