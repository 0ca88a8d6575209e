import torch

from tests.moved import MOST, moved


def test_numbers_move_by_their_own_bits_and_hardly() -> None:
    x = torch.cat([torch.zeros(1), torch.linspace(-3, 3, 1000), torch.linspace(-3, 3, 1000)])

    y = moved(x)

    distance = (y.view(torch.int32) - x.view(torch.int32)).abs()
    assert y[0] == 0
    assert torch.equal(y[1:1001], y[1001:])
    assert distance.unique().tolist() == list(range(MOST + 1))
