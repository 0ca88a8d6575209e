"""Executors, which run jobs in this process, in a pool of worker processes, or on other machines.

To add an executor, write a module here with a class of the same name (``my_kind``: ``MyKind``), and add a line to
``EXECUTORS`` in ``runner/request.py``. An executor for jobs on this machine may subclass ``pool.Pool``, and an executor
for jobs on other machines ``base.WorkerExecutor``.
"""

from collections import Counter
from importlib import import_module
from multiprocessing import current_process

import torch

from synthbench.errors import UsageError
from synthbench.runner.executors.base import Executor, JobDone
from synthbench.runner.executors.inline import Inline
from synthbench.runner.executors.pool import Pool, gpu_slots
from synthbench.runner.plan import Plan
from synthbench.runner.request import EXECUTORS, Request

__all__ = ["Executor", "Inline", "JobDone", "Pool", "make_executor"]

LONG_S = 30.0
"""By default, two jobs that take less than this many seconds in total run in this process.

Starting worker processes takes a few seconds.
"""


def make_executor(
    request: Request, plan: Plan, device: torch.device, *, is_foreign: bool = False, is_in_session: bool = False
) -> Executor:
    """Make the executor that a request names.

    ``auto`` chooses the inline executor (jobs run in this process) for one job, for two short jobs, or if all jobs
    share one GPU. It also does so in a daemonic process, which cannot start workers. In all other cases, and always if
    the request sets workers, a time limit or processes per GPU, ``auto`` chooses the pool (worker processes).

    Args:
        request: The request, which names the executor and may set the number of workers and a time limit.
        plan: The plan whose jobs the executor will run.
        device: The device that trains the runs.
        is_foreign: True if a component (such as a mechanism) does not come with synthbench. Then ``auto`` chooses the
            pool, unless ``is_in_session`` is True.
        is_in_session: True if a component was defined in a notebook or a script, where other processes cannot find it.
            Then ``auto`` chooses the inline executor.

    Raises:
        UsageError: If the executor's name or a setting is not allowed, its package is not installed, or worker
            processes cannot find a component.
    """
    _check_choice(request, device)
    name = request.executor
    has_gpus = device.type == "cuda" and name != "inline" and not EXECUTORS[name].is_elsewhere
    slots = gpu_slots(device, request.per_gpu or 1, request.workers) if has_gpus else []
    needs_pool = any(wish is not None for wish in (request.workers, request.timeout_s, request.per_gpu))
    if is_in_session and (needs_pool or name not in ("auto", "inline")):
        raise UsageError(
            "a component was defined in this session, where worker processes do not find it; "
            "save it to a file and name that in plugins, or use the inline executor"
        )
    if name == "auto":
        is_small = is_in_session or (
            not is_foreign and (_is_short(plan) or len(slots) == 1 or current_process().daemon)
        )
        name = "inline" if is_small and not needs_pool else "pool"
    if name == "inline" and needs_pool:
        raise UsageError("workers and timeout need worker processes, and the inline executor has none")
    try:
        module = import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as problem:
        raise UsageError(
            f"executor {name!r} needs the package {problem.name}, which is not installed; in a checkout: "
            f"pip install -e '.[{name}]'"
        ) from None
    executor: type[Executor] = getattr(module, name.title().replace("_", ""))
    return executor.for_request(request, slots)


def _is_short(plan: Plan) -> bool:
    """Return whether a plan is so short that worker processes would cost more time than they save.

    Jobs without an estimate of their time count as short.
    """
    if len(plan.jobs) != 2:
        return len(plan.jobs) < 2
    counts = Counter(run.cell for job in plan.jobs for run in job.trained)
    return sum(count * (plan.estimates.seconds(cell) or 0) for cell, count in counts.items()) < LONG_S


def _check_choice(request: Request, device: torch.device) -> None:
    """Refuse an executor that does not exist, and settings that the chosen executor cannot use.

    Raises:
        UsageError: If the executor, number of workers, time limit, address or number of processes per GPU is not
            allowed.
    """
    if request.executor not in EXECUTORS:
        raise UsageError(f"executor is {request.executor!r}; allowed: {', '.join(EXECUTORS)}")
    kind = EXECUTORS[request.executor]
    if request.workers is not None and request.workers < 1:
        raise UsageError(f"workers is {request.workers}; allowed: 1 and more")
    if request.timeout_s is not None and not request.timeout_s > 0:
        raise UsageError(f"timeout is {request.timeout_s}; allowed: more than 0 seconds")
    if request.address is not None and not kind.is_elsewhere:
        elsewhere = " and ".join(name for name, other in EXECUTORS.items() if other.is_elsewhere)
        raise UsageError(f"address is {request.address!r}; allowed with the executors {elsewhere} only")
    if request.per_gpu is not None and not (device.type == "cuda" and kind.divides_gpus):
        where = f"device {device.type} and executor {request.executor}"
        dividing = " or ".join(name for name, other in EXECUTORS.items() if other.divides_gpus and name != "auto")
        raise UsageError(f"processes per GPU are {request.per_gpu} with {where}; allowed: on GPUs, with {dividing}")
    if request.per_gpu is not None and request.per_gpu < 1:
        raise UsageError(f"processes per GPU are {request.per_gpu}; allowed: 1 and more")
