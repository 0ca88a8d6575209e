"""Tables for a terminal."""

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, every column as wide as its widest text, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in lines)
    return ["  ".join(line).rstrip() for line in padded]
