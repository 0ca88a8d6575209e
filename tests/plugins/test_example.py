"""The example package, installed, reaches the leaderboard through its entry points."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

from synthbench.results import Store
from tests.cli.commands import Command

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _is_installed(need: Callable[[str, bool, str], None]) -> None:
    names = {distribution.name for distribution in distributions()}
    need("example", "synthbench-example" in names, "pip install --no-deps ./tests/plugin")


def test_a_broken_unit_is_passed_over_where_it_is_not_chosen(synthbench: Command) -> None:
    planned = synthbench(
        "run", "--suite", "smoke", "--mech", "all", "--task", "copy", "--seeds", "0", "--dry-run", "--json"
    )

    names = {row["mechanism"] for row in json.loads(planned.stdout)["missing"]}
    assert "synthbench-example/decay" in names
    assert "synthbench-example/broken" not in names


def test_a_broken_unit_is_no_step_of_the_campaign(tmp_path: Path) -> None:
    asked = ["-m", "benchmarks.campaign", "--device", "cpu", "--dry-run", "--json", "--out"]
    command = [sys.executable, *asked, str(tmp_path)]
    with_plugins = {name: value for name, value in os.environ.items() if name != "SYNTHBENCH_PLUGINS"}
    planned = subprocess.run(command, cwd=ROOT, env=with_plugins, capture_output=True, text=True, check=False)

    assert planned.returncode == 0, planned.stderr
    assert "synthbench-example/decay" in planned.stdout
    assert "synthbench-example/broken" not in planned.stdout


def test_it_reaches_the_leaderboard(synthbench: Command, tmp_path: Path) -> None:
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
    again = synthbench("run", "--suite", suite, "--device", "cpu")
    assert "0 rows written" in again.stderr
