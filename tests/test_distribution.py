"""What is installed: its name belongs to nobody else, and the rows come along."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthbench.results import Store
from synthbench.terminal.scaffold import write

MakeRow = Callable[..., dict[str, Any]]

ROOT = Path(__file__).parents[1]
NAME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]


@pytest.mark.parametrize("kind", ["mech", "task"])
def test_a_new_package_depends_on_this_distribution_and_no_other(kind: str, tmp_path: Path) -> None:
    write(kind, "my_idea", tmp_path, is_package=True)
    project = tomllib.loads((tmp_path / "my-idea" / "pyproject.toml").read_text())["project"]

    assert project["dependencies"] == [NAME]
    assert NAME != "synthbench"  # somebody else's on the public index


def test_no_document_installs_a_stranger_s_package() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]

    assert not [
        (path.name, line)
        for path in documents
        for line in path.read_text(encoding="utf-8").splitlines()
        if "pip install" in line and "synthbench" in line.replace(NAME, "") and "git+" not in line
    ]


@pytest.mark.end_to_end
def test_the_published_rows_are_in_the_wheel(tmp_path: Path, make_row: MakeRow) -> None:
    tree, site = tmp_path / "tree", tmp_path / "site"
    caches = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("synthbench", "results"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=caches)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(tree)], check=True)
    shutil.rmtree(tree)
    assert not list(site.rglob("published/**/curves-*"))

    own = Store.open(tmp_path / "results", create=True)
    for seed in (42, 43):
        own.write(make_row(suite="core-mini", mech="my_idea", mech_origin="my_idea.py", seed=seed), [])
    done = subprocess.run(
        [sys.executable, "-m", "synthbench", "report", "--beside", "published", "--format", "md"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"2 from results, [1-9][0-9]+ from published", (tmp_path / "reports" / "core-mini" / "README.md").read_text()
    )
