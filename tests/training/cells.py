"""Cells that train in a moment."""

from typing import Any

import torch

from synthbench.mechanisms import Mechanism
from synthbench.runner.plan import make_cells, shorten, with_block_and_positions
from synthbench.suites import load_suite
from synthbench.suites.config import ModelSettings
from synthbench.training.cell import Cell
from synthbench.training.ensemble import SequenceModel

CPU = torch.device("cpu")
STEPS = 6
"""Steps on a ladder, unless changed."""
LENGTH, VOCABULARY = 9, 11
FIELDS: dict[str, Any] = {"model_dim": 8, "num_heads": 2, "max_length": LENGTH, "bias": True}


def make_cell(
    task: str = "reverse",
    mechanism: str = "softmax",
    *,
    suite: str = "paper",
    steps: int = 4,
    limit: int = 32,
    device_type: str = "cpu",
    **changes: Any,
) -> Cell:
    """Make a cell of a suite, a few steps and sequences long; changes are of the suite's settings or task options."""
    short = shorten(load_suite(suite), steps=steps, limit=limit)
    parts = {"model": short.model, "training": short.training, "evaluation": short.evaluation, "ladder": short.ladder}
    for part, settings in parts.items():
        if settings is not None:
            update = {name: changes.pop(name) for name in type(settings).model_fields if name in changes}
            short = short.model_copy(update={part: settings.model_copy(update=update)})
    options = {name: str(value) for name, value in changes.items()}
    (cell,) = make_cells(short, {task: options}, {mechanism: {}}, device_type=device_type, is_full=False)
    return cell


def on_ladder(task: str = "parity_running", mechanism: str = "linear", **changes: Any) -> Cell:
    """Make a cell of suite ``core``."""
    return make_cell(task, mechanism, **{"suite": "core", "steps": STEPS, "limit": 8, **changes})


def model_of(
    unit: type[Mechanism], block: str = "attention_only", positions: str = "learned", *, layers: int = 2, seed: int = 0
) -> SequenceModel:
    """A model of few channels and tokens in float64."""
    size: dict[str, Any] = {"model_dim": 8, "num_heads": 2, "num_layers": layers, "bias": True}
    settings, generator = ModelSettings(block=block, positions=positions, **size), torch.Generator().manual_seed(seed)
    return SequenceModel(settings, VOCABULARY, LENGTH, unit.layers_of(FIELDS, layers), generator).double()


def cell_of(mechanism: str, block: str | None = None, positions: str | None = None, **options: str) -> Cell:
    """A mechanism on ``copy`` in suite ``smoke``, in a block and with positions of its own if they are named."""
    suite = with_block_and_positions(load_suite("smoke"), block=block, positions=positions)
    (cell,) = make_cells(suite, {"copy": {"length": "8"}}, {mechanism: options}, device_type="cpu", is_full=True)
    return cell
