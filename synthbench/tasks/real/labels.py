"""The task labels."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.knobs import knob
from synthbench.tasks.base import IGNORE, Batch, Bound, task
from synthbench.tasks.real._documents import (
    FROZEN_FACTS,
    FROZEN_HASH,
    SHARE_WHOLE,
    Collection,
    Facts,
    collection_at,
    nearest_mean,
)
from synthbench.tasks.real._held_out import HeldOutTask
from synthbench.tasks.real._ranking import propensities, ranking_scores

FEWEST_TOKENS = 256
"""Ids are at least so many, since values are told apart by them."""


@task
@dataclass(frozen=True)
class Labels(HeldOutTask):
    """Find the labels of a document among thousands: its words and their weights, then a set of labels.

    A document of the words 7 and 2, with the labels 1, 4 and 30, would be::

        inputs     8   3   0 180 120   0
        targets    1   4  30   .   .   .

    The first half of the inputs are features, counted from 1, the heaviest first, and 0 where there are no more. The
    second half are their weights, whose squares add up to 1: the last id stands for a weight of 1. The targets of a
    document are a set: one answer is asked for, and right if it is among them.

    A model makes one vector of a document, the sum of a learned vector for each of its features, weighted. Each label
    has a *prototype*, a vector that is learned, and its score is what the mechanism's kernel makes of the document, its
    query, and the prototype, its key, times a learned scale, as in task ``digits``.

    The documents are 19,348 definitions of nouns in WordNet 3.0, and the labels are what each noun is a kind of, at any
    remove: 5,000 words, 3,616 labels of which a few are frequent and most are rare, 4.7 a document. That is the shape
    of Eurlex-4K but for the documents' length, 9.5 words instead of 237. Files of yours in the format of the Extreme
    Classification Repository do as well, ``labels:path=eurlex``.

    Source: the experiment is that of Bouhsine (2026), section 3.4 and table 2, and of Luna et al. (2026), table 4, on
    Eurlex-4K; neither says how features become a vector. Propensities are those of Jain et al. (2016).
    """

    name: ClassVar = "labels"
    source: ClassVar = "fellbaum1998wordnet"
    length: ClassVar = 82
    readout: ClassVar = "labels"
    what: ClassVar = "files"
    owner: ClassVar = "synthbench"
    not_tested: ClassVar = "Mixing of positions: the mechanism's kernel is all that is used of it."
    path: str = knob("", "a folder with *train.txt and *test.txt; none: nouns of WordNet", is_location=True)
    corpus: str = knob("", "hash that the files must have; none: filled in")

    @property
    def hash_there(self) -> str:
        """The hash of the files; that of those that come along is known without them."""
        return self._collection.name if self.path else FROZEN_HASH

    @property
    def _collection(self) -> Collection:
        return collection_at(self.path)

    @property
    def _facts(self) -> Facts:
        return self._collection.facts if self.path else FROZEN_FACTS

    @property
    def vocab_size(self) -> int:
        """A token is a feature, no feature, or a weight."""
        return max(FEWEST_TOKENS, self._facts.num_features + 1, self.num_classes)

    @property
    def num_classes(self) -> int:
        """The labels."""
        return self._facts.num_labels

    @property
    def min_length(self) -> int:
        """Features and weights of nearly all documents, and all their labels."""
        return self._facts.shortest

    def check_length(self, length: int) -> None:
        """Refuse a length at which more than one document in a hundred loses features.

        Raises:
            UsageError: If it is shorter.
        """
        if length < self.min_length:
            raise UsageError(
                f"length of task {self.name!r} is {length}; allowed: {self.min_length} and more, so that at least "
                f"{SHARE_WHOLE:.0%} of the documents keep all their features"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Take documents in random order, each once before any comes again."""
        documents = self._collection.splits[self.split]
        num_documents = len(documents.labels.sizes)
        passes = [rng.permutation(num_documents) for _ in range(-(-batch_size // num_documents))]
        chosen = np.concatenate(passes)[:batch_size]
        inputs = np.zeros((batch_size, length), dtype=np.int64)
        half = length // 2
        inputs[:, :half] = documents.features.table(chosen, half, -1) + 1
        weights = documents.features._replace(flat=documents.values).table(chosen, half, 0)
        inputs[:, half : 2 * half] = np.rint(weights * (self.vocab_size - 1))
        return Batch(inputs, documents.labels.table(chosen, length, IGNORE))

    def floor(self, length: int) -> Bound:
        """The share of the documents to test on that have their most frequent label."""
        return Bound(self._facts.floor)

    def ceiling(self, length: int) -> Bound:
        """All of them: nobody knows how many no reader could tell."""
        return Bound(1.0, "bound")

    def references(self, length: int) -> dict[str, float]:
        """P@1 of ``nearest mean``: the label whose documents in training have the most similar mean."""
        return {"nearest mean": _nearest_mean(self._collection)}

    def of_ranking(
        self, ranked: Int[np.ndarray, "documents ranks"], targets: Int[np.ndarray, "documents columns"]
    ) -> dict[str, float]:
        """P@k and PSP@k, see :func:`ranking_scores`; propensities are of the training file."""
        collection = self._collection
        return ranking_scores(ranked, targets, propensities(collection.counts, collection.num_counted))


_nearest_mean = lru_cache(maxsize=2)(nearest_mean)
