"""Functions that compute mechanisms: tensor functions, recurrences, memory-saving forms, and GPU kernels.

A form is one way to compute a function. All forms of a function agree up to rounding.
"""
