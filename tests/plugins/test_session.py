"""Units of a notebook or script run in its own process, and nowhere else."""

from pathlib import Path

import pytest

from tests.cli.commands import python
from tests.runner.runs import plugin_text

pytestmark = pytest.mark.end_to_end

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
