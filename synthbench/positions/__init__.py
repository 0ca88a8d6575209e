"""The position encodings, one a file."""

from synthbench.positions.base import POSITIONS, PositionEncoding, position

__all__ = ["POSITIONS", "PositionEncoding", "position"]
