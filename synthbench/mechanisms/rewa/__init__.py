"""REWA: attention by the overlap or distance of witnesses (points or functions that represent queries and keys)."""
