"""The blocks (each a layer of the model, built around a mechanism), one per file."""

from synthbench.blocks.base import BLOCKS, Block, block, conv_elements

__all__ = ["BLOCKS", "Block", "block", "conv_elements"]
