"""How commands print what they know."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import typer


def print_facts(
    facts: list[dict[str, Any]],
    columns: list[str],
    *,
    as_json: bool,
    broken: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print facts as JSON with all that is known, or as a table of some columns; then what is broken, and why."""
    if as_json:
        typer.echo(json.dumps([*facts, *({"name": name, "broken": why} for name, why in broken.items())], indent=1))
        return
    from tabulate import tabulate

    rows = [[_cell(fact[column]) for column in columns] for fact in facts]
    typer.echo(tabulate(rows, headers=columns, tablefmt="plain", disable_numparse=True))
    for name, why in broken.items():
        typer.echo(f"{name}  broken: {why}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        # Parameters carry more than their default; other facts are plain.
        plain = {name: entry["default"] if isinstance(entry, dict) else entry for name, entry in value.items()}
        return " ".join(f"{name}={entry}" for name, entry in plain.items())
    return "" if value is None else str(value)
