"""Measurements of speed, memory and approximation errors; no model is trained to the end."""

import os

# PyTorch's profiler, which measures memory, reports each start and stop on stderr unless this is set before import.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")
