"""Whole models with a block around a mechanism."""

from collections.abc import Callable

import pytest
import torch

from synthbench.mechanisms import MECHANISMS
from synthbench.suites.config import ModelSettings
from synthbench.training.ensemble import SequenceModel

VOCAB_SIZE = 11
LENGTH = 9


@pytest.fixture
def make_model() -> Callable[..., SequenceModel]:
    """A model of two layers and width 8 in float64, drawn from a seed."""

    def make(block: str, mechanism: str, seed: int = 0) -> SequenceModel:
        settings = ModelSettings(block=block, positions="learned", model_dim=8, num_heads=2, num_layers=2, bias=True)
        fields = {"model_dim": 8, "num_heads": 2, "max_length": LENGTH, "bias": True}
        generator = torch.Generator().manual_seed(seed)
        return SequenceModel(
            settings,
            VOCAB_SIZE,
            LENGTH,
            MECHANISMS[mechanism].layers_of(fields, settings.num_layers),
            generator,
        ).double()

    return make
