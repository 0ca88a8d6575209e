"""Files and modules that are named: loaded once, found from anywhere, told apart by their content and lines."""

import os
import pickle
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from synthbench import plugins
from synthbench.cli.app import handle_signals
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.plugins import described, origin_of, place_of
from synthbench.registry import version_of
from synthbench.tasks import TASKS
from tests.cli.commands import Command

TASK = """
import sys
from synthbench.tasks import Task, task

@task
class Mine(Task):
    name, source, length, vocab_size = "mine", "unpublished", 8, 4
    def sample(self, rng, batch_size, length):
        raise NotImplementedError
    def floor(self, length):
        return 0.5
"""


def test_a_file_is_loaded_under_its_bare_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    plugins.load(["mine.py"])
    name, first = plugins.resolved("mine.py"), TASKS["mine"]
    monkeypatch.chdir("/")
    plugins.load([name])

    assert name == os.fspath(tmp_path / "mine.py")
    assert TASKS["mine"] is first
    assert plugins.components_of(plugins.module_of(name)) == [("task", "mine")]
    assert origin_of(first) == "mine.py"
    assert first.category() == "plugin"
    assert pickle.loads(pickle.dumps(first)) is first  # noqa: S301 - it was made here


def test_an_edit_is_another_version_but_for_a_comment(tmp_path: Path) -> None:
    versions = []
    for text in (TASK, TASK.replace("0.5", "0.25"), TASK + "# a comment\n"):
        (tmp_path / "mine.py").write_text(text)
        plugins.load([str(tmp_path / "mine.py")])
        versions.append(version_of(TASKS["mine"]))

    assert versions[0] == versions[2] != versions[1]


@pytest.mark.parametrize(
    ("floor", "message"),
    [
        (
            "0.5",
            "AttributeError: 'float' object has no attribute 'value'; the fault may lie in a loaded plugin: mine.py",
        ),
        ("sys.exit(0)", "SystemExit: 0 (mine.py:11)"),
        ("open('no weights')", "FileNotFoundError: [Errno 2] No such file or directory: 'no weights' (mine.py:11)"),
    ],
)
def test_a_task_that_fails_is_named_among_others(floor: str, message: str, synthbench: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TASK.replace("0.5", floor))
    listed, shown = (synthbench(*words, "--plugin", "mine.py") for words in (("list", "tasks"), ("show", "mine")))

    assert listed.returncode == 0
    assert f"mine  broken: {message.partition(';')[0].partition(' (')[0]}" in listed.stdout
    assert "\nreverse " in listed.stdout
    assert (shown.returncode, shown.stdout, shown.stderr) == (4, "", f"synthbench: {message}\n")


def test_a_folder_names_its_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "on")
    (tmp_path / "mine.py").write_text(TASK)
    settings = tmp_path / "synthbench.toml"

    assert plugins.of_folder(tmp_path) == []
    settings.write_text('plugins = ["mine.py", "some_module"]')
    assert plugins.of_folder(tmp_path) == [os.fspath(tmp_path / "mine.py"), "some_module"]
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "off")
    assert plugins.of_folder(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('plugin = ["mine.py"]', "no key in synthbench.toml called 'plugin'; did you mean 'plugins'"),
        ('plugins = "mine.py"', "allowed: a list of files and modules"),
        ("plugins = [nan]", "allowed: a list of files and modules"),
        ('plugins = ["a.py"]\nplugins = ["b.py"]', "cannot be read"),
        ('plugins = ["lost.py"]', r"synthbench.toml: no plugin file"),
    ],
)
def test_bad_settings_are_refused(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "on")
    (tmp_path / "synthbench.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        plugins.of_folder(tmp_path)


@pytest.mark.parametrize(
    ("handler", "is_users"),
    [(signal.SIG_IGN, False), (handle_signals, False), (signal.default_int_handler, True), (print, True)],
    ids=["ignored", "of synthbench", "of python", "of a host program"],
)
def test_a_plain_interrupt_is_the_users_unless_ctrl_c_is_handled_here_or_ignored(
    handler: Any, monkeypatch: pytest.MonkeyPatch, *, is_users: bool
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _number: handler)
    with pytest.raises(KeyboardInterrupt) if is_users else nullcontext():
        plugins.raise_interrupt(KeyboardInterrupt())


class Fussy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError(f"not {x}")


def test_a_message_names_the_line_of_a_plugin_that_raised_or_its_class_and_no_line_of_synthbench() -> None:
    line = Fussy.forward.__code__.co_firstlineno
    with pytest.raises(ValueError, match="not this one") as problem:
        Fussy()("this one")
    from_a_helper = ValueError("from a helper")

    assert described(problem.value, Fussy) == f"ValueError: not this one (test_plugins.py:{line + 1})"
    assert described(from_a_helper, Fussy) == f"ValueError: from a helper (test_plugins.py:{line - 1})"
    assert described(problem.value, MECHANISMS["softmax"]) == "ValueError: not this one"
    assert place_of(type("Typed", (Fussy,), {})) == ""
