"""Checks that every task, mechanism, position encoding and block must pass."""
