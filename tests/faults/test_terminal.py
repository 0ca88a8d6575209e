"""A command prints its results or one line, whatever the terminal, the environment or a stranger's rows are."""

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import python
from tests.results.rows import make_row
from tests.results.stores import filled, reader

pytestmark = pytest.mark.end_to_end

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal may obey instead of printing them."""


def synthbench(line: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "synthbench", *line.split(), cwd=cwd, **environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store whose labels have signs that few encodings know."""
    filled(tmp_path / "results", [make_row(suite="custom", mech_label="softmax ᵀ†")])
    return tmp_path


@pytest.mark.parametrize(("encoding", "command"), [("latin-1", "export --suite custom"), ("ascii", "run --help")])
def test_a_terminal_that_lacks_a_sign_shows_its_code(folder: Path, encoding: str, command: str) -> None:
    shown = synthbench(command, folder, PYTHONIOENCODING=encoding, COLUMNS="40")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.search(r"\\(u[0-9a-f]{4}|x[0-9a-f]{2})", shown.stdout)


@pytest.mark.parametrize("columns", ["0", "9", "99999999", "many"])
def test_a_width_that_no_terminal_has_is_ignored(tmp_path: Path, columns: str) -> None:
    shown, usual = (
        synthbench("store --help", tmp_path, COLUMNS=width, TERMINAL_WIDTH=width) for width in (columns, "80")
    )

    assert (shown.returncode, shown.stdout) == (0, usual.stdout)


def test_a_current_folder_that_was_deleted_is_named(tmp_path: Path) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && {shlex.quote(sys.executable)} -m synthbench new mech my_idea"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (3, "synthbench: the current folder no longer exists\n")


def test_a_python_that_removes_descriptions_is_named(tmp_path: Path) -> None:
    shown = synthbench("list suites", tmp_path, PYTHONOPTIMIZE="2")

    assert shown.returncode == 0
    assert "removes descriptions" in shown.stderr


def test_colours_are_neither_sent_to_a_file_nor_where_they_are_unwanted(tmp_path: Path) -> None:
    run = "run --suite smoke --task copy:length=8 --mech linear --steps 2 --limit 8 --device cpu --executor inline"
    piped = synthbench(run, tmp_path, FORCE_COLOR="", COLUMNS="40")
    assert piped.returncode == 0
    assert not CONTROL.search(piped.stdout + piped.stderr)

    leader, follower = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "40", "LINES": "10"}
    terminal = subprocess.Popen(
        [sys.executable, "-m", "synthbench", *run.split(), "--rerun", "all"],
        stdout=follower, stderr=follower, stdin=follower, cwd=tmp_path, env=environment,
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not part:
            break
        shown += part
    os.close(leader)

    assert terminal.wait() == 0
    assert b"2/2" in shown, "there is a bar"
    assert not re.search(rb"\x1b\[[0-9;]*[349][0-9]m", shown)
    assert b"Traceback" not in shown


RUN = "run --suite smoke --task copy:length=8 --mech linear --seeds 0 --steps 2 --limit 8 --device cpu"


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">/dev/null 2>/dev/full"])
def test_messages_that_cannot_be_written_stop_no_run(tmp_path: Path, closed: str) -> None:
    command = [sys.executable, "-m", "synthbench", *RUN.split(), "--executor", "pool", "--workers", "1"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], cwd=tmp_path, check=False)

    assert done.returncode == 0
    assert list(reader(tmp_path / "results").statuses().values()) == ["ok"]


INTERRUPTED_IMPORT = """
import signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "synthbench.cli.app":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start tests with it ignored
from synthbench.cli import main
main()
"""


def test_ctrl_c_while_modules_are_imported_prints_nothing() -> None:
    done = python("-c", INTERRUPTED_IMPORT)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_reader_that_has_seen_enough_is_met_in_silence(folder: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "synthbench", "export", "--suite", "custom"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
    )  # fmt: skip
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    complaint = writer.stderr.read()
    writer.stderr.close()

    assert complaint == b""
    assert writer.wait() in (0, 1)


def test_output_that_cannot_be_written_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "synthbench", "list", "suites"],
            stdout=output, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip

    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
