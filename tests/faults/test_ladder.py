"""The rows of a ladder are the same after any number of killed drivers."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from synthbench.results import Store

RUN = (
    *(sys.executable, "-m", "synthbench", "run", "--suite", "core", "--task", "dyck,mqar", "--mech", "linear,lstm"),
    *("--seeds", "1,2", "--steps", "16", "--limit", "16", "--device", "cpu"),
)
NUM_ROWS = 2 * 2 * 2 * 2  # tasks, mechanisms, seeds, rates

Rows = dict[str, tuple[object, ...]]


def rows(results: Path) -> Rows:
    """Columns of every row that training decides, by its id."""
    runs = Store.open(results, create=False).runs().set_index("run_id")
    return {str(name): tuple(row) for name, *row in runs[["status", "score", "metrics", "train_loss"]].itertuples()}


@pytest.mark.end_to_end
def test_a_driver_killed_again_and_again_leaves_the_rows_of_an_undisturbed_one(tmp_path: Path) -> None:
    inline, killed = tmp_path / "inline", tmp_path / "killed"
    subprocess.run([*RUN, "--executor", "inline", "--results", str(inline)], check=True, capture_output=True)
    expected = rows(inline)
    assert len(expected) == NUM_ROWS

    moments = random.Random(0)  # noqa: S311 - no secret
    command = [*RUN, "--executor", "pool", "--workers", "2", "--results", str(killed)]
    num_kills = 0
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            time.sleep(moments.uniform(3, 7))
            num_kills += driver.poll() is None
            driver.kill()
    assert num_kills
    subprocess.run(command, check=True, capture_output=True)

    assert rows(killed) == expected
