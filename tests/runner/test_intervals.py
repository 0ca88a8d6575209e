"""Nothing waits for the device between two points of a learning curve: a GPU is given its steps without a pause."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from synthbench.training import train
from synthbench.training.cell import Cell, Run
from synthbench.training.schedule import Schedule
from synthbench.training.train import GroupResult, Trainer, train_group
from tests.training.cells import make_cell

EVERY = 4
"""Steps of an interval."""

ASKED_BY_PYTHON = {
    "__array__", "__bool__", "__float__", "__index__", "__int__", "cpu", "item", "numpy", "tolist",
}  # fmt: skip
ASKED_BY_KERNELS = {
    "_linalg_check_errors", "_local_scalar_dense", "_unique2", "equal", "is_nonzero", "masked_select", "nonzero",
    "unique_consecutive", "unique_dim",
}  # fmt: skip
"""Operations whose result, or its shape, the host reads."""


class Waits:
    """Notes what waits for the device, and how many steps were begun and done by then."""

    def __init__(self) -> None:
        self.num_begun = self.num_done = 0
        self.outside: list[str] = []
        """Waits at a point of the curve, before the first step or after the last."""
        self.inside: list[str] = []
        """Waits within an interval."""

    def note(self, name: str) -> None:
        is_outside = self.num_begun == self.num_done and self.num_done % EVERY == 0
        (self.outside if is_outside else self.inside).append(f"{name} after {self.num_done} steps")


class _OfPython(TorchFunctionMode):
    """Calls by which Python asks a tensor for values; on a CPU most reach no kernel."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in ASKED_BY_PYTHON:
            self.waits.note(func.__name__)
        return func(*args, **(kwargs or {}))


class _OfKernels(TorchDispatchMode):
    """Kernels that tell the host a value, moves to another device and masks as indices, which are counted first."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits = waits

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().partition("::")[2].partition(".")[0]
        out = func(*args, **(kwargs or {}))
        is_moved = name in {"_to_copy", "copy_"} and len({x.device for x in (*args, out) if isinstance(x, Tensor)}) > 1
        indices = args[1] if name in {"index", "index_put", "index_put_"} else ()
        has_mask = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
        if name in ASKED_BY_KERNELS or is_moved or has_mask:
            self.waits.note(name)
        return out


@dataclass(frozen=True)
class Watched(Schedule):
    """A schedule that says when a step begins."""

    waits: Waits

    def apply(self, step: int, *others: Any) -> float:
        self.waits.num_begun += 1
        return super().apply(step, *others)


Watch = Callable[[list[Run]], tuple[Waits, GroupResult]]


@pytest.fixture
def waits_of(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Train runs, and note what waits for the device."""

    def watch(runs: list[Run]) -> tuple[Waits, GroupResult]:
        waits, take_step = Waits(), Trainer.step

        def step(trainer: Trainer, *batch: Tensor) -> Tensor:
            losses = take_step(trainer, *batch)
            waits.num_done += 1
            return losses

        monkeypatch.setattr(Trainer, "step", step)
        monkeypatch.setattr(train, "Schedule", lambda settings: Watched(settings, waits))
        with _OfPython(waits), _OfKernels(waits):
            result = train_group(runs, torch.device("cpu"))
        return waits, result

    return watch


def cell_of(task: str, mechanism: str, **changes: Any) -> Cell:
    return make_cell(task, mechanism, limit=16, curve_every=EVERY, stretches=None, **changes)


@pytest.mark.parametrize(
    "cell",
    [
        cell_of("even_pairs", "slay", suite="peers", steps=8, warmup_steps=3, batch_size=4),
        cell_of("even_pairs", "lstm", suite="peers", steps=8, warmup_steps=3, batch_size=4),
        cell_of("copy", "rewa-geometric", steps=12, length=6, batch_size=4, schedule="geometric-curriculum"),
    ],
    ids=["tuning", "tuning lstm", "curriculum"],
)
def test_runs_that_tune_and_a_curriculum_wait_at_points_of_the_curve_only(waits_of: Watch, cell: Cell) -> None:
    waits, _ = waits_of(cell.tuning_runs() or [Run(cell, 0, 1e-2), Run(cell, 1, 1e-3)])

    assert waits.num_done == cell.suite.training.steps
    assert waits.inside == []
    assert {"cpu after 4 steps", "cpu after 8 steps"} <= {*waits.outside}


def test_runs_that_stop_when_solved_wait_at_points_of_the_curve_only(waits_of: Watch) -> None:
    cell = cell_of("copy", "softmax", length=4, vocabulary=3, steps=60, stop_at=0.5)
    waits, result = waits_of([Run(cell, 0, 1e-2), Run(cell, 1, 1e-6)])
    fast, slow = result.runs

    assert fast.stopped_at is not None
    assert fast.stopped_at < waits.num_done
    assert slow.stopped_at is None
    assert waits.inside == []


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (Tensor.item, "item"),
        (torch.nonzero, "nonzero"),
        (lambda x: torch.ones(1)[x == 2], "index"),
        (lambda x: x.masked_select(x == 2), "masked_select"),
        (lambda x: x.to("meta"), "_to_copy"),
        (lambda x: torch.equal(x, x), "equal"),
        (lambda x: torch.linalg.solve(x.expand(1, 1), torch.ones(1)), "_linalg_check_errors"),
    ],
)
def test_what_waits_within_an_interval_is_found(ask: Callable[[Tensor], object], name: str) -> None:
    waits = Waits()
    waits.num_begun = 1
    with _OfPython(waits), _OfKernels(waits):
        ask(torch.full((1,), 2.0))

    assert f"{name} after 0 steps" in waits.inside
