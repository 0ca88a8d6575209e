"""The results store: columns of a row (the result of one run), and code that adds and reads rows without PyTorch."""

from synthbench.results.schema import CURVES, RUNS, SCHEMA_VERSION, run_id
from synthbench.results.store import PACKAGED, Quarantined, Store, published

__all__ = ["CURVES", "PACKAGED", "RUNS", "SCHEMA_VERSION", "Quarantined", "Store", "published", "run_id"]
