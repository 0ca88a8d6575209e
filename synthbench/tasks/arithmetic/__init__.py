"""Arithmetic tasks: count and add."""
