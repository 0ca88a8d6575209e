"""A plugin's fault costs its own row and nothing else, and what it changes reaches no row of another."""

import json
import random
import re
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from synthbench import plugins
from synthbench.blocks import block
from synthbench.blocks.attention_only import AttentionOnly
from synthbench.contract.components import Component, check_foreign, examine, record
from synthbench.contract.isolated import IsolatedProcess
from synthbench.errors import ContractError
from synthbench.process import settings_restored
from synthbench.results import Store
from synthbench.runner.request import Request
from synthbench.runner.run import prepare, run
from synthbench.trust.compare import RESULTS
from tests.cli.commands import python
from tests.runner.runs import FAULTS, plugin_text, tiny

pytestmark = pytest.mark.end_to_end


REPLACES = """
import torch

attention = torch.nn.functional.scaled_dot_product_attention
torch.nn.functional.scaled_dot_product_attention = lambda *given, **named: 1.01 * attention(*given, **named)

step = torch.optim.AdamW.step
torch.optim.AdamW.step = lambda self, *arguments: (step(self, *arguments), step(self, *arguments))[0]
"""


CHANGES = """
import os, random, signal, numpy, torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(torch.get_num_threads() + 1)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
torch.rand(1, device="cpu")
random.random()
numpy.random.rand()
os.chdir("/")
signal.signal(signal.SIGINT, lambda *_: None)
"""
"""Python that changes all of the settings below."""


def request(results: Path, *mechanisms: str, **changes: Any) -> Request:
    base = {"seeds": (0,), "steps": 3, "limit": 8, "plugins": (str(FAULTS),), "workers": 2}
    return tiny(results, tasks=("copy:length=8",), mechanisms=mechanisms, **base | changes)


def rows_of(results: Path) -> pd.DataFrame:
    return Store.open(results, create=False).runs().set_index("mech")


def test_every_fault_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    names = ("raises", "raises-backward", "exits", "interrupts", "says-nothing", "dies", "leaks", "sound", "softmax")
    report = run(request(tmp_path, *names))
    rows = rows_of(tmp_path)

    assert not report.ok
    assert rows[["status", "error_type"]].fillna("").T.to_dict("list") == {
        "raises": ["error", "ArithmeticError"],
        "raises-backward": ["error", "LookupError"],
        "exits": ["error", "SystemExit"],
        "interrupts": ["error", "KeyboardInterrupt"],
        "says-nothing": ["error", "Wordless"],
        "dies": ["error", "WorkerDied"],
        "leaks": ["contract", "ContractError"],
        "sound": ["ok", ""],
        "softmax": ["ok", ""],
    }
    assert "is not causal" in rows.error_message["leaks"]
    assert "exit code 7" in rows.error_message["dies"]
    assert re.fullmatch(r"faults\.py:\d+: not at this width", rows.error_message["raises"])
    assert re.fullmatch(r"faults\.py:\d+: SystemExit: 3", rows.error_message["exits"])
    assert re.fullmatch(r"faults\.py:\d+: KeyboardInterrupt", rows.error_message["interrupts"])
    assert rows.causal_checked[["sound", "softmax", "raises"]].all()
    assert not rows.causal_checked["leaks"]
    assert rows.mech_origin["sound"] == "faults.py"
    assert len(list((tmp_path / "contract").glob("*.json"))) == 8


def test_checks_are_made_once_for_a_hash_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.load([str(FAULTS)])
    component = Component("mechanism", "sound")
    tried: list[str] = []

    class Counting(IsolatedProcess):
        def attempt(self, what: str, function: Any, *arguments: Any) -> Any:  # noqa: ARG002 - it is that of the base
            tried.append(function.__name__)
            return function(*arguments)

    for _ in range(2):
        with Counting([str(FAULTS)]) as isolated:
            record(check_foreign([component], isolated, tmp_path), tmp_path)
    assert tried == ["built", "examine"]
    monkeypatch.setattr("synthbench.contract.components.code_hash", lambda _unit: "0" * 12)
    with Counting([str(FAULTS)]) as isolated:
        check_foreign([component], isolated, tmp_path)
    assert tried[2:] == ["built", "examine"]


def test_a_loaded_plugin_is_tried_again_only_if_its_file_changed(tmp_path: Path) -> None:
    imports, plugin = tmp_path / "imports.txt", tmp_path / "counted.py"
    note = f"with open({str(imports)!r}, 'a') as file:\n    file.write(f'{{os.getpid()}} ')\n"
    plugin.write_text(f"import os\n{note}{plugin_text('counted')}")
    asked = request(tmp_path / "results", "counted", plugins=(str(plugin),))
    num_processes = []
    for _ in range(2):
        prepare(asked)
        num_processes.append(len(set(imports.read_text().split())))
    plugin.write_text(plugin.read_text() + "# edited\n")
    prepare(asked)

    assert num_processes == [2, 2]  # a separate process, then this one
    assert len(set(imports.read_text().split())) == 3


def test_what_hangs_is_ended_and_costs_only_its_own_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)  # else the variable is not read again
    run(request(tmp_path / "results", "loops", "sound", timeout_s=25.0))

    assert dict(rows_of(tmp_path / "results").status) == {"loops": "timeout", "sound": "ok"}
    assert list(temporary.iterdir()) == []


def test_what_hangs_or_dies_while_it_is_examined_breaks_its_contract() -> None:
    plugins.load([str(FAULTS)])
    components = [Component("mechanism", "loops-always"), Component("mechanism", "dies-always")]
    for timeout_s in (8.0, 10.0):  # the second time is not told the result of the first
        with IsolatedProcess([str(FAULTS)], timeout_s=timeout_s) as isolated:
            checks = check_foreign(components, isolated)

    details = [results[0].detail for results in checks.values()]
    assert details[0] == "mechanism 'loops-always' hangs: its process was ended after 10 s"
    assert details[1] == "mechanism 'dies-always' ends the process that it runs in, with exit code 7"


def test_what_cannot_be_built_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"'cannot-be-built' cannot be built \(.*\): OSError: no weights"):
        run(request(tmp_path / "results", "cannot-be-built", "sound"))
    assert not (tmp_path / "results").exists()


def test_a_meddler_changes_nothing_for_the_jobs_after_it(tmp_path: Path) -> None:
    run(request(tmp_path / "after", "meddles", "softmax", workers=1))
    run(request(tmp_path / "alone", "softmax", workers=1))

    after, alone = rows_of(tmp_path / "after"), rows_of(tmp_path / "alone")
    decided = ["run_id", "status", "score", "train_loss", "num_threads"]
    assert list(after.loc["softmax", decided]) == list(alone.loc["softmax", decided])
    assert after.status["meddles"] == "ok"
    (log_file,) = (tmp_path / "after" / "logs").iterdir()
    log = log_file.read_text()
    assert "printed by python\n" in log
    assert "written by a library\n" in log
    assert log_file.name.startswith(f"{after.run_id['meddles']}.")
    assert not list(Path.cwd().glob("written by*"))
    assert not list(tmp_path.rglob("written by*"))


def settings_here() -> tuple[Any, ...]:
    numpys = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    states = torch.get_rng_state().tolist(), random.getstate(), numpys
    devices = torch.get_default_device(), torch.get_num_threads()
    return (
        Path.cwd(),
        signal.getsignal(signal.SIGINT),
        *devices,
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        *states,
    )


def test_settings_are_put_back() -> None:
    before = settings_here()

    with suppress(KeyError), settings_restored():
        exec(CHANGES, {})  # noqa: S102 - it is that above
        assert not any(now == then for now, then in zip(settings_here(), before, strict=True))
        raise KeyError
    assert settings_here() == before


def test_settings_that_a_plugin_changes_when_it_is_imported_are_put_back(tmp_path: Path) -> None:
    plugin = tmp_path / "changes.py"
    plugin.write_text(CHANGES + plugin_text("changes"))
    before = settings_here()

    with settings_restored():
        plugins.load([str(plugin)])
        assert settings_here() == before


def test_a_block_that_passes_its_convolution_over_or_drops_out_is_named() -> None:
    @block
    class Bare(AttentionOnly):
        name: ClassVar = "bare"

        def initialise(self, generator: torch.Generator | None) -> None:
            super().initialise(generator)
            self.drop = torch.nn.Dropout(0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = x + self.drop(self.mixer(x))
            return out

    with pytest.raises(ContractError, match=r"does not use its convolution; let its `around` call `mix`"):
        examine(Component("block", "bare", {"conv": 4}))
    (failed,) = [result for result in examine(Component("block", "bare")) if result.state == "FAILED"]
    assert failed.check == "determinism"
    assert "drop (Dropout, p=0.1) drop values in training: set them to 0" in failed.detail


def test_rows_beside_a_plugin_that_replaces_attention_and_the_optimiser_are_those_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((torch.optim.AdamW, "step"), (torch.nn.functional, "scaled_dot_product_attention")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back what this process loads too
    files = [tmp_path / "first.py", tmp_path / "second.py"]
    for plugin in files:
        plugin.write_text(REPLACES + plugin_text(plugin.stem))
    run(request(tmp_path / "alone", "softmax", plugins=()))
    run(request(tmp_path / "beside", "softmax", "first", "second", plugins=tuple(map(str, files))))
    alone, beside = (Store.open(tmp_path / name, create=False).table().to_pylist() for name in ("alone", "beside"))
    by_name = {row["mech"]: row for row in beside}

    assert {name: row["status"] for name, row in by_name.items()} == {
        "softmax": "ok", "first": "contract", "second": "contract",
    }  # fmt: skip
    assert {name: by_name["softmax"][name] for name in RESULTS} == {name: alone[0][name] for name in RESULTS}
    assert by_name["softmax"]["plugins_loaded"] is None
    for name in ("first", "second"):
        assert json.loads(by_name[name]["plugins_loaded"]) == [f"{name}.py"]


def test_a_command_does_not_wait_for_a_thread_of_a_plugin(tmp_path: Path) -> None:
    endless = "import threading\nthreading.Thread(target=threading.Event().wait, name='endless').start()\n"
    (tmp_path / "mine.py").write_text(endless + plugin_text("mine"))
    done = python("-m", "synthbench", "show", "mine", "--plugin", "mine.py", cwd=tmp_path)

    assert done.returncode == 0
    assert "thread 'endless'" in done.stderr
    assert done.stdout.startswith("mechanism mine\n")
