"""Long-range tasks: the answer lies far back."""
