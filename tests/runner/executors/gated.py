"""A mechanism that says when a worker has begun with it, and waits until it may go on."""

import os
import time
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthbench.mechanisms import Mechanism, mechanism

FOLDER = Path(__file__).parent


@mechanism
class Gated(Mechanism):
    """Sound. At the width of a suite it leaves a file called after its process, then waits for one called ``open``."""

    name: ClassVar = "gated"
    label: ClassVar = "gated"
    family: ClassVar = "control"
    source: ClassVar = "unpublished"

    def initialise(self, generator: torch.Generator | None) -> None:
        self.weight = nn.Parameter(torch.rand(self.model_dim, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        if self.model_dim == 64:
            FOLDER.joinpath("begun", str(os.getpid())).touch()
            while not FOLDER.joinpath("open").exists():
                time.sleep(0.02)
        return x.cumsum(-2) * self.weight

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - the same at any length
        return self.model_dim
