"""Computation of mechanisms: tensor functions, recurrences, streamed and tiled forms, and GPU kernels.

A form is one way to compute a function. All forms of a function agree up to rounding.
"""
