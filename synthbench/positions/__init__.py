"""The position encodings, one per file."""

from synthbench.positions._rotations import LearnedRotation
from synthbench.positions.base import POSITIONS, PositionEncoding, position

__all__ = ["POSITIONS", "LearnedRotation", "PositionEncoding", "position"]
