"""Recall tasks: bind values to keys, and name the value of a key."""
