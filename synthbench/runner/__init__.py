"""Plans what is missing, trains it, and writes rows.

The way of a request, from the command line to a row:

1. ``cli/running.py`` reads the options into a ``Request`` and calls ``run.py``, which holds the main line;
2. ``run.py`` checks the contract of foreign components, has the request planned, and chooses one of ``executors/``;
3. ``plan.py`` selects the cells and keeps what the store lacks, in the order of ``estimates.py``;
4. the executor gives each job to a worker: this process, or others that may die (``executors/base.py`` says what then);
5. ``worker.py`` trains the members of its job (``synthbench.training``), makes their rows (``rows.py``), writes them.

The driver only watches: ``terminal/progress.py`` shows what ``eta.py`` expects.
"""
