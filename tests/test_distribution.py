"""The installed package: its name belongs to nobody else, the rows come along, and a newcomer needs nothing besides."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from synthbench.cli.scaffold import write
from synthbench.distribution import foreign, is_overwritten
from synthbench.results import Store, published
from tests.cli.commands import Command, install, python
from tests.results.rows import make_row
from tests.results.stores import filled

ROOT = Path(__file__).parents[1]
NAME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]


def test_a_new_package_depends_on_this_distribution_and_no_other(tmp_path: Path) -> None:
    write("task", "my_idea", tmp_path, is_package=True)
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


STRANGER = "synthbench-eval 0.20.0"


def another_package(folder: Path) -> None:
    """Lay our package in a folder, overwritten as pip does by another one that has files of the same names."""
    (folder / "synthbench").mkdir()
    for path in (ROOT / "synthbench").iterdir():
        if path.name not in ("__init__.py", "suites", "__pycache__"):
            (folder / "synthbench" / path.name).symlink_to(path)
    (folder / "synthbench" / "suites").mkdir()
    for name in ("__init__.py", "suites/__init__.py", "cli.py"):
        (folder / "synthbench" / name).write_text('__version__ = "0.20.0"\n')
    info = folder / "synthbench_eval-0.20.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: synthbench-eval\nVersion: 0.20.0\n")
    (info / "RECORD").write_text("synthbench/__init__.py,,\nsynthbench/suites/__init__.py,,\n")


def test_a_package_of_the_same_name_that_has_overwritten_ours_is_named_in_one_line(tmp_path: Path) -> None:
    another_package(tmp_path)
    script = "from synthbench.cli import main; main()"
    done = python("-c", script, "--help", cwd=tmp_path, PYTHONPATH=str(tmp_path))

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert STRANGER in done.stderr
    assert f"pip install --force-reinstall --no-deps {NAME}" in done.stderr


def test_a_package_of_the_same_name_is_named_by_doctor_while_ours_still_works(tmp_path: Path) -> None:
    another_package(tmp_path)

    assert foreign(distributions(path=[str(tmp_path)])) == [STRANGER]
    assert foreign() == []
    assert not is_overwritten()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs, built from a copy of the checkout that is gone by now."""
    tree, site = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("site")
    caches = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("synthbench", "results"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=caches)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    install(tree, site)
    shutil.rmtree(tree)
    return site


@pytest.fixture
def synthbench(site: Path, tmp_path: Path) -> Command:
    """The installed command line in an empty folder; what else is on the path comes before it."""

    def command(*words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join(str(folder) for folder in (path, site) if folder is not None)
        return python("-m", "synthbench", *words, cwd=tmp_path, PYTHONPATH=paths, SYNTHBENCH_PLUGINS="on")

    return command


@pytest.mark.end_to_end
def test_the_published_rows_are_in_the_wheel_and_answer_from_an_empty_folder(
    site: Path, synthbench: Command, tmp_path: Path
) -> None:
    assert not list(site.rglob("published/**/curves-*"))
    assert (site / "synthbench" / "tasks" / "bounds.json").is_file()

    theirs = Store.open(published(), create=False).runs()
    like = theirs[(theirs["suite"] == "paper") & theirs["role"].isna()].iloc[0]
    protocol = {"config_json": like["config_json"], "tuning_trials": int(like["tuning_trials"])}
    named = {"suite": "paper", "mech": "my_idea", "mech_origin": "my_idea.py"}
    filled(tmp_path / "results", (make_row(**named, **protocol, seed=seed) for seed in (42, 43)))
    done = synthbench("report", "--format", "md")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"2 from results, [1-9][0-9]+ from packaged", (tmp_path / "reports" / "paper" / "README.md").read_text()
    )
    judged = synthbench("quick", "--mech", "lstm", "--device", "cpu", "--results", "none")
    assert (judged.returncode, bool(judged.stdout)) == (0, True), judged.stderr


@pytest.mark.end_to_end
@pytest.mark.timeout(900)
def test_a_newcomer_goes_from_an_empty_folder_to_a_package(synthbench: Command, site: Path, tmp_path: Path) -> None:
    def expect(*words: str, path: Path | None = None) -> str:
        done: subprocess.CompletedProcess[str] = synthbench(*words, path=path)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    # An ordinary module with trained parameters, as a package in another place and under its package's name.
    expect("new", "mech", "my_idea", "--module", "--package")
    packages = tmp_path / "packages"
    install(tmp_path / "my-idea", packages)
    assert "mechanism my-idea/my_idea" in expect("check", "my-idea/my_idea", path=packages)

    # It is trained on a task of one's own under the protocol of the task's suite, whose table ends the run.
    expect("new", "task", "my_task")
    asked = ("run", "--suite", "my_task.toml", "--mech", "my-idea/my_idea,mean", "--device", "cpu")
    scores = expect(*asked, path=packages)
    assert re.search(r"my_task .*[0-9]", scores), scores
    told = expect("report", "--suite", "my_task", "--mech", "all", path=packages)
    assert told.splitlines()[-1] == "reports/my_task/index.html"
    assert "my_idea" in told

    where = python("-c", "import synthbench; print(synthbench.__file__)", cwd=tmp_path, PYTHONPATH=str(site))
    assert Path(where.stdout.strip()).is_relative_to(site)
