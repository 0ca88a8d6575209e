"""Detects plugins that have replaced training code, for example to cheat or to patch PyTorch's attention globally.

The training code is recorded when this module is imported, before a worker loads a plugin. The record is compared with
the present code before and after each job that runs a plugin.
"""

import builtins
import importlib
import pkgutil
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.functional

from synthbench import layers, training
from synthbench.runner import held_out, rows

SET_BY_DTYPE = "torch.Storage"
"""Name of a class that is not compared, since PyTorch itself replaces it when the default dtype changes."""

INNER = ("__func__", "fget", "func", "__wrapped__")
"""Attributes that hold the inner function of a class method, property, cached property and decorated function."""


def replaced() -> str | None:
    """Return a message that names training code replaced since this module was imported; None if all is unchanged."""
    now = _codes()
    changed = [name for name, code in _SEALED.items() if not _is_same(code, now.get(name, []))]
    # A new name may hide a built-in of Python.
    changed += [name for name in now.keys() - _SEALED.keys() if hasattr(builtins, name.rpartition(".")[2])]
    if not changed:
        return None
    names = ", ".join(sorted(changed)[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return f"training code was replaced: {names}; a component may change nothing but itself"


def _codes() -> dict[str, list[object]]:
    """Collect the code of all functions and classes that plugins must not replace, with their full names as keys."""
    spaces = {module.__name__: vars(module) for module in _modules()} | {"torch.Tensor": vars(torch.Tensor)}
    for module in [space for space in spaces if space.startswith("synthbench.")]:
        own = [value for value in spaces[module].values() if isinstance(value, type) and value.__module__ == module]
        spaces |= {f"{module}.{unit.__qualname__}": vars(unit) for unit in own}
    spaces["torch.optim.AdamW"] = vars(torch.optim.AdamW)
    return {
        f"{space}.{name}": code
        for space, names in spaces.items()
        for name, value in list(names.items())
        if not isinstance(value, ModuleType) and f"{space}.{name}" != SET_BY_DTYPE and (code := _code(value))
    }


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(training.__path__, f"{training.__name__}."):
        yield importlib.import_module(found.name)
    yield from (layers, rows, held_out, torch, torch.nn.functional, importlib.import_module("torch.optim.adamw"))


def _code(value: Any) -> list[object]:
    """Collect the objects that determine what a function does, such as its code; the list is empty for other values.

    Comparing these objects by identity detects a function that was replaced or wrapped, or whose code or defaults were
    replaced.
    """
    parts: list[object] = []
    while value is not None:
        if isinstance(value, FunctionType):
            parts += [value.__code__, value.__defaults__, *(value.__kwdefaults__ or {}).values()]
        elif callable(value):
            parts.append(value)
        value = next((inner for key in INNER if (inner := getattr(value, key, None)) is not None), None)
    return parts


def _is_same(code: list[object], other: list[object]) -> bool:
    return len(code) == len(other) and all(one is another for one, another in zip(code, other, strict=True))


torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # the first instance wraps the step method of its class
_SEALED = _codes()
