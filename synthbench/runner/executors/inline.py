"""Runs jobs one after the other in this process."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch

from synthbench.process import own_turn, settings_restored
from synthbench.runner.executors.base import Executor, IsStopped, JobDone, OnBegin
from synthbench.runner.plan import Job
from synthbench.runner.request import RunContext
from synthbench.runner.worker import execute
from synthbench.training.seeding import blocks_of


class Inline(Executor):
    """Runs jobs in this process, in one thread; meant for few jobs, debugging, or a GPU that one process fills."""

    name: ClassVar = "inline"

    def run(
        self, jobs: Sequence[Job], context: RunContext, is_stopped: IsStopped, on_begin: OnBegin = lambda _job: None
    ) -> Iterator[JobDone]:
        """Run the jobs one after the other."""
        try:
            for job in jobs:
                if is_stopped():
                    return
                on_begin(job)
                # What a plugin prints is no result.
                with own_turn(), settings_restored(), contextlib.redirect_stdout(sys.stderr):
                    torch.set_num_threads(1)  # as a worker of the pool has, so that the last bits agree
                    outcomes = execute(job, context, number=1)
                yield JobDone(job, outcomes)
        finally:
            blocks_of.cache_clear()
