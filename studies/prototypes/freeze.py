"""Makes the documents from WordNet: the definition of a noun, and the kinds of thing that it is.

``python -m studies.prototypes.freeze data.noun`` reads that file of WordNet 3.0 (Debian: package ``wordnet-base``,
``/usr/share/wordnet/data.noun``), writes the two files beside it and prints their hash, as the rows have it.

The size is that of Eurlex-4K: as many documents to train on and to test on, and as many features.
"""

import hashlib
import lzma
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from studies.prototypes.data import HERE
from synthbench.tasks.real._corpus import hash_of

NUM_DOCUMENTS = {"test": 3_809, "train": 15_539}
NUM_FEATURES = 5_000
FEWEST, MOST = 10, 0.1
"""A label is a kind with at least so many nouns below it, and at most this share of all."""


class Noun(NamedTuple):
    """A synset: what it is defined as, and the synsets that it is a kind or an instance of."""

    words: list[str]
    above: list[str]


def nouns(lines: str) -> dict[str, Noun]:
    """The synsets of ``data.noun`` by their offset; see wndb(5WN) for the format."""
    found = {}
    for line in lines.splitlines():
        if line.startswith("  "):
            continue  # the licence
        left, _, gloss = line.partition(" | ")
        offset, _, _, num_words, *rest = left.split()
        _, *pointers = rest[2 * int(num_words, 16) :]
        above = [to for kind, to in zip(pointers[::4], pointers[1::4], strict=False) if kind in ("@", "@i")]
        found[offset] = Noun(re.findall("[a-z]{2,}", gloss.lower()), above)
    return found


def kinds_of(found: Mapping[str, Noun]) -> dict[str, set[str]]:
    """All synsets above each."""
    kinds: dict[str, set[str]] = {}

    def of(offset: str) -> set[str]:
        if offset not in kinds:
            kinds[offset] = set().union(*({above} | of(above) for above in found[offset].above))
        return kinds[offset]

    return {offset: of(offset) for offset in found}


def documents(
    found: Mapping[str, Noun],
    sizes: Mapping[str, int] = NUM_DOCUMENTS,
    kinds_of_use: tuple[float, float] = (FEWEST, MOST),
) -> dict[str, str]:
    """The content of both files: nouns in the order of the hashes of their offsets, if they have features and labels.

    Of definitions with the same features only the first is taken.

    Features are the most frequent words, in that order. Their value is how often a word occurs, times the logarithm of
    how many definitions there are for each that has it. Labels are in the order of their frequency.
    """
    kinds = kinds_of(found)
    spread = Counter(word for noun in found.values() for word in set(noun.words))
    words = {word: number for number, (word, _) in enumerate(_by_frequency(spread)[:NUM_FEATURES])}
    num_below = Counter(kind for above in kinds.values() for kind in above)
    fewest, most = kinds_of_use
    of_use = [kind for kind, count in _by_frequency(num_below) if fewest <= count <= most * len(found)]
    labels = {kind: number for number, kind in enumerate(of_use)}
    weights = {word: math.log(len(found) / spread[word]) for word in words}
    lines: list[str] = []
    seen: set[frozenset[str]] = set()
    for offset in sorted(found, key=lambda offset: hashlib.sha256(offset.encode()).digest()):
        own = sorted(labels[kind] for kind in kinds[offset] if kind in labels)
        counts = Counter(word for word in found[offset].words if word in words)
        if own and counts and (definition := frozenset(counts)) not in seen:
            seen.add(definition)
            values = sorted((words[word], count * weights[word]) for word, count in counts.items())
            lines.append(",".join(map(str, own)) + "".join(f" {word}:{value:.2f}" for word, value in values))
    files = {}
    for split, count in sizes.items():
        files[split] = "\n".join([f"{count} {len(words)} {len(labels)}", *lines[:count], ""])
        del lines[:count]
    return files


def _by_frequency(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def main() -> None:
    """Write the files."""
    (path,) = sys.argv[1:]
    contents = {split: text.encode() for split, text in documents(nouns(Path(path).read_text("ascii"))).items()}
    for split, content in contents.items():
        file = HERE / f"wordnet_{split}.txt.xz"
        file.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
        header, size = content.splitlines()[0].decode(), file.stat().st_size
        sys.stdout.write(f"{split} {header}: {len(content):,} bytes, {size:,} compressed\n")
    sys.stdout.write(f"{hash_of(contents)}\n")


if __name__ == "__main__":
    main()
