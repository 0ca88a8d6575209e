"""State of a mechanism between two tokens when it goes token by token, as a decoder does."""

import torch
from torch import Tensor


class State:
    """Tensors by name, and how many tokens there were; that number is not part of the size.

    A form that goes token by token puts a new tensor in the place of an old one and changes none. So a copy of a state
    is a branch from which another continuation can go on.

    >>> state = State()
    >>> state.append("keys", torch.zeros(1, 1, 8)).shape
    torch.Size([1, 1, 8])
    >>> state.append("keys", torch.zeros(1, 1, 8)).shape
    torch.Size([1, 2, 8])
    >>> state.numel()
    16
    """

    def __init__(self) -> None:
        """Begin before the first token, with nothing."""
        self.position = 0
        self.tensors: dict[str, Tensor] = {}
        self.parts: dict[str, State] = {}

    def copied(self) -> "State":
        """A state that goes on by itself."""
        copied = State()
        copied.position, copied.tensors, copied.parts = self.position, dict(self.tensors), dict(self.parts)
        return copied

    def append(self, name: str, rows: Tensor, most: int | None = None) -> Tensor:
        """All rows kept under a name, and these behind them, [..., rows, width]; the last ``most`` are kept."""
        together = rows if name not in self.tensors else torch.cat([self.tensors[name], rows], dim=-2)
        self.tensors[name] = together if most is None else together[..., max(0, together.shape[-2] - most) :, :]
        return together

    def add(self, name: str, values: Tensor) -> Tensor:
        """The sum of all that was added under a name."""
        self.tensors[name] = values + self.tensors[name] if name in self.tensors else values
        return self.tensors[name]

    def part(self, name: str) -> "State":
        """The state of a part of the mechanism."""
        return self.parts.get(name, State())

    def has(self, name: str) -> bool:
        """Return whether it, or that of a part, keeps something under a name."""
        return name in self.tensors or any(part.has(name) for part in self.parts.values())

    def numel(self) -> int:
        """Numbers kept, of all sequences together."""
        return sum(x.numel() for x in self.tensors.values()) + sum(part.numel() for part in self.parts.values())
