"""State of a mechanism between two tokens when it processes one token at a time, as a decoder does."""

import torch
from torch import Tensor


class State:
    """State that a mechanism keeps from one token to the next: named tensors, states of its parts, and ``position``.

    ``position`` is the number of tokens read so far. A tensor of the state is never changed in place, only replaced by
    a new tensor. So a copy can share the tensors of the original, and both can be continued independently.

    >>> state = State()
    >>> state.append("keys", torch.zeros(1, 1, 8)).shape
    torch.Size([1, 1, 8])
    >>> state.append("keys", torch.zeros(1, 1, 8)).shape
    torch.Size([1, 2, 8])
    >>> state.numel()
    16
    """

    def __init__(self) -> None:
        """Create the empty state before the first token."""
        self.position = 0
        self.tensors: dict[str, Tensor] = {}
        self.parts: dict[str, State] = {}

    def copied(self) -> "State":
        """Return a copy that can be continued independently."""
        copied = State()
        copied.position, copied.tensors, copied.parts = self.position, dict(self.tensors), dict(self.parts)
        return copied

    def append(self, name: str, rows: Tensor, most: int | None = None) -> Tensor:
        """Append rows, such as keys, to the rows stored under ``name``; return the old and the new rows together.

        The result is [..., rows, width]. Afterwards, the state keeps only the last ``most`` of these rows; if ``most``
        is None, it keeps all of them.
        """
        together = rows if name not in self.tensors else torch.cat([self.tensors[name], rows], dim=-2)
        self.tensors[name] = together if most is None else together[..., max(0, together.shape[-2] - most) :, :]
        return together

    def add(self, name: str, values: Tensor) -> Tensor:
        """Add values to the sum stored under a name, and return the new sum."""
        self.tensors[name] = values + self.tensors[name] if name in self.tensors else values
        return self.tensors[name]

    def part(self, name: str) -> "State":
        """Return the state stored under the name of a part; if there is none, return a new empty state."""
        return self.parts.get(name, State())

    def has(self, name: str) -> bool:
        """Return whether this state, or the state of a part, has a tensor with this name."""
        return name in self.tensors or any(part.has(name) for part in self.parts.values())

    def numel(self) -> int:
        """Count the numbers in all tensors, including the tensors of parts and the batch axis."""
        return sum(x.numel() for x in self.tensors.values()) + sum(part.numel() for part in self.parts.values())
