"""The leaderboard page: one HTML file that works without a network, and without JavaScript.

==========================================  ====================================================================
:mod:`~synthbench.reports.render.page.content`     what the page says, from the rows
:mod:`~synthbench.reports.render.page.boards`      its rankings
:mod:`~synthbench.reports.render.page.sections`    its sections on mechanisms and tasks
:mod:`~synthbench.reports.render.page.results`     its cells
:mod:`~synthbench.reports.render.page.panels`      skill over rungs
:mod:`~synthbench.reports.render.page.facets`      what it can be filtered by
:mod:`~synthbench.reports.render.page.commands`    what to type to get rows again
:mod:`~synthbench.reports.render.page.charts`      numbers to coordinates
:mod:`~synthbench.reports.render.page.untrusted`   strings of strangers, made harmless
:mod:`~synthbench.reports.render.page.render`      content and templates to text
==========================================  ====================================================================
"""

from synthbench.reports.render.page.render import page

__all__ = ["page"]
