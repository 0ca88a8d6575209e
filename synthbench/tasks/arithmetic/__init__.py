"""Arithmetic tasks: counting and adding tokens."""
