"""REWA: attention by the overlap or distance of witnesses, which represent queries and keys as points or functions."""
