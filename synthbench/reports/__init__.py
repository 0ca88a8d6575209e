"""Reports: rows of the store in; Markdown, LaTeX, CSV, JSON, BibTeX, figures and a page out. All but ``write`` is pure.

============================================  ==================================================================
:mod:`~synthbench.reports.selection`          which rows enter: one suite version, one version of every unit
:mod:`~synthbench.reports.ladder`             the rungs of a task, and what heights on them say
:mod:`~synthbench.reports.cells`              rows to cells: means and intervals over seeds
:mod:`~synthbench.reports.statistics`         tests of a difference
:mod:`~synthbench.reports.aggregates`         intervals, and one number a mechanism over many tasks
:mod:`~synthbench.reports.verdicts`           which tasks tell mechanisms apart, and which of them
:mod:`~synthbench.reports.leaderboard`        profiles, means and ranks
:mod:`~synthbench.reports.curves`             learning curves, averaged over seeds
:mod:`~synthbench.reports.table`              cells to tables, without markup
:mod:`~synthbench.reports.heights`            the load at which mechanisms fall to half of the skill
:mod:`~synthbench.reports.against.predictions`        classes of mechanisms in the literature
:mod:`~synthbench.reports.against.ratios`             what papers predict of the loads that mechanisms cope with
:mod:`~synthbench.reports.difference`         the table against the published one
:mod:`~synthbench.reports.separation`         the verdicts as a page
:mod:`~synthbench.reports.render.markdown`, ``latex``  a table as text
:mod:`~synthbench.reports.render.figures`            what is drawn, each with its numbers
:mod:`~synthbench.reports.render.page`               one HTML file that works without a network
:mod:`~synthbench.reports.report`             the contents of a report
:mod:`~synthbench.reports.build`              all files of a report
:mod:`~synthbench.reports.folder`             keeping a folder in step with them
:mod:`~synthbench.reports.export`             any selection of cells and columns, without a folder
============================================  ==================================================================
"""
