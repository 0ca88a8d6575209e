"""Which executor runs a request, and on which device."""

import os
from collections import Counter

import torch

from synthbench.errors import UsageError
from synthbench.runner.environment import usable_cores
from synthbench.runner.estimates import traits_of
from synthbench.runner.executors.base import Executor
from synthbench.runner.executors.inline import Inline
from synthbench.runner.executors.pool import Pool
from synthbench.runner.plan import Plan
from synthbench.runner.request import Request
from synthbench.runner.slots import VISIBLE, Slot, gpu_slots

LONG_S = 30.0
"""Two jobs that take less than this together run in this process: starting one for each takes a few seconds."""


def make_executor(
    request: Request, plan: Plan, device: torch.device, *, is_foreign: bool = False, is_in_session: bool = False
) -> Executor:
    """Make the executor that a request names; ``auto`` is inline for one job, two short ones or a GPU, else a pool.

    On GPUs it is inline only where there is one, with one process: else a process for each share of each.

    It is never a cluster, whatever the environment says of one: that must be asked for.

    Args:
        request: What names it, and the number of workers and their time.
        plan: What there is to do.
        device: Where.
        is_foreign: Whether a component does not come with synthbench: ``auto`` keeps it out of this process.
        is_in_session: Whether a component was defined in a notebook or a script, so that no other process has it.

    Raises:
        UsageError: If the name or a number is not allowed.
    """
    _check_choice(request, device)
    slots = _slots(request, device)
    needs_pool = any(wish is not None for wish in (request.workers, request.timeout_s, request.per_gpu))
    if is_in_session and (needs_pool or request.executor in ("pool", *BEYOND)):
        raise UsageError(
            "a component was defined in this session, where worker processes do not find it; "
            "save it to a file and name that in plugins, or use the inline executor"
        )
    is_small = is_in_session or (not is_foreign and (_is_short(plan) or len(slots) == 1))
    if request.executor == "inline" or (request.executor == "auto" and is_small and not needs_pool):
        if needs_pool:
            raise UsageError("workers and timeout need worker processes, and the inline executor has none")
        return Inline()
    if request.executor in BEYOND:
        return _beyond_this_machine(request)
    return Pool(len(slots) or request.workers or usable_cores(), request.timeout_s, slots=slots)


def _is_short(plan: Plan) -> bool:
    """Whether starting processes would take longer than it saves. Two jobs that were never timed count as short."""
    if len(plan.jobs) != 2:
        return len(plan.jobs) < 2
    counts = Counter(member.cell for job in plan.jobs for member in job.trained)
    shares = [(count, plan.estimates.share_s(traits_of(cell))) for cell, count in counts.items()]
    return sum(count * share_s for count, share_s in shares if share_s is not None) < LONG_S


def _check_choice(request: Request, device: torch.device) -> None:
    """Refuse an executor that does not exist, and numbers and addresses that it has no use for.

    Raises:
        UsageError: If something is not allowed.
    """
    if request.executor not in EXECUTORS:
        raise UsageError(f"executor is {request.executor!r}; allowed: {', '.join(EXECUTORS)}")
    if request.workers is not None and request.workers < 1:
        raise UsageError(f"workers is {request.workers}; allowed: 1 and more")
    if request.timeout_s is not None and not request.timeout_s > 0:
        raise UsageError(f"timeout is {request.timeout_s}; allowed: more than 0 seconds")
    if request.address is not None and request.executor not in BEYOND:
        raise UsageError(f"address is {request.address!r}; allowed with the executors {' and '.join(BEYOND)} only")
    if request.per_gpu is not None and (device.type != "cuda" or request.executor not in ("auto", *DIVIDE_GPUS)):
        where = f"device {device.type} and executor {request.executor}"
        allowed = f"on GPUs, with {' or '.join(DIVIDE_GPUS)}"
        raise UsageError(f"processes per GPU are {request.per_gpu} with {where}; allowed: {allowed}")
    if request.per_gpu is not None and request.per_gpu < 1:
        raise UsageError(f"processes per GPU are {request.per_gpu}; allowed: 1 and more")


def _slots(request: Request, device: torch.device) -> list[Slot]:
    """Where worker processes of this machine run on its GPUs; none on a CPU."""
    if device.type != "cuda" or request.executor in ("inline", *BEYOND):
        return []
    return gpu_slots(
        device,
        request.per_gpu or 1,
        num_gpus=torch.cuda.device_count(),
        visible=os.environ.get(VISIBLE),
        num_workers=request.workers,
    )


def _beyond_this_machine(request: Request) -> Executor:
    """The executor of a cluster; its package is an extra.

    Raises:
        UsageError: If the package is not installed, or the address is not allowed.
    """
    try:
        return BEYOND[request.executor](request)
    except ModuleNotFoundError as problem:
        raise UsageError(
            f"executor {request.executor!r} needs the package {problem.name}, which is not installed; in a checkout: "
            f"pip install -e '.[{request.executor}]'"
        ) from None


def _ray(request: Request) -> Executor:
    from synthbench.runner.executors.ray import Ray  # noqa: PLC0415 - may be missing

    here = usable_cores() if request.address is None else None
    return Ray(request.workers or here, request.timeout_s, request.address, 1 / (request.per_gpu or 1))


def _slurm(request: Request) -> Executor:
    from synthbench.runner.executors.slurm import Slurm  # noqa: PLC0415 - may be missing

    return Slurm(request.workers, request.timeout_s, request.address or "slurm")


BEYOND = {"ray": _ray, "slurm": _slurm}
"""Executors that run jobs on other machines."""

DIVIDE_GPUS = ("pool", "ray")
"""Executors that can run several processes on a GPU."""

EXECUTORS = ("auto", "inline", "pool", *BEYOND)
