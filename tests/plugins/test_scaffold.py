"""Files from ``new`` work as they are, and nothing is overwritten."""

import json
import subprocess
from pathlib import Path

import pytest

from synthbench.cli.scaffold import write
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.suites import load_suite
from tests.cli.commands import Command, install, python

pytestmark = pytest.mark.end_to_end


def pytest_in(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), cwd=folder, **environment)


@pytest.mark.parametrize("kind", [["mech"], ["mech", "--module"], ["task"]])
def test_a_new_file_passes_its_own_tests_and_the_check(kind: list[str], synthbench: Command, tmp_path: Path) -> None:
    written = synthbench("new", *kind, "my_idea")
    checked = synthbench("check", "my_idea", "--json")
    tested = pytest_in(tmp_path)

    suite = ["my_idea.toml"] if kind == ["task"] else []
    assert written.stdout.split() == ["my_idea.py", "test_my_idea.py", *suite, "synthbench.toml"]
    assert checked.returncode == 0, checked.stderr
    (report,) = json.loads(checked.stdout)
    assert (report["name"], report["passed"], report["origin"]) == ("my_idea", True, "my_idea.py")
    assert {result["state"] for result in report["checks"]} == {"passed"}
    assert "2 passed" in tested.stdout, tested.stdout


@pytest.mark.parametrize("kind", ["mech", "task"])
def test_a_new_package_passes_its_own_tests_once_it_is_installed(kind: str, tmp_path: Path) -> None:
    write(kind, "my_idea", tmp_path, is_package=True, is_module=kind == "mech")
    site = tmp_path / "site"
    install(tmp_path / "my-idea", site)
    tested = pytest_in(tmp_path / "my-idea", PYTHONPATH=str(site), SYNTHBENCH_PLUGINS="on")

    assert "2 passed" in tested.stdout, tested.stdout


def test_a_new_task_is_run_in_its_own_suite_and_beside_those_of_another(synthbench: Command, tmp_path: Path) -> None:
    written = synthbench("new", "task", "my_task")
    steps = [line.split() for line in written.stderr.splitlines() if line.startswith("  synthbench ")]
    suites = [step[3] for step in steps if step[1] == "run"]
    assert suites == ["./my_task.toml", "smoke"]
    assert steps[0] == ["synthbench", "check", "my_task"]
    for step in steps[1:]:  # the first is the check, which another test makes
        short = ["--mech", "mean", "--seeds", "42", "--device", "cpu"] if step[1] == "run" else []
        shown = ["--mech", "mean", "--format", "pages"] if step[1] == "report" else []
        done = synthbench(*step[1:], *short, *shown)
        assert done.returncode == 0, (step, done.stderr)
    reported = synthbench("report", "--suite", "smoke.extra", "--format", "pages")

    assert reported.returncode == 0, reported.stderr
    for suite in ("my_task", "smoke.extra"):
        assert "my\\_task" in (tmp_path / "reports" / suite / "full.md").read_text()


def test_the_suite_of_a_new_task_has_the_protocol_of_smoke(tmp_path: Path) -> None:
    write("task", "my_task", tmp_path, is_package=False)
    own, smoke = load_suite(str(tmp_path / "my_task.toml")), load_suite("smoke")

    protocol = {"model", "training", "evaluation", "seeds", "tuning"}
    assert own.model_dump(include=protocol) == smoke.model_dump(include=protocol)
    assert set(own.mechanisms) <= set(MECHANISMS)


def test_a_second_plugin_joins_the_first_and_comments_stay(tmp_path: Path) -> None:
    write("mech", "one", tmp_path, is_package=False)
    settings = tmp_path / "synthbench.toml"
    settings.write_text("# mine\n" + settings.read_text())
    write("task", "two", tmp_path, is_package=False)

    assert settings.read_text().startswith("# mine\n")
    assert 'plugins = ["two.py", "one.py"]' in settings.read_text()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((content, r'add "one.py" to it first') for content in (b"# nothing yet\n", b"plugins = 3")),
        *((content, r"synthbench\.toml cannot be read") for content in (b"plugins = [", b"\xff")),
    ],
)
def test_settings_that_cannot_be_extended_are_left_alone(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "synthbench.toml").write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        write("mech", "one", tmp_path, is_package=False)
    assert [path.name for path in tmp_path.iterdir()] == ["synthbench.toml"]
