"""The commit in a row: that of the repository, else the one that the environment gives."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import synthbench
from synthbench.cli import doctor
from synthbench.errors import UsageError
from synthbench.runner import environment
from synthbench.runner.run import prepare
from tests.runner.runs import tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """Let each test find out about the checkout by itself."""
    environment.software.cache_clear()
    yield
    environment.software.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the package seems to lie in, without a repository."""
    monkeypatch.setattr(synthbench, "__file__", str(tmp_path / "synthbench" / "__init__.py"))
    (tmp_path / "synthbench").mkdir()
    return tmp_path


@pytest.fixture
def repository(package: Path) -> str:
    """A repository around the package; its commit."""
    for command in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m first"):
        subprocess.run(["git", "-C", str(package), *command.split()], check=True)
    said = subprocess.run(["git", "-C", str(package), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return said.stdout.strip()


def test_a_gpu_that_this_machine_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"device is 'cuda:99'; this machine has \d+ CUDA devices"):
        environment.resolve_device("cuda:99")


def checkout() -> dict[str, object]:
    return {name: environment.software()[name] for name in ("git_sha", "git_dirty")}


@pytest.mark.usefixtures("package")
def test_without_a_repository_the_environment_gives_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkout() == {"git_sha": None, "git_dirty": None}
    environment.software.cache_clear()
    monkeypatch.setenv("SYNTHBENCH_COMMIT", COMMIT)

    assert checkout() == {"git_sha": COMMIT, "git_dirty": False}
    assert environment.commit_warning() is None


@pytest.mark.parametrize("stated", ["main", COMMIT[:12]])
def test_what_is_no_commit_is_refused_at_once(stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTHBENCH_COMMIT", stated)

    with pytest.raises(UsageError, match=f"SYNTHBENCH_COMMIT is '{stated}'; allowed: 40 hex digits"):
        prepare(tiny(tmp_path / "results"))


def test_a_repository_that_contradicts_wins_and_the_plan_and_the_doctor_say_so(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTHBENCH_COMMIT", COMMIT)

    expected = f"SYNTHBENCH_COMMIT is {COMMIT[:12]} and the repository is at {repository[:12]}"
    assert checkout()["git_sha"] == repository
    assert any(notice.startswith(expected) for notice in prepare(tiny(tmp_path / "results")).plan.notices)
    assert any(finding["detail"].startswith(expected) for finding in doctor.examine(tmp_path, {}))


def test_a_repository_that_agrees_needs_no_word(repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTHBENCH_COMMIT", repository)

    assert environment.commit_warning() is None
