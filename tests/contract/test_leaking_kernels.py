"""Ways in which fast kernels leak at some lengths, batches or dtypes only, which check sees each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synthbench.contract.causes import cause_of_leak
from synthbench.contract.mechanisms import LENGTHS, WHOLE_BLOCKS, check_mechanism, checks_of, lazy_probe
from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.suites import load_suite, suite_names
from tests.contract._said import assert_refused
from tests.contract._toys import stated, toy
from tests.mechanisms.loops import built

BLOCK = 16


def so_far(x: Tensor) -> Tensor:
    mean: Tensor = x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1, dtype=x.dtype)[:, None]
    return mean


def future(_kernel: Any, x: Tensor) -> Tensor:
    return x.mean(-2, keepdim=True).expand_as(x)


def other_sequences(_kernel: Any, x: Tensor) -> Tensor:
    return so_far(x).mean(-3, keepdim=True).expand_as(x)


def whole_block(_kernel: Any, x: Tensor, size: int = BLOCK) -> Tensor:
    """The mean of the own block, of which only the part up to the own position may be seen."""
    padded = nn.functional.pad(x, (0, 0, 0, -x.shape[-2] % size))
    means = padded.unflatten(-2, (-1, size)).mean(-2, keepdim=True).expand(*x.shape[:-2], -1, size, -1)
    spread: Tensor = means.flatten(-3, -2)[..., : x.shape[-2], :]
    return spread


def kernel(name: str, unseen: Callable[[Any, Tensor], Tensor], where: Callable[[Any, Tensor], bool]) -> Any:
    """The mean of all inputs so far, and in places that of what it must not see."""

    def forward(one: Any, x: Tensor) -> Tensor:
        weighted: Tensor = (so_far(x) + (unseen(one, x) if where(one, x) else 0)) * one.weight
        return weighted

    weight = stated(weight=lambda one, generator: nn.Parameter(0.5 + torch.rand(one.model_dim, generator=generator)))
    return toy(name, forward, weight)


def stale(self: Any, x: Tensor) -> Tensor:
    """A workspace that is not cleared: what the last call left beyond its own length is read by a shorter one."""
    workspace = vars(self).setdefault("workspace", {})
    left: Tensor = workspace.get("tokens", x)
    workspace["tokens"] = x.detach()
    return left.mean().expand_as(x)


def spread_back(_kernel: Any, x: Tensor, over: int = -2) -> Tensor:
    """Sound forwards; backwards it spreads the gradient over the whole sequence, or over the sequences of a batch."""
    spread = x.clone()
    if spread.requires_grad:
        spread.register_hook(lambda gradient: gradient + gradient.mean(over, keepdim=True))
    return spread


def first_mask(self: Any, x: Tensor) -> Tensor:
    """A mask of the first length that was seen, as a traced graph keeps it: what is longer is not masked."""
    length = vars(self).setdefault("traced", x.shape[-2])
    return future(self, x) if x.shape[-2] > length else torch.zeros_like(x)


def next_block(_kernel: Any, x: Tensor) -> Tensor:
    """The last position of each block of 64 sees the first of the next one."""
    seen = torch.zeros_like(x)
    ends = torch.arange(63, max(63, x.shape[-2] - 1), 64)
    seen[..., ends, :] = x[..., ends + 1, :]
    return seen


def last_sequence(_kernel: Any, x: Tensor) -> Tensor:
    return so_far(x)[-1:].expand_as(x)


def anywhere(_kernel: Any, _x: Tensor) -> bool:
    return True


CAUGHT = [
    kernel("chunk-64", future, lambda _, x: x.shape[-2] % 64 == 0),
    kernel("chunk-128", future, lambda _, x: x.shape[-2] % 128 == 0),
    kernel("beyond-400", future, lambda _, x: x.shape[-2] > 400),
    kernel("beyond-1000", future, lambda _, x: x.shape[-2] > 1000),
    kernel("float32", future, lambda _, x: x.dtype == torch.float32),
    kernel("gradients", future, lambda _, x: x.requires_grad),
    kernel("batch-8", other_sequences, lambda _, x: x.shape[-3] >= 8),
    kernel("max-length", future, lambda self, _: self.max_length != 512),
    kernel("batch-statistics", other_sequences, lambda self, _: self.training),
    kernel("in-block", whole_block, anywhere),
    kernel("in-block-64", lambda self, x: whole_block(self, x, 64), lambda _, x: x.shape[-2] >= 64),
    kernel("padded-block", future, lambda _, x: x.shape[-2] % 32 != 0),
    kernel("stale-workspace", stale, anywhere),
    kernel("first-mask", first_mask, anywhere),
    kernel("backward", spread_back, anywhere),
    kernel("backward-across", lambda self, x: spread_back(self, x, over=-3), lambda _, x: x.dtype == torch.float32),
    kernel("block-end", next_block, anywhere),
    kernel("last-sequence", last_sequence, lambda _, x: x.ndim == 3 and len(x) == 9),
]
CAUGHT_IN_SUITE = [
    kernel("length-48", future, lambda _, x: x.shape[-2] == 48),
    kernel("chunk-96", future, lambda _, x: x.shape[-2] % 96 == 0),
    kernel("width-48", future, lambda self, _: self.model_dim == 48),
    kernel("four-heads", future, lambda self, _: self.num_heads == 4),
    kernel("batch-256", other_sequences, lambda _, x: x.shape[-3] == 256),
    kernel("eval-only", future, lambda self, x: not self.training and x.shape[-2] >= 64),
]


def test_the_sound_kernel_passes() -> None:
    check_mechanism(kernel("sound", future, lambda _, _x: False), {})


def test_the_longest_sequences_of_all_ladders_are_tried() -> None:
    suites = [load_suite(name) for name in suite_names()]

    assert max(suite.ladder.longest for suite in suites if suite.ladder is not None) <= WHOLE_BLOCKS[-1].length


def test_what_a_check_requires_names_all_lengths() -> None:
    meanings = {check.name: check.meaning for check in checks_of(lazy_probe(kernel("sound", future, anywhere), {}))}

    for name, lengths in (("shape", LENGTHS), ("as trained", [shape.length for shape in WHOLE_BLOCKS])):
        *most, last = map(str, lengths)
        assert meanings[name].endswith(f"lengths {', '.join(most)} and {last}")


@pytest.mark.parametrize("unit", CAUGHT_IN_SUITE, ids=lambda unit: unit.name)
def test_a_leak_at_the_shapes_of_the_main_suite_alone_is_caught(unit: type[Mechanism]) -> None:
    assert_refused(unit)


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("unit", CAUGHT, ids=lambda unit: unit.name)
def test_the_contract_names_the_length_the_batch_or_the_dtype_at_which_it_leaks(unit: type[Mechanism]) -> None:
    assert_refused(unit)


@pytest.mark.parametrize("name", ["softmax", "performer", "mamba2"])
def test_what_does_not_leak_has_no_cause(name: str) -> None:
    assert cause_of_leak(built(MECHANISMS[name])) is None
