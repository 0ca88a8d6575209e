"""Plans what is missing, trains it, and writes rows.

The way of a request, from the command line to a row:

1. ``cli/running.py`` reads the options into a ``Request`` and calls ``run.py``, which holds the main line;
2. ``run.py`` loads the plugins, has foreign components checked and the request planned, and makes the executor;
3. ``plan.py`` turns the request into cells and their runs, once, and keeps the runs that the store lacks as jobs;
4. the executor gives each job to a worker: this process, or others that may die (``executors/base.py`` says what then);
5. ``worker.py`` trains the runs of its job (``synthbench.training``), makes their rows (``rows.py``), writes them;
6. ``held_out.py`` holds each row of foreign code against a test that the worker could not see.

The driver only watches; ``cli/progress.py`` shows what it sees.
"""
