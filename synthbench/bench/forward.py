"""Time of a mechanism's forward pass, compared with softmax attention."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.benchmark import Timer

from synthbench.mechanisms import MECHANISMS

LENGTHS = (64, 512)
BATCH_SIZE = 8


def forward_ms(name: str, arguments: Mapping[str, Any], length: int) -> float:
    """Measure the median milliseconds of a forward pass of 8 sequences, on the threads that this process uses."""
    mechanism = MECHANISMS[name](
        **arguments, max_length=max(LENGTHS), generator=torch.Generator().manual_seed(0)
    ).eval()
    x = torch.randn(BATCH_SIZE, length, mechanism.model_dim, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        timer = Timer("mechanism(x)", globals={"mechanism": mechanism, "x": x}, num_threads=torch.get_num_threads())
        return timer.blocked_autorange(min_run_time=0.2).median * 1e3


def next_to_softmax(name: str, arguments: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Time a mechanism at each of ``LENGTHS``: in milliseconds, and as a multiple of the time of softmax attention."""
    times: dict[int, dict[str, float]] = {}
    width = {key: size for key, size in arguments.items() if key == "model_dim"}
    for length in LENGTHS:
        ours, theirs = forward_ms(name, arguments, length), forward_ms("softmax", width, length)
        times[length] = {"ms": ours, "times_softmax": ours / theirs}
    return times
