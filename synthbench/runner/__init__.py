"""Plans the missing runs of a request, trains them, and writes one row of results per run.

The steps of a request, from the command line to a row:

1. ``cli/running.py`` reads the options into a ``Request`` and calls ``run.py``, which takes the next steps in order;
2. ``run.py`` loads the plugins, checks components that do not come with synthbench, and makes the plan and executor;
3. ``plan.py`` expands the request into cells (task × mechanism) and their runs, and groups missing runs into jobs;
4. the executor gives each job to a worker, in this process or another (``executors/base.py`` has rules for retries);
5. ``worker.py`` trains the runs of a job (``synthbench.training``) and writes the rows that ``rows.py`` makes;
6. ``held_out.py`` tests models that ran code from elsewhere; it uses new sequences, whose targets no worker sees.

The process of the command is called the driver. ``cli/progress.py`` shows the progress of the runs.
"""
