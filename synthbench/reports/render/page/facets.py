"""What a page can be filtered by: families, categories, blocks and position encodings, each with an id."""

from collections.abc import Iterable
from typing import NamedTuple

from synthbench.reports.cells import Cells, MechanismFacts
from synthbench.reports.render.page.untrusted import anchors


class Facet(NamedTuple):
    """A value that a page can be filtered by."""

    id: str
    label: str


def categories(of: Cells) -> dict[str, Facet]:
    """By category, in printed order."""
    return _facets("category", of.categories)


def families(of: Cells) -> dict[str, Facet]:
    """By family, in alphabetical order."""
    return _facets("family", sorted({mechanism.family for mechanism in of.mechanisms}))


def blocks(of: Cells) -> dict[str, Facet]:
    """By block, in alphabetical order."""
    return _facets("block", sorted(set(map(block_of, of.mechanisms))))


def positions(of: Cells) -> dict[str, Facet]:
    """By position encoding, in alphabetical order."""
    return _facets("positions", sorted(set(map(positions_of, of.mechanisms))))


def block_of(mechanism: MechanismFacts) -> str:
    """The block around a mechanism."""
    return str(mechanism.key[1])


def positions_of(mechanism: MechanismFacts) -> str:
    """The position encoding of a mechanism."""
    return str(mechanism.key[2])


def _facets(prefix: str, labels: Iterable[str]) -> dict[str, Facet]:
    named = anchors(prefix, [(label, label) for label in labels])
    return {label: Facet(anchor, label) for label, anchor in named.items()}
