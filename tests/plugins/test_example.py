"""The example package, installed, reaches the leaderboard through its entry points."""

import subprocess
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

from synthbench.results import Store
from tests.cli.commands import python

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _is_installed(need: Callable[[str, bool, str], None]) -> None:
    names = {distribution.name for distribution in distributions()}
    need("example", "synthbench-example" in names, "pip install --no-deps ./tests/plugin")


def test_a_broken_unit_is_passed_over_where_it_is_not_chosen(tmp_path: Path) -> None:
    """By a run, and by the campaign."""
    run = ["synthbench", "run", "--suite", "smoke", "--mech", "all", "--task", "copy", "--seeds", "0"]
    campaign = ["benchmarks.campaign", "--device", "cpu", "--out", str(tmp_path)]
    for command in (run, campaign):
        planned = python("-m", *command, "--dry-run", "--json", cwd=ROOT, SYNTHBENCH_PLUGINS="on")

        assert planned.returncode == 0, planned.stderr
        assert "synthbench-example/decay" in planned.stdout
        assert "synthbench-example/broken" not in planned.stdout


def test_it_reaches_the_leaderboard(tmp_path: Path) -> None:
    def synthbench(*words: str) -> subprocess.CompletedProcess[str]:
        return python("-m", "synthbench", *words, cwd=tmp_path, SYNTHBENCH_PLUGINS="on")

    suite = "synthbench-example/tiny"
    for unit in ("synthbench-example/decay:rate=0.5", "synthbench-example/lagged"):
        assert "checks passed; its rows are ranked" in synthbench("check", unit).stdout
    ran = synthbench("run", "--suite", suite, "--device", "cpu")
    reported = synthbench("report", "--suite", suite, "--format", "pages")

    assert ran.returncode == reported.returncode == 0, ran.stderr + reported.stderr
    rows = Store.open(tmp_path / "results", create=False).runs()
    assert set(rows.mech) == {"softmax", "synthbench-example/decay"}
    assert set(rows.task) == {"copy", "synthbench-example/lagged"}
    assert set(rows.suite) == {suite}
    assert set(rows.mech_origin) == {"builtin", "synthbench-example==1.0"}
    assert rows.causal_checked.all()
    page = (tmp_path / "reports" / suite / "leaderboard.md").read_text()
    assert "| Decay" in page
