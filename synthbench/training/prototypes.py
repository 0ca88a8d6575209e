"""Models of tasks that ask for the class of one vector: the mechanism's kernel of the vector and of prototypes.

Attention scores a query against keys. Here the query is the vector and the keys are the prototypes of the classes, so a
mechanism is tried by its kernel alone: without projections, positions, values or anything around it.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from synthbench.blocks import Block
from synthbench.errors import ContractError, UsageError
from synthbench.forms import linear
from synthbench.layers import uniform
from synthbench.mechanisms import FeatureAttention, Mechanism, ScoreAttention, num_parameters
from synthbench.training.causality import TOLERANCE
from synthbench.training.ensemble import MemberIds, Model, ModelSize, Strategy

TOKENS_AT_ONCE = 1 << 22
"""Pixels of a piece: nothing as large as this is kept for each of them, as in a model of sequences."""
BAG_TOKENS_AT_ONCE = 1 << 17
"""The same of bags, whose scores of thousands of labels are what takes memory: at most some thousand bags."""
NUM_TRIED = 64
"""Vectors, and prototypes, on which a kernel is tried."""


class PrototypeModel(Model):
    r"""Scores :math:`s \, \kappa(x, w_c)` of the classes c, of one member or of many; tokens become numbers in [0, 1].

    The prototypes ``weight`` are [members, classes, dim], uniform at first. The scale
    :math:`s = (n / \log(1 + n))^\alpha` has a learned :math:`\alpha`, 1 at first; n is the number of classes.

    Source: Bouhsine (2026), sections 2.3 and 3.3, for the Yat product.
    """

    tokens_at_once = TOKENS_AT_ONCE

    def __init__(
        self,
        mechanism: type[Mechanism],
        fields: dict[str, Any],
        num_classes: int,
        levels: int,
        generator: torch.Generator,
        std: float | None = None,
    ) -> None:
        """Draw what the kernel keeps frozen, then the prototypes.

        Args:
            mechanism: Whose kernel.
            fields: What it is built with; its width is that of the vectors.
            num_classes: Classes.
            levels: Tokens; the largest stands for 1.
            generator: What all is drawn from.
            std: Standard deviation of the prototypes' entries at first; None: that of ``layers.Linear``.
        """
        super().__init__()
        kernel = mechanism(**fields, generator=generator)
        _check_kernel(kernel)
        del kernel.qkv, kernel.out  # projections are no part of a kernel
        self.kernels = nn.ModuleList([kernel])
        self.levels = levels
        bound = kernel.model_dim**-0.5 if std is None else std * 3**0.5
        self.weight = uniform((1, num_classes, kernel.model_dim), bound, generator)
        self.alpha = nn.Parameter(torch.ones(1, 1))
        self.initial = nn.Buffer(self.weight.detach().clone(), persistent=False)

    def beside(
        self,
        others: "Sequence[PrototypeModel]",
        strategies: Strategy | Sequence[Strategy],  # noqa: ARG002 - the kernels run one after the other
    ) -> "PrototypeModel":
        """Stack prototypes and scales, and whatever else is trained."""
        models = (self, *others)
        stacked = copy.deepcopy(self)
        stacked.kernels = nn.ModuleList(kernel for model in models for kernel in model.kernels)
        for name, _ in self.named_parameters(recurse=False):
            own = [model.get_parameter(name).detach() for model in models]
            setattr(stacked, name, nn.Parameter(torch.cat(own)))
        stacked.initial = nn.Buffer(torch.cat([model.initial for model in models]), persistent=False)
        return stacked

    @property
    def layers(self) -> list[Block]:
        """None."""
        return []

    def size(self, length: int) -> ModelSize:  # noqa: ARG002 - a kernel of two vectors keeps nothing
        """All parameters; of them the prototypes and the scale are the mechanism's. Nothing is kept."""
        return ModelSize(num_parameters(self), self.weight.numel() + self.alpha.numel(), 0)

    def forward(
        self,
        tokens: MemberIds,
        columns: Int[Tensor, " columns"] | None = None,  # noqa: ARG002 - there is one answer
    ) -> Float[Tensor, "members batch 1 classes"]:
        """Score every class, as at the last position."""
        x = self.vectors(tokens)
        values = torch.stack(
            [kernel_values(kernel, *pair) for kernel, *pair in zip(self.kernels, x, self.weight, strict=True)]
        )
        return (self.scale[..., None] * values)[..., None, :]

    def vectors(self, tokens: MemberIds) -> Float[Tensor, "members batch dim"]:
        """The vector that is compared with the prototypes: the tokens as numbers."""
        return tokens.to(self.weight.dtype) / (self.levels - 1)

    @property
    def scale(self) -> Float[Tensor, "members 1"]:
        """The factor s of each member."""
        num_classes = self.weight.shape[1]
        return (self.alpha * math.log(num_classes / math.log1p(num_classes))).exp()

    @contextmanager
    def inverted(self) -> Iterator[None]:
        """With -w in the place of every prototype w."""
        with torch.no_grad():
            self.weight.neg_()
            try:
                yield
            finally:
                self.weight.neg_()

    @torch.no_grad()
    def facts(self) -> list[dict[str, float]]:
        """For each member alpha, and by how much its prototypes grew: the change of their mean length, as a share."""
        before, after = (weight.norm(dim=-1).mean(-1) for weight in (self.initial, self.weight))
        growth = (after / before - 1).tolist()
        return [
            {"alpha": alpha, "growth": share}
            for alpha, share in zip(self.alpha.flatten().tolist(), growth, strict=True)
        ]


class BagModel(PrototypeModel):
    """Scores labels of a bag of features: a :class:`PrototypeModel` of the weighted sum of their learned vectors.

    The first half of the tokens are features, 0 for none, and the second half their weights, of which the largest token
    stands for 1. Their vectors ``embedding`` are [members, levels, dim], N(0, 1) at first.
    """

    tokens_at_once = BAG_TOKENS_AT_ONCE

    def __init__(
        self,
        mechanism: type[Mechanism],
        fields: dict[str, Any],
        num_classes: int,
        levels: int,
        generator: torch.Generator,
        std: float | None = None,
    ) -> None:
        """Draw all that a :class:`PrototypeModel` has, then the vectors of features."""
        super().__init__(mechanism, fields, num_classes, levels, generator, std)
        shape = (1, levels, self.weight.shape[-1])
        self.embedding = nn.Parameter(torch.empty(shape).normal_(generator=generator))

    def vectors(self, tokens: MemberIds) -> Float[Tensor, "members batch dim"]:
        """The sum over a bag's features; members are more rows of one table."""
        members, batch, length = tokens.shape
        features, weights = tokens[..., : length // 2], tokens[..., length // 2 : length // 2 * 2]
        firsts = torch.arange(0, members * self.levels, self.levels, device=tokens.device)
        bags: Tensor = nn.functional.embedding_bag(
            (features + firsts[:, None, None]).flatten(0, 1),
            self.embedding.flatten(0, 1),
            per_sample_weights=(weights.to(self.weight.dtype) / (self.levels - 1)).flatten(0, 1),
            mode="sum",
        )
        return bags.view(members, batch, -1)


def kernel_values(
    kernel: nn.Module, x: Float[Tensor, "batch dim"], prototypes: Float[Tensor, "classes dim"]
) -> Float[Tensor, "batch classes"]:
    """The kernel of every vector, a query, and every prototype, a key."""
    q, k = x[None], prototypes[None]  # in one head
    if isinstance(kernel, FeatureAttention):
        return linear.kernel(kernel.factors(q, "query"), kernel.factors(k, "key"))[0]
    if isinstance(kernel, ScoreAttention):
        return kernel.scores(q, k)[0]
    raise _without_kernel(kernel)


def _check_kernel(kernel: Mechanism) -> None:
    """Refuse a mechanism whose value for a pair is trained, or depends on other pairs or on places."""
    if not isinstance(kernel, ScoreAttention | FeatureAttention):
        raise _without_kernel(kernel)
    if kernel.num_heads != 1:
        raise UsageError(f"model.num_heads is {kernel.num_heads}; allowed with prototypes: 1")
    trained = [name for name, _ in kernel.named_parameters() if not name.startswith(("qkv.", "out."))]
    has_places = (
        isinstance(kernel, FeatureAttention)
        and type(kernel).position_features is not FeatureAttention.position_features
    )
    if trained or has_places:
        raise _without_kernel(kernel)
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(2, NUM_TRIED, kernel.model_dim, generator=generator)
    with torch.no_grad():
        alone = kernel_values(kernel, x[-1:], w[:1])
        for queries, keys in ((x, w), (x[-1:], w), (x, w[:1])):
            if not torch.allclose(kernel_values(kernel, queries, keys)[-1:, :1], alone, rtol=1e-3):
                raise _without_kernel(kernel)


def _without_kernel(kernel: nn.Module) -> UsageError:
    return UsageError(
        f"mechanism {getattr(kernel, 'name', '')!r} has no fixed kernel of a query and a key, which is all that a task "
        "with prototypes uses of it; allowed: those that have one, such as softmax, yat, yat-spherical, slay, performer"
    )


@torch.inference_mode()
def check_alone(model: PrototypeModel, tokens: MemberIds) -> None:
    """Check that the scores of a vector stay as they are when every other vector of its batch is another one.

    Raises:
        ContractError: If they change.
    """
    changed = tokens.clone()
    changed[:, ::2] = tokens.roll(1, 1)[:, ::2]
    before, after = (model(some)[:, 1::2] for some in (tokens, changed))
    size = before.abs().amax((1, 2, 3), keepdim=True) if before.numel() else before
    if not bool(((before - after).abs() <= TOLERANCE * size).all()):
        raise ContractError("the model as trained lets the vectors of a batch see each other")
