"""Where randomness comes from that no seed decides: generators of the whole process, and dropout."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def draws_noted() -> Iterator[set[str]]:
    """Collect the process-wide generators that are drawn from inside, by name, until the end of the block."""
    noted: set[str] = set()
    before = _states()
    try:
        yield noted
    finally:
        noted.update(name for name, state in _states().items() if state != before[name])


def cause_of(drawn: set[str], dropouts: list[str]) -> str | None:
    """What makes two calls differ, in words: layers that drop out, else generators; None if neither is known."""
    if dropouts:
        return f"{', '.join(dropouts)} drops values while it trains: set it to 0, a suite decides what is regularised"
    return f"it draws from {' and '.join(sorted(drawn))}" if drawn else None


def dropouts_of(module: nn.Module) -> list[str]:
    """The layers of a module that drop out, each with its probability: ``module.drop (Dropout, p=0.1)``."""
    found = []
    for path, layer in module.named_modules():
        own = getattr(layer, "p" if "Dropout" in type(layer).__name__ else "dropout", 0)
        if isinstance(own, float) and own > 0:
            found.append(f"{path or 'the module'} ({type(layer).__name__}, p={own:g})")
    return found


def _states() -> dict[str, object]:
    _, keys, position, *rest = np.random.get_state()  # noqa: NPY002 - what others draw from is looked at, not used
    return {
        "PyTorch's global generator": torch.get_rng_state().numpy().tobytes(),
        "numpy.random": (np.asarray(keys).tobytes(), position, rest),
        "Python's random": random.getstate(),
    }
