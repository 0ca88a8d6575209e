"""Basic tasks: repeat or reorder the tokens read."""
