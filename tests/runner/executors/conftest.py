import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from synthbench.runner.request import Request
from tests.cli.commands import Need
from tests.runner.runs import FAULTS, one_by_one, wait_until


@dataclass(frozen=True)
class Gate:
    """Jobs whose workers say that they have begun, and wait."""

    folder: Path

    def open(self) -> None:
        (self.folder / "open").touch()

    def begun(self, num: int = 1) -> list[int]:
        """Wait until so many processes have begun; their ids."""
        begun = self.folder / "begun"
        wait_until(lambda: len(list(begun.iterdir())) >= num, f"{num} have begun")
        return sorted(int(path.name) for path in begun.iterdir())

    def request(self, results: Path, **changes: Any) -> Request:
        base: dict[str, Any] = {"tasks": ("copy:length=8",), "mechanisms": ("gated",), "steps": 2, "limit": 8}
        return one_by_one(results, **(base | {"plugins": (str(self.folder / FAULTS.name),)} | changes))

    def stores(self, results: Path) -> list[Path]:
        """Find the stores that the jobs write to: of a plugin's jobs, a driver takes the rows from there."""
        return sorted(results.glob("_tmp/held-out-*/*"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    folder = tmp_path / "gate"
    (folder / "begun").mkdir(parents=True)
    shutil.copy(FAULTS, folder)
    return Gate(folder)


@pytest.fixture(scope="session")
def _ray(need: Need) -> None:
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
def _submitit(need: Need) -> None:
    need("submitit", find_spec("submitit") is not None, "pip install -e '.[slurm]'")
