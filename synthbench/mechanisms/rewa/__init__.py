"""REWA: attention by the overlap of witnesses in geometric, functional and operator spaces."""
