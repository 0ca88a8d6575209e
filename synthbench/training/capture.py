"""CUDA graphs of training steps: a step is recorded once for each shape of batch, and then replayed as one launch.

A step of a small model launches hundreds of kernels, each with a few microseconds of work. A graph replays all of them
in one launch, on tensors that keep their addresses. Before a replay, the batch is copied into the recorded tensors.
Anything else that changes between steps is updated in place.
"""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function from the inputs, targets and scored columns of a batch to the loss of each run."""

WARM_UP_STEPS = 3
"""Number of steps of each shape before recording; these steps compile kernels and allocate lasting memory."""
MAX_GRAPHS = 32
"""Largest number of recorded shapes; further shapes are computed without a graph. Each level of a ladder has one or a
few shapes."""

Shapes = tuple[torch.Size, ...]


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    batch: tuple[Tensor, ...]
    losses: Tensor

    def replay(self, batch: tuple[Tensor, ...]) -> Tensor:
        for place, values in zip(self.batch, batch, strict=True):
            place.copy_(values)
        self.graph.replay()
        return self.losses.clone()


class CapturedStep:
    """A training step that is replayed from a CUDA graph where possible, and computed normally otherwise.

    The step must do all of its work on the device, with the same GPU operations for all batches of the same shapes.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        """Wrap a step; nothing is recorded yet."""
        self.failure: str | None = None
        """The reason why recording stopped; None if nothing failed."""
        self._step = step
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._num_warmed: Counter[Shapes] = Counter()
        self._recordings: dict[Shapes, _Recording] = {}

    @property
    def is_replaying(self) -> bool:
        """True once at least one shape is recorded."""
        return bool(self._recordings)

    def __call__(self, inputs: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
        """Take one step on a batch; return the loss of each run."""
        batch = inputs, targets, columns
        shapes = tuple(x.shape for x in batch)
        if shapes not in self._recordings and not self._is_recorded_now(shapes, batch):
            self._num_warmed[shapes] += 1
            return self._beside(batch)
        return self._recordings[shapes].replay(batch)

    def _is_recorded_now(self, shapes: Shapes, batch: tuple[Tensor, ...]) -> bool:
        is_warm = self._num_warmed[shapes] >= WARM_UP_STEPS
        if not is_warm or self.failure is not None or len(self._recordings) == MAX_GRAPHS:
            return False
        try:
            self._recordings[shapes] = self._record(batch)
        except RuntimeError as problem:
            # If the step itself failed, ending the capture fails too; the first failure is the cause.
            cause = problem.__context__ or problem
            self.failure = f"{type(cause).__name__}: {str(cause).partition(chr(10))[0]}"
            warnings.warn(f"steps are not replayed from a CUDA graph: {self.failure}", RuntimeWarning, stacklevel=4)
            return False
        return True

    def _record(self, batch: tuple[Tensor, ...]) -> _Recording:
        """Record the step on a copy of the batch; recording computes nothing."""
        places = tuple(x.clone() for x in batch)
        graph = torch.cuda.CUDAGraph()
        # The outer context restores the stream even if ending the capture fails. Other threads, which move the next
        # batches, go on meanwhile.
        with (
            torch.cuda.device(self._device),
            torch.cuda.stream(self._stream),
            torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
        ):
            losses = self._step(*places)
        return _Recording(graph, places, losses)

    def _beside(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Take the step without a graph, on the CUDA stream that is also used for recording."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            losses = self._step(*batch)
        current.wait_stream(self._stream)
        return losses
