"""A command prints its results or one line, whatever the terminal, the environment or a stranger's rows are."""

import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import CONTROL, python
from tests.results.rows import make_row
from tests.results.stores import filled, reader

pytestmark = pytest.mark.end_to_end


def shell(line: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell in a folder; ``synthbench`` is a command in it."""
    command = f'synthbench() {{ {shlex.quote(sys.executable)} -m synthbench "$@"; }}; {line}'
    return subprocess.run(
        ["sh", "-c", command], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        errors="replace",
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store whose labels have signs that few encodings know."""
    filled(tmp_path / "results", [make_row(suite="custom", mech_label="softmax ᵀ†")])
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (
            "mkdir a && cd a && rmdir ../a && synthbench new mech b",
            3,
            "synthbench: the current folder no longer exists",
        ),
        ("synthbench list suites > /dev/full", 3, ".*No space left on device.*"),
        ("export PYTHONOPTIMIZE=2; synthbench list suites", 0, ".*removes descriptions.*"),
        # A reader that has seen enough is met in silence.
        ("{ synthbench export --suite custom; test $? -le 1 || echo failed >&2; } | :", 0, None),
    ],
)
def test_a_command_that_meets_trouble_says_so_in_one_line(folder: Path, line: str, code: int, said: str | None) -> None:
    done = shell(line, folder)

    assert done.returncode == code
    assert re.fullmatch(f"{said}\n" if said else "", done.stderr)


@pytest.mark.parametrize(("encoding", "command"), [("latin-1", "export --suite custom"), ("ascii", "run --help")])
def test_a_terminal_that_lacks_a_sign_shows_its_code(folder: Path, encoding: str, command: str) -> None:
    shown = shell(f"synthbench {command}", folder, PYTHONIOENCODING=encoding, COLUMNS="40")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.search(r"\\(u[0-9a-f]{4}|x[0-9a-f]{2})", shown.stdout)


@pytest.mark.parametrize("columns", ["0", "9", "99999999", "many"])
def test_a_width_that_no_terminal_has_is_ignored(tmp_path: Path, columns: str) -> None:
    shown, usual = (
        shell("synthbench store --help", tmp_path, COLUMNS=width, TERMINAL_WIDTH=width) for width in (columns, "80")
    )

    assert (shown.returncode, shown.stdout) == (0, usual.stdout)


RUN = "synthbench run --suite smoke --task copy:length=8 --mech linear --steps 2 --limit 8 --device cpu"


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">/dev/null 2>/dev/full"])
def test_messages_that_cannot_be_written_stop_no_run(tmp_path: Path, closed: str) -> None:
    done = shell(f"{RUN} --seeds 0 --executor pool --workers 1 {closed}", tmp_path)

    assert done.returncode == 0
    assert list(reader(tmp_path / "results").statuses().values()) == ["ok"]


def test_colours_are_neither_sent_to_a_file_nor_where_they_are_unwanted(tmp_path: Path) -> None:
    piped = shell(f"{RUN} --executor inline", tmp_path, FORCE_COLOR="", COLUMNS="40")
    assert piped.returncode == 0
    assert not CONTROL.search(piped.stdout + piped.stderr)

    leader, follower = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "40", "LINES": "10"}
    again = [sys.executable, "-m", *RUN.split(), "--executor", "inline", "--rerun", "all"]
    terminal = subprocess.Popen(again, stdout=follower, stderr=follower, stdin=follower, cwd=tmp_path, env=environment)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the last writer is gone
        while part := os.read(leader, 4096):
            shown += part
    os.close(leader)

    assert terminal.wait() == 0
    assert b"2/2" in shown, "there is a bar"
    assert not re.search(rb"\x1b\[[0-9;]*[349][0-9]m", shown)
    assert b"Traceback" not in shown


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
