"""Reasoning tasks: following a rule or a structure."""
