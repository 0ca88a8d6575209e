"""The former name of :mod:`synthbench.options`, for plugins that import it: editing a plugin changes its version."""

from synthbench.options import check
from synthbench.options import option as knob

__all__ = ["check", "knob"]
