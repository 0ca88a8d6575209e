from typing import ClassVar, cast

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.forms import scores
from synthbench.mechanisms import MECHANISMS, FeatureAttention, ScoreAttention
from synthbench.mechanisms.base import Attention, Side
from synthbench.options import coerce, options_of
from synthbench.sources import bibtex
from tests.mechanisms.loops import built
from tests.reports._made import MECHANISMS as LABELS
from tests.tensors import normal, with_gradients


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_says_what_it_is(name: str) -> None:
    unit = MECHANISMS[name]

    assert unit.source in bibtex([unit.source])
    assert unit.label == LABELS.get(name, unit.label)
    assert "Source:" in cast("str", unit.__doc__)
    assert "State:" in cast("str", unit.__doc__)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_option_outside_its_range_is_refused(name: str) -> None:
    for declared in options_of(MECHANISMS[name]).values():
        if declared.choices or declared.type is bool:
            with pytest.raises(UsageError, match=f"{declared.name} is 'neither'; allowed: (one of|bool)"):
                coerce("mechanism", MECHANISMS[name], {declared.name: "neither"})
        else:
            wrong = declared.type(cast("float", declared.low) - 1)
            with pytest.raises(UsageError, match=f"{declared.name} is"):
                MECHANISMS[name](**{declared.name: wrong})


def test_heads_must_divide_the_width() -> None:
    for num_heads in (3, 0, 128):
        with pytest.raises(UsageError, match=f"num_heads is {num_heads}; allowed: a divisor of the width 64"):
            MECHANISMS["linear"](num_heads=num_heads)


EXACT = [name for name in MECHANISMS if issubclass(MECHANISMS[name], ScoreAttention)]


def test_forward_projects_attends_and_projects_back() -> None:
    mechanism = cast("Attention", MECHANISMS["linear"](model_dim=8, num_heads=2))
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    q, k, v = (x @ mechanism.qkv.weight + cast("Tensor", mechanism.qkv.bias)).chunk(3, dim=-1)

    heads = [
        mechanism.attend(*(part[..., columns].unsqueeze(1) for part in (q, k, v))).squeeze(1)
        for columns in (slice(0, 4), slice(4, 8))
    ]

    expected = torch.cat(heads, dim=-1) @ mechanism.out.weight + cast("Tensor", mechanism.out.bias)
    torch.testing.assert_close(mechanism(x), expected)


WITH_GATES = ("differential", "forgetting", "path")
"""Softmax attention that trains more than projections of queries, keys, values and outputs."""
PLAIN = [
    name
    for name in MECHANISMS
    if MECHANISMS[name].family in ("softmax", "linear", "yat", "slay") and name not in WITH_GATES
]


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_generator_alone_decides_what_is_drawn(name: str) -> None:
    first, second, other = (
        MECHANISMS[name](generator=torch.Generator().manual_seed(seed)).state_dict() for seed in (0, 0, 1)
    )

    torch.testing.assert_close(first, second, rtol=0, atol=0)
    # Elsewhere some parameters begin at given values: temperatures, weights of geometries, decays, gains.
    drawn = [key for key in first if name in PLAIN or (key.endswith("weight") and bool((first[key] != 1).any()))]
    if name == "mlstm":
        drawn.remove("gates.weight")  # its gates begin with their biases alone
    if name == "rwkv7":
        drawn = [key for key in drawn if key not in ("shift.weight", "gate_in.weight")]  # by channel, and 0
    assert drawn
    assert all(not torch.equal(first[key], other[key]) for key in drawn)


@pytest.mark.parametrize("name", EXACT)
def test_the_weights_of_scores_are_those_that_attend_uses(name: str) -> None:
    mechanism = cast("ScoreAttention", MECHANISMS[name]())
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 12, 16, generator=generator) for _ in range(3))

    weights = scores.weights(mechanism.scores(q, k), mechanism.normaliser, power=mechanism.softermax_power)

    # Not closer: what the sum normaliser adds to a small sum is missing from the weights.
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 12), rtol=0, atol=1e-3)
    assert (weights.triu(1) == 0).all()
    torch.testing.assert_close(weights @ v, mechanism.attend(q, k, v))


class Constant(FeatureAttention):
    """Equal features everywhere: the running mean."""

    name: ClassVar = "constant"

    def features(self, x: Float[Tensor, "*batch length dim"], side: Side) -> Float[Tensor, "*batch length one"]:
        assert side in ("query", "key")
        return torch.ones_like(x[..., :1])


def test_an_author_writes_only_the_features() -> None:
    v = torch.randn(2, 4, 10, 16, generator=torch.Generator().manual_seed(0))

    out = Constant(delta=0.0).attend(v, v, v)

    torch.testing.assert_close(out, v.cumsum(-2) / torch.arange(1, 11).unsqueeze(-1))


TAKES_LAST = [name for name in MECHANISMS if getattr(MECHANISMS[name], "takes_last_queries", False)]


@pytest.mark.parametrize(
    ("name", "length", "queries"),
    [*[(name, 8, 3) for name in TAKES_LAST], ("retention", 100, 7), ("local", 100, 1), ("local", 100, 60)],
)
def test_the_last_queries_by_themselves_give_the_last_outputs(name: str, length: int, queries: int) -> None:
    mechanism = built(MECHANISMS[name], max_length=length)
    assert isinstance(mechanism, Attention)
    q, k, v = qkv = [normal(2, 2, length, 4, seed=seed).requires_grad_() for seed in range(3)]
    among, alone = mechanism.attend(q, k, v)[..., -queries:, :], mechanism.attend(q[..., -queries:, :], k, v)

    torch.testing.assert_close(with_gradients(alone, qkv), with_gradients(among, qkv), rtol=1e-9, atol=1e-10)
