"""The results store: the columns of a row, and the code that appends and reads rows; it never imports torch."""

from synthbench.results.schema import CURVES, RUNS, SCHEMA_VERSION, run_id
from synthbench.results.store import PACKAGED, Quarantined, Store, published

__all__ = [
    "CURVES",
    "PACKAGED",
    "RUNS",
    "SCHEMA_VERSION",
    "Quarantined",
    "Store",
    "published",
    "run_id",
]
