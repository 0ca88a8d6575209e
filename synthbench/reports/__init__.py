"""Reports: rows of the store in; Markdown, LaTeX, CSV, JSON, BibTeX, figures and a page out. All but ``write`` is pure.

=================================  ===================================================================================
``selection``                      which rows enter: one suite version, one version of every component
``cells``                          rows to cells: means and intervals over seeds; ``ladder``: the levels of a task
``statistics``, ``aggregates``     tests of differences, and intervals of one number per mechanism over many tasks
``looks``, ``verdicts``            which tasks separate mechanisms, and which of them
``leaderboard``, ``curves``        the ranking, and learning curves averaged over seeds
``table``, ``beyond``              tables without markup; ``separation``: the table of the verdicts
``bits``, ``variants``             tables of tasks in bits, and of other settings of a mechanism
``report``, ``build``, ``folder``  the contents of a report, its files, and a folder kept in step with them
``render``                         tables as text, figures, and one HTML page that works without a network
``compare``                        two mechanisms, stores or commits, run by run
``standings``, ``exchange``        the ranking for other programs; formats of others; ``card``: scores for a README
``export``, ``dump``               any selection of cells and columns, and rows as they are
=================================  ===================================================================================
"""
