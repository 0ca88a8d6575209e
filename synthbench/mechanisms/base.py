"""Base classes of mechanisms; derive from the first class of this table that fits.

============================  ================================  ====================================================
class                         you implement                     you inherit
============================  ================================  ====================================================
:class:`ScoreAttention`       ``scores(q, k)``, a normaliser    causal mask, query blocks for long sequences
:class:`FeatureAttention`     ``features(x, side)``             attention by Gram matrix, by chunks, by recurrence
:class:`Attention`            ``attend(q, k, v)``               projections and heads
:class:`Mechanism`            ``forward(x)``                    a place in the registry
============================  ================================  ====================================================

A plain causal ``nn.Module`` can be a mechanism too: :func:`mechanism` registers it unchanged.

Write the code for a single run, that is, a model trained with one seed and learning rate. If the code works on trailing
axes only and broadcasts over leading axes, many runs are trained together, as one model. Otherwise, they are trained
one after the other.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu

from synthbench.errors import ContractError, UsageError
from synthbench.forms import kernels, linear, log_space, scores, streaming, yat_tiles
from synthbench.forms.linear import Guard
from synthbench.forms.own import own_form
from synthbench.forms.scores import Normaliser
from synthbench.forms.shapes import (
    AnswerHeads,
    KeyHeads,
    KeyRows,
    Keys,
    PairScores,
    Queries,
    QueryHeads,
    Token,
    Tokens,
    ValueHeads,
)
from synthbench.forms.state import State
from synthbench.layers import FieldModule, Linear, Mixer, Rotation, ShortConvolution
from synthbench.mechanisms import _module
from synthbench.options import Value, absent_values, check, option
from synthbench.plugins import STANDS_FOR
from synthbench.registry import Registry

Side = linear.Side
U = TypeVar("U", bound=nn.Module)


@dataclass(eq=False, repr=False, kw_only=True)
class Mechanism(FieldModule, Mixer):
    """A causal map from sequence to sequence: the part of a model's layer that mixes positions.

    The fields made by :func:`synthbench.options.option` are the mechanism's hyper-parameters. ``model_dim``,
    ``num_heads``, ``max_length`` and ``bias`` describe the surrounding model.
    """

    kind: ClassVar = "mechanism"
    name: ClassVar[str]
    """The registered name: the file's name with ``-`` in place of ``_``."""
    label: ClassVar[str]
    """Label in tables."""
    family: ClassVar[str]
    """Group of related mechanisms that this one belongs to: ``softmax``, ``linear``, ``yat``, ``slay``, ..."""
    version: ClassVar[int] = 1
    """Version of the computation, raised by 1 with every change."""
    source: ClassVar[str]
    """Key of the paper in :mod:`synthbench.sources`."""
    complexity: ClassVar[str] = "not stated"
    """Cost of one head as a function of the length T, the head width d and hyper-parameters, such as ``T^2 d``."""
    bare: ClassVar[Mapping[str, Value]] = MappingProxyType({})
    """Options of the condition ``bare``, which reduce the layer to its recurrence or its scores. The defaults give the
    condition ``stock``: the layer as its authors build it."""
    own_positions: ClassVar[Literal["none", "rope"]] = "none"
    """The position encoding that the authors of the mechanism use."""

    model_dim: int = 64
    num_heads: int = 4
    max_length: int = 512
    bias: bool = True
    generator: InitVar[torch.Generator | None] = None

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Check the hyper-parameters, then call :meth:`initialise`.

        Raises:
            UsageError: If a hyper-parameter lies outside its range.
        """
        check(self)
        with _module.drawing_from(generator):
            self.initialise(generator)

    def __init_subclass__(cls) -> None:
        """Make ``forward_last`` and ``advance`` call ``forward`` in a subclass that overrides only ``forward``."""
        super().__init_subclass__()
        depth = {
            name: next(depth for depth, base in enumerate(cls.__mro__) if name in vars(base))
            for name in ("forward", "forward_last", "advance")
        }
        if depth["forward"] < depth["forward_last"]:
            cls.forward_last = Mechanism.forward_last  # type: ignore[method-assign]
        if depth["forward"] < depth["advance"]:
            cls.advance = Mechanism.advance  # type: ignore[method-assign]

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create the mechanism's parameters and frozen random features; override this method if there are any.

        Layers of PyTorch that are created here, such as ``nn.Linear``, are also initialised from ``generator``.
        """

    @abstractmethod
    def forward(self, x: Tokens) -> Tokens:
        """Mix positions causally: output t depends on inputs 0..t."""

    def init_state(self) -> State:
        """Return the initial state, in which no token has been processed yet."""
        return State()

    def stream_step(
        self, x: Float[Tensor, "*batch model_dim"], state: State
    ) -> tuple[Float[Tensor, "*batch model_dim"], State]:
        """Process the next token of every sequence; return the output of ``forward`` at this token, and the new state.

        ``state`` is the state after the earlier tokens; it is not modified.

        >>> from synthbench.mechanisms.gla import Gla
        >>> mechanism = Gla(model_dim=8, num_heads=2)
        >>> x, state, outs = torch.randn(3, 5, 8), mechanism.init_state(), []
        >>> for token in x.unbind(1):  # every token of three sequences
        ...     out, state = mechanism.stream_step(token, state)
        ...     outs.append(out)
        >>> bool((torch.stack(outs, 1) - mechanism(x)).abs().max() < 1e-3)
        True
        >>> state.numel() == 3 * mechanism.state_elements(5)
        True
        """
        state = state.copied()
        out = self.advance(x.unsqueeze(-2), state)
        state.position += 1
        return out.squeeze(-2), state

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, which follows ``state.position`` tokens; update ``state`` in place.

        By default, the state stores every input, and ``forward_last`` runs over all inputs so far.
        """
        return self.forward_last(state.append(EVERY_INPUT, x))

    @abstractmethod
    def state_elements(self, length: int) -> int:
        """Count the numbers that one layer must keep in memory once it has processed ``length`` tokens."""

    @classmethod
    def layers_of(cls, values: dict[str, Any], num_layers: int) -> "list[Layer]":
        """Return one pair per layer: the mechanism's class and its arguments. By default, all layers are equal.

        The arguments do not include ``generator``.

        Args:
            values: Arguments of the mechanism, with their names as keys.
            num_layers: Number of layers of the model.
        """
        return [(cls, values)] * num_layers


EVERY_INPUT = "every input"
"""Name under which the state stores all inputs so far, if a mechanism has no code for single tokens."""

Layer = tuple[type[Mechanism], dict[str, Any]]


@dataclass(eq=False, repr=False, kw_only=True)
class Attention(Mechanism):
    """A mechanism with queries, keys and values, split into heads.

    One fused projection computes q, k and v, in this order. The outputs of the heads are concatenated, then projected.
    """

    own_positions: ClassVar[Literal["none", "rope"]] = "rope"
    takes_last_queries: ClassVar[bool] = False
    """True if ``attend`` also accepts fewer queries than keys; the queries are then those of the last positions."""
    rotation_note: ClassVar[str] = ""
    """Reason why rotating queries and keys by position makes no sense here; empty if the rotation encodes offsets."""

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Create the projections, then the mechanism's own parameters.

        Raises:
            UsageError: If the number of heads does not divide the width, or a hyper-parameter lies outside its range.
        """
        if self.num_heads < 1 or self.model_dim % self.num_heads:
            raise UsageError(f"num_heads is {self.num_heads}; allowed: a divisor of the width {self.model_dim}")
        self.qkv = Linear(self.model_dim, 3 * self.model_dim, bias=self.bias, generator=generator)
        self.out = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)
        self.rotation: Rotation | None = None
        self.convolution: ShortConvolution | None = None
        self.own_convolution: ShortConvolution | None = None
        super().__post_init__(generator)

    @property
    def head_dim(self) -> int:
        """Width of a query, a key or a value in one head."""
        return self.model_dim // self.num_heads

    @property
    def turned_widths(self) -> tuple[int, ...]:
        """Widths of the vectors that a position encoding rotates; by default ``(head_dim,)``, the width of q and k."""
        return (self.head_dim,)

    def turn_by(self, rotations: Sequence[Rotation]) -> None:
        """Set the rotations that encode positions, one for each entry of ``turned_widths``."""
        (self.rotation,) = rotations

    @abstractmethod
    def attend(self, q: KeyHeads, k: KeyHeads, v: ValueHeads) -> ValueHeads:
        """Attend causally: output t mixes the values 0..t."""

    def controls(self, x: Tokens) -> tuple[Tensor | None, ...]:  # noqa: ARG002 - for mechanisms with gates or rates
        """Compute gates and rates from the tokens; by default, there are none.

        The results are passed to ``attend`` after q, k and v.
        """
        return ()

    def forward(self, x: Tokens) -> Tokens:
        """Compute queries, keys, values, and any gates and rates, then attend and project the result."""
        return self.merge_heads(self.attended(x))

    def attended(self, x: Tokens, state: State | None = None) -> ValueHeads:
        """Compute the outputs of all heads, before they are concatenated and projected.

        If a state is given, ``x`` holds only the next token, and ``attend`` must accept a state.
        """
        if state is None:
            return self.attend(*self.heads(x), *self.controls(x))
        return self.attend(*self.heads(x, state), *self.controls(x), state=state)  # type: ignore[call-arg]

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position; if ``takes_last_queries`` is True, only the last query attends."""
        if not self.takes_last_queries:
            return self.merge_heads(self.attended(x)[..., -1:, :])
        q, k, v = self.heads(x)
        return self.merge_heads(self.attend(q[..., -1:, :], k, v, *self.controls(x)))

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update ``state`` in place.

        There are three cases. If ``attend`` has a parameter ``state``, it receives the state. If not, but
        ``takes_last_queries`` is True and :meth:`controls` computes no gates or rates, the state stores all keys and
        values. In all other cases, the state stores all inputs so far.
        """
        if "state" in inspect.signature(self.attend).parameters:
            return self.merge_heads(self.attended(x, state))
        if self.controls(x) or not self.takes_last_queries:
            return super().advance(x, state)
        q, k, v = self.heads(x, state)
        return self.merge_heads(self.attend(q, state.append("keys", k), state.append("values", v)))

    def heads(
        self, x: Tokens, state: State | None = None, fused: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project to queries, keys and values, each [..., heads, length, head_dim]; rotate q and k by position.

        If a state is given, ``x`` holds only the next token. If ``fused``, [..., length, 3 * model_dim], is given, it
        replaces the projection of ``x``.
        """
        fused = self.qkv(x) if fused is None else fused
        if self.convolution is not None:  # the block's convolution, followed by SiLU
            fused = silu(convolved(self.convolution, fused, state))
        if self.own_convolution is not None:  # the authors' convolution; the mechanism applies the activation
            fused = convolved(self.own_convolution, fused, state, kept="own convolution")
        q, k, v = self.prepared(*self.split_heads(fused), x, state)
        if self.rotation is not None:
            q, k = self.rotated(torch.cat([q, k], dim=-4), state).chunk(2, dim=-4)  # the rotation is made once for both
        return q, k, v

    def prepared(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        x: Tokens,  # noqa: ARG002 - for mechanisms that also use the tokens
        state: State | None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Transform queries, keys and values before the rotation by position; by default, return them unchanged."""
        return q, k, v

    def rotated(self, x: Float[Tensor, "*batch heads length head_dim"], state: State | None) -> Tensor:
        """Rotate queries or keys by their positions, which begin at 0 or, given a state, at ``state.position``."""
        if self.rotation is None:
            return x
        return self.rotation(x) if state is None else self.rotation(x, state.position)

    def split_heads(self, fused: Float[Tensor, "*batch length fused"]) -> tuple[Tensor, Tensor, Tensor]:
        """Cut the fused projection into q, k and v, each [..., heads, length, head_dim]."""
        q, k, v = fused.reshape(*fused.shape[:-1], 3, self.num_heads, self.head_dim).transpose(-2, -4).unbind(-3)
        # Copied once here, or again and again by whatever works on them; 10 to 20 % of a step of the linear mechanisms.
        return q.contiguous(), k.contiguous(), v.contiguous()

    def merge_heads(self, heads: ValueHeads) -> Tensor:
        """Concatenate the outputs of the heads and project them to [..., length, model_dim]."""
        return self.out(heads.transpose(-2, -3).flatten(-2))

    def state_elements(self, length: int) -> int:
        """Count the numbers in the keys and values of all tokens so far, which exact attention must store."""
        return 2 * length * self.model_dim


@dataclass(eq=False, repr=False, kw_only=True)
class ScoreAttention(Attention):
    """Attention with a score for every pair of positions; a normaliser turns the scores into weights.

    By default, the normaliser is softmax. A subclass may set ``normaliser`` as a class variable or a hyper-parameter.
    """

    takes_last_queries: ClassVar = True

    @property
    def normaliser(self) -> Normaliser:
        """Normaliser that turns the scores of a query into weights: ``softmax``, ``sum`` or ``softermax``."""
        return "softmax"

    @property
    def softermax_power(self) -> float:
        """Exponent to which the normaliser ``softermax`` raises the scores; the other normalisers ignore it."""
        return 1.0

    @abstractmethod
    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Score every query against every key; the caller applies the causal mask."""

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend by the method that suits the length and the device; all methods compute the same function."""
        kernel = self.gpu_kernel(q, k, v) if kernels.saves_launches(q) else None
        return self.attend_by_torch(q, k, v) if kernel is None else kernel(q, k, v)

    def attend_by_torch(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend with PyTorch operations only, on any device."""
        tiled = None if scores.is_short(q, k) else yat_tiles.of(self)
        if tiled is not None:
            return tiled(q, k, v)
        return scores.attend(self.scores, self.normaliser, q, k, v, power=self.softermax_power)

    def gpu_kernel(self, q: Tensor, k: Tensor, v: Tensor) -> kernels.Form | None:
        """Return the GPU kernel for tensors of this size, type and device; None if no kernel supports them."""
        return kernels.of(self, q, k, v)


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureAttention(Attention):
    """Attention with a kernel that is an inner product of features, at a cost linear in the length.

    Features may be given as factors: (a, b) stands for the tensor product a ⊗ b. Since ⟨a ⊗ b, a' ⊗ b'⟩ = ⟨a, a'⟩⟨b,
    b'⟩, sequences are processed without this tensor product. Only code that processes single tokens forms this product.
    """

    takes_last_queries: ClassVar = True
    _projections: ClassVar[tuple[str, ...]] = ("qkv.", "out.")
    """First parts of the names of parameters that no feature depends on."""

    # `mechanism` makes dataclasses of the classes, which ruff cannot see: an option is a field, not a shared default.
    guard: Guard = option(  # noqa: RUF009
        "add", "how a small denominator z is kept from 0: z + delta, or max(z, delta)"
    )
    delta: float = option(1e-6, "smallest denominator, or what is added to it", low=0)

    @abstractmethod
    def features(self, x: KeyRows, side: Side) -> Tensor | tuple[Tensor, ...]:
        """Map queries or keys to features, [..., length, m], or to factors whose tensor product gives the features."""

    def position_features(
        self,
        positions: Float[Tensor, " length"],  # noqa: ARG002 - for subclasses with such features
        side: Side,  # noqa: ARG002 - the same
    ) -> Tensor | None:
        """Compute an additional factor of the features, [length, m], from the positions alone.

        By default, there is no such factor, and the result is None.
        """
        return None

    def factors(self, x: KeyRows, side: Side, first_position: int = 0) -> linear.Factors:
        """Compute all factors of the features of ``x``, whose first row is at position ``first_position``."""
        features = self.features(x, side)
        factors = features if isinstance(features, tuple) else (features,)
        if type(self).position_features is FeatureAttention.position_features:
            return factors
        positions = torch.arange(first_position, first_position + x.shape[-2], dtype=x.dtype, device=x.device)
        by_position = self.position_features(positions, side)
        return factors if by_position is None else (*factors, by_position)

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> AnswerHeads:
        """Attend by the method that is fastest for this length and device; all methods compute the same function."""
        if state is not None:
            return self._attend_next(q, k, v, state)
        kernel = self.gpu_kernel(q, k, v) if kernels.saves_launches(q) else None
        return self.attend_by_torch(q, k, v) if kernel is None else kernel(q, k, v)

    def gpu_kernel(self, q: Tensor, k: Tensor, v: Tensor) -> kernels.Form | None:
        """Return this mechanism's GPU kernel for tensors of the size, dtype and device of q, k and v.

        The result is None if no kernel supports such tensors, or if the features have trained parameters.
        """
        return None if self._has_trained_features() else kernels.of(self, q, k, v)

    def attend_by_torch(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend with PyTorch operations only, on any device."""
        if not q.numel():  # features need not handle empty tensors
            return v[..., v.shape[-2] - q.shape[-2] :, :]
        if (exponents := own_form(self, "key_exponents")) is not None and log_space.may_overflow(k):
            (query_features,) = self.factors(q, "query", first_position=k.shape[-2] - q.shape[-2])
            return log_space.attend(query_features, exponents(k), v, guard=self.guard, delta=self.delta)
        is_long = q.shape[-2] == k.shape[-2] > streaming.BLOCK
        if is_long and not self._has_trained_features() and not self._is_computed_at_once(k, v):
            return streaming.streamed(self._bound().factors, q, k, v, guard=self.guard, delta=self.delta)
        query_factors = self.factors(q, "query", first_position=k.shape[-2] - q.shape[-2])
        key_factors = self.factors(k, "key")
        return linear.attend(query_factors, key_factors, v, guard=self.guard, delta=self.delta)

    def _is_computed_at_once(self, k: Tensor, v: Tensor) -> bool:
        with torch.no_grad():
            return linear.takes_at_once(self.factors(k[..., :1, :], "key"), v)

    def _attend_next(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> Tensor:
        if type(self).attend_by_torch is not FeatureAttention.attend_by_torch:  # an override may compute something else
            return self.attend(q, state.append("keys", k), state.append("values", v))
        queries = self.factors(q, "query", first_position=state.position)
        keys = self.factors(k, "key", first_position=state.position)
        query, key = (tuple(factor.squeeze(-2) for factor in factors) for factors in (queries, keys))
        before = state.tensors.get("sums")
        if before is None:
            before = linear.initial_state(key, v)
        state.tensors["sums"], out = linear.step(before, query, key, v.squeeze(-2), guard=self.guard, delta=self.delta)
        return out.unsqueeze(-2)

    def _has_trained_features(self) -> bool:
        """Return whether the features have trained parameters, which must then receive gradients."""
        return any(not name.startswith(self._projections) for name, _ in self.named_parameters())

    def _bound(self) -> "FeatureAttention":
        """Copy this mechanism with its present buffers.

        A backward pass through the copy uses these buffers, even if the mechanism has received other buffers since.
        """
        bound = copy(self)
        vars(bound)["_buffers"] = dict(vars(self)["_buffers"])
        return bound

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Return heads x features x (value width + 1 for the denominator), whatever the length of the sequence."""
        with torch.no_grad():
            factors = self.factors(self.qkv.weight.new_zeros(self.num_heads, 1, self.head_dim), "key")
        return self.num_heads * linear.rank(factors) * (self.head_dim + 1)


@dataclass(eq=False, repr=False, kw_only=True)
class ModuleMechanism(Mechanism):
    """A plain causal ``nn.Module`` wrapped as a mechanism by :func:`mechanism`; ``module`` is the wrapped instance."""

    module_class: ClassVar[type[nn.Module]]
    construction: ClassVar[_module.Construction]

    def initialise(self, generator: torch.Generator | None) -> None:
        """Build the wrapped module with the sizes and hyper-parameters that its constructor accepts.

        Raises:
            ContractError: If the constructor raises a TypeError, for example for a missing argument.
        """
        values = {**vars(self), "generator": generator}
        fields = self.construction.fields
        try:
            self.module = self.module_class(**{parameter: values[field] for parameter, field in fields.items()})
        except TypeError as problem:
            raise ContractError(_module.refusal(self.module_class, f"TypeError: {problem}", problem)) from problem

    def forward(self, x: Tokens) -> Tokens:
        """Call the wrapped module."""
        mixed: Tensor = self.module(x)
        return mixed

    def state_elements(self, length: int) -> int:
        """Call ``state_elements`` of the wrapped module if it exists.

        Otherwise, return the size of all inputs, which is an upper bound.
        """
        own = getattr(self.module, "state_elements", None)
        return int(own(length)) if callable(own) else length * self.model_dim

    @property
    def counts_state(self) -> bool:
        """True if the wrapped module has a method ``state_elements``; if not, the state size is only an upper bound."""
        return callable(getattr(self.module, "state_elements", None))


def stock_part(meaning: str) -> Any:
    """Declare a boolean option, True by default, that switches on a part of the published layer, such as a gate.

    Results that were stored before the option existed count as results of a layer without this part.
    """
    return option(default=True, meaning=meaning, absent=False)


def convolved(
    convolution: ShortConvolution,
    x: Float[Tensor, "*leading length dim"],
    state: State | None,
    *,
    kept: str = "convolution",
) -> Float[Tensor, "*leading length dim"]:
    """Apply a short causal convolution.

    If a state is given, ``x`` holds only the next token. The inputs that later tokens need are then stored in the state
    under the name ``kept``.
    """
    if state is None:
        return convolution(x)
    seen = state.append(kept, x, most=convolution.weight.shape[-2] - 1)
    return convolution(seen)[..., -1:, :]


def kept_by_convolution(width: int, channels: int, length: int) -> int:
    """Count the numbers in the past inputs that a convolution of ``width`` taps stores after ``length`` tokens."""
    return min(length, max(width - 1, 0)) * channels


class Mechanisms(Registry[Mechanism]):
    """The registered mechanisms, and hybrids such as ``gla+softmax``, whose layers have different mechanisms."""

    def __getitem__(self, name: str) -> type[Mechanism]:
        """Return the class called ``name`` or, for a pattern such as ``gla+softmax``, the hybrid.

        Raises:
            UnknownName: If ``name``, or a name in the pattern, is not a mechanism's name; the message suggests the
                nearest names.
            UsageError: If no hybrid can be made of the pattern's mechanisms, for example because all are the same.
        """
        if "+" not in name:
            return super().__getitem__(name)
        from synthbench.mechanisms._hybrid import hybrid  # noqa: PLC0415 - it is made of what is defined here

        return hybrid(name)

    def __contains__(self, name: object) -> bool:
        """Tell whether ``name`` is a mechanism's name or a pattern of such names.

        This method imports no plugin's package.
        """
        return isinstance(name, str) and all(super(Mechanisms, self).__contains__(part) for part in name.split("+"))

    def resolve(self, name: str) -> str:
        """Return the registered name that a name or label in any spelling stands for.

        Names or labels joined by ``+`` stand for a hybrid. This method imports no plugin's package.

        Raises:
            UsageError: If a name or label matches several mechanisms.
        """
        found = super().resolve(name)
        return found if found in self or "+" not in name else "+".join(map(self.resolve, name.split("+")))

    def is_built_in(self, name: str) -> bool:
        """Tell whether a mechanism, or every mechanism of a hybrid, is part of synthbench.

        This method imports no plugin's package.
        """
        return all(super(Mechanisms, self).is_built_in(part) for part in name.split("+"))


MECHANISMS = Mechanisms("mechanism", room="synthbench.mechanisms")


def options_of(name: str, listed: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options that ``listed`` gives for one mechanism, or for all parts (mechanisms) of a hybrid.

    The options of a hybrid's parts are renamed by :func:`part_option`: the option ``R`` of ``slay`` becomes ``slay_R``.

    Args:
        name: Name of a mechanism, or of a hybrid such as ``gla+softmax``.
        listed: Options of several mechanisms, as a benchmark suite lists them; the mechanisms' names are the keys.
    """
    if "+" not in name:
        return {**listed.get(name, {})}
    return {
        part_option(part, option): value for part in name.split("+") for option, value in listed.get(part, {}).items()
    }


def condition_options(unit: type[Mechanism], condition: str) -> dict[str, Value]:
    """Return the options that a condition changes from the mechanism's defaults, each with its new value.

    A suite's condition chooses a variant of every mechanism. With ``stock``, each layer is as its authors build it.
    With ``bare``, each layer is reduced to its recurrence or attention scores.

    Args:
        unit: Class of the mechanism.
        condition: One of :data:`synthbench.suites.config.CONDITIONS`, or :data:`synthbench.suites.config.BEFORE` (the
            condition of older suites, whose layers lack some parts).
    """
    if condition == "stock":
        return {}
    return {**unit.bare} if condition == "bare" else absent_values(unit)


def mean_state(states: Sequence[int]) -> int:
    """Return the mean of the layers' state sizes (numbers that a layer stores for the next token), rounded up."""
    return -(-sum(states) // len(states))


def part_option(part: str, option: str) -> str:
    """Return the name of a part's option in a hybrid, such as ``slay_R`` for the option ``R`` of the part ``slay``."""
    return f"{part.replace('-', '_').replace('.', '_').replace('/', '_')}_{option}"


@overload
def mechanism(
    unit: type[U], /, *, name: str = ..., label: str = ..., family: str = ..., source: str = ...
) -> type[U]: ...


@overload
def mechanism(
    unit: None = None, /, *, name: str = ..., label: str = ..., family: str = ..., source: str = ...
) -> Callable[[type[U]], type[U]]: ...


@dataclass_transform(eq_default=False, kw_only_default=True)
def mechanism(
    unit: Any = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    family: str | None = None,
    source: str | None = None,
) -> Any:
    """Register a subclass of :class:`Mechanism` or of ``nn.Module`` as a mechanism, and return the class.

    A subclass of ``Mechanism`` becomes a dataclass. Its fields made by :func:`synthbench.options.option` are its
    hyper-parameters. A plain module (any other subclass of ``nn.Module``) must be causal and map [batch, length, width]
    to the same shape. The arguments that its constructor can receive are listed in docs/plugins.md::

        @mechanism(family="convolution")
        class ShortConvolution(nn.Module): ...

    Args:
        unit: The class to register; if None, a decorator is returned.
        name: Registered name; if None, the class's ``name``. A plain module without ``name`` gets its class name in
            snake case.
        label: Name shown in tables; if None, the class's ``label``. A plain module without ``label`` gets its class
            name.
        family: Group of related mechanisms; if None, the class's ``family``. A plain module without ``family`` gets
            ``other``.
        source: Key of the paper in :mod:`synthbench.sources`; if None, the class's ``source``. A plain module without
            ``source`` gets ``unpublished``.

    Raises:
        UsageError: If ``unit`` is not a subclass of ``nn.Module``, if the name is malformed or taken, or if a plain
            module's constructor has a required parameter that synthbench cannot supply.
    """
    given = {"name": name, "label": label, "family": family, "source": source}
    facts = {key: fact for key, fact in given.items() if fact is not None}

    def register(unit: Any) -> Any:
        if not isinstance(unit, type) or not issubclass(unit, nn.Module):
            raise UsageError(f"mechanism() is given {unit!r}; allowed: a class derived from nn.Module")
        if not issubclass(unit, Mechanism):
            MECHANISMS.register(mechanism_made_of(unit, facts, _module.calling_module()))
            return unit
        for key, fact in facts.items():
            setattr(unit, key, fact)
        whole = dataclass(eq=False, repr=False, kw_only=True)(unit)
        MECHANISMS.register(whole)
        return whole

    return register if unit is None else register(unit)


def mechanism_made_of(module: type[nn.Module], facts: dict[str, str], origin: str) -> type[ModuleMechanism]:
    """Create a mechanism class that wraps ``module``, store it as an attribute of ``module``, and return it.

    Args:
        module: Class of the module to wrap.
        facts: Values of class variables such as ``name``, which replace the values that the module declares.
        origin: Name of the Python module that the created class records as its place of definition (``__module__``).
    """
    taken = {*dir(ModuleMechanism), *_module.FACTS, *vars(nn.Module()), *ModuleMechanism.__annotations__, "module"}
    construction = _module.construction_of(module, taken)
    content = {
        "__annotations__": {name: kind for name, (kind, _) in construction.options.items()},
        **{name: default for name, (_, default) in construction.options.items()},
        **_module.declared_facts(module),
        **facts,
        "__doc__": module.__doc__,
        "__module__": origin,
        "__qualname__": module.__qualname__,
        "module_class": module,
        "construction": construction,
    }
    made: type[ModuleMechanism] = type(module.__name__, (ModuleMechanism,), content)
    made = dataclass(eq=False, repr=False, kw_only=True)(made)
    setattr(module, STANDS_FOR, made)
    return made


def num_numbers(parameter: Tensor) -> int:
    """Count the real numbers in a tensor; a complex number counts as two."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)


def num_parameters(module: nn.Module) -> int:
    """Count the numbers in all parameters, including frozen ones, but not in buffers."""
    return sum(map(num_numbers, module.parameters()))
