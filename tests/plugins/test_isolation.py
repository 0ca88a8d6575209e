"""A plugin's changes to its process reach no row of another component."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench.results import Store
from synthbench.runner.run import run
from synthbench.trust.compare import RESULTS
from tests.runner.runs import plugin_text, tiny

pytestmark = pytest.mark.end_to_end

REPLACES = """
import torch

attention = torch.nn.functional.scaled_dot_product_attention

def faster(q, k, v, *arguments, **named):
    return 1.01 * attention(q, k, v, *arguments, **named)

torch.nn.functional.scaled_dot_product_attention = faster

step = torch.optim.AdamW.step
torch.optim.AdamW.step = lambda self, *arguments: (step(self, *arguments), step(self, *arguments))[0]
"""


def rows_of(folder: Path, mechanisms: tuple[str, ...], plugins: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    run(
        tiny(
            folder, tasks=("copy:length=8",), mechanisms=mechanisms, seeds=(0,), steps=3, limit=8, plugins=plugins,
            workers=2,
        )
    )  # fmt: skip
    return {row["mech"]: row for row in Store.open(folder, create=False).table().to_pylist()}


def test_rows_beside_a_plugin_that_replaces_attention_and_the_optimiser_are_those_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.optim.AdamW, "step", torch.optim.AdamW.step)  # put back what this process loads too
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", torch.nn.functional.scaled_dot_product_attention
    )
    plugins = []
    for name in ("first", "second"):
        plugins.append(tmp_path / f"{name}.py")
        plugins[-1].write_text(REPLACES + plugin_text(name))
    alone = rows_of(tmp_path / "alone", ("softmax",), ())
    beside = rows_of(tmp_path / "beside", ("softmax", "first", "second"), tuple(map(str, plugins)))

    assert {name: row["status"] for name, row in beside.items()} == {
        "softmax": "ok", "first": "contract", "second": "contract",
    }  # fmt: skip
    assert {name: beside["softmax"][name] for name in RESULTS} == {name: alone["softmax"][name] for name in RESULTS}
    assert beside["softmax"]["plugins_loaded"] is None
    for name in ("first", "second"):
        assert json.loads(beside[name]["plugins_loaded"]) == [f"{name}.py"]
