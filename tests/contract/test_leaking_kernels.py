"""Ways in which fast kernels leak at some lengths, batches or dtypes only, and which of the checks sees each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synthbench.contract.mechanisms import check_mechanism
from synthbench.errors import ContractError
from synthbench.mechanisms import Mechanism

BLOCK = 16


class Kernel(Mechanism):
    """The mean of all inputs so far, and in places that of what it must not see."""

    def initialise(self, generator: torch.Generator | None) -> None:
        self.weight = nn.Parameter(0.5 + torch.rand(self.model_dim, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return (so_far(x) + self.unseen(x)) * self.weight

    def unseen(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def state_elements(self, length: int) -> int:
        return self.model_dim * (length > 0)


def so_far(x: Tensor) -> Tensor:
    mean: Tensor = x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1, dtype=x.dtype)[:, None]
    return mean


def future(_kernel: Kernel, x: Tensor) -> Tensor:
    return x.mean(-2, keepdim=True).expand_as(x)


def other_sequences(_kernel: Kernel, x: Tensor) -> Tensor:
    return so_far(x).mean(-3, keepdim=True).expand_as(x)


def whole_block(_kernel: Kernel, x: Tensor, size: int = BLOCK) -> Tensor:
    """The mean of the own block, of which only the part up to the own position may be seen."""
    padded = nn.functional.pad(x, (0, 0, 0, -x.shape[-2] % size))
    means = padded.unflatten(-2, (-1, size)).mean(-2, keepdim=True).expand(*x.shape[:-2], -1, size, -1)
    spread: Tensor = means.flatten(-3, -2)[..., : x.shape[-2], :]
    return spread


def kernel(name: str, unseen: Callable[[Any, Tensor], Tensor], where: Callable[[Any, Tensor], bool]) -> type[Kernel]:
    def shown(self: Kernel, x: Tensor) -> Tensor:
        return unseen(self, x) if where(self, x) else torch.zeros_like(x)

    return type(name, (Kernel,), {"name": name, "unseen": shown})


def stale(self: Any, x: Tensor) -> Tensor:
    """A workspace that is not cleared: what the last call left beyond its own length is read by a shorter one."""
    workspace = vars(self).setdefault("workspace", {})
    left: Tensor = workspace.get("tokens", x)
    workspace["tokens"] = x.detach()
    return left.mean().expand_as(x)


def spread_back(_kernel: Kernel, x: Tensor, over: int = -2) -> Tensor:
    """Sound forwards; backwards it spreads the gradient over the whole sequence, or over the sequences of a batch."""
    spread = x.clone()
    if spread.requires_grad:
        spread.register_hook(lambda gradient: gradient + gradient.mean(over, keepdim=True))
    return spread


def first_mask(self: Any, x: Tensor) -> Tensor:
    """A mask of the first length that was seen, as a traced graph keeps it: what is longer is not masked."""
    length = vars(self).setdefault("traced", x.shape[-2])
    return future(self, x) if x.shape[-2] > length else torch.zeros_like(x)


def next_block(_kernel: Kernel, x: Tensor) -> Tensor:
    """The last position of each block of 64 sees the first of the next one."""
    seen = torch.zeros_like(x)
    ends = torch.arange(63, max(63, x.shape[-2] - 1), 64)
    seen[..., ends, :] = x[..., ends + 1, :]
    return seen


def last_sequence(_kernel: Kernel, x: Tensor) -> Tensor:
    return so_far(x)[-1:].expand_as(x)


def anywhere(_kernel: Kernel, _x: Tensor) -> bool:
    return True


CAUGHT = {
    # The seven that outsiders wrote.
    kernel("chunk-64", future, lambda _, x: x.shape[-2] % 64 == 0): r"not causal: .* \(length 64, batch size \d+, ",
    kernel("chunk-128", future, lambda _, x: x.shape[-2] % 128 == 0): r"not causal: .* \(length 128, batch size \d+",
    kernel("beyond-400", future, lambda _, x: x.shape[-2] > 400): r"not causal: .* \(length 1000, batch size 3",
    kernel("float32", future, lambda _, x: x.dtype == torch.float32): r"not causal: .*, float32, training mode",
    kernel("gradients", future, lambda _, x: x.requires_grad): r"not causal: .*, float32, training mode",
    kernel("batch-8", other_sequences, lambda _, x: x.shape[-3] >= 8): r"sequences see each other: .* batch size \d+",
    kernel("max-length", future, lambda self, _: self.max_length != 512): r"not causal: .*, float32,",
    # Further ways.
    kernel("batch-statistics", other_sequences, lambda self, _: self.training): r"sequences see each other|of a batch",
    kernel("in-block", whole_block, anywhere): r"not causal: replacing the inputs from position",
    kernel("in-block-64", lambda self, x: whole_block(self, x, 64), lambda _, x: x.shape[-2] >= 64): r"not causal",
    kernel("padded-block", future, lambda _, x: x.shape[-2] % 32 != 0): r"not causal: replacing the inputs from",
    kernel("stale-workspace", stale, anywhere): r"it keeps values from one call to the next",
    kernel("first-mask", first_mask, anywhere): r"not causal|changes its own 'traced'",
    kernel("backward", spread_back, anywhere): r"backward pass: .* up to position 21 give later inputs .*length 64",
    kernel(
        "backward-across", lambda self, x: spread_back(self, x, over=-3), lambda _, x: x.dtype == torch.float32
    ): r"backward .* other sequences",
    kernel("block-end", next_block, anywhere): r"not causal",
    kernel("last-sequence", last_sequence, lambda _, x: x.ndim == 3 and len(x) == 9): r"sequences see each other",
}  # fmt: skip
CAUGHT_IN_SUITE = {
    kernel("length-48", future, lambda _, x: x.shape[-2] == 48): r"not causal: .* \(length 48, batch size",
    kernel("chunk-96", future, lambda _, x: x.shape[-2] % 96 == 0): r"not causal: .* \(length 96, batch size",
    kernel("width-48", future, lambda self, _: self.model_dim == 48): r"not causal: .*, float32, training mode",
    kernel("four-heads", future, lambda self, _: self.num_heads == 4): r"not causal: .*, float32,",
    kernel("batch-256", other_sequences, lambda _, x: x.shape[-3] == 256): r"see each other: .* batch size 256",
    kernel("eval-only", future, lambda self, x: not self.training and x.shape[-2] >= 64): r"not causal",
}  # fmt: skip


def test_the_sound_kernel_passes() -> None:
    check_mechanism(kernel("sound", future, lambda _, _x: False), {})


@pytest.mark.parametrize("unit", CAUGHT_IN_SUITE, ids=lambda unit: unit.name)
def test_a_leak_at_the_shapes_of_the_main_suite_alone_is_caught(unit: type[Kernel]) -> None:
    with pytest.raises(ContractError, match=CAUGHT_IN_SUITE[unit]):
        check_mechanism(unit, {})


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("unit", CAUGHT, ids=lambda unit: unit.name)
def test_the_contract_names_the_length_the_batch_or_the_dtype_at_which_it_leaks(unit: type[Kernel]) -> None:
    with pytest.raises(ContractError, match=CAUGHT[unit]):
        check_mechanism(unit, {})
