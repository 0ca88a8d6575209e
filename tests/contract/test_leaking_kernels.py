"""Ways in which fast kernels leak at some lengths, batches or dtypes only, which check sees each; and likely causes."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, pad

from synthbench.contract import causes
from synthbench.contract.mechanisms import LENGTHS, WHOLE_BLOCKS, check_mechanism, checks_of, lazy_probe
from synthbench.errors import ContractError
from synthbench.mechanisms import MECHANISMS, FeatureAttention, Mechanism
from synthbench.mechanisms.base import Side
from synthbench.suites import load_suite, suite_names
from tests.contract._said import is_said
from tests.contract._toys import LEAKS, stated, toy

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


def assert_is_caught(unit: type[Mechanism]) -> None:
    with pytest.raises(ContractError) as refused:
        check_mechanism(unit, {})
    assert is_said(unit.name, str(refused.value)), refused.value


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
    assert_is_caught(unit)


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("unit", CAUGHT, ids=lambda unit: unit.name)
def test_the_contract_names_the_length_the_batch_or_the_dtype_at_which_it_leaks(unit: type[Mechanism]) -> None:
    assert_is_caught(unit)


class Favor(FeatureAttention):
    """Positive random features, their keys stabilised by the maximum over all positions, as in the original code."""

    name: ClassVar = "favor"

    def initialise(self, generator: torch.Generator | None) -> None:
        self.directions = nn.Buffer(torch.randn(self.head_dim, 16, generator=generator))

    def features(self, x: Tensor, side: Side) -> Tensor:
        x = x / x.shape[-1] ** 0.25
        exponents = x @ self.directions - x.square().sum(-1, keepdim=True) / 2
        highest = exponents.amax(-1 if side == "query" else (-1, -2), keepdim=True)
        return (exponents - highest).exp() + 1e-4


BATCH_NORM = toy("batch-norm", lambda _, x: elu((x - x.mean((0, 1))) / (x.var((0, 1), unbiased=False) + 1e-5).sqrt()))
OFF_BY_ONE = LEAKS["mask-off-by-one"]
WINDOW = toy("window-of-three", lambda _, x: pad(x, (0, 0, 0, 3)).unfold(-2, 4, 1).mean(-1))
KINDS = {
    Favor: causes.MAXIMUM,
    toy("mean-taken", lambda _, x: x - x.mean(-2, keepdim=True)): causes.WHOLE,
    toy("unmasked", lambda _, x: (x @ x.mT).softmax(-1) @ x): causes.WHOLE,
    BATCH_NORM: causes.WHOLE,
    LEAKS["circular-convolution"]: causes.CIRCULAR,
    OFF_BY_ONE: "position t sees t + 1 and nothing later: this looks like a mask, shift or window that is off by one",
    WINDOW: "position t sees t + 1 to t + 3 and nothing later",
}


@pytest.mark.parametrize("unit", KINDS)
def test_a_leak_is_refused_with_its_likely_cause(unit: type[Mechanism]) -> None:
    with pytest.raises(ContractError, match=r"is not causal|see each other") as refused:
        check_mechanism(unit, {})
    assert unit is BATCH_NORM or KINDS[unit] in str(refused.value)
    assert KINDS[unit] in str(cause_of(unit))


@pytest.mark.parametrize("name", ["mask-after-softmax", "hard-gate"])
def test_what_no_probe_supports_is_not_said(name: str) -> None:
    """Weights over a sum of all are of no known kind, and a threshold on a mean is no maximum."""
    assert cause_of(LEAKS[name]) is None


@pytest.mark.parametrize("name", ["softmax", "performer", "mamba2"])
def test_what_does_not_leak_has_no_cause(name: str) -> None:
    assert cause_of(MECHANISMS[name]) is None


def cause_of(unit: type[Mechanism]) -> str | None:
    mechanism = unit(model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(0)).double().eval()
    return causes.cause_of_leak(mechanism)
