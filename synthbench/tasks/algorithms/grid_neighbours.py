"""The task grid_neighbours."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks._targets import score_at
from synthbench.tasks.base import LENGTHS, Batch, Bound, Task, Tokens, task


@task
@dataclass(frozen=True)
class GridNeighbours(Task):
    """Read a grid row by row, then queries; for each query, name a token's neighbour in a given direction.

    A query is a direction and an anchor, a token that occurs only once in the grid. The grid's last row may be
    incomplete. Token ids are, in this order, the symbols, the anchors, and the directions up, down, left and right. In
    the example, the anchors are 5 and 6, and the directions 7 to 10.
    With ``num_symbols=5``, ``width=4`` and ``num_queries=2``::

        inputs    3 1 4 1 0 5 2 3 2 6 4 1 0 1 7 6 10 5
        targets   . . . . . . . . . . . . . .  . 5  . 2

    Tests two dimensions within one sequence: the neighbours to the left and right are adjacent to the anchor, and the
    neighbours above and below are ``width`` tokens away. With position encodings that have an axis for rows and one for
    columns, all neighbours are one step away.

    Source: Schenck et al. (2025) on positions in two dimensions; the task itself is new. In tests beyond the training
    length, the grid has more rows.
    """

    name: ClassVar = "grid_neighbours"
    source: ClassVar = "schenck2025string"
    length: ClassVar = 80
    # About one cell in ten is an anchor. All rows have the same width and queries continue them, so all levels share
    # the coordinates of their common positions.
    levels: ClassVar = tuple(
        {
            "load": num_queries,
            "length": length,
            "num_queries": num_queries,
            "width": 4,
            "num_anchors": 32,
            "wraps_queries": True,
        }
        for num_queries, length in zip((1, 2, 3, 4, 6, 8, 12, 16, 24, 32), LENGTHS[4:], strict=False)
    )
    load: ClassVar = "anchors"
    num_symbols: int = option(16, "number of symbols that fill the grid", low=2, high=65536)
    width: int = option(8, "tokens in a row of the grid", low=3, high=4096)
    num_queries: int = option(8, "number of anchors, each of which is asked once", low=1, high=4096)
    num_anchors: int = option(
        0, "number of anchors to draw those of a grid from, if more than queries", low=0, high=4096, is_addition=True
    )
    wraps_queries: bool = option(
        default=False,
        meaning="whether the queries continue the rows of the grid; otherwise each is a row below it",
        is_addition=True,
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, the anchors and the directions."""
        return self._first_direction + 4

    @property
    def _num_anchors(self) -> int:
        return max(self.num_queries, self.num_anchors)

    @property
    def _first_direction(self) -> int:
        return self.num_symbols + self._num_anchors

    @property
    def min_length(self) -> int:
        """Number of tokens in the shortest sequence: the smallest possible grid, followed by all queries.

        The smallest grid has only as many places with neighbours on all four sides as the anchors (tokens asked about)
        need.
        """
        full_rows, rest = divmod(self.num_queries - 1, self.width - 2)
        latest = self.width * (full_rows + 1) + 1 + rest
        return latest + self.width + 1 + 2 * self.num_queries

    def coordinates(self, length: int) -> Float[np.ndarray, "length axes"]:
        """Return the row and column of each token; position encodings use them as coordinates.

        By default, each query takes a row of its own below the grid. With the option ``wraps_queries``, the queries
        continue the grid's rows.
        """
        if self.wraps_queries:
            return np.stack(np.divmod(np.arange(length), self.width), axis=1).astype(np.float64)
        num_cells = length - 2 * self.num_queries
        grid = np.divmod(np.arange(num_cells), self.width)
        queries = np.divmod(np.arange(2 * self.num_queries), 2)
        rows = np.concatenate([grid[0], -(-num_cells // self.width) + queries[0]])
        return np.stack([rows, np.concatenate([grid[1], queries[1]])], axis=1).astype(np.float64)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols, and put the tokens to ask about at random places with neighbours on all four sides."""
        num_cells = length - 2 * self.num_queries
        grid = rng.integers(self.num_symbols, size=(batch_size, num_cells))
        inside = np.tile(self._inside(num_cells), (batch_size, 1))
        places = rng.permuted(inside, axis=1)[:, : self.num_queries]
        anchors = rng.permuted(np.tile(np.arange(self._num_anchors), (batch_size, 1)), axis=1)
        anchors = self.num_symbols + anchors[:, : self.num_queries]
        np.put_along_axis(grid, places, anchors, axis=1)
        directions = rng.integers(4, size=places.shape)
        answers = np.take_along_axis(grid, places + self._steps[directions], axis=1)
        queries = np.stack([self._first_direction + directions, anchors], axis=2)
        inputs = np.concatenate([grid, queries.reshape(batch_size, -1)], axis=1)
        return Batch(inputs, score_at(answers, np.tile(np.arange(num_cells + 1, length, 2), (batch_size, 1)), length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of always naming one symbol or one anchor (a token asked about), whichever is better."""
        inside = self._inside(length - 2 * self.num_queries)
        both_inside = np.isin(inside[:, None] + self._steps, inside).mean()
        is_anchor = both_inside * (self.num_queries - 1) / max(1, len(inside) - 1)
        return Bound(float(max((1 - is_anchor) / self.num_symbols, is_anchor / self._num_anchors)))

    def ceiling(self, length: int) -> Bound:
        """Return 1: the token asked about is unique, and the whole grid has been read before the question."""
        return Bound(1.0)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: treat up as left and down as right, or treat every direction as right."""
        num_cells = inputs.shape[1] - 2 * self.num_queries
        grid, directions, anchors = inputs[:, :num_cells], inputs[:, num_cells::2], inputs[:, num_cells + 1 :: 2]
        places = (grid[:, None] == anchors[:, :, None]).argmax(axis=2)
        steps = np.array([-1, 1, -1, 1])[directions - self._first_direction]
        predictions = {}
        for name, sources in {"neighbour in the sequence": places + steps, "next token": places + 1}.items():
            predictions[name] = np.zeros_like(inputs)
            predictions[name][:, num_cells + 1 :: 2] = np.take_along_axis(grid, sources, axis=1)
        return predictions

    @property
    def _steps(self) -> Int[np.ndarray, " directions"]:
        """Offsets, in tokens, from a place in the grid to its neighbours above, below, left and right."""
        return np.array([-self.width, self.width, -1, 1])

    def _inside(self, num_cells: int) -> Int[np.ndarray, " places"]:
        """List the places of the grid with neighbours on all four sides; the last row may be incomplete."""
        places = np.arange(self.width, num_cells - self.width)
        columns = places % self.width
        return places[(columns > 0) & (columns < self.width - 1)]
