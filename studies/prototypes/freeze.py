"""Make documents from WordNet: a text is the definition of a noun, its labels are the kinds of thing that it is.

``python -m studies.prototypes.freeze data.noun`` reads this file of WordNet 3.0 (Debian: package ``wordnet-base``,
``/usr/share/wordnet/data.noun``), writes two files into the folder of this script, and prints their hash.

The numbers of training documents, test documents and features are those of Eurlex-4K.
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
"""A kind is a label if it has at least ``FEWEST`` nouns below it, and at most the share ``MOST`` of all nouns."""


class Noun(NamedTuple):
    """A synset: the words of its definition, and the synsets above it, of which it is a kind or an instance."""

    words: list[str]
    above: list[str]


def nouns(lines: str) -> dict[str, Noun]:
    """Read the synsets of ``data.noun`` by offset; wndb(5WN) describes the format."""
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
    """Find all synsets above each synset."""
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
    """Write the content of both files: the nouns with features and labels, in the order of the hashes of their offsets.

    Of several definitions with the same features, only the first is used.

    Features are the most frequent words, in order of frequency. The value of a word is its count in the definition
    times log(N / n) if n of all N definitions contain the word. Labels are in order of frequency.
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
