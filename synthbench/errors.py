"""Every exception that synthbench raises on purpose, and the exit code of each.

::

    SynthbenchError
    ├── UsageError         2  a name, argument, key, value or device that is not allowed; a plugin or suite file that
    │   │                     is missing or cannot be read
    │   └── UnknownName    2  a name under which nothing is registered
    ├── StoreError         3  results that cannot be read, or a file or folder that cannot be written
    ├── ClusterLost        3  a cluster with no machine left
    └── ContractError      4  a component that fails a check, or a plugin whose import raises an error

A message names the value received, what is allowed and the nearest match. The command line prints it as one line.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import ClassVar

MEANT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "--lr": ("--rates",),
        "--learning-rate": ("--rates",),
        "--beside": ("--against", "--results"),
        "--baseline": ("--against",),
        "--model": ("--mech",),
        "--output": ("--out",),
        "--store": ("--results",),
        "--gpu": ("--device",),
        "--jobs": ("--workers",),
        "--batch-size": ("--batched",),
        "--published": ("--packaged",),
        "acc": ("score",),
        "accuracy": ("score",),
        "loss": ("eval_loss",),
        "lr": ("learning_rate",),
        "params": ("n_params",),
        "seconds": ("wall_s",),
    }
)
"""Correct names of options and columns, with wrong names as keys; messages suggest the first name that is allowed."""


class SynthbenchError(Exception):
    """An error caused by the user or the environment; its message suffices without a traceback."""

    exit_code: ClassVar[int] = 1


class UsageError(SynthbenchError):
    """A name, argument, key, value or device that is not allowed."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that is not registered; the message suggests the nearest names."""

    def __init__(self, kind: str, name: str, allowed: Iterable[str]) -> None:
        """Compose the message, such as ``no task called 'coppy'; did you mean 'copy'?``."""
        self.kind, self.name, self.allowed = kind, name, sorted(allowed)
        choices = self.allowed
        # For a name with options, such as mqar:level=3, where a name alone is allowed, the name alone is meant.
        nearest = [meant for meant in (name.partition(":")[0], *MEANT.get(name.lower(), ())) if meant in choices][:1]
        nearest = nearest or get_close_matches(name, choices, n=3) or get_close_matches(name.lower(), choices, n=3)
        if nearest:
            hint = "did you mean " + " or ".join(repr(choice) for choice in nearest) + "?"
        elif name.endswith(".py") and kind in ("mechanism", "task"):
            hint = f"a file is loaded with --plugin {name}, and what it registers is given by name"
        elif choices:
            hint = "allowed: " + ", ".join(choices)
        else:
            hint = "there is none"
        super().__init__(f"no {kind} called {name!r}; {hint}")

    def __reduce__(self) -> tuple[type["UnknownName"], tuple[str, str, list[str]]]:
        """Pickle by the constructor's arguments, so that a worker process can send the error back."""
        return UnknownName, (self.kind, self.name, self.allowed)


class StoreError(SynthbenchError):
    """Results that cannot be read, or a file or folder that cannot be written."""

    exit_code = 3


class ClusterLost(SynthbenchError):
    """A cluster with no machine left; repeating the command continues with the unfinished runs."""

    exit_code = 3


class ContractError(SynthbenchError):
    """A component that fails a check, or a plugin whose import raises an error."""

    exit_code = 4
