"""Shared fixtures of the tests of several rooms."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: on small tensors more threads are slower
os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported: kernels run in Python, on a CPU
os.environ["SYNTHBENCH_PLUGINS"] = "off"  # what else is installed is no matter of ours; tests of plugins switch them on

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
import torch

from synthbench import plugins
from synthbench.bench.instruments import keep_freed_memory
from synthbench.canonical import canonical_json
from synthbench.cli import main
from synthbench.registry import is_built_in
from synthbench.results.schema import (
    RUN_COLUMNS,
    SCHEMA_VERSION,
    row_sha256,
    run_id,
    skill,
    table_of,
)
from synthbench.runner.plan import make_cells, shortened
from synthbench.suites import load_suite
from synthbench.training.cell import Cell
from tests.suites.files import suite_file

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")
keep_freed_memory()  # as workers do: faulting it in again took half of the time where pairs of tokens are held

collect_ignore = ["golden/stores/write.py"]  # a script that runs with the code of old commits

DEFAULTS: dict[str, Any] = {
    "suite": "paper",
    "suite_version": "2026.1",
    "is_full": True,
    "status": "ok",
    "task": "copy",
    "task_category": "basic",
    "task_version": "1",
    "task_source": "graves2014ntm",
    "task_args": canonical_json({"length": 64}),
    "seq_len": 64,
    "vocab_size": 16,
    "n_train": 6400,
    "n_eval": 1000,
    "mech": "softmax",
    "mech_family": "softmax",
    "mech_source": "vaswani2017attention",
    "mech_version": "1",
    "mech_origin": "builtin",
    "mech_args": "{}",
    "mech_code_hash": "ba9876543210",
    "causal_checked": True,
    "block": "transformer",
    "positions": "learned",
    "d_model": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_params": 100_000,
    "n_params_mixer": 33_000,
    "state_size": 8192,
    "seed": 42,
    "data_seed": 1,
    "init_seed": 2,
    "ensemble_size": 1,
    "ensemble_index": 0,
    "member_strategy": "fold",
    "metric_name": "accuracy",
    "score": 0.75,
    "floor": 0.25,
    "floor_kind": "exact",
    "ceiling": 1.0,
    "ceiling_kind": "exact",
    "metrics": "{}",
    "n_eval_examples": 32_000,
    "n_correct": 24_000,
    "train_loss": 0.5,
    "eval_loss": 0.625,
    "best_eval_loss": 0.5,
    "steps": 100,
    "steps_planned": 100,
    "batch_size": 64,
    "optimizer": "adamw",
    "lr": 0.001,
    "weight_decay": 0.0,
    "tuning_trials": 1,
    "tuning_rule": "fixed",
    "config_json": "{}",
    "config_hash": "0123456789ab",
    "device_type": "cpu",
    "device_name": "a processor",
    "dtype": "float32",
    "amp": False,
    "compiled": False,
    "deterministic": True,
    "tf32": False,
    "num_threads": 1,
    "n_visible_devices": 0,
    "wall_s": 2.5,
    "queue_s": 0.0,
    "train_s": 2.0,
    "eval_s": 0.25,
    "data_s": 0.125,
    "step_ms_median": 20.0,
    "tokens_per_s": 200_000.0,
    "started_at": datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC),
    "finished_at": datetime(2026, 1, 1, 12, 0, 2, 500_000, tzinfo=UTC),
    "host_hash": "0123456789ab",
    "executor": "inline",
    "attempt": 1,
    "synthbench_version": "0.1.0",
    "python": "3.11",
    "torch": "2.10",
    "numpy": "2.0",
    "os": "Linux",
    "packages": "{}",
}

IDENTITY = ("suite", "suite_version", "task", "task_args", "mech", "mech_args", "seed", "lr", "steps_planned")


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


@pytest.fixture(scope="session")
def make_row() -> Callable[..., dict[str, Any]]:
    """Make a complete row: task copy, mechanism softmax, seed 42, status ok, with any column changed.

    ``run_id``, ``skill``, ``mech_label`` and the checksum follow from the others unless given.
    """

    def make(**changes: Any) -> dict[str, Any]:
        row: dict[str, Any] = {column.name: None for column in RUN_COLUMNS} | DEFAULTS | changes
        derived = {
            "run_id": run_id({name: row[name] for name in IDENTITY}),
            "schema_version": SCHEMA_VERSION,
            "mech_label": row["mech"].title(),
            "skill": skill(row["score"], row["floor"], row["ceiling"]),
            "row_sha256": "",
        }
        row |= {name: value for name, value in derived.items() if name not in changes}
        normal: dict[str, Any] = table_of(RUN_COLUMNS, [row]).to_pylist()[0]
        return normal | {"row_sha256": changes.get("row_sha256", row_sha256(normal))}

    return make


class Done(NamedTuple):
    """Remains of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def synthbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run a command line in the test's folder as the installed program does; in this process, which has its imports."""

    def run(*arguments: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["synthbench", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

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


@pytest.fixture(scope="session")
def make_cell() -> Callable[..., Cell]:
    """A cell of the paper's suite, a few steps and sequences long; changes are of the suite or task options."""

    def make(
        task: str = "reverse", mechanism: str = "softmax", *, steps: int = 4, limit: int = 32, **changes: Any
    ) -> Cell:
        suite = shortened(load_suite("paper"), steps=steps, limit=limit)
        for part, settings in (("training", suite.training), ("evaluation", suite.evaluation)):
            update = {name: changes.pop(name) for name in type(settings).model_fields if name in changes}
            suite = suite.model_copy(update={part: settings.model_copy(update=update)})
        task_arguments = {key: str(value) for key, value in changes.items()}
        (cell,) = make_cells(suite, {task: task_arguments}, {mechanism: {}}, device_type="cpu", is_full=False)
        return cell

    return make
