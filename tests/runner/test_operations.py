"""Number of operations of a training step: on a GPU each is a launch, and a small model's step is little else."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from synthbench.forms import selective_scan
from synthbench.mechanisms import MECHANISMS
from synthbench.runner.plan import default_group_size, make_cells
from synthbench.suites import load_suite
from synthbench.training.cell import Cell, Run
from synthbench.training.train import Trainer
from tests.cli.commands import Need
from tests.contract._golden import SWITCH

PATH = Path(__file__).parents[1] / "golden" / "operations.json"
REWRITE = f"{SWITCH}=1 pytest tests/runner/test_operations.py rewrites {PATH.name}"
VERSION = ".".join(torch.__version__.split(".")[:2])

SUITE = "peers"
"""Suite in which every mechanism is counted; in ``paper`` those that it lists."""
PROGRAMS = [
    *((SUITE, mechanism) for mechanism in MECHANISMS if MECHANISMS.is_built_in(mechanism)),
    *(("paper", mechanism) for mechanism in load_suite("paper").mechanisms),
]
Counts = dict[str, Any]


class Operations(TorchDispatchMode):
    """Counts what is computed, copied or filled, by the name of the operation.

    That is every call that reaches a kernel of PyTorch. Not counted are views and other changes of metadata (a
    transpose, a detach), memory that is allocated without being filled, and the marks that a profiler reads.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not is_free(func):
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def is_free(func: Any) -> bool:
    namespace, _, name = func.name().partition("::")
    name = name.partition(".")[0]
    return func.is_view or namespace == "profiler" or name in {"_unsafe_view", "_reshape_alias"} or "empty" in name


@pytest.fixture(scope="module", autouse=True)
def _form_of_a_gpu() -> Iterator[None]:
    """A CPU's caches decide how many operations the scan takes there."""
    with patch.object(selective_scan, "_is_cached", return_value=False):
        yield


def cell_of(suite_name: str, mechanism: str) -> Cell:
    suite = load_suite(suite_name)
    task = next(iter(suite.tasks))
    (cell,) = make_cells(suite, {task: {}}, {mechanism: {}}, device_type="cuda", is_full=True)
    return cell


def runs_of(cell: Cell) -> list[Run]:
    """The runs of a cell that a GPU trains as one program: those that tune where some do, else those reported."""
    return (cell.tuning_runs() or cell.runs(cell.suite.seeds))[: default_group_size(cell)]


@cache
def operations(suite: str, mechanism: str) -> Counter[str]:
    """Those of a step on the CPU, as a GPU takes it: all in one piece.

    A batch of few sequences takes as many operations as a large one, so it has few.
    """
    trainer = Trainer(runs_of(cell_of(suite, mechanism)), torch.device("cpu"))
    batch = next(trainer.batches("train", 1, 2))
    trainer.schedule.apply(0, trainer.optimiser, trainer.model)
    trainer.step(batch.inputs[0], batch.targets[0], batch.columns)  # what the first step sets up is not counted
    counted = Operations()
    with counted:
        trainer.step(batch.inputs[0], batch.targets[0], batch.columns)
    return counted.counts


@pytest.fixture(scope="module")
def held() -> Counts:
    if os.environ.get(SWITCH) == "1":
        now: Counts = {"torch": VERSION}
        for suite, mechanism in PROGRAMS:
            now.setdefault(suite, {})[mechanism] = operations(suite, mechanism).total()
        PATH.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
    counts: Counts = json.loads(PATH.read_text(encoding="utf-8"))
    return counts


@pytest.mark.parametrize(("suite", "mechanism"), PROGRAMS)
def test_a_step_takes_the_operations_that_are_held(held: Counts, suite: str, mechanism: str, need: Need) -> None:
    # Another PyTorch takes other operations.
    need("pinned-torch", held["torch"] == VERSION, "pip install --constraint constraints.txt torch")
    now, then = operations(suite, mechanism), held.get(suite, {}).get(mechanism)

    assert now.total() == then, f"{then} are held: take no more, or say why and {REWRITE}\n{now.most_common()}"


def test_the_file_is_of_the_version_and_the_programs_that_are_tested(held: Counts) -> None:
    constraints = Path(__file__).parents[2].joinpath("constraints.txt").read_text(encoding="utf-8")

    assert f"\ntorch=={held['torch']}." in constraints, f"PyTorch has another version: {REWRITE}"
    assert {(suite, name) for suite in held if suite != "torch" for name in held[suite]} == set(PROGRAMS)
