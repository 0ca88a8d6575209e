"""Arithmetic tasks: count and add tokens."""
