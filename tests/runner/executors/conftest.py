import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from synthbench.results import Store
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.runner.worker import RunContext
from tests.runner import runs

collect_ignore = ["gated.py"]  # a plugin: it registers what it defines when it is imported

OF_THE_MOMENT = sorted({*runs.MAY_DIFFER, "plugins_loaded"} - {"attempt", "n_visible_devices"})
"""Columns that say when and how a row was made. ``attempt`` is kept: it shows that a worker was killed."""


@pytest.fixture
def tiny() -> Callable[..., Request]:
    """Four jobs of one row each, that take a second in all."""

    return partial(runs.tiny, steps=10, group_size=1)


@pytest.fixture(scope="session")
def lasting() -> Callable[..., tuple[pd.DataFrame, pd.DataFrame]]:
    """Parts of the rows and curves of stores that must be the same to the last bit, whoever ran the jobs."""

    def read(*folders: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
        stores = [Store.open(folder, create=False) for folder in folders]
        rows, curves = (
            pd.concat(frames).sort_values("run_id", kind="stable", ignore_index=True)
            for frames in ([store.runs() for store in stores], [store.curves() for store in stores])
        )
        return rows.drop(columns=OF_THE_MOMENT), curves.drop(columns="wall_s")

    return read


@dataclass(frozen=True)
class Gate:
    """Jobs whose workers say that they have begun, and wait."""

    folder: Path

    @property
    def plugin(self) -> str:
        return str(self.folder / "gated.py")

    def open(self) -> None:
        (self.folder / "open").touch()

    def begun(self, num: int = 1, patience_s: float = 200.0) -> list[int]:
        """Wait until so many processes have begun; their ids."""
        until = time.monotonic() + patience_s
        while len(pids := list((self.folder / "begun").iterdir())) < num:
            assert time.monotonic() < until, f"only {len(pids)} of {num} have begun"
            time.sleep(0.05)
        return sorted(int(path.name) for path in pids)

    def request(self, results: Path, **changes: Any) -> Request:
        base: dict[str, Any] = {
            "suite": "smoke", "tasks": ("copy:length=8",), "mechanisms": ("gated",), "steps": 2, "limit": 8,
            "device": "cpu", "results": results, "group_size": 1, "plugins": (self.plugin,),
        }  # fmt: skip
        return Request(**(base | changes))

    def stores(self, results: Path) -> list[Path]:
        """Find the stores that the jobs write to: of a plugin's jobs, a driver takes the rows from there."""
        return sorted(results.glob("_tmp/held-out-*/*"))

    def jobs(self, request: Request, executor: str) -> tuple[Any, RunContext]:
        """Input of an executor; nothing is examined before, which would take a process of its own."""
        Store.open(request.results, create=True)
        plan = plan_request(request, resolve_device("cpu"))
        return plan.jobs, RunContext(request.results, "cpu", executor, time.time(), plugins=request.plugins)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    folder = tmp_path / "gate"
    (folder / "begun").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("gated.py"), folder)
    return Gate(folder)


@pytest.fixture(scope="session")
def _ray(need: Callable[[str, bool, str], None]) -> None:
    need("ray", find_spec("ray") is not None, "pip install -e '.[ray]'")


@pytest.fixture(scope="session")
def cluster(_ray: None) -> Iterator[Any]:
    """A Ray cluster of two machines with one CPU each, one of them with a pretended GPU; nobody is connected to it."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - may be missing

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - else tests beside these starve the workers
    arguments = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    running = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, **arguments})
    running.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    yield running
    running.shutdown()


@pytest.fixture(scope="session")
def _submitit(need: Callable[[str, bool, str], None]) -> None:
    need("submitit", find_spec("submitit") is not None, "pip install -e '.[slurm]'")
