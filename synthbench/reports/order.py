"""The order of tables: that of the SLAY paper's table 8, then alphabetical."""

from typing import Literal

_ORDER = {
    "category": ("basic", "arithmetic", "long_range", "memory", "patterns", "reasoning", "robustness"),
    "task": (
        *("copy", "sort", "reverse", "counting", "parity", "addition", "modular", "long_copy", "distant_match"),
        *("multihop", "retrieval", "kv_recall", "first_token", "selective_copy", "bigram", "majority", "histogram"),
        *("stack", "induction", "pattern", "noisy_copy", "compression"),
    ),
    # Whose capacities stand for a category, since people quote them: the first of these that it has.
    "capacity": ("mqar", "string_copy", "parity_running", "khop_induction"),
    "mechanism": ("softmax", "yat-spherical", "performer", "linear", "slay", "slay-laplace", "slay-hadamard"),
}


def place_of(kind: Literal["category", "task", "mechanism", "capacity"], name: str) -> int:
    """Return the place of a name in the order, the number of names if it lacks it."""
    names = _ORDER[kind]
    return names.index(name) if name in names else len(names)
