"""Names of the classes that have a form of their own here: a kernel, tiles, or one that cannot overflow.

The modules of these forms are imported by the base of the classes and so cannot import them; nor do the classes name
their forms, since a row is known by the code of its class, which a faster form of the same function does not change.
"""

from typing import Any

PERFORMER_EXP = "synthbench.mechanisms.performer_exp.PerformerExp"
SLAY = "synthbench.mechanisms.slay.slay.Slay"
YAT = "synthbench.mechanisms.yat.Yat"
YAT_SUM = "synthbench.mechanisms.yat_sum.YatSum"
YAT_SPHERICAL = "synthbench.mechanisms.yat_spherical.YatSpherical"


def name_of(unit: Any) -> str:
    """Module and name of the class of a mechanism: a class of another module with its name is another class."""
    return f"{type(unit).__module__}.{type(unit).__qualname__}"
