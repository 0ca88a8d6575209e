"""Reasoning tasks: follow a rule or a structure."""
