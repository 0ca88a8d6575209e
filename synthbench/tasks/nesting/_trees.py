"""Random trees of given sizes; many trees are drawn at once, level by level from the roots on.

Each node has a random number of children, and nodes of the last level have none. Trees are drawn from the exact
distribution of such trees, given the size; convolutions compute the probabilities.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Law(NamedTuple):
    """Distribution of random trees: the probability of each number of children, and the definition of a tree's size.

    A leaf has size 1. An inner node has size ``inner`` plus the sizes of its children.
    """

    arities: tuple[float, ...]
    """Probabilities of 0, 1, 2, ... children above the last level."""
    inner: int
    levels: int
    """Largest number of levels of a tree, including the root's."""

    def sizes(self, largest: int) -> Int[np.ndarray, " sizes"]:
        """List the sizes, up to ``largest``, that trees can have."""
        return np.flatnonzero(forests(self, largest)[-1][1])


class Nodes(NamedTuple):
    """The nodes of one level of many trees; the children of a node are adjacent in the next level."""

    trees: Int[np.ndarray, " nodes"]
    starts: Int[np.ndarray, " nodes"]
    """Position of each node in its tree: right after its parent's position, or after the end of the previous child."""
    sizes: Int[np.ndarray, " nodes"]
    arities: Int[np.ndarray, " nodes"]


@cache
def forests(law: Law, largest: int) -> Float[np.ndarray, "levels trees sizes"]:
    """Compute the distribution of the total size of n independent trees with at most m levels, for each n and m."""
    tree = np.zeros(largest + 1)
    tree[1] = 1
    levels = []
    for _ in range(law.levels):
        powers = [np.eye(1, largest + 1)[0]]
        for _ in law.arities[1:]:
            powers.append(np.convolve(powers[-1], tree)[: largest + 1])
        levels.append(powers)
        children = np.tensordot(law.arities[1:], powers[1:], axes=1)
        tree = np.zeros(largest + 1)
        tree[1] = law.arities[0]
        tree[law.inner :] += children[: -law.inner]
    return np.array(levels)


def grow(rng: np.random.Generator, law: Law, sizes: Int[np.ndarray, " trees"]) -> list[Nodes]:
    """Draw one tree of each given size; return a list with the nodes of all trees for each level, the roots first."""
    tables = forests(law, int(sizes.max()))
    trees, starts = np.arange(len(sizes)), np.zeros_like(sizes)
    levels = []
    for table in tables[-2::-1]:
        arities = np.zeros_like(sizes)
        is_inner = sizes > 1
        inside = sizes[is_inner] - law.inner
        reached = np.cumsum(np.array(law.arities[1:])[:, None] * table[1:, inside], axis=0)
        arities[is_inner] = 1 + (reached <= rng.random(len(inside)) * reached[-1]).sum(axis=0)
        levels.append(Nodes(trees, starts, sizes, arities))
        if not is_inner.any():
            return levels
        arities = arities[is_inner]
        children = np.zeros((len(inside), len(law.arities) - 1), dtype=np.int64)
        rest = inside
        for child in range(children.shape[1]):
            has_more, has_last = arities > child + 1, arities == child + 1
            children[has_more, child] = _first_size(rng, table, arities[has_more] - child, rest[has_more])
            children[has_last, child] = rest[has_last]
            rest = rest - children[:, child]
        before = np.cumsum(children, axis=1) - children
        is_child = children > 0
        trees = np.repeat(trees[is_inner], arities)
        starts = ((starts[is_inner] + 1)[:, None] + before)[is_child]
        sizes = children[is_child]
    levels.append(Nodes(trees, starts, sizes, np.zeros_like(sizes)))
    return levels


def _first_size(
    rng: np.random.Generator,
    table: Float[np.ndarray, "trees sizes"],
    num_trees: Int[np.ndarray, " forests"],
    totals: Int[np.ndarray, " forests"],
) -> Int[np.ndarray, " forests"]:
    """Draw the size of the first tree of each group of trees, given the group's number of trees and total size."""
    if not len(totals):
        return totals
    largest = np.flatnonzero(table[1])[-1]
    # One line holds the possible sizes of every forest, each from 1 on; each forest adds 1 to the running sum.
    num_sizes = np.minimum(totals, largest)
    ends = np.cumsum(num_sizes)
    begins = ends - num_sizes
    forest = np.repeat(np.arange(len(totals)), num_sizes)
    size = np.arange(ends[-1]) - begins[forest] + 1
    chances = table[1, size] * table[num_trees[forest] - 1, totals[forest] - size]
    reached = np.cumsum(chances / table[num_trees, totals][forest])
    low, high = np.append(0, reached)[begins], reached[ends - 1]
    # Rounding must not lead past the last possible size.
    drawn = np.minimum(low + (high - low) * rng.random(len(totals)), np.nextafter(high, low))
    first: Int[np.ndarray, " forests"] = size[np.searchsorted(reached, drawn, side="right")]
    return first
