"""How mechanisms are computed: tensor functions, recurrences, streamed and tiled forms, and GPU kernels."""
