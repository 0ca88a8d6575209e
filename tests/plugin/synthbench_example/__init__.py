"""Plugins of synthbench, one a file."""

from pathlib import Path


def suite_tiny() -> Path:
    """The file of the suite: what an entry point of ``synthbench.suites`` names."""
    return Path(__file__).with_name("tiny.toml")
