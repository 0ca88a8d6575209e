"""The committed store only grows: no commit deletes, renames or rewrites a file of rows or curves."""

import subprocess
from pathlib import Path

from tests.cli.commands import Need

ROOT = Path(__file__).parents[2]
FIRST = "9f91c0e03afa8644db6d251a7ab9b286f5a756b6"
"""The rule holds for the commits after this one; a move of committed rows that is meant sets it anew."""


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)


def lost(folder: Path, first: str) -> list[str]:
    """The stored files that a later commit took away or changed; merges are compared with each of their parents."""
    log = ("log", "-m", "--no-renames", "--diff-filter=DMT", "--format=", "--name-only", f"{first}..")
    return git(folder, *log, "--", "results/**/*.parquet").stdout.split()


def test_no_commit_deletes_or_rewrites_a_committed_file_of_the_store(need: Need) -> None:
    is_here = git(ROOT, "merge-base", "--is-ancestor", FIRST, "HEAD").returncode == 0
    need("history", is_here, f"run in a clone whose history reaches back to {FIRST[:8]}")

    assert lost(ROOT, FIRST) == [], "commit new files beside those that are committed: results/README.md"


def test_a_file_that_a_commit_takes_away_or_changes_is_named(tmp_path: Path) -> None:
    commit = "git add -A && git -c user.name=a -c user.email=a@example.org commit -qm rows"
    folder, names = "results/compact", ("changed", "removed", "moved")
    made = f"git init -q . && mkdir -p {folder} && cd {folder}"
    for name in names:
        made += f" && echo {name} > {name}.parquet"
    made += f" && {commit} && git tag first && echo new > changed.parquet && echo new > new.parquet"
    made += f" && git rm -q removed.parquet && git mv moved.parquet there.parquet && {commit}"
    subprocess.run(made, shell=True, cwd=tmp_path, check=True)  # noqa: S602 - the words are those above

    assert sorted(lost(tmp_path, "first")) == sorted(f"{folder}/{name}.parquet" for name in names)
