"""The filters of a page: families, categories, blocks and position encodings, each value with an id."""

from typing import NamedTuple

from synthbench.reports.cells import Cells
from synthbench.reports.render.page.untrusted import anchors


class Facet(NamedTuple):
    """One value of a filter."""

    id: str
    label: str


def facets(cells: Cells) -> dict[str, dict[str, Facet]]:
    """The values of each filter by label: categories in printed order, the others in alphabetical order."""
    filters = {
        "family": sorted({mechanism.family for mechanism in cells.mechanisms}),
        "category": cells.categories,
        "block": sorted({mechanism.block for mechanism in cells.mechanisms}),
        "positions": sorted({mechanism.positions for mechanism in cells.mechanisms}),
    }
    named = {name: anchors(name, [(label, label) for label in labels]) for name, labels in filters.items()}
    return {name: {label: Facet(anchor, label) for label, anchor in ids.items()} for name, ids in named.items()}
