"""Robustness tasks: noise and redundancy."""
