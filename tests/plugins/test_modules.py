"""Plain modules in a file, and units of a script: they run where they are found, and faults are told with a place."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import Command, python
from tests.runner.runs import plugin_text

pytestmark = pytest.mark.end_to_end


FIXED = """
from torch import nn
from synthbench.mechanisms import mechanism

@mechanism
class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(48, 48, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]
"""


UNBUILDABLE = """
@mechanism
class Unbuildable(nn.Module):
    def __init__(self):
        raise OSError("no weights")
"""


def test_documented_examples_pass_beside_a_layer_that_cannot_be_built(synthbench: Command, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "plugins.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "examples.py").write_text("".join([*examples, FIXED, UNBUILDABLE]))
    checked = synthbench("check", "examples.py", "--json")

    assert checked.returncode == 4, checked.stdout + checked.stderr
    *reports, unbuildable = json.loads(checked.stdout)
    assert [report["name"] for report in reports if report["passed"]] == ["fixed", "gated_softmax", "my_module"]
    assert [report["facts"]["state"].startswith("at most ") for report in reports] == [True, False, True]
    assert re.search(
        r"'unbuildable' cannot be built .*: OSError: no weights \(examples\.py:\d+\)",
        unbuildable["checks"][0]["detail"],
    )
    assert reports[0]["facts"]["parameters"] == "14112 in a layer of width 48"


LEAKS = plugin_text("leaks").replace("return self.out(x)", "return self.out(x - x.mean(-2, keepdim=True))")
SESSION = """
import synthbench
from synthbench.errors import UsageError

def request(**changes):
    return synthbench.Request(
        suite="smoke", tasks=["copy:length=8"], mechanisms=["sound,leaks"], seeds=[0], steps=2, limit=4, **changes
    )

try:
    synthbench.run(request(workers=2))
except UsageError as problem:
    print(problem)
for outcome in sorted(synthbench.run(request()).outcomes, key=lambda outcome: outcome.mechanism):
    print(outcome.mechanism, outcome.status, outcome.message)
    checks = synthbench.check(outcome.mechanism)
    print(*set(checks["component"]), *sorted(set(checks["state"])))
"""


def test_units_of_a_script_run_here_workers_refuse_them_and_a_leak_is_a_row_that_is_not_ranked(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(plugin_text("sound") + LEAKS + SESSION)
    done = python("script.py", cwd=tmp_path).stdout.splitlines()

    assert "a component was defined in this session, where worker processes do not find it" in done[0]
    assert done[1].startswith("leaks contract mechanism 'leaks' is not causal")
    assert done[2:] == ["leaks FAILED passed", "sound ok None", "sound passed"]
