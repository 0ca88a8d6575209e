"""A task's sequences as a PyTorch dataset, for a training loop of your own."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset

from synthbench.training.sequences import Sequences, draw

__all__ = ["Sequences", "TaskDataset", "draw"]


class TaskDataset(Dataset[tuple[Tensor, Tensor]]):
    """Sequences of a task, as a training run reads them: pairs ``(inputs, targets)`` of int64 tensors [length].

    A model predicts ``targets[t]`` from ``inputs[0..t]``. Targets of -100 are not scored, and
    ``torch.nn.functional.cross_entropy`` ignores them by default. (If ``metadata["readout"]`` is ``bottleneck``, models
    predict all targets from the complete sequence instead.) All sequences are drawn when the dataset is created, so
    they do not depend on the number of ``DataLoader`` workers. The dataset takes 16 bytes of memory per token.

    >>> from torch.utils.data import DataLoader
    >>> dataset = TaskDataset("mqar:level=3", split="test", seed=42, count=256)
    >>> inputs, targets = next(iter(DataLoader(dataset, batch_size=32)))
    >>> inputs.shape == targets.shape == (32, dataset.metadata["length"])
    True

    With ``suite``, the dataset holds the sequences that runs of this suite read:

    >>> len(TaskDataset("copy", split="train", seed=42, suite="smoke"))  # 200 steps of 16 sequences
    3200
    """

    def __init__(
        self,
        task: str,
        *,
        split: str = "train",
        seed: int = 0,
        count: int | None = None,
        batch_size: int | None = None,
        suite: str | None = None,
    ) -> None:
        """Draw the sequences; arguments and errors are those of :func:`draw`."""
        sequences = draw(task, split=split, seed=seed, count=count, batch_size=batch_size, suite=suite)
        self.metadata: dict[str, Any] = sequences.metadata
        """Task, version, options, length, vocab_size, readout, floor, ceiling, split, seed, count and batch size."""
        self.inputs: Int[Tensor, "count length"] = torch.from_numpy(sequences.inputs)
        self.targets: Int[Tensor, "count length"] = torch.from_numpy(sequences.targets)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]
