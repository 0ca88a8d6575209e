"""Mechanisms that misbehave, each in its own way, at the width of a suite but not at that of the contract's models."""

import ctypes
import os
import random
import re
import signal
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from synthbench.mechanisms import Mechanism, mechanism


class Late(Mechanism):
    """Sound in small models, else whatever ``misbehave`` does; named after its class, as in ``says-nothing``."""

    is_always: ClassVar = False
    """True if it does so in small models too, and so when it is checked."""
    label: ClassVar = "a fault"
    family: ClassVar = "fault"
    source: ClassVar = "unpublished"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = re.sub("(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def initialise(self, generator: torch.Generator | None) -> None:
        self.weight = nn.Parameter(torch.rand(self.model_dim, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        if self.model_dim == 64 or self.is_always:
            self.misbehave()
        return x.cumsum(-2) * self.weight

    def misbehave(self) -> None:
        """Fault of the plugin."""

    def state_elements(self, length: int) -> int:
        return self.model_dim


class Sound(Late):
    """As a mechanism should be."""


class Raises(Late):
    def misbehave(self) -> None:
        raise ArithmeticError("not at this width")


def refuse(_gradient: Tensor) -> None:
    raise LookupError("no way back")


class RaisesBackward(Late):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if self.model_dim == 64 and out.requires_grad:
            out.register_hook(refuse)
        return out


class Loops(Late):
    def misbehave(self) -> None:
        while True:
            pass


class Exits(Late):
    def misbehave(self) -> None:
        sys.exit(3)


class Interrupts(Late):
    """As if the user had typed Ctrl-C, which this process ignores."""

    def misbehave(self) -> None:
        raise KeyboardInterrupt


class Wordless(BaseException):
    def __str__(self) -> str:
        raise LookupError


class SaysNothing(Late):
    def misbehave(self) -> None:
        raise Wordless


class Dies(Late):
    def misbehave(self) -> None:
        os._exit(7)


class Meddles(Late):
    def misbehave(self) -> None:
        print("printed by python")
        os.write(1, b"written by a library\n")
        torch.manual_seed(0)  # noqa: TID251 - that is what is wrong with it
        np.random.seed(0)  # noqa: NPY002, TID251 - the same
        random.seed(0)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        Path("written by a plugin").touch()


class HoldsTheLock(Late):
    """Hangs in C with the interpreter's lock, and ignores a polite request to end; leaves its process id."""

    def misbehave(self) -> None:
        written = Path(__file__).with_suffix(".tmp")
        written.write_text(str(os.getpid()))
        written.replace(written.with_name("holding"))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ctypes.PyDLL(None).sleep(10**6)


class HoldsTheLockAlways(HoldsTheLock):
    is_always: ClassVar = True


class TurnsToNothing(Late):
    """Its output is no number after some steps: a step calls each of two layers, and so does an evaluation."""

    calls: ClassVar = 0

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if self.model_dim == 64 and x.shape[-2] == 8:
            TurnsToNothing.calls += 1
            if TurnsToNothing.calls >= 60:
                return out * torch.nan
        return out


class AsksForTooMuch(Late):
    """Asks for more than there is, even for one run; notes the process that it runs in."""

    most_runs: ClassVar = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.model_dim == 64 and x.shape[-2] == 8:
            with Path(__file__).with_name(self.name).open("a") as notes:
                print(os.getpid(), len(x), file=notes)
            if len(x) > self.most_runs:
                torch.empty(2**50)
        return super().forward(x)


class FitsAlone(AsksForTooMuch):
    """Asks for too much as soon as more than one run is trained."""

    most_runs: ClassVar = 1


class FitsAlways(AsksForTooMuch):
    most_runs: ClassVar = 8


class FillsMemory(Late):
    """Notes when it began, then takes memory until the system ends it."""

    def misbehave(self) -> None:
        with Path(__file__).with_name("tries").open("a") as notes:
            print(time.time(), file=notes)
        group = Path(__file__).with_name("group")  # in which the kernel would end it
        if group.exists():
            Path(group.read_text()).write_text(str(os.getpid()))
            hoard = [bytearray(b"x" * 2**24) for _ in range(2**6)]
            raise LookupError(f"{len(hoard)} pieces of memory were to be had")
        os.kill(os.getpid(), signal.SIGKILL)


class Rummages(Late):
    """Overwrites every whole number tensor that the frames around it hold: inputs, targets and all."""

    def misbehave(self) -> None:
        frame, found = sys._getframe(), 0
        while frame.f_back is not None:
            frame = frame.f_back
            for value in list(frame.f_locals.values()):
                if isinstance(value, Tensor) and value.dtype == torch.int64 and value.ndim > 1:
                    value.zero_()
                    found += 1
        print(f"overwrote {found} tensors")


class WritesIntoItsInput(Late):
    def forward(self, x: Tensor) -> Tensor:
        if self.model_dim == 64:
            x.detach().fill_(1.0)
        return super().forward(x)


class Leaks(Late):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight - x.mean(-2, keepdim=True)


class LoopsAlways(Loops):
    is_always: ClassVar = True


class DiesAlways(Dies):
    is_always: ClassVar = True


class CannotBeBuilt(Late):
    def initialise(self, generator: torch.Generator | None) -> None:
        raise OSError("no weights")


class Gated(Late):
    """Leaves a file called after its process, then waits for one called ``open``."""

    def misbehave(self) -> None:
        Path(__file__).with_name("begun").joinpath(str(os.getpid())).touch()
        while not Path(__file__).with_name("open").exists():
            time.sleep(0.02)


class HasNoDeterministicForm(Late):
    def misbehave(self) -> None:
        torch.zeros(2).put_(torch.tensor([0]), torch.ones(1))


for fault in list(globals().values()):
    if isinstance(fault, type) and issubclass(fault, Late) and fault is not Late:
        mechanism(fault)
