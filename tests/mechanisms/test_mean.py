import torch

from synthbench.mechanisms.mean import Mean
from tests.tensors import normal


def test_output_is_the_average_of_the_values_so_far(generator: torch.Generator) -> None:
    mean, x = Mean(model_dim=6, generator=generator).double(), normal(3, 20, 6)
    values = mean.value(x)
    expected = torch.stack([mean.out(values[:, : t + 1].mean(1)) for t in range(20)], dim=1)

    torch.testing.assert_close(mean(x), expected)
