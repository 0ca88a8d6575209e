"""Reports: turn results of runs (rows of the store) into Markdown, LaTeX, CSV, JSON, BibTeX, figures and an HTML page.

Only ``folder.write`` writes files.

=================================  ===================================================================================
``selection``                      the rows that a report shows: one version of the suite and of every component
``cells``                          the scores of each mechanism on each task; ``ladder``: the levels of a task
``statistics``, ``aggregates``     significance tests; means over many tasks, with intervals
``interim``, ``verdicts``          tests of whether mechanisms differ on a task, and which pairs of them differ
``leaderboard``                    the ranking of the mechanisms
``table``, ``separation``          tables without markup, such as scores; the page on how mechanisms differ
``bits``, ``variants``             tables of tasks scored in bits per token; comparisons of settings of a mechanism
``report``, ``build``, ``folder``  the contents of a report, its files, and the folder that holds them
``render``                         tables as text, figures, and one HTML page that works offline
``compare``                        comparison of two mechanisms, stores or commits, run by run
``standings``, ``exchange``        the ranking as JSON; other projects' formats; ``card``: scores for a README
``export``, ``dump``               any selection of cells and columns; unchanged rows
=================================  ===================================================================================
"""
