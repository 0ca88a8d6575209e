"""The leaderboard page: one HTML file that works without a network, and without JavaScript.

==========================================  ====================================================================
:mod:`~synthbench.reports.page.content`     what the page says, from the rows
:mod:`~synthbench.reports.page.boards`      its rankings
:mod:`~synthbench.reports.page.sections`    its sections on mechanisms and tasks
:mod:`~synthbench.reports.page.results`     its cells
:mod:`~synthbench.reports.page.panels`      skill over rungs
:mod:`~synthbench.reports.page.facets`      what it can be filtered by
:mod:`~synthbench.reports.page.rows`        what a row says of how it was made
:mod:`~synthbench.reports.page.example`     a sequence of a task, drawn
:mod:`~synthbench.reports.page.commands`    what to type to get rows again
:mod:`~synthbench.reports.page.charts`      numbers to coordinates
:mod:`~synthbench.reports.page.untrusted`   strings of strangers, made harmless
:mod:`~synthbench.reports.page.render`      content and templates to text
==========================================  ====================================================================
"""

from synthbench.reports.page.render import page

__all__ = ["page"]
