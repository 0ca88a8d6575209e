"""The former name of :mod:`synthbench.options`: plugins import it, and an edit would change their version."""

from synthbench.options import check
from synthbench.options import option as knob

__all__ = ["check", "knob"]
