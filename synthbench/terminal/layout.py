"""Tables and durations for a terminal."""

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, every column as wide as its widest text, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in lines)
    return ["  ".join(line).rstrip() for line in padded]


def about(seconds: float) -> str:
    """Say an estimate no finer than it is known.

    >>> about(20.0), about(1860.0), about(8000.0), about(200_000.0)
    ('less than a minute', 'about 31 min', 'about 2 h 10 min', 'about 2.3 days')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return "less than a minute"
    if minutes < 100:
        return f"about {minutes} min"
    if minutes < 36 * 60:
        hours, rest = divmod(round(minutes / 10) * 10, 60)
        return f"about {hours} h {rest} min" if rest else f"about {hours} h"
    return f"about {minutes / 60 / 24:.1f} days"
