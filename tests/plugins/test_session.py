"""Units of a notebook or script run in its own process, and nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.end_to_end

SESSION = """
import sys
from typing import ClassVar
import synthbench
from synthbench.errors import UsageError
from synthbench.mechanisms import Mechanism, mechanism

@mechanism
class Sums(Mechanism):
    name: ClassVar = "sums"
    label: ClassVar = "Sums"
    family: ClassVar = "mine"
    source: ClassVar = "unpublished"

    def forward(self, x):
        return x {what}

    def state_elements(self, length):
        return self.model_dim

def request(**changes):
    return synthbench.Request(
        suite="smoke", tasks=["copy:length=8"], mechanisms=["sums"], seeds=[0], steps=2, limit=4, **changes
    )

try:
    synthbench.run(request(workers=2))
except UsageError as problem:
    print(problem)
(outcome,) = synthbench.run(request()).outcomes
print(outcome.status, outcome.message)
print(*sorted(set(synthbench.check("sums")["state"])))
"""


def test_a_unit_of_a_script_runs_here_and_workers_refuse_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SESSION.replace("{what}", ".cumsum(-2)"))
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, check=True
    ).stdout.splitlines()

    assert "a component was defined in this session, where worker processes do not find it" in done[0]
    assert done[1:] == ["ok None", "kept"]


def test_a_leak_of_a_script_is_a_row_that_is_not_ranked(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SESSION.replace("{what}", "- x.mean(-2, keepdim=True)"))
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, check=True
    ).stdout.splitlines()

    assert done[1].startswith("contract mechanism 'sums' is not causal")
    assert done[2] == "broken kept"
