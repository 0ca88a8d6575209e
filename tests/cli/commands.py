"""Commands in processes of their own, and the types of the fixtures that run them here."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]
"""The remains of a command from its words."""
Need = Callable[[str, bool, str], None]
"""Pass over a test whose tool is not here."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal may obey instead of printing them."""


def python(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with further variables of the environment."""
    command, variables = [sys.executable, *words], {**os.environ, **environment}
    encoding = environment.get("PYTHONIOENCODING")
    return subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, encoding=encoding, text=True, check=False
    )


def install(project: Path, site: Path) -> None:
    """Install a project into a folder without its dependencies, which are here, and without a network."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site))
    done = python("-m", "pip", "install", *options, str(project))
    assert done.returncode == 0, done.stderr
