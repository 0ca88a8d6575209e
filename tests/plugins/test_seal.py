"""Checks of a component at its registration and during its jobs, whatever it does to its process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from synthbench.contract.components import Component, examine
from synthbench.process import STARTED_BY, end_orphans, orphans_ended
from synthbench.results import Store
from synthbench.runner import seal
from synthbench.tasks import TASKS, Batch, Bound
from synthbench.tasks.basic.copy import Copy
from synthbench.training import seeding, train
from synthbench.training.evaluate import evaluate
from tests.cli.commands import Command
from tests.runner.runs import is_alive, plugin_text, wait_until

DAEMON = """
import os
import subprocess
import sys

def leave(name, environment=None):
    code = f"import os, sys, time; open({name!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", f"import os; os.fork() or (os.setsid(), os.fork() or exec({code!r}))"],
                     start_new_session=True, env=environment).wait()
"""
"""Starts a process that belongs to nobody."""


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and bool(path.read_text()), "it has begun", patience_s=30)
    return int(path.read_text())


@pytest.fixture
def _procfs(need: Callable[[str, bool, str], None]) -> None:
    need("procfs", Path("/proc/self/stat").exists(), "only Linux tells which processes there are")


def test_replaced_functions_codes_defaults_and_methods_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {**(evaluate.__kwdefaults__ or {}), "tasks": ("x",)}
    changes: list[tuple[object, str, object, str]] = [
        (torch.nn.functional, "softmax", lambda x: x, "torch.nn.functional.softmax;"),
        (torch.nn.functional.relu, "__code__", (lambda x: x).__code__, "torch.nn.functional.relu;"),
        (evaluate, "__kwdefaults__", defaults, "synthbench.training.evaluate.evaluate"),
        (seeding, "data_block", lambda *_: None, "synthbench.training.seeding.data_block"),
        (train.Trainer, "step", lambda *_: None, "synthbench.training.train.Trainer.step;"),
        (train, "sum", len, "synthbench.training.train.sum;"),
    ]
    assert seal.replaced() is None
    for owner, name, value, named in changes:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value, raising=False)
            assert named in str(seal.replaced())
    for owner, name, value, _ in changes:
        monkeypatch.setattr(owner, name, value, raising=False)
    assert "more" in str(seal.replaced())


@pytest.mark.end_to_end
@pytest.mark.usefixtures("_procfs")
@pytest.mark.parametrize(("environment", "ends"), [("{}", "pass"), ("None", "os._exit(3)")])
def test_what_a_plugin_starts_ends_with_it(tmp_path: Path, environment: str, ends: str, synthbench: Command) -> None:
    left = tmp_path / "pid"
    forward = f"""if self.model_dim == 64 and not os.path.exists({str(left)!r}):
            leave({str(left)!r}, {environment})
            {ends}
        return self.out(x)"""
    (tmp_path / "idea.py").write_text(DAEMON + plugin_text("sound").replace("return self.out(x)", forward))
    options = "--suite smoke --task copy:length=8 --seeds 0 --steps 3 --limit 8 --device cpu --quiet --results rows"
    synthbench(*f"run {options} --mech sound --plugin idea.py".split())

    assert not is_alive(pid_in(left))
    assert Store.open(tmp_path / "rows", create=False).statuses()


@pytest.mark.usefixtures("_procfs")
def test_orphans_of_a_gone_worker_end_and_ones_own_children_and_strangers_stay(tmp_path: Path) -> None:
    def orphan(name: str) -> int:
        """Start a process that outlives the one it is started in; its id."""
        code = f"{DAEMON}\nleave({str(tmp_path / name)!r})"
        subprocess.run([sys.executable, "-c", code], check=True)
        return pid_in(tmp_path / name)

    strangers = orphan("strangers")
    with orphans_ended() as token:
        own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        left = orphan("left")
        end_orphans(token)
        wait_until(lambda: not is_alive(left), "it has ended", patience_s=30)
        own_end, has_stranger = own.poll(), is_alive(strangers)
    own.kill()
    own.wait()
    os.kill(strangers, signal.SIGKILL)

    assert own_end is None
    assert has_stranger
    assert STARTED_BY not in os.environ


@pytest.mark.end_to_end
def test_a_ceiling_below_what_a_model_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS["copy"], "ceiling", lambda *_: Bound(0.6))
    (failed,) = [result for result in examine(Component("task", "copy")) if result.state == "FAILED"]

    assert "a model trained for 400 steps scores 1.0000, above the ceiling 0.6000" in failed.detail


@pytest.mark.end_to_end
def test_a_task_that_has_too_few_sequences_for_its_row_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Copy.sample

    def sample_of_few(task: Copy, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        rng.choice(10_000, batch_size, replace=False)
        return sample(task, rng, batch_size, length)

    monkeypatch.setattr(Copy, "sample", sample_of_few)
    (failed,) = [result for result in examine(Component("task", "copy", {"length": 9})) if result.state == "FAILED"]

    assert "'copy', length 9: simple rules cannot be measured: ValueError: Cannot take a larger sample" in failed.detail
