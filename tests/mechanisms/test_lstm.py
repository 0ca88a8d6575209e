import pytest
import torch
from torch import Tensor, nn

from synthbench.mechanisms.lstm import Lstm
from tests.tensors import normal


def reorder(columns: Tensor) -> Tensor:
    """From our order of gates, g, i, f, o, to PyTorch's, i, f, g, o; columns last."""
    g, i, f, o = columns.chunk(4, dim=-1)
    return torch.cat([i, f, g, o], dim=-1)


@pytest.mark.parametrize("length", [1, 9])
def test_hidden_states_and_gradients_are_those_of_pytorch(length: int, generator: torch.Generator) -> None:
    lstm = Lstm(model_dim=6, generator=generator).double()
    assert lstm.gates.bias is not None
    ours = [lstm.gates.weight, lstm.recurrent.weight, lstm.gates.bias]
    reference = nn.LSTM(6, 6, batch_first=True, dtype=torch.float64)
    theirs = [reference.get_parameter(name) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")]
    with torch.no_grad():
        for parameter, copied in zip(theirs, ours, strict=True):
            parameter.copy_(reorder(copied).T if copied.ndim == 2 else reorder(copied))
        reference.get_parameter("bias_hh_l0").zero_()
    x = normal(3, length, 6).requires_grad_()
    hidden, expected = lstm.hidden(x), reference(x)[0]
    gradients = torch.autograd.grad(hidden.sin().sum(), [x, *ours])
    by_x, by_input, by_hidden, by_bias = torch.autograd.grad(expected.sin().sum(), [x, *theirs])

    torch.testing.assert_close(hidden, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        [gradients[0], *(reorder(gradient) for gradient in gradients[1:])],
        [by_x, by_input.T, by_hidden.T, by_bias],
        rtol=1e-9,
        atol=1e-9,
    )
