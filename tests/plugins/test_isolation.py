"""A plugin's changes to its process reach no row of another component."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench.results import Store
from synthbench.runner.request import Request
from synthbench.runner.run import run
from synthbench.trust.compare import RESULTS

pytestmark = pytest.mark.end_to_end

REPLACES = """
import torch
from synthbench.mechanisms import Mechanism, mechanism

attention = torch.nn.functional.scaled_dot_product_attention

def faster(q, k, v, *arguments, **named):
    return 1.01 * attention(q, k, v, *arguments, **named)

torch.nn.functional.scaled_dot_product_attention = faster

step = torch.optim.AdamW.step
torch.optim.AdamW.step = lambda self, *arguments: (step(self, *arguments), step(self, *arguments))[0]


@mechanism
class {name}(Mechanism):
    name = "{lower}"
    label = "{name}"
    family = "fault"
    source = "unpublished"

    def initialise(self, generator):
        self.weight = torch.nn.Parameter(torch.rand(self.model_dim, generator=generator))

    def forward(self, x):
        return x.cumsum(-2) * self.weight

    def state_elements(self, length):
        return self.model_dim
"""


def rows_of(folder: Path, mechanisms: tuple[str, ...], plugins: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    request = Request(
        suite="smoke", tasks=("copy:length=8",), mechanisms=mechanisms, seeds=(0,), steps=3, limit=8, device="cpu",
        results=folder, plugins=plugins, workers=2,
    )  # fmt: skip
    run(request)
    return {row["mech"]: row for row in Store.open(folder, create=False).table().to_pylist()}


def test_rows_beside_a_plugin_that_replaces_attention_and_the_optimiser_are_those_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.optim.AdamW, "step", torch.optim.AdamW.step)  # put back what this process loads too
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", torch.nn.functional.scaled_dot_product_attention
    )
    plugins = []
    for name in ("First", "Second"):
        plugins.append(tmp_path / f"{name.lower()}.py")
        plugins[-1].write_text(REPLACES.format(name=name, lower=name.lower()))
    alone = rows_of(tmp_path / "alone", ("softmax",), ())
    beside = rows_of(tmp_path / "beside", ("softmax", "first", "second"), tuple(map(str, plugins)))

    assert {name: row["status"] for name, row in beside.items()} == {
        "softmax": "ok", "first": "contract", "second": "contract",
    }  # fmt: skip
    assert {name: beside["softmax"][name] for name in RESULTS} == {name: alone["softmax"][name] for name in RESULTS}
    assert beside["softmax"]["plugins_loaded"] is None
    for name in ("first", "second"):
        assert json.loads(beside[name]["plugins_loaded"]) == [f"{name}.py"]
