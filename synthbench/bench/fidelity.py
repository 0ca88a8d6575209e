"""Errors of linear attention against the kernel that it approximates, compared with the errors of a running mean.

The running mean is the mean of the values up to each position; it ignores queries and keys. The protocol follows the
SLAY paper's Table 6. Inputs and projections are random and shared by all estimators (ways to compute or approximate the
attention); the error is measured on the layer's outputs. Three results are added to the paper's results: the running
mean, the limits of infinitely many features, and the errors of single approximations. The single approximations are
quadrature alone, and quadrature with either anchors or random features.

The projections of the published protocol have biases. The biases add the same correct part to the outputs of every
estimator, including the running mean, so all errors look smaller. Without biases, the error of the running mean is 0.79
instead of 0.64.

Source: Luna et al. (2026), section 3.2 and table 6.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any, cast

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.bench.instruments import interleaved
from synthbench.bench.rows import Row, Table
from synthbench.errors import UnknownName, UsageError
from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.quadrature import inverse_distance
from synthbench.forms.scores import weights
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.mechanisms.slay.slay import Slay
from synthbench.mechanisms.yat_spherical import YatSpherical
from synthbench.options import coerce, options_of, parse_term, term_of
from synthbench.registry import version_of

BATCH_SIZE, MODEL_DIM, NUM_HEADS, EPSILON = 8, 64, 4, 1e-6

Estimator = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function from q, k, v [batch, heads, length, head_dim] to the outputs of the heads."""
Others = Callable[["Budget", int, torch.device], dict[str, Estimator]]


@dataclass(frozen=True)
class Budget:
    """A sequence length, and the numbers of features that an estimator of attention may use."""

    name: str
    length: int
    nodes: int
    features: int
    """Number of positive random features per quadrature node."""
    polynomial: int
    """Width of the polynomial factor."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the mechanism that differ from its defaults."""


BUDGETS = {
    budget.name: budget
    for budget in (Budget("small", 128, 2, 8, 8), Budget("medium", 256, 2, 16, 16), Budget("large", 512, 2, 32, 32))
}

COMPARED = (
    "slay-laplace",
    "slay-hadamard",
    "slay-exact",
    "slay-nystrom",
    "slay-tensorsketch",
    "slay-maclaurin",
    "slay-sketch",
)


IDENTITY = ("budget", "estimator", "bias", "seed")
"""Columns that identify a row among the rows of one device."""


def measure(
    names: Sequence[str],
    seeds: Sequence[int],
    table: Table,
    *,
    num_repeats: int,
    bias: bool = True,
    mechanisms: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Row]:
    """Measure the error and latency of estimators of attention, one row per estimator, budget and seed.

    An estimator computes attention, exactly or approximately. The exact kernel, ``slay`` and the running mean of the
    values are always measured. If all rows of a budget and seed are already in the table, for the same versions of the
    mechanisms, they are not measured again.

    Args:
        names: Names of budgets: ``small``, ``medium`` or ``large``. A budget sets the sequence length and the numbers
            of features.
        seeds: Seeds; each seed draws different inputs, projections and features.
        table: Table that receives the rows. It names the device on which the estimators are timed.
        num_repeats: Number of timings of an estimator; the median is reported.
        bias: True if the projections have biases, as in the SLAY paper.
        mechanisms: Mechanisms to measure instead of the paper's other estimators (those that are not always measured).
            Keys are names of mechanisms, and values are dictionaries of options.

    Raises:
        UnknownName: If a budget, mechanism or option does not exist.
        UsageError: If a mechanism does not compute attention from queries, keys and values.
        StoreError: If the table cannot be written.
    """
    for name in names:
        if name not in BUDGETS:
            raise UnknownName("budget", name, BUDGETS)
    budgets = [BUDGETS[name] for name in names]
    others = partial(_chosen, _checked(mechanisms)) if mechanisms else estimators_of
    return _all(budgets, seeds, table, others, num_repeats=num_repeats, bias=bias)


def sweep(seeds: Sequence[int], table: Table, *, num_repeats: int, bias: bool = True) -> Iterator[Row]:
    """Measure ``slay`` at the smallest budget (length and numbers of features), then with one option changed at a time.

    The exact kernel and the running mean of the values are measured too. The arguments and exceptions are explained in
    :func:`measure`.
    """
    base = BUDGETS["small"]
    budgets = [
        base,
        *(replace(base, name=f"nodes {nodes}", nodes=nodes) for nodes in (1, 3, 5, 8)),
        *(replace(base, name=f"features {features}", features=features) for features in (16, 32, 64, 128, 256)),
        *(replace(base, name=f"anchors {anchors}", polynomial=anchors) for anchors in (16, 32, 64, 128, 256)),
        replace(base, name="orthogonal", arguments={"omega": "orthogonal"}),
    ]
    return _all(budgets, seeds, table, partial(_chosen, {}), num_repeats=num_repeats, bias=bias)


def _all(
    budgets: Sequence[Budget], seeds: Sequence[int], table: Table, others: Others, *, num_repeats: int, bias: bool
) -> Iterator[Row]:
    """Yield rows for the exact kernel, ``slay``, the running mean and ``others``, but not for seeds in the table.

    Random numbers are drawn on the CPU, so that all devices get the same.
    """
    device = table.device
    for budget, seed in product(budgets, seeds):
        generator = torch.Generator().manual_seed(seed)
        target = YatSpherical(model_dim=MODEL_DIM, num_heads=NUM_HEADS, epsilon=EPSILON, bias=bias, generator=generator)
        x = torch.randn(BATCH_SIZE, budget.length, MODEL_DIM, generator=generator)
        target = target.to(device)
        slay = _mechanism("slay", budget, seed, device)
        fixed = {"exact": target.attend, "slay": slay.attend, "mean": running_mean}
        estimators = fixed | others(budget, seed, device)
        begun = {"bench": "fidelity", "budget": budget.name, "bias": bias, "seed": seed}
        if all(table.find({**begun, **_about(name)}) is not None for name in estimators):
            continue
        with torch.no_grad():
            q, k, v = target.heads(x.to(device))
            expected = target.merge_heads(target.attend(q, k, v))
            outs = {name: target.merge_heads(estimate(q, k, v)) for name, estimate in estimators.items()}
            calls = {name: partial(estimate, q, k, v) for name, estimate in estimators.items()}
            seconds = interleaved(calls, num_repeats, device)
        for name, out in outs.items():
            row = {
                "length": budget.length,
                "R": budget.nodes,
                "D": budget.features,
                "P": budget.polynomial,
                **errors(out, expected),
                "latency_ms": 1e3 * median(seconds[name]),
            }
            yield table.add({**begun, **_about(name), **row})


def _about(estimator: str) -> dict[str, str]:
    """Return an estimator's name, and the versions of its mechanism and of the mechanism with the exact kernel.

    An estimator is a way to compute or approximate attention.
    """
    name, _ = parse_term(estimator)
    unit = MECHANISMS[name] if name in MECHANISMS and name != "mean" else Slay
    return {"estimator": estimator, "mech_version": f"{version_of(unit)} against {version_of(YatSpherical)}"}


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Average errors over seeds; return one dictionary for each budget and estimator of attention.

    ``rel_l2`` is the mean relative L2 error, ``rel_l2_std`` its sample standard deviation over seeds, and
    ``latency_ms`` the median latency.
    """
    if not rows:
        return []
    groups = pd.DataFrame(rows).groupby(["budget", "estimator"], sort=False)
    facts = groups.agg(
        seeds=("seed", "size"),
        rel_l2=("rel_l2", "mean"),
        rel_l2_std=("rel_l2", "std"),
        cosine=("cosine", "mean"),
        mse=("mse", "mean"),
        latency_ms=("latency_ms", "median"),
    ).reset_index()
    of_mean = facts["budget"].map(facts[facts["estimator"] == "mean"].set_index("budget")["rel_l2"])
    facts = facts.assign(better_than_mean=facts["rel_l2"] < of_mean).astype(object)
    summed_up: list[dict[Any, Any]] = facts.where(facts.notna(), None).to_dict("records")
    return summed_up


def errors(out: Float[Tensor, "*batch dim"], expected: Float[Tensor, "*batch dim"]) -> dict[str, float]:
    """Compare ``out`` with ``expected``: relative L2 error, mean cosine similarity and mean squared error."""
    difference = out - expected
    return {
        "rel_l2": float(difference.norm() / expected.norm()),
        "cosine": float(torch.cosine_similarity(out, expected, dim=-1).mean()),
        "mse": float(difference.square().mean()),
    }


def estimators_of(budget: Budget, seed: int, device: torch.device) -> dict[str, Estimator]:
    """Build estimators (functions that compute or approximate attention), with their names as keys.

    They are the variants of ``slay`` in its paper, kernels with only some approximations of ``slay``, and limits of
    infinitely many features.
    """
    slay = cast("Slay", _mechanism("slay", budget, seed, device))

    def exponentials(x: Tensor) -> Tensor:
        return inverse_distance(budget.nodes, EPSILON, x)

    def anchors_only(q: Tensor, k: Tensor) -> Tensor:
        return slay.polynomial(q) @ slay.polynomial(k).mT * exponentials(q @ k.mT)

    def random_features_only(q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT).square() * (slay.exponential(q) @ slay.exponential(k).mT)

    return {
        "square alone": _by_cosine(torch.square),
        "quadrature": _by_cosine(lambda x: x.square() * exponentials(x)),
        "quadrature and anchors": _by_kernel(anchors_only),
        "quadrature and random features": _by_kernel(random_features_only),
        "anchors, limit": _by_cosine(lambda x: (1 + 2 * x.square()) * exponentials(x)),
        "Laplace, limit": _by_cosine(exponentials),
        **{name: _mechanism(name, budget, seed, device).attend for name in COMPARED},
    }


def _checked(mechanisms: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Check mechanisms and their options, and return the options converted to their types.

    Raises:
        UnknownName: If a mechanism or an option does not exist.
        UsageError: If a mechanism is not attention by queries, keys and values.
    """
    for name in mechanisms:
        if not issubclass(MECHANISMS[name], Attention):
            raise UsageError(f"mechanism {name!r} has no kernel to compare; allowed: attention, such as 'slay'")
    return {name: coerce("mechanism", MECHANISMS[name], dict(options)) for name, options in mechanisms.items()}


def _chosen(
    mechanisms: Mapping[str, dict[str, Any]], budget: Budget, seed: int, device: torch.device
) -> dict[str, Estimator]:
    return {
        term_of(MECHANISMS[name], options): _mechanism(name, replace(budget, arguments=options), seed, device).attend
        for name, options in mechanisms.items()
    }


def running_mean(_q: Tensor, _k: Tensor, v: Tensor) -> Tensor:
    """Average the values up to each position, ignoring queries and keys, as a reference for all estimators."""
    return v.cumsum(-2) / torch.arange(1, v.shape[-2] + 1, dtype=v.dtype, device=v.device).unsqueeze(-1)


def _mechanism(name: str, budget: Budget, seed: int, device: torch.device) -> Attention:
    """Build a mechanism on a device, with the budget's numbers of features.

    If a variant has a single option ``M`` for its number of features, M is the product of the numbers of random and
    polynomial features, ``D * P``.
    """
    unit = MECHANISMS[name]
    sizes = {"R": budget.nodes, "D": budget.features, "P": budget.polynomial, "epsilon": EPSILON}
    sizes["M"] = budget.features * budget.polynomial
    arguments = {key: value for key, value in {**sizes, **budget.arguments}.items() if key in options_of(unit)}
    generator = torch.Generator().manual_seed(seed + 1)
    mechanism = unit(model_dim=MODEL_DIM, num_heads=NUM_HEADS, generator=generator, **arguments)
    return cast("Attention", mechanism.to(device))


def _by_cosine(kernel: Callable[[Tensor], Tensor]) -> Estimator:
    return _by_kernel(lambda q, k: kernel(q @ k.mT))


def _by_kernel(kernel: Callable[[Tensor, Tensor], Tensor]) -> Estimator:
    """Build the estimator that weights values by a kernel of the unit vectors of queries and keys."""
    return lambda q, k, v: weights(kernel(unit_vectors(q), unit_vectors(k)), "sum") @ v
