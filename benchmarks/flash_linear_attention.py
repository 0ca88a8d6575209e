"""Linear attention by the kernels of ``flash-linear-attention`` (``fla``) beside our forms, in turns.

python -m benchmarks.flash_linear_attention --help

It is one more form in the rows of ``synthbench bench scaling``, on features that are written out in memory.

``fla.ops.linear_attn.chunk_linear_attn`` is causal. It takes queries and keys [batch, length, heads, features] and
values [batch, length, heads, value_dim], and returns the outputs, laid out like the values, and a state. Scores are
multiplied by ``scale``, 1/√features unless given; with ``normalize`` they are divided by their sum + 1e-10, for which
all keys are summed once more. Here it is asked for neither: a column of ones beside the values gives the denominators,
guarded as in the other forms. So all compute one function.

Its kernels choose the size of their tiles at the first call in a process and keep it, whatever length and features
come then. So the first call is made at a size that is worth measuring.

Nothing here has run on a GPU yet. Source: signature, docstrings and tuning of the package at
https://github.com/fla-org/flash-linear-attention, as of 2025 and 2026; before 2025 heads came before the length.
"""

from functools import lru_cache, partial, reduce
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from jaxtyping import Float
from torch import Tensor

from benchmarks.script import make_app, run
from synthbench.bench import forms, scaling
from synthbench.bench.rows import Table
from synthbench.cli.options import AsJson, Device, MechanismTerms, parse_sizes
from synthbench.cli.output import print_facts
from synthbench.forms import linear
from synthbench.forms.kernels import DTYPES
from synthbench.forms.linear import Side, normalise, outer, with_ones
from synthbench.mechanisms.base import FeatureAttention, Mechanism
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import select_mechanisms
from synthbench.suites import load_suite

app = make_app()

OPERATIONS = "fla.ops.linear_attn"

FIRST_CALL = (1, 16_384, 8, 384)
"""Batch, length, heads and features of the call that tiles are chosen at: ``slay`` with its defaults."""
LIMITS = scaling.Limits(seconds=4.0, gigabytes=1e6)
"""No call may take longer; of memory there is what the GPU has."""


@lru_cache
def missing(device: torch.device) -> str | None:
    """Explain why it is not measured on this device; None if it is."""
    if device.type != "cuda":
        return f"{device} does not run its kernels"
    if find_spec("fla") is None:
        return "it is not installed: pip install flash-linear-attention"
    try:
        operation = import_module(OPERATIONS).chunk_linear_attn
    except Exception as problem:  # noqa: BLE001 - it may not fit the versions of torch and Triton that are there
        return f"it cannot be imported: {problem!r}"
    head_first = signature(operation).parameters.get("head_first")
    if head_first is not None and head_first.default:
        return "it is older than 2025: heads come before the length"
    return None


def serves(setting: forms.Setting) -> bool:
    """Return whether it runs in a setting: it takes fewer tokens than heads for a mistake, and no float64."""
    return missing(setting.device) is None and setting.length >= forms.NUM_HEADS and setting.dtype in DTYPES


def offered(unit: Mechanism, setting: forms.Setting) -> list[forms.Form]:
    """Return the forms of a mechanism, with this one if it has features."""
    found = forms.forms_of(unit, setting)
    if isinstance(unit, FeatureAttention) and serves(setting):
        found.append(forms.Form("fla", "heads", partial(attend, unit), counted=partial(counted, unit)))
    return found


def attend(
    unit: FeatureAttention,
    q: Float[Tensor, "batch heads length key_dim"],
    k: Float[Tensor, "batch heads length key_dim"],
    v: Float[Tensor, "batch heads length value_dim"],
) -> Float[Tensor, "batch heads length value_dim"]:
    """Attend as the mechanism does, by its features."""
    _choose_tiles(q.device, q.dtype)
    query, key = _by_token(unit, q, "query"), _by_token(unit, k, "key")
    sums = _weighted_sums(query, key, with_ones(v.transpose(1, 2)))
    return normalise(sums, unit.guard, unit.delta).transpose(1, 2)


def counted(unit: FeatureAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Form with the same arithmetic in PyTorch's operations."""
    query, key = reduce(outer, unit.factors(q, "query")), reduce(outer, unit.factors(k, "key"))
    return linear.chunked((query,), (key,), v, guard=unit.guard, delta=unit.delta)


def _by_token(unit: FeatureAttention, x: Tensor, side: Side) -> Tensor:
    """Features [batch, length, heads, m]; it is the narrow factors that are laid out anew, not their product."""
    factors = (factor.expand(*x.shape[:-1], -1) for factor in unit.factors(x, side))
    return reduce(outer, [factor.transpose(1, 2).contiguous() for factor in factors])


def _weighted_sums(query: Tensor, key: Tensor, values: Tensor) -> Tensor:
    sums: Tensor
    sums, _state = import_module(OPERATIONS).chunk_linear_attn(query, key, values, scale=1.0, normalize=False)
    return sums


@lru_cache
def _choose_tiles(device: torch.device, dtype: torch.dtype) -> None:
    """Make the first call, forward and backward."""
    about: dict[str, Any] = {"device": device, "dtype": dtype, "requires_grad": True}
    with torch.enable_grad():
        query, key = (torch.rand(FIRST_CALL, **about) for _ in range(2))
        values = torch.rand(*FIRST_CALL[:-1], 33, **about)
        torch.autograd.backward(_weighted_sums(query, key, values).sum())


@app.command()
def main(
    mech: MechanismTerms = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, comma-separated.")] = "4096,16384,131072",
    repeats: Annotated[int, typer.Option(help="Timings; the median counts.", min=1)] = 5,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Parquet file for the rows; what it has is not measured.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure our forms and those of flash-linear-attention; by default of slay, linear and performer."""
    target = resolve_device(device)
    if (reason := missing(target)) is not None:
        typer.echo(f"flash-linear-attention is left out: {reason}", err=True)
        return
    table = Table(scaling.IDENTITY, target, out)
    for row in scaling.measure(
        select_mechanisms(load_suite("paper"), mech or ["slay,linear,performer"]),
        parse_sizes("--lengths", lengths),
        table,
        forms=("attend", "fla"),
        offered=offered,
        batch_size=1,
        num_repeats=repeats,
        dtype=dtype,
        limits=LIMITS,
    ):
        typer.echo(f"{row['mechanism']} {row['form']} {row['length']}: {row['status']}", err=True)
    facts = scaling.summary([row for row in table.rows if row["dtype"] == dtype])
    print_facts(facts, list(facts[0]) if facts else [], as_json=as_json)


if __name__ == "__main__":
    run(app)
