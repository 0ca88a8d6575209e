"""Mechanisms that misbehave, each in its own way, at the width of a suite but not at that of the contract's models."""

import os
import random
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from synthbench.mechanisms import Mechanism, mechanism


class Late(Mechanism):
    """Sound in small models, else whatever ``misbehave`` does."""

    label: ClassVar = "a fault"
    family: ClassVar = "fault"
    source: ClassVar = "unpublished"

    def initialise(self, generator: torch.Generator | None) -> None:
        self.weight = nn.Parameter(torch.rand(self.model_dim, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        if self.model_dim == 64:
            self.misbehave()
        return x.cumsum(-2) * self.weight

    def misbehave(self) -> None:
        """What is wrong with it."""

    def state_elements(self, length: int) -> int:
        return self.model_dim


@mechanism
class Sound(Late):
    name: ClassVar = "sound"


@mechanism
class Raises(Late):
    name: ClassVar = "raises"

    def misbehave(self) -> None:
        raise ArithmeticError("not at this width")


class Refusal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        raise LookupError("no way back")


@mechanism
class RaisesBackward(Late):
    name: ClassVar = "raises-backward"

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return Refusal.apply(out) if self.model_dim == 64 else out  # type: ignore[no-untyped-call]


@mechanism
class Sleeps(Late):
    name: ClassVar = "sleeps"

    def misbehave(self) -> None:
        time.sleep(10**6)


@mechanism
class Loops(Late):
    name: ClassVar = "loops"

    def misbehave(self) -> None:
        while True:
            pass


@mechanism
class Exits(Late):
    name: ClassVar = "exits"

    def misbehave(self) -> None:
        sys.exit(3)


@mechanism
class Dies(Late):
    name: ClassVar = "dies"

    def misbehave(self) -> None:
        os._exit(7)


@mechanism
class Meddles(Late):
    name: ClassVar = "meddles"

    def misbehave(self) -> None:
        print("printed by python")
        os.write(1, b"written by a library\n")
        torch.manual_seed(0)  # noqa: TID251 - that is what is wrong with it
        np.random.seed(0)  # noqa: NPY002, TID251 - the same
        random.seed(0)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        Path("written by a plugin").touch()


@mechanism
class Leaks(Late):
    name: ClassVar = "leaks"

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight - x.mean(-2, keepdim=True)


@mechanism
class HangsAlways(Late):
    name: ClassVar = "hangs-always"

    def forward(self, x: Tensor) -> Tensor:
        while True:
            pass


@mechanism
class DiesAlways(Late):
    name: ClassVar = "dies-always"

    def forward(self, x: Tensor) -> Tensor:
        os._exit(9)


@mechanism
class CannotBeBuilt(Late):
    name: ClassVar = "cannot-be-built"

    def initialise(self, generator: torch.Generator | None) -> None:
        raise OSError("no weights")


@mechanism
class DiesWhenBuilt(Late):
    name: ClassVar = "dies-when-built"

    def initialise(self, generator: torch.Generator | None) -> None:
        os._exit(5)
