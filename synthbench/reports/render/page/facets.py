"""The filters of a page: families, categories, blocks and position encodings, each with an id."""

from collections.abc import Iterable
from typing import NamedTuple

from synthbench.reports.cells import Cells, MechanismFacts
from synthbench.reports.render.page.untrusted import anchors


class Facet(NamedTuple):
    """One value of a filter."""

    id: str
    label: str


def categories(cells: Cells) -> dict[str, Facet]:
    """By category, in printed order."""
    return _facets("category", cells.categories)


def families(cells: Cells) -> dict[str, Facet]:
    """By family, in alphabetical order."""
    return _facets("family", sorted({mechanism.family for mechanism in cells.mechanisms}))


def blocks(cells: Cells) -> dict[str, Facet]:
    """By block, in alphabetical order."""
    return _facets("block", sorted(set(map(block_of, cells.mechanisms))))


def positions(cells: Cells) -> dict[str, Facet]:
    """By position encoding, in alphabetical order."""
    return _facets("positions", sorted(set(map(positions_of, cells.mechanisms))))


def block_of(mechanism: MechanismFacts) -> str:
    """The block around a mechanism."""
    return str(mechanism.key[1])


def positions_of(mechanism: MechanismFacts) -> str:
    """The position encoding of a mechanism."""
    return str(mechanism.key[2])


def _facets(prefix: str, labels: Iterable[str]) -> dict[str, Facet]:
    named = anchors(prefix, [(label, label) for label in labels])
    return {label: Facet(anchor, label) for label, anchor in named.items()}
