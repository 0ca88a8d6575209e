"""Measurements of speed; nothing is trained to an end."""

import os

# PyTorch's profiler, which counts memory, tells stderr of every start and stop. It reads this as PyTorch is imported.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")
