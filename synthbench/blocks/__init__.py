"""The layers around a mechanism, one a file."""

from synthbench.blocks.base import BLOCKS, Block, block

__all__ = ["BLOCKS", "Block", "block"]
