"""The layers around a mechanism, one a file."""

from synthbench.blocks.base import BLOCKS, Block, block, conv_elements

__all__ = ["BLOCKS", "Block", "block", "conv_elements"]
