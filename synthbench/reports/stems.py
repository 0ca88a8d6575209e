"""File names for what strangers named."""

import re
from collections.abc import Container


def stem_of(category: str, taken: Container[str], reserved: Container[str] = ()) -> str:
    """A file name for a category, whatever a stranger's row calls it: no path, no reserved or taken name."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", category.lower()).strip("-")[:64] or "category"
    stem = f"category-{plain}" if plain in reserved else plain
    number = 2
    while stem in taken:
        stem = f"{plain}-{number}"
        number += 1
    return stem
