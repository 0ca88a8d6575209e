"""A test whose tool is missing is passed over, unless the tool is required."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Need = Callable[[str, bool, str], None]

ROOT = Path(__file__).parents[1]


def test_a_missing_tool_skips_and_a_required_one_fails(need: Need, monkeypatch: pytest.MonkeyPatch) -> None:
    is_here = False
    monkeypatch.delenv("SYNTHBENCH_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="chromium is not here: install it"):
        need("chromium", is_here, "install it")
    monkeypatch.setenv("SYNTHBENCH_REQUIRE", "pdflatex, chromium")
    with pytest.raises(pytest.fail.Exception, match="chromium is required and not here: install it"):
        need("chromium", is_here, "install it")
    need("chromium", not is_here, "install it")


def test_a_tool_that_cannot_be_required_is_named(need: Need) -> None:
    is_here = True
    with pytest.raises(pytest.fail.Exception, match="add it to TOOLS"):
        need("chrome", is_here, "install it")


ABSENT = [("fla", "names ['fla'], which cannot be imported")] if find_spec("fla") is None else []


@pytest.mark.parametrize(
    ("names", "reason"), [("pdflatex,chrome", "names ['chrome']; allowed: cgroup, chromium"), *ABSENT]
)
def test_what_is_required_is_known_and_there_before_any_test_begins(names: str, reason: str) -> None:
    options = ["--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "tests/test_tools.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        env={**os.environ, "SYNTHBENCH_REQUIRE": names},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert reason in done.stderr
