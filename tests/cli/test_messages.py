"""Messages to a user about a mistake: one line that says what is wrong and what is meant, and the exit code."""

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthbench.errors import UnknownName
from synthbench.results import Store
from tests.cli.commands import Command
from tests.results.rows import make_row
from tests.runner.runs import plugin_text
from tests.suites.files import suite_file

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.txt"
CASES = re.findall(r"^\$ synthbench (.*)\n(\d): (.*)$", GOLDEN.read_text(encoding="utf-8"), re.MULTILINE)
PLUGINS = {
    "works": plugin_text("works"),
    "divides": "1 / 0",
    "exits": "import sys\nsys.exit(0)",
    "ends": "import os\nos._exit(0)  # as if all were well",
    "interrupts": "\nraise KeyboardInterrupt  # as if the user had typed Ctrl-C",
    "registers_nothing": "x = 1",
}


@pytest.fixture(scope="module")
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of suite ``custom``, other stores, and files that hold no rows; no mistake changes it."""
    folder = tmp_path_factory.mktemp("scene")

    def store(name: str, **changes: Any) -> None:
        rows = Store.open(folder / name, create=True)
        rows.write_all(
            (make_row(**{"suite": "smoke", "task": task, "mech": mech, "seed": seed} | changes), [])
            for task in ("copy", "sort")
            for mech in ("softmax", "slay", "gla")
            for seed in (42, 43)
        )

    store("results", suite="custom")
    shutil.copytree(folder / "results", folder / "other")
    store("older", suite="custom", suite_version="2025.9")
    store("shortened", suite="custom", is_full=False)
    store("paper", suite="paper")
    store("next-task", suite="custom", task_version="2")
    store("rope", suite="custom", positions="rope")
    store("commits", suite="custom", git_sha=39 * "0" + "1")
    store("commits", suite="custom", git_sha=39 * "0" + "2", lr=0.01)
    for name in ("folder", "newer"):
        (folder / name).mkdir()
    (folder / "newer" / "store.json").write_text('{"format": 99}')
    for name in ("file", "notes.txt", "tiny.toml", "my_linear.py", "My Idea.py"):
        (folder / name).write_text("no rows")
    for name, content in {"empty": b"", "latin": b"fine until here \xff\xfe", "zip": b"PK\x03\x04\x00\x00"}.items():
        (folder / f"{name}.txt").write_bytes(content)
    for name, source in PLUGINS.items():
        (folder / f"{name}.py").write_text(source)
    pq.write_table(pa.table({"score": [1.0]}), folder / "other.parquet")
    suite_file(folder / "width.toml", "smoke", num_heads=5)
    suite_file(folder / "places.toml", "smoke", positions='"lerned"')
    suite_file(folder / "unknown.toml", "smoke", ["coppy"])
    suite_file(folder / "begins-with-two.toml", "core", seeds=[1, 2])
    suite_file(folder / "smoke.extra.toml", "smoke")
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(folder / "pipe.toml")
    (folder / "dangling").symlink_to("gone")
    return folder


@pytest.mark.usefixtures("_few_packaged")
@pytest.mark.parametrize(("line", "code", "message"), CASES)
def test_a_mistake_is_one_line_and_the_documented_exit_code(
    line: str, code: str, message: str, tmp_path: Path, synthbench: Command
) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = synthbench("-q", *shlex.split(line))

    said = done.stderr.replace(f"{tmp_path}/", "")
    assert (done.returncode, done.stdout, said) == (int(code), "", f"synthbench: {message}\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_line_break_in_a_path_breaks_no_message(synthbench: Command) -> None:
    done = synthbench("leaderboard", "--results", "no\nwhere\t")

    assert (done.returncode, done.stderr) == (
        3,
        "synthbench: no results store at noU+000AwhereU+0009: no such folder\n",
    )


def test_the_old_name_of_an_option_works_and_the_new_one_is_said(synthbench: Command) -> None:
    asked = ["run", "--suite", "smoke", "--task", "copy", "--mech", "linear", "--dry-run"]
    old, new = (synthbench(*asked, option) for option in ("--members=1", "--batched=1"))

    assert (old.returncode, old.stdout) == (0, new.stdout)
    assert old.stderr == "--members is now --batched\n" + new.stderr


@pytest.mark.parametrize("line", ["show NAME", "check NAME", "run --dry-run --mech NAME", "data NAME --out a.npz"])
def test_a_name_of_300_letters_is_one_that_there_is_none_of(line: str, synthbench: Command) -> None:
    done = synthbench(*line.replace("NAME", 300 * "x").split())

    assert done.returncode == UnknownName.exit_code
    assert done.stderr.startswith("synthbench: no ")
