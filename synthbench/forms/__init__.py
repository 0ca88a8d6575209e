"""Computation of mechanisms: tensor functions, recurrences, memory-saving forms for long sequences, and GPU kernels.

A form is one way to compute a function. All forms of a function agree up to rounding.
"""
