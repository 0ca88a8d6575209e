"""Facts that every mechanism states and declares, sizes that it refuses, and its outputs for unusual inputs."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.forms.own import own_form
from synthbench.layers import UndecayedParameter
from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.sources import bibtex
from tests.mechanisms.loops import built
from tests.reports._made import MECHANISMS as LABELS
from tests.tensors import is_repeatable, normal, with_gradients


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
    mechanism: Any = built(MECHANISMS[name], max_length=length)
    q, k, v = qkv = [normal(2, 2, length, 4, seed=seed).requires_grad_() for seed in range(3)]
    among, alone = mechanism.attend(q, k, v)[..., -queries:, :], mechanism.attend(q[..., -queries:, :], k, v)

    torch.testing.assert_close(with_gradients(alone, qkv), with_gradients(among, qkv), rtol=1e-9, atol=1e-10)


SHORT, LONG = 21, 1100
LONG_FORMS = ["performer", "rewa-fourier", "rewa-euclidean", "yat-sum", "gla", "deltanet", "local"]
"""One mechanism for each form of long sequences: streamed, in chunks, in blocks, in tiles, recurrent, banded."""
SIGNED = {"rff", "rewa-functional", "slay-maclaurin", "slay-nystrom", "slay-sketch", "slay-tensorsketch"}
"""Denominators can come near zero, where rounding decides."""
NO_HALF = "rewa-fourier"
"""A CPU has no Fourier transform of half precision, and PyTorch says so."""


def made(name: str, dtype: torch.dtype) -> Mechanism:
    return built(MECHANISMS[name], model_dim=16, max_length=LONG).to(dtype)


def draw(length: int, dtype: torch.dtype) -> Tensor:
    return normal(1 if length == LONG else 2, length, 16).to(dtype)


@pytest.mark.parametrize(
    ("name", "length", "dtype"),
    [
        *[(name, SHORT, torch.bfloat16) for name in MECHANISMS],
        *[(name, LONG, torch.float16 if name == "yat-sum" else torch.bfloat16) for name in LONG_FORMS],
    ],
)
def test_half_precision_gives_the_right_outputs_to_its_rounding(name: str, length: int, dtype: torch.dtype) -> None:
    if name == NO_HALF:
        with pytest.raises(RuntimeError, match="Unsupported dtype"):
            made(name, dtype)(draw(length, dtype))
        return
    expected = made(name, torch.float64)(draw(length, torch.float64))

    out = made(name, dtype)(draw(length, dtype))

    assert out.dtype == dtype
    error = (out.double() - expected).abs().max() / expected.abs().max()
    assert error < 0.1 or (name in SIGNED and bool(out.isfinite().all()))


@pytest.mark.parametrize(
    ("name", "length"), [*[(name, SHORT) for name in MECHANISMS], *[(name, LONG) for name in LONG_FORMS]]
)
def test_no_sequence_odd_memory_and_a_second_backward_pass(name: str, length: int) -> None:
    mechanism, x = made(name, torch.float64), draw(length, torch.float64)

    odd = x.mT.contiguous().mT.requires_grad_()
    out = mechanism(odd)
    torch.testing.assert_close(out, mechanism(x))
    assert is_repeatable(out, [odd])
    nothing = x[:0].requires_grad_()
    assert mechanism(nothing).shape == (0, length, 16)
    mechanism(nothing).sum().backward()
    assert nothing.grad is not None


BIASES = {
    "hyena": ("project_in out own_convolution first second third", "project_in out"),
    "mamba1": ("step own_convolution", "project_in out"),
    "mamba2": ("step taps", "project_in out taps"),
    "mlstm": ("input forget token_convolution", "qkv out output_gate"),
    "rwkv7": ("decay rate", "qkv out"),
}
"""Biases of the stock layer, whatever the suite says, and those that the bare layer has if the suite says so."""

UNDECAYED = {
    "deltaproduct": "log_rate gate_bias",
    "gated-deltanet": "log_rate gate_bias",
    "kda": "log_rate gate_bias",
    "mamba1": "log_rate skip step_bias",
    "mamba2": "log_rate skip step_bias",
    "mlstm": "input_bias forget_bias token_convolution.bias gain skip",
}
DECAYED = {
    "hyena": "project_in.weight project_in.bias out.weight out.bias own_convolution.weight own_convolution.bias skip",
    "rwkv7": "qkv.weight out.weight",
    "slstm": "gates.weight own_convolution.weight",
}
"""Parameters that weight decay does not touch in the stock layer, or all that it does."""


def names_of(net: Mechanism, kind: type[torch.nn.Parameter] = torch.nn.Parameter) -> set[str]:
    return {name for name, parameter in net.named_parameters() if isinstance(parameter, kind)}


def biases_of(net: Mechanism) -> set[str]:
    return {name.removesuffix("bias")[:-1] for name in names_of(net) if name.endswith("bias")}


@pytest.mark.parametrize("name", BIASES)
def test_stock_has_the_biases_of_its_authors_and_bare_those_of_the_suite(name: str) -> None:
    unit = MECHANISMS[name]
    bare: dict[str, Any] = {**unit.bare}
    of_authors, of_suite = (set(names.split()) for names in BIASES[name])

    assert [biases_of(unit(bias=bias)) for bias in (True, False)] == [of_authors] * 2
    assert biases_of(unit(bias=True, **bare)) - biases_of(unit(bias=False, **bare)) == of_suite


@pytest.mark.parametrize("name", UNDECAYED | DECAYED)
def test_weight_decay_leaves_alone_what_it_does_with_the_authors_unless_it_is_bare(name: str) -> None:
    unit = MECHANISMS[name]
    bare: dict[str, Any] = {**unit.bare}
    alone = names_of(unit(), UndecayedParameter)

    if name in UNDECAYED:
        assert alone == set(UNDECAYED[name].split())
    else:
        assert names_of(unit()) - alone == set(DECAYED[name].split())
    assert not names_of(unit(**bare), UndecayedParameter)


FORMS = ("own_kernel", "yat_sides", "key_exponents")
DECLARED = [
    ("performer-exp", "key_exponents"),
    ("slay", "own_kernel"),
    ("yat", "yat_sides"),
    ("yat-spherical", "own_kernel"),
    ("yat-spherical", "yat_sides"),
    ("yat-sum", "yat_sides"),
]


def test_these_forms_are_declared() -> None:
    found = [(name, form) for name in MECHANISMS for form in FORMS if own_form(MECHANISMS[name](), form) is not None]

    assert sorted(found) == DECLARED


@pytest.mark.parametrize(("name", "form"), DECLARED)
def test_a_form_is_not_inherited_but_may_be_declared_again(name: str, form: str) -> None:
    unit = MECHANISMS[name]
    heir, twin = (type("Heir", (unit,), declared) for declared in ({}, {form: vars(unit)[form]}))

    assert own_form(heir(), form) is None
    assert own_form(twin(), form) is not None
