import math

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.mechanisms.cosformer import Cosformer
from tests.tensors import mix, normal


def test_weights_are_rectified_products_times_the_cosine_of_the_distance() -> None:
    q, k, v = (normal(2, 4, 30, 16, seed=seed) for seed in range(3))
    i = torch.arange(30, dtype=torch.float64)
    kernel = q.clamp(min=0) @ k.clamp(min=0).mT * torch.cos(math.pi * (i.unsqueeze(1) - i) / (2 * 40))

    torch.testing.assert_close(Cosformer(max_length=40).attend(q, k, v), mix(kernel, v))


def test_a_sequence_longer_than_the_model_was_built_for_is_refused() -> None:
    with pytest.raises(UsageError, match="length is 9; cosformer was built for max_length=8"):
        Cosformer(max_length=8)(torch.zeros(1, 9, 64))
