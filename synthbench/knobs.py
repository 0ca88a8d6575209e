"""The former name of :mod:`synthbench.options`, kept so that plugins that import it still work."""

from synthbench.options import check
from synthbench.options import option as knob

__all__ = ["check", "knob"]
