"""Biases, weight decay and first values of the layers as their authors build them, and of the bare ones."""

from typing import Any

import pytest
import torch

from synthbench.layers import UndecayedParameter
from synthbench.mechanisms import MECHANISMS, Mechanism

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
