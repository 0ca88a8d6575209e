"""The published tables that reports are compared with, read from the package's data."""

import csv
import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

NUM_SEEDS = 3
NUM_SEQUENCES = 64
"""Test sequences for each seed."""
ROUNDING = 0.01
"""Distance of two neighbouring printed accuracies."""
PEERS = "peers"
"""The suite that is compared with numbers of other suites."""


class PublishedCell(NamedTuple):
    """One cell of the published Table 8."""

    task: str
    category: str
    mechanism: str
    mean: float | None
    """A fraction in [0, 1], rounded to two decimals; None if it was not published."""
    std: float | None
    """Population standard deviation over three seeds, rounded like ``mean``."""


class PublishedAverage(NamedTuple):
    """One cell of the published Table 3: the mean of a category's task means, a fraction rounded to two decimals."""

    category: str
    mechanism: str
    mean: float


@cache
def table8() -> tuple[PublishedCell, ...]:
    """The cells of Table 8 in the published order, those without a number too."""
    return tuple(
        PublishedCell(
            line["task"],
            line["category"],
            line["mechanism"],
            *(float(line[name]) if line[name] else None for name in ("accuracy_mean", "accuracy_std")),
        )
        for line in lines_of("slay_table8.csv")
    )


@cache
def table3() -> tuple[PublishedAverage, ...]:
    """The cells of Table 3 in the published order."""
    return tuple(
        PublishedAverage(line["category"], line["mechanism"], float(line["accuracy_mean"]))
        for line in lines_of("slay_table3.csv")
    )


@cache
def published_arguments() -> dict[str, dict[str, Any]]:
    """The arguments of the published protocol, by published name of the mechanism."""
    return {line["mechanism"]: json.loads(line["arguments"]) for line in lines_of("slay_arguments.csv")}


@cache
def causes() -> dict[tuple[str, str], str]:
    """Why a cell of ours differs from the published one, by task and published name of the mechanism."""
    return {(line["task"], line["mechanism"]): line["cause"] for line in lines_of("causes.csv")}


@cache
def compared_settings() -> dict[str, set[tuple[str, str]]]:
    """By mechanism the blocks and position encodings in which suite ``peers`` is compared with published numbers."""
    settings: dict[str, set[tuple[str, str]]] = {}
    for line in lines_of("peers.csv"):
        settings.setdefault(line["mechanism"], set()).add((line["block"], line["positions"]))
    return settings


def published_name(mech: str) -> str:
    """The name of one of our mechanisms in the published tables."""
    return "standard" if mech == "softmax" else mech


@cache
def published_order(column: str) -> dict[str, int]:
    """Rank of every published ``task``, ``category`` or ``mechanism`` (by its published name)."""
    return {name: rank for rank, name in enumerate(dict.fromkeys(line[column] for line in lines_of("slay_table8.csv")))}


def lines_of(name: str) -> list[dict[str, str]]:
    """The lines of a table of the package's reference data, by heading."""
    text = files("synthbench").joinpath("reports", "reference", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
