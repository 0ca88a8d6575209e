"""Checks of a component at its registration and during its jobs, whatever it does to its process."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from synthbench.contract.trial import Trial
from synthbench.errors import ContractError
from synthbench.process import STARTED_BY, end_orphans, orphans_ended
from synthbench.results import Store
from synthbench.runner import seal
from synthbench.training import train
from synthbench.training.evaluate import evaluate

SOUND = """
from synthbench.layers import Linear
from synthbench.mechanisms import Mechanism, mechanism

@mechanism
class Sound(Mechanism):
    name = "sound"
    label = "Sound"
    family = "control"
    source = "unpublished"

    def initialise(self, generator):
        self.out = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)

    def forward(self, x):
        return self.out(x)

    def state_elements(self, length):
        return 0
"""

TASK = """
from synthbench.tasks import TASKS, Bound, task

@task
class Low(TASKS["copy"]):
    name = "low"
    description = "copy, with a ceiling that is too low"

    def ceiling(self, length):
        return Bound(0.6)
"""

DAEMON = """
import subprocess
import sys

def leave(name, environment=None):
    code = f"import os, sys, time; open({name!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", f"import os; os.fork() or (os.setsid(), os.fork() or exec({code!r}))"],
                     start_new_session=True, env=environment).wait()
"""
"""Starts a process that belongs to nobody."""


def synthbench(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "synthbench", *line.split()]
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False, text=True)


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def pid_in(path: Path) -> int:
    for _ in range(100):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.1)
    raise AssertionError(f"nothing has written {path}")


def test_replaced_functions_codes_defaults_and_methods_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seal.replaced() is None
    monkeypatch.setattr(torch.nn.functional, "silu", lambda x: x)
    monkeypatch.setattr(evaluate, "__kwdefaults__", {**(evaluate.__kwdefaults__ or {}), "tasks": ("x",)})
    monkeypatch.setattr(train.Trainer, "step", lambda *_: None)
    monkeypatch.setattr(train, "sum", len, raising=False)
    said = seal.replaced()

    assert said is not None
    assert "synthbench.training.evaluate.evaluate, synthbench.training.train.Trainer.step" in said
    assert "more" in said


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes there are")
@pytest.mark.parametrize(("environment", "ends"), [("{}", "pass"), ("None", "os._exit(3)")])
def test_what_a_plugin_starts_ends_with_its_job(tmp_path: Path, environment: str, ends: str) -> None:
    left = tmp_path / "pid"
    (tmp_path / "idea.py").write_text(
        SOUND
        + DAEMON
        + textwrap.dedent(f"""
        import os
        import pathlib

        honest = Sound.forward

        def forward(self, x):
            if self.model_dim == 64 and not pathlib.Path({str(left)!r}).exists():
                leave({str(left)!r}, {environment})
                {ends}
            return honest(self, x)

        Sound.forward = forward
        """)
    )
    options = "--suite smoke --task copy:length=8 --seeds 0 --steps 3 --limit 8 --device cpu --quiet --results rows"
    synthbench(f"run {options} --mech sound --plugin idea.py", tmp_path)

    assert not is_alive(pid_in(left))
    assert Store.open(tmp_path / "rows", create=False).statuses()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes there are")
def test_orphans_of_a_killed_worker_end_and_ones_own_children_stay() -> None:
    with orphans_ended() as token:
        own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        end_orphans(token)
        assert own.poll() is None
    own.kill()
    own.wait()
    assert STARTED_BY not in os.environ


@pytest.mark.end_to_end
def test_of_two_plugins_the_one_that_ends_the_process_is_blamed(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(SOUND)
    bad.write_text("import os\nos._exit(3)\n")

    with Trial([str(good), str(bad)]) as trial, pytest.raises(ContractError, match=r"bad\.py' ends the process"):
        trial.try_plugins()


@pytest.mark.end_to_end
def test_a_ceiling_below_what_a_model_reaches_is_refused(tmp_path: Path) -> None:
    (tmp_path / "low.py").write_text(TASK)
    said = synthbench("check low.py", tmp_path)

    assert said.returncode != 0
    assert "a model of 400 steps scores 1.0000, above the ceiling 0.6000" in said.stdout
