"""Cells of suite ``smoke``."""

from synthbench.runner.plan import make_cells, with_block_and_positions
from synthbench.suites import load_suite
from synthbench.training.cell import Cell


def cell_of(mechanism: str, block: str | None = None, positions: str | None = None, **options: str) -> Cell:
    """A mechanism with options on ``copy``, in a block and with positions of its own if they are named."""
    suite = with_block_and_positions(load_suite("smoke"), block=block, positions=positions)
    (cell,) = make_cells(suite, {"copy": {"length": "8"}}, {mechanism: options}, device_type="cpu", is_full=True)
    return cell
