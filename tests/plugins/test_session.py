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
        return x.cumsum(-2)

    def state_elements(self, length):
        return self.model_dim

@mechanism
class Leaks(Sums):
    name: ClassVar = "leaks"
    label: ClassVar = "Leaks"

    def forward(self, x):
        return x - x.mean(-2, keepdim=True)

def request(**changes):
    return synthbench.Request(
        suite="smoke", tasks=["copy:length=8"], mechanisms=["sums,leaks"], seeds=[0], steps=2, limit=4, **changes
    )

try:
    synthbench.run(request(workers=2))
except UsageError as problem:
    print(problem)
for outcome in sorted(synthbench.run(request()).outcomes, key=lambda outcome: outcome.mechanism):
    print(outcome.mechanism, outcome.status, outcome.message)
    print(*sorted(set(synthbench.check(outcome.mechanism)["state"])))
"""


def test_units_of_a_script_run_here_workers_refuse_them_and_a_leak_is_a_row_that_is_not_ranked(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SESSION)
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, check=True
    ).stdout.splitlines()

    assert "a component was defined in this session, where worker processes do not find it" in done[0]
    assert done[1].startswith("leaks contract mechanism 'leaks' is not causal")
    assert done[2:] == ["FAILED passed", "sums ok None", "passed"]
