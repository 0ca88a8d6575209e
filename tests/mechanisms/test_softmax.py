import pytest
import torch

from synthbench.mechanisms.softmax import Softmax
from tests.tensors import mix, normal, with_gradients


@pytest.mark.parametrize("shape", [(3, 1, 16), (2, 3, 33, 16), (2, 2, 3, 33, 16)])
def test_weights_are_exponentials_of_scaled_inner_products(shape: tuple[int, ...]) -> None:
    q, k, v = qkv = [normal(*shape, seed=seed).requires_grad_() for seed in range(3)]
    kernel = (torch.einsum("...id,...jd->...ij", q, k) / 4).exp()

    fused, naive = Softmax().attend(q, k, v), mix(kernel, v, delta=0.0)

    torch.testing.assert_close(with_gradients(fused, qkv), with_gradients(naive, qkv), rtol=1e-10, atol=1e-10)
