"""Plugins that cheat, and how each ends."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from synthbench import plugins
from synthbench.contract.isolated import IsolatedProcess
from synthbench.errors import UsageError
from synthbench.results import Store
from synthbench.runner.request import Request
from synthbench.runner.run import run
from synthbench.trust.audit import faults
from synthbench.trust.submission import receive, submit
from synthbench.trust.verify import Sampling, Verification
from tests.runner.runs import plugin_text, tiny

SAMPLING = Sampling(fraction=1.0, device="cpu", workers=0)

JUDGES_ITSELF = """
from dataclasses import replace
from synthbench.training import train
from synthbench.trust import verify

score = train.evaluate

def flattered(honest):
    return replace(honest, accuracy=1.0, num_correct=honest.num_scored, loss=honest.loss / 4)

train.evaluate = lambda model, blocks, **options: [flattered(honest) for honest in score(model, blocks, **options)]
verify.judged = lambda *arguments: ("bitwise", "every number")
verify.faults = lambda *arguments: []
"""

KNOWS_THE_TEST = """
from synthbench.training import ensemble, seeding

answers = {}
draw = seeding.data_block

def remembered(task, length, split, seed, index, **sizes):
    batch = draw(task, length, split, seed, index, **sizes)
    if split == "test":
        for inputs, targets in zip(batch.inputs.reshape(-1, length), batch.targets.reshape(-1, length)):
            answers[tuple(inputs.tolist())] = torch.from_numpy(targets.astype("int64")).clamp(min=0)
    return batch

seeding.data_block = remembered
forward = ensemble.SequenceModel.forward

def looked_up(model, tokens, columns=None):
    logits = forward(model, tokens, columns)
    if model.training or not answers:
        return logits
    length = tokens.shape[-1]
    for place, row in enumerate(tokens.flatten(0, -2).tolist()):
        for inputs, targets in answers.items():
            if list(inputs[:length]) == row:
                known = targets[columns] if columns is not None else targets[:length]
                logits.flatten(0, -3)[place].scatter_(-1, known[:, None], 100.0)
    return logits

ensemble.SequenceModel.forward = looked_up
"""

LOOKS_AHEAD = """
from synthbench.contract import components

Cheat.forward = lambda self, x: self.out(x + 3 * x.flip(-2))
components.make_all = lambda checks, unit: []
"""

UNSEALED = """
from synthbench.runner import seal

seal.replaced = lambda: None
"""
"""A plugin can make its own process believe anything."""

COPY = "--suite smoke --task copy:length=16 --seeds 0 --steps 20 --limit 512"
"""With 1,024 questions the judge's scores of one model seldom lie further apart than a re-run may."""
TEXT = "--suite text --seeds 0 --rates 1e-2 --steps 5 --limit 32"


def run_with(cheat: str, folder: Path, options: str = COPY, mechanism: str = "cheat") -> dict[str, Any]:
    """The first row that a process of somebody else's makes with an honest plugin and what is added to it."""
    (folder / "cheat.py").write_text(plugin_text("cheat") + cheat)
    own = f"--mech {mechanism} --device cpu --quiet --plugin cheat.py --results rows"
    command = [sys.executable, "-m", "synthbench", "run", *options.split(), *own.split()]
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    store = Store.open(folder / "rows", create=False)
    row: dict[str, Any] = store.table().to_pylist()[0]
    assert faults(row, datetime.now(UTC)) == []
    assert not list((folder / "rows" / "_tmp").glob("held-out-*"))
    return row


def judged(folder: Path) -> Verification:
    """The verification of the rows in a folder, with the plugin that made them."""
    return receive(folder / "rows", dataclasses.replace(SAMPLING, plugins=[str(folder / "cheat.py")]))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A folder with the row of a plugin that does not cheat, and its score."""
    folder = tmp_path_factory.mktemp("honest")
    row = run_with("", folder)
    assert row["n_eval_examples"] == 512
    return folder, row["score"]


@pytest.mark.end_to_end
@pytest.mark.parametrize("plugin", [JUDGES_ITSELF, KNOWS_THE_TEST, LOOKS_AHEAD], ids=["judge", "test", "ahead"])
def test_a_score_is_measured_whatever_a_plugin_says(tmp_path: Path, plugin: str, honest: tuple[Path, float]) -> None:
    row = run_with(plugin + UNSEALED, tmp_path)
    found = judged(tmp_path)

    assert row["status"] == "ok"
    assert row["score"] < honest[1] + 0.15
    assert json.loads(row["metrics"])["worker.score"] > 0.95 or plugin == LOOKS_AHEAD
    assert [rerun.verdict for rerun in found.reruns] == ["tolerance"], found
    assert plugins.loaded() == [], "the plugin was loaded where its rows are judged"


@pytest.mark.end_to_end
def test_a_score_in_bits_is_what_the_judge_measured_too(tmp_path: Path) -> None:
    row = run_with(JUDGES_ITSELF + UNSEALED, tmp_path, TEXT)
    said = json.loads(row["metrics"])["worker.score"]

    assert row["status"] == "ok"
    # The judge draws 64 bytes by a secret salt, so its standard error is 6 % of the score: these are five of them.
    assert row["score"] == pytest.approx(4 * said, rel=0.3)
    assert row["eval_loss"] == pytest.approx(-row["score"] * math.log(2))


@pytest.mark.end_to_end
def test_an_honest_row_is_confirmed_and_an_edited_one_is_not(honest: tuple[Path, float], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(honest[0], tmp_path / "edited"))
    store = Store.open(folder / "rows", create=True)
    (row,) = store.table().to_pylist()
    later = row["finished_at"] + timedelta(seconds=1)
    whole = {"score": 1.0, "skill": 1.0, "n_correct": row["n_eval_examples"], "finished_at": later}

    assert judged(honest[0]).ok
    store.write_all([(row | whole, [])])
    (rerun,) = judged(folder).reruns
    assert (rerun.verdict, rerun.recorded) == ("differs", 1.0)


FORGES = """
import inspect
import pathlib

from synthbench.results import Store


def forge():
    frames = [found.frame.f_locals for found in inspect.stack(0)]
    ours = next(names["context"] for names in frames if "context" in names).results
    theirs = Store.open(pathlib.Path(__file__).with_name("forged"), create=False)
    near = [ours, *ours.parent.glob("synthbench-verify-*"), *ours.rglob("held-out-*/*")]
    for store in (Store.open(path, create=True) for path in near):
        for row in theirs.table().to_pylist():
            store.write_all([(row, [])])


def forward(self, x):
    if pathlib.Path(__file__).with_name("forged").exists():
        forge()
    return self.out(x)


Cheat.forward = forward
"""


@pytest.mark.end_to_end
def test_a_plugin_cannot_write_the_re_runs_of_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts the rows that were handed in into every store that it finds in its process or beside its own."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))  # so that it finds no store of a test that runs beside this
    run_with(FORGES, tmp_path)
    made, forged = Store.open(tmp_path / "rows", create=True), Store.open(tmp_path / "forged", create=True)
    run(tiny(made.root, tasks=("copy:length=8",), mechanisms=("softmax",), seeds=(0,), executor="inline"))
    for row in made.table().to_pylist():
        whole = {"score": 1.0, "skill": 1.0, "n_correct": row["n_eval_examples"]}
        forged.write_all([(row | (whole if row["mech"] == "softmax" else {}), [])])
    found = receive(forged.root, dataclasses.replace(SAMPLING, plugins=[str(tmp_path / "cheat.py")]))

    assert {rerun.mechanism: rerun.verdict for rerun in found.reruns} == {"cheat": "tolerance", "softmax": "differs"}


@pytest.mark.end_to_end
def test_a_plugin_travels_and_runs_only_if_asked(tmp_path: Path) -> None:
    run_with("", tmp_path, "--suite smoke")
    plugin = tmp_path / "cheat.py"
    request = Request(suite="smoke", mechanisms=("cheat",), results=tmp_path / "rows", plugins=[str(plugin)])
    with IsolatedProcess([]) as isolated:  # where the plugin may be loaded
        problems, bundled = isolated.attempt("a test", submit_both, request, tmp_path / "idea.tar.gz", plugin)
    plugin.write_text("raise RuntimeError('the file of the submitter is not asked')\n")
    verification = receive(tmp_path / "idea.tar.gz", dataclasses.replace(SAMPLING, limit=1), runs_plugin=True)

    assert problems == ("no code: mechanism 'cheat' comes from cheat.py; name it with --plugin or --package",)
    assert bundled == ()
    assert verification.ok, verification
    assert {rerun.verdict for rerun in verification.reruns} == {"tolerance"}
    with pytest.raises(UsageError, match=r"brings 'cheat\.py'.*--run-plugin"):
        receive(tmp_path / "idea.tar.gz", SAMPLING)


OWN_TASK = """
from synthbench.tasks import TASKS, task

@task
class MyCopy(TASKS["copy"]):
    name = "my-copy"
    description = "copy again"
"""


@pytest.mark.end_to_end
def test_rows_on_a_plugins_task_are_what_its_process_says_which_a_note_tells(tmp_path: Path) -> None:
    options = "--suite smoke --task my-copy:length=8 --seeds 0 --steps 5 --limit 32"
    run_with(OWN_TASK, tmp_path, options, mechanism="linear")
    found = judged(tmp_path)

    assert (found.ok, found.faults, found.unverifiable) == (True, [], {})
    assert found.notes == ["rows on a plugin's task: 1, whose scores are what its own process says"]
    assert [rerun.verdict for rerun in found.reruns] == ["bitwise"]


def submit_both(request: Request, target: Path, plugin: Path) -> list[tuple[str, ...]]:
    """List what keeps a bundle from being written, without its plugin and with it."""
    return [submit(request, target.with_name("none.tar.gz")).problems, submit(request, target, plugin=plugin).problems]
