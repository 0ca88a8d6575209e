"""A plain module in a file is trained like any mechanism, and what is wrong with it is told with its place."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from synthbench.results import Store

pytestmark = pytest.mark.end_to_end

Command = Callable[..., subprocess.CompletedProcess[str]]

MODULE = """
import torch
from torch import nn
from synthbench.mechanisms import mechanism

@mechanism
class MyModule(nn.Module):
    def __init__(self, width, hidden: int = 8):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.out = nn.Linear(hidden, width)

    def forward(self, x):
        return self.out(self.lstm(x)[0])
"""
FAILING = "        if x.shape[-1] > 48:\n            raise ArithmeticError('too wide')\n        return"


def test_two_runs_of_a_plain_module_agree_bit_for_bit(synthbench: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    smoke = ("run", "--suite", "smoke", "--task", "copy:length=8", "--steps", "4", "--limit", "16", "--device", "cpu")
    rows = []
    for results in ("first", "second"):
        ran = synthbench(*smoke, "--mech", "my_module:hidden=6", "--plugin", "mine.py", "--results", results)
        assert ran.returncode == 0, ran.stderr
        rows.append(Store.open(tmp_path / results, create=False).runs().sort_values("run_id"))

    # Not the score: the driver draws the test of a plugin anew.
    decided = ["run_id", "status", "train_loss", "eval_loss", "metrics", "n_params_mixer", "state_size"]
    assert rows[0][decided].to_numpy().tolist() == rows[1][decided].to_numpy().tolist()
    assert set(rows[0].status) == {"ok"}
    assert rows[0].train_loss.nunique() == len(rows[0]) > 1  # each seed draws its own weights
    assert set(rows[0].state_size) == {64 * rows[0].seq_len.iloc[0]}


def test_a_row_names_the_line_that_raised(synthbench: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE.replace("        return", FAILING))
    smoke = ("run", "--suite", "smoke", "--task", "copy:length=8", "--steps", "4", "--limit", "16", "--device", "cpu")
    ran = synthbench(*smoke, "--mech", "my_module", "--plugin", "mine.py", "--results", "rows")
    rows = Store.open(tmp_path / "rows", create=False).runs()

    assert ran.returncode == 1
    (message,) = set(rows.error_message)
    assert message == "mine.py:15: too wide"


def test_the_check_names_the_line_that_raised_or_that_of_the_class(synthbench: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE.replace("(x)[0])", "(x)[0]) @ torch.zeros(2, 3)"))
    (tmp_path / "wide.py").write_text(MODULE.replace("(hidden, width)", "(hidden, width + 1)"))
    raising, wide = (synthbench("check", f"{name}.py") for name in ("mine", "wide"))

    assert "(mine.py:14)" in raising.stdout
    assert "maps [2, 1, 16] torch.float64 to [2, 1, 17] torch.float64" in wide.stdout
    assert "must be kept (wide.py:6)" in wide.stdout
    assert (raising.returncode, wide.returncode) == (4, 4)


def test_the_examples_of_the_documentation_keep_the_contract(synthbench: Command, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "plugins.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "examples.py").write_text("".join(examples))
    checked = synthbench("check", "examples.py", "--json")

    assert checked.returncode == 0, checked.stdout + checked.stderr
    reports = json.loads(checked.stdout)
    assert [report["name"] for report in reports] == ["gated_softmax", "my_module"]
    assert [report["facts"]["state"].startswith("at most ") for report in reports] == [False, True]
