"""Counts how often a store's results were compared with a reference: each comparison spends some of the error allowed.

::

    quick.json   {"core 2026.2": {"softmax transformer rope {}": ["0123456789abcdef", ...]}}

For each version of a suite and each incumbent, what was compared in the order in which it was first asked.
"""

from collections.abc import Iterable

from filelock import FileLock
from pydantic import TypeAdapter

from synthbench.canonical import canonical_json, sha256
from synthbench.errors import StoreError
from synthbench.results.store import Store, read_plain

FILE = "quick.json"
MAX_BYTES = 2**26

Queries = dict[str, dict[str, list[str]]]
QUERIES = TypeAdapter(Queries)


def query_number(store: Store, suite: str, incumbent: str, run_ids: Iterable[str]) -> int:
    """The number of a query among those against one incumbent, from 1; it is counted if it is new.

    Commands may ask at the same time; no count is lost.

    Args:
        store: Where the file lies, open for writing.
        suite: Its name and version.
        incumbent: What names it and its setting.
        run_ids: Of all rows that are compared; the same ones are the same query.
    """
    asked = sha256(" ".join(sorted(run_ids)))[:16]
    with store.writing(), FileLock(store.root / "_tmp" / "quick.lock"):
        queries = _read(store)
        known = queries.setdefault(suite, {}).setdefault(incumbent, [])
        if asked not in known:
            known.append(asked)
            store.commit((canonical_json(queries) + "\n").encode(), store.root / FILE)
    return known.index(asked) + 1


def _read(store: Store) -> Queries:
    """Queries so far.

    Raises:
        StoreError: If the file cannot be read.
    """
    path = store.root / FILE
    try:
        return QUERIES.validate_json(read_plain(path, MAX_BYTES), strict=True)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise StoreError(
            f"{path} cannot be read; allowed is an object of suites, each an object of incumbents with lists of "
            f"queries: {problem}"
        ) from problem
