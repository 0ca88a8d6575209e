"""Basic tasks: repeat or reorder what was read."""
