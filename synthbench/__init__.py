"""Synthetic sequence tasks for attention mechanisms: a benchmark suite and a leaderboard."""

__version__ = "0.1.0.dev0"
