"""The leaderboard page: one HTML file that works without a network, and without JavaScript."""

from synthbench.reports.render.page.render import page

__all__ = ["page"]
