"""Which class of the literature a mechanism belongs to."""

import json
from typing import Literal

from synthbench.reports.cells import MechanismFacts

Class = Literal["softmax", "additive", "gated", "delta", "signed", "nonlinear"]

CLASSES: dict[str, Class] = {
    "softmax": "softmax",
    "linear": "additive",
    "performer": "additive",
    "performer-exp": "additive",
    "slay": "additive",
    "retention": "gated",
    "gla": "gated",
    "mamba2": "gated",
    "deltanet": "delta",
    "lstm": "nonlinear",
}
"""Which class of the literature a mechanism belongs to: attention by softmax, a state that is only added to, one that
decays by gates from 0 to 1, one that is overwritten by a delta rule, and a nonlinear recurrence. A delta rule whose
eigenvalues reach -1 is a class of its own. A mechanism that is not here has no prediction."""


def class_of(mechanism: MechanismFacts) -> Class | None:
    """The class of the literature that a mechanism belongs to; None if it is none of them."""
    of_class = CLASSES.get(mechanism.name)
    is_signed = json.loads(mechanism.arguments).get("eigenvalues") == "signed"
    return "signed" if of_class == "delta" and is_signed else of_class
