"""Recall tasks: binding values to keys, and naming the value of a key."""
