"""Computes mechanisms: tensor functions, recurrences, streamed and tiled forms, and GPU kernels."""
