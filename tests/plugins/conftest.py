from collections.abc import Callable

import pytest

from synthbench import plugins
from tests.cli.commands import Command

collect_ignore = ["faults.py"]
"""A plugin: looking for doctests in it would register its units for all other tests."""


@pytest.fixture
def synthbench(synthbench: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command line in an empty folder, with its plugins and without those of packages."""
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "on")
    monkeypatch.setattr(plugins, "_offers", lambda _group: {})
    return synthbench


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put packages into a folder on the path as if they were installed."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(str(site))

    def add(distribution: str, entry_points: str, **modules: str) -> None:
        information = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(entry_points)
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)

    return add
