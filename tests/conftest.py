"""Shared fixtures of the tests of several rooms."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: on small tensors more threads are slower
os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported: kernels run in Python, on a CPU
os.environ["SYNTHBENCH_PLUGINS"] = "off"  # what else is installed is no matter of ours; tests of plugins switch them on

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess

import hypothesis
import pytest
import torch

from synthbench import plugins
from synthbench.bench.instruments import keep_freed_memory
from synthbench.cli import main
from synthbench.plugins import is_built_in
from tests.suites.files import suite_file

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")
keep_freed_memory()  # as workers do: faulting it in again took half of the time where pairs of tokens are held

collect_ignore = ["golden/stores/write.py"]  # a script that runs with the code of old commits

MODULES = ("fla", "ray", "submitit", "triton")
"""Tools without which whole modules of tests are passed over, so that they are looked for at the start."""
TOOLS = (
    *(*MODULES, "cgroup", "chromium", "cuda", "every_eval_ever", "example", "glibc", "history", "make", "mlxtend"),
    *("mount", "pdflatex", "pinned-torch", "pinned-triton", "procfs", "root", "shapes", "studied-python"),
)


def required() -> set[str]:
    """The tools that ``SYNTHBENCH_REQUIRE``, a comma list, names."""
    return {name.strip() for name in os.environ.get("SYNTHBENCH_REQUIRE", "").split(",")} - {""}


def pytest_configure() -> None:
    """Refuse a required tool that no test knows, which would be required by none, and a module that is not there."""
    if unknown := required() - set(TOOLS):
        raise pytest.UsageError(f"SYNTHBENCH_REQUIRE names {sorted(unknown)}; allowed: {', '.join(sorted(TOOLS))}")
    if missing := [name for name in MODULES if name in required() and find_spec(name) is None]:
        raise pytest.UsageError(f"SYNTHBENCH_REQUIRE names {missing}, which cannot be imported")


@pytest.fixture(autouse=True, scope="session")
def _units_of_tests_are_no_plugins() -> Iterator[None]:
    """Test modules register units of their own in this process, which verification would hold against any row."""
    loaded = plugins.loaded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "loaded", lambda: [origin for origin in loaded() if not origin.startswith("test_")])
        yield


@pytest.fixture(autouse=True)
def _forget_units() -> Iterator[None]:
    """Remove what a test registers or loads before the next one; built-in components stay."""
    registries = [registry for registry in plugins.REGISTRIES if registry._room.startswith("synthbench.")]
    before = [set(registry.registered()) for registry in registries]
    yield
    plugins.REGISTRIES[:] = registries
    for registry, known in zip(registries, before, strict=True):
        kept = {name: unit for name, unit in registry._units.items() if unit in known or is_built_in(unit)}
        registry._units.clear()
        registry._units.update(kept)
    plugins._loaded.clear()


@pytest.fixture(scope="session")
def need() -> Callable[[str, bool, str], None]:
    """Skip a test whose tool is not here; fail it where the tool is required."""

    def check(tool: str, is_here: bool, how: str) -> None:  # noqa: FBT001 - it reads like a sentence
        if tool not in TOOLS:
            pytest.fail(f"{tool} is none of the tools that can be required: add it to TOOLS")
        if is_here:
            return
        if tool in required():
            pytest.fail(f"{tool} is required and not here: {how}")
        pytest.skip(f"{tool} is not here: {how}")

    return check


@pytest.fixture
def synthbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., CompletedProcess[str]]:
    """Run a command line in the test's folder as the installed program does; in this process, which has its imports."""

    def run(*arguments: str) -> CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["synthbench", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return CompletedProcess(arguments, int(end.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def tiny_suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with suite ``smoke`` as ``tiny``, of ten steps and a few sequences: full runs that take a blink."""
    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    return suite_file(path, "smoke", steps=10, test_sequences=32, curve_every=5, curve_sequences=8)


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh generator, the same for every test."""
    return torch.Generator().manual_seed(0)
