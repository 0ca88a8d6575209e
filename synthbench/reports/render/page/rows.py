"""What one row says of how it was made, in words."""

from collections import Counter
from collections.abc import Sequence

from synthbench.reports.cells import Row, is_known


def code_version(row: Row) -> str:
    """The code that made it."""
    commit = f", commit {str(row['git_sha'])[:10]}" if is_known(row["git_sha"]) else ""
    changed = ", with changes" if is_known(row["git_dirty"]) and row["git_dirty"] else ""
    return f"{row['synthbench_version']}{commit}{changed}"


def is_verified(row: Row) -> bool:
    """Whether another run confirmed it; stores of before that was recorded have no such column."""
    return is_known(row.get("verified_by"))


def statuses(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows have each status, ``ok`` first."""
    counts = Counter(str(row["status"]) for row in rows)
    return dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", item[0])))
