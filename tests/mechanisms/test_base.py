from typing import Any, cast

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, Attention
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


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *[("linear", {"num_heads": n}, f"num_heads is {n}; allowed: a divisor of the width 64") for n in (3, 0, 128)],
    ("slstm", {"num_heads": 3}, "num_heads is 3; allowed: a divisor of the width 64"),
    ("mamba2", {"num_heads": 3}, "num_heads is 3; allowed: a divisor of expand x width, 128"),
    ("based", {"num_heads": 1}, r"num_heads is 1; allowed with based: at least 2, .* or window=0"),
    ("differential", {"model_dim": 12, "layout": "split"}, "a head has 3 channels; allowed: an even number"),
    ("differential", {"model_dim": 12, "num_heads": 3}, "is 3; allowed: an even number, of which two make one"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_options_and_sizes_that_do_not_fit_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MECHANISMS[name](**options)


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
