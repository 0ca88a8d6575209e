"""Long-range tasks: the answer lies far back in the sequence."""
