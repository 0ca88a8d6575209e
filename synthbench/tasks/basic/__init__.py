"""Basic tasks: repeating or reordering the tokens of the sequence."""
