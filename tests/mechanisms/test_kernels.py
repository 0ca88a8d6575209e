"""Mechanisms that weigh values by a kernel of queries and keys, which is written out here for all pairs."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu

from synthbench.forms.scores import weights
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.cosformer import Cosformer
from synthbench.mechanisms.local import Local
from synthbench.mechanisms.performer import Performer
from synthbench.mechanisms.performer_exp import PerformerExp
from tests.mechanisms.loops import Kernel, built, check_kernel, every
from tests.tensors import normal


def softmax(_unit: object, q: Tensor, k: Tensor) -> Any:
    return (torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5).exp()


def ages(x: Tensor) -> Tensor:
    """Tokens that a key lies before a query."""
    i = torch.arange(x.shape[-2], dtype=torch.float64)
    return i.unsqueeze(1) - i


def within_window(unit: Local, q: Tensor, k: Tensor) -> Any:
    return softmax(unit, q, k) * (ages(q) < unit.window)


def taylor(_unit: object, q: Tensor, k: Tensor) -> Any:
    z = q @ k.mT / q.shape[-1] ** 0.5
    return 1 + z + z**2 / 2


def elu_plus_one(_unit: object, q: Tensor, k: Tensor) -> Any:
    return (elu(q) + 1) @ (elu(k) + 1).mT


def rectified_cosine(unit: Cosformer, q: Tensor, k: Tensor) -> Any:
    return q.clamp(min=0) @ k.clamp(min=0).mT * torch.cos(math.pi * ages(q) / (2 * unit.max_length))


def rectified_projections(unit: Any, q: Tensor, k: Tensor) -> Any:
    phi = [torch.clamp(torch.einsum("bhtd,hdm->bhtm", x, unit.directions), min=0) for x in (q, k)]
    return phi[0] @ phi[1].mT


def cosines(unit: Any, q: Tensor, k: Tensor) -> Any:
    phi = [torch.cos(torch.einsum("bhtd,hdm->bhtm", x, unit.directions) + unit.phases) for x in (q, k)]
    return 2 / unit.M * phi[0] @ phi[1].mT


def exponentials(performer: Any, x: Tensor) -> Any:
    """The features as the paper writes them, not stabilised."""
    y = x / x.shape[-1] ** 0.25
    projections = torch.einsum("...htd,hdm->...htm", y, performer.directions)
    return torch.exp(projections - (y**2).sum(-1, keepdim=True) / 2) / math.sqrt(performer.M)


def positive_features(unit: PerformerExp, q: Tensor, k: Tensor) -> Any:
    return exponentials(unit, q) @ exponentials(unit, k).mT


def yat(unit: Any, q: Tensor, k: Tensor) -> Any:
    """From differences of vectors, pair by pair."""
    distances = (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)
    return torch.einsum("...id,...jd->...ij", q, k) ** 2 / (distances + unit.epsilon)


def yat_of_directions(unit: Any, q: Tensor, k: Tensor) -> Any:
    x = torch.nn.functional.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)
    return x**2 / (2 + unit.epsilon - 2 * x)


def exponential_of(kernel: Kernel) -> Kernel:
    return lambda unit, q, k: (unit.scale * kernel(unit, q, k)).exp()


def power_of(kernel: Kernel) -> Kernel:
    return lambda unit, q, k: kernel(unit, q, k) ** unit.power


def nodes(unit: Any) -> tuple[Tensor, Tensor]:
    """Gauss-Laguerre nodes and weights, one a feature, divided by C = 2 + epsilon."""
    t, alpha = (torch.from_numpy(values) / (2 + unit.epsilon) for values in np.polynomial.laguerre.laggauss(unit.R))
    size = unit.directions.shape[-1] // unit.R
    return t.repeat_interleave(size), alpha.repeat_interleave(size)


def product_of_features(slay: Any, q: Tensor, k: Tensor) -> Any:
    """Anchor features times positive features, whose exponents are clipped at ±20; directions are √(2s) ω."""
    s, w = nodes(slay)
    u = [x / x.norm(dim=-1, keepdim=True) for x in (q, k)]
    of_anchors = [(x @ slay.anchors) ** 2 / slay.P**0.5 for x in u]
    positive = [(w / slay.D).sqrt() * (x @ slay.directions - s).clamp(-20, 20).exp() for x in u]
    return (of_anchors[0] @ of_anchors[1].mT) * (positive[0] @ positive[1].mT)


def squares_times_exponentials(unit: Any, q: Tensor, k: Tensor) -> Any:
    """Both of one projection."""
    s, w = nodes(unit)
    a = [x / x.norm(dim=-1, keepdim=True) @ unit.directions for x in (q, k)]
    phi_q, phi_k = (w.sqrt() / unit.M * each**2 * torch.exp((2 * s).sqrt() * each - s) for each in a)
    return phi_q @ phi_k.mT


def weighted_exponentials(unit: Any, q: Tensor, k: Tensor) -> Any:
    s, w = nodes(unit)
    u = [x / x.norm(dim=-1, keepdim=True) for x in (q, k)]
    phi_q, phi_k = (((2 + unit.epsilon) ** 2 * w / 4 / unit.M).sqrt() * (x @ unit.directions - s).exp() for x in u)
    return phi_q @ phi_k.mT


POWERS: dict[str, Any] = {"normaliser": ["softermax"], "power": [0.25, 2.0]}
SLAY: dict[str, Any] = {"R": [2], "P": [3], "D": [4], "length": [7], "tolerance": [1e-6]}
ROUGH: dict[str, Any] = {"R": [2], "M": [3], "epsilon": [1e-6], "tolerance": [1e-5]}
CASES = [
    *every("softmax", softmax, length=[1, 33], tolerance=[1e-10]),
    *every("local", within_window, length=[1, 20, 33, 97, 130], window=[1, 7, 16, 40]),
    *every("based", taylor, window=[0], conv=[0]),
    *every("linear", elu_plus_one),
    *every("cosformer", rectified_cosine, max_length=[40]),
    *every("performer", rectified_projections, M=[8]),
    *every("rff", cosines, M=[32], size=[0.1]),
    *every("performer-exp", positive_features, omega=["iid", "orthogonal"], delta=[0.0]),
    *every("yat", exponential_of(yat), epsilon=[1e-6, 1e-3, 0.5], scale=[0.1, 1.0]),
    *every("yat", exponential_of(yat), epsilon=[0.5], scale=[3.0]),
    *every("yat", yat, normaliser=["sum"]),
    *every("yat", power_of(yat), **POWERS),
    *every("yat-sum", yat),
    *every("yat-spherical", yat_of_directions, epsilon=[1e-6, 1e-3, 1e-2]),
    *every("yat-spherical", exponential_of(yat_of_directions), normaliser=["softmax"]),
    *every("yat-spherical", power_of(yat_of_directions), **POWERS),
    *every("slay", product_of_features, guard=["add", "clamp"], delta=[1e-6, 0.05], **SLAY),
    *every("slay-hadamard", squares_times_exponentials, **ROUGH),
    *every("slay-laplace", weighted_exponentials, **ROUGH),
]


@pytest.mark.parametrize(("name", "kernel", "given"), CASES)
def test_values_and_gradients_are_those_of_the_kernel(name: str, kernel: Kernel, given: dict[str, Any]) -> None:
    check_kernel(name, kernel, **given)


def test_scores_of_local_attention_are_those_by_which_it_attends() -> None:
    local, (q, k, v) = Local(window=7), normal(3, 2, 4, 97, 8)

    torch.testing.assert_close(weights(local.scores(q, k), local.normaliser) @ v, local.attend(q, k, v))


def arc_cosine(unit: Performer, q: Tensor, k: Tensor) -> Any:
    """The kernel of order one of Cho and Saul, for each of the M features."""
    lengths = q.norm(dim=-1).unsqueeze(1) * k.norm(dim=-1)
    cosine = (q @ k.mT) / lengths
    theta = cosine.acos()
    return unit.M * lengths / (2 * math.pi * 4) * (theta.sin() + (math.pi - theta) * cosine)


def gaussian(unit: Any, q: Tensor, k: Tensor) -> Any:
    return (-torch.cdist(q, k).square() / (2 * getattr(unit, "bandwidth", 1.0) ** 2)).exp()


def of_hadamard(unit: Any, q: Tensor, k: Tensor) -> Any:
    """With one node, t = α = 1, of which s and w are a share of 1 / C. It is the Yat kernel nowhere, nor 0 at x = 0."""
    x = torch.nn.functional.cosine_similarity(q.unsqueeze(1), k, dim=-1)
    s = 1 / (2 + unit.epsilon)
    m2 = 2 * s * (1 + x) ** 2
    return s / unit.M * torch.exp(2 * s * x) * ((m2 + 1) ** 2 + 4 * m2 * x + 2 * x**2)


@pytest.mark.parametrize(
    ("name", "kernel", "num_heads", "head_dim", "size", "given"),
    [
        ("performer", arc_cosine, 64, 4, 1.0, {"M": 1024}),
        ("rff", gaussian, 64, 4, 1.0, {"M": 1024}),
        ("performer-exp", softmax, 64, 8, 0.5, {"M": 2048, "omega": "iid"}),
        ("performer-exp", softmax, 64, 8, 0.5, {"M": 2048, "omega": "orthogonal"}),
        ("rewa-functional", gaussian, 512, 4, 0.5, {"D": 64, "bandwidth": 0.5}),  # theorem 5.3 of REWA
        ("rewa-functional", gaussian, 512, 4, 3.0, {"D": 64, "bandwidth": 3.0}),
        ("slay-hadamard", of_hadamard, 256, 4, 1.0, {"R": 1, "M": 1024}),
    ],
)
def test_random_features_expect_the_kernel(
    name: str, kernel: Kernel, num_heads: int, head_dim: int, size: float, given: dict[str, Any]
) -> None:
    """Heads draw features of their own, and all see the same queries and keys, of which the first are orthogonal."""
    unit: Any = built(MECHANISMS[name], model_dim=num_heads * head_dim, num_heads=num_heads, **given)
    axes = torch.eye(head_dim, dtype=torch.float64)
    q, k = (size * torch.cat([axes[i : i + 1], normal(5, head_dim, seed=i)]) for i in range(2))

    phi_q, phi_k = (unit.features(x.expand(num_heads, 6, head_dim), "key") for x in (q, k))
    kernels, expected = phi_q @ phi_k.mT, kernel(unit, q, k)
    errors = kernels.std(0) / num_heads**0.5

    assert ((kernels.mean(0) - expected).abs() < 4 * errors).all()
    assert (errors < 0.1 * expected.clamp(min=0.1 * float(expected.max()))).all()


def test_stabilised_queries_are_those_of_the_paper_over_their_largest(generator: torch.Generator) -> None:
    performer = PerformerExp(generator=generator).double()
    q = normal(4, 5, 16)
    plain = exponentials(performer, q)

    torch.testing.assert_close(performer.features(q, "query") * 8, plain / plain.amax(-1, keepdim=True))
