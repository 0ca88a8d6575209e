"""Reports: turn rows of the store into Markdown, LaTeX, CSV, JSON, BibTeX, figures and an HTML page.

Only ``folder.write`` writes files.

=================================  ===================================================================================
``selection``                      which rows a report shows: one suite version, one version of every component
``cells``                          cells made from rows, with scores over seeds; ``ladder``: the levels of a task
``statistics``, ``aggregates``     significance tests; means over many tasks, with intervals
``looks``, ``verdicts``            which tasks show differences between mechanisms, and which pairs differ
``leaderboard``, ``curves``        the ranking, and learning curves averaged over seeds
``table``, ``beyond``              tables without markup; skill beyond the trained length; ``separation``: verdicts
``bits``, ``variants``             tables of tasks scored in bits per token; comparisons of settings of a mechanism
``report``, ``build``, ``folder``  the contents of a report, its files, and the folder that holds them
``render``                         tables as text, figures, and one HTML page that works offline
``compare``                        comparison of two mechanisms, stores or commits, run by run
``standings``, ``exchange``        the ranking as JSON; other projects' formats; ``card``: scores for a README
``export``, ``dump``               any selection of cells and columns; unchanged rows
=================================  ===================================================================================
"""
