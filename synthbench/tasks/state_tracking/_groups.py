"""Finite groups: numbered elements and the table of their products."""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from jaxtyping import Int

Permutation = tuple[int, ...]
"""Images of the points 0, 1, ..."""


@dataclass(frozen=True)
class Group:
    """A group of permutations: all products of its generators. The elements are numbered.

    The identity is element 0, the generators have the next numbers, products of two generators the numbers after that,
    and so on.
    """

    generators: tuple[Permutation, ...]

    @cached_property
    def elements(self) -> Int[np.ndarray, "order points"]:
        """The permutations in the group, in the order of their numbers."""
        found = {tuple(range(len(self.generators[0]))): None}
        queue = list(found)
        for element in queue:  # grows while it is read
            for generator in self.generators:
                product = tuple(generator[point] for point in element)
                if product not in found:
                    found[product] = None
                    queue.append(product)
        return np.array(queue)

    @property
    def order(self) -> int:
        """Number of elements in the group."""
        return len(self.elements)

    @cached_property
    def products(self) -> Int[np.ndarray, "order order"]:
        """Table of products: entry [a, b] is the number of the element that applies element a first, then element b."""
        num_points = self.elements.shape[1]
        weights = num_points ** np.arange(num_points)
        codes = self.elements @ weights
        by_code = np.argsort(codes)
        images = self.elements[:, self.elements]  # [second, first, point]
        table: Int[np.ndarray, "order order"] = by_code[np.searchsorted(codes[by_code], (images @ weights).T)]
        return table

    @cached_property
    def inverses(self) -> Int[np.ndarray, " order"]:
        """Numbers of the inverses of all elements, in the order of the elements."""
        numbers: Int[np.ndarray, " order"] = self.products.argmin(axis=1)
        return numbers

    @cached_property
    def commutators(self) -> Int[np.ndarray, " commutators"]:
        """Numbers of the elements of the commutator subgroup; only 0, the identity, if the group is commutative."""
        numbers = np.unique(self.products[self.products, self.inverses[self.products.T]])
        while len(products := np.unique(self.products[np.ix_(numbers, numbers)])) > len(numbers):
            numbers = products
        return numbers

    @cached_property
    def representatives(self) -> Int[np.ndarray, " order"]:
        """Smallest number in each element's coset of the commutator subgroup.

        Products of the same factors in different orders lie in the same coset.
        """
        first: Int[np.ndarray, " order"] = self.products[:, self.commutators].min(axis=1)
        return first


def permutation(num_points: int, *cycles: tuple[int, ...]) -> Permutation:
    """Build the permutation of ``num_points`` points that consists of the given disjoint cycles."""
    image = list(range(num_points))
    for cycle in cycles:
        for point, successor in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            image[point] = successor
    return tuple(image)


def symmetric(num_points: int) -> Group:
    """Build the group of all permutations of ``num_points`` points.

    The elements are numbered in this order: identity, swaps, cycles of three points, all others.
    """
    points = range(num_points)
    swaps = [permutation(num_points, pair) for pair in combinations(points, 2)]
    rotations = [
        permutation(num_points, cycle) for a, b, c in combinations(points, 3) for cycle in ((a, b, c), (a, c, b))
    ]
    return Group((*swaps, *rotations))


S3 = symmetric(3)
S5 = symmetric(5)
A5 = Group((permutation(5, (0, 1, 2)), permutation(5, (0, 1, 2, 3, 4))))
A4_Z5 = Group((permutation(9, (0, 1, 2), (4, 5, 6, 7, 8)), permutation(9, (0, 1), (2, 3))))
Z60 = Group((permutation(12, (0, 1, 2), (3, 4, 5, 6), (7, 8, 9, 10, 11)),))
"""Cyclic group with one generator; the number of an element is its residue modulo 60."""
