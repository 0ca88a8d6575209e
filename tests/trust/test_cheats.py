"""Twelve ways to cheat, and how each ends; docs/leaderboard.md has the table. The rest of them is in other modules."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from synthbench import plugins
from synthbench.results import Store
from synthbench.trust import compare
from synthbench.trust.submission import receive
from synthbench.trust.verify import Sampling

ROOT = Path(__file__).parents[2]

HONEST = """
import torch
from synthbench.layers import Linear
from synthbench.mechanisms import Mechanism, mechanism

@mechanism
class Cheat(Mechanism):
    name = "cheat"
    label = "Cheat"
    family = "control"
    source = "unpublished"

    def initialise(self, generator):
        self.out = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)

    def forward(self, x):
        return self.out(x)

    def state_elements(self, length):
        return 0
"""

JUDGES_ITSELF = (
    HONEST
    + """
from dataclasses import replace
from synthbench.training import train
from synthbench.trust import verify

score = train.evaluate

def flattering(model, blocks, **options):
    return [
        replace(honest, accuracy=1.0, num_correct=honest.num_scored) for honest in score(model, blocks, **options)
    ]

train.evaluate = flattering
verify.judged = lambda *arguments: ("bitwise", "every number")
verify.faults = lambda *arguments: []
"""
)

KNOWS_THE_TEST = (
    HONEST
    + """
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
)

LOOKS_AHEAD = (
    HONEST.replace("return self.out(x)", "return self.out(x + 3 * x.flip(-2))")
    + """
from synthbench.contract import trial
from synthbench.runner import worker
from synthbench.training import train

trial.judge = lambda promises: []
worker.check_causality = train.check_as_trained = lambda *arguments: None
"""
)


UNEXAMINED = """
from synthbench.runner import run

run._examined = lambda event, exam, context: event.outcomes
"""
"""A submitter's own process can be made to believe anything."""

CAUGHT = {
    JUDGES_ITSELF: r"right in 1\.0000 of its test; on new sequences 0\.[0-8]",
    KNOWS_THE_TEST: r"right in (1\.0|0\.9)\d+ of its test; on new sequences 0\.[0-8]",
    LOOKS_AHEAD: r"other tokens behind them change \d+% of its predictions",
}
NAMES = ["judges itself", "knows the test", "looks ahead"]


def run_with(path: Path) -> Store:
    """Rows that a process of somebody else's makes with a plugin."""
    options = "--suite smoke --task copy:length=16 --mech cheat --seeds 0 --steps 20 --limit 128 --device cpu --quiet"
    command = [sys.executable, "-m", "synthbench", "run", *options.split(), "--plugin", path.name, "--results", "rows"]
    subprocess.run(command, cwd=path.parent, capture_output=True, check=False)
    return Store.open(path.parent / "rows", create=False)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("plugin", "reason"), CAUGHT.items(), ids=NAMES)
def test_a_run_does_not_believe_a_plugin_either(tmp_path: Path, plugin: str, reason: str) -> None:
    path = tmp_path / "cheat.py"
    path.write_text(plugin)
    (row,) = run_with(path).table().to_pylist()

    assert (row["status"], row["score"]) == ("contract", None)
    assert re.search(reason, row["error_message"]), row["error_message"]
    assert not list((tmp_path / "rows" / "_tmp").glob("exam-*"))


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("plugin", "reason"), [(HONEST, "every number"), *CAUGHT.items()], ids=["does not cheat", *NAMES]
)
def test_a_verifier_does_not_believe_what_a_plugin_says(tmp_path: Path, plugin: str, reason: str) -> None:
    path = tmp_path / "cheat.py"
    path.write_text(plugin + UNEXAMINED)
    made = run_with(path)
    judged = compare.judged
    verification = receive(made.root, Sampling(fraction=1.0, device="cpu", workers=1, plugins=[str(path)]))
    (rerun,) = verification.reruns
    is_honest = plugin == HONEST

    assert (compare.judged, plugins.loaded()) == (judged, []), "the plugin was loaded where its rows are judged"
    assert (verification.faults, verification.unverifiable) == ([], {})
    assert (rerun.verdict, verification.ok) == ("bitwise" if is_honest else "differs", is_honest)
    assert re.search(reason, rerun.detail), rerun


def test_the_table_of_cheats_names_tests_that_there_are() -> None:
    text = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    table = text.partition("## Twelve ways to cheat")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line) for line in table.splitlines() if line[:2] == "| "][
        1:
    ]

    assert len(rows) == 12
    assert all(rows)
    missing = [name for tests in rows for path, name in tests if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []
