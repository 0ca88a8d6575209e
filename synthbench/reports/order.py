"""The order of rows and columns in tables: first as in Table 8 of the SLAY paper, then alphabetical."""

from typing import Literal

_ORDER = {
    "category": ("basic", "arithmetic", "long_range", "memory", "patterns", "reasoning", "robustness"),
    "task": (
        *("copy", "sort", "reverse", "counting", "parity", "addition", "modular", "long_copy", "distant_match"),
        *("multihop", "retrieval", "kv_recall", "first_token", "selective_copy", "bigram", "majority", "histogram"),
        *("stack", "induction", "pattern", "noisy_copy", "compression"),
    ),
    # The first of these tasks in a category provides its capacity, since these are often quoted.
    "capacity": ("mqar", "string_copy", "parity_running", "khop_induction"),
    "mechanism": ("softmax", "yat-spherical", "performer", "linear", "slay", "slay-laplace", "slay-hadamard"),
}


def place_of(kind: Literal["category", "task", "mechanism", "capacity"], name: str) -> int:
    """Return the index (from 0) of a name in the fixed order in which tables show names of one kind.

    The order lists only some names. All other names get the index after the last listed name.
    """
    names = _ORDER[kind]
    return names.index(name) if name in names else len(names)
