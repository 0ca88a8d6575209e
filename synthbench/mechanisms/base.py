"""Defines a mechanism, in four levels; an author implements the highest one that fits and gets the rest.

============================  ================================  ====================================================
level                         implements                        gets
============================  ================================  ====================================================
:class:`ScoreAttention`       ``scores(q, k)``, a normaliser    mask, query blocks for long sequences, attention maps
:class:`FeatureAttention`     ``features(x, side)``             Gram, chunked and recurrent forms
:class:`Attention`            ``attend(q, k, v)``               projections and heads
:class:`Mechanism`            ``forward(x)``                    a place in the registry
============================  ================================  ====================================================

A plain causal ``nn.Module`` is a mechanism too: :func:`mechanism` registers it as it is.

An author writes for one run. Leading axes are free: code that works on the trailing axes with broadcasting trains
many runs as one program, anything else is run one run at a time.
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
    """A causal map from sequence to sequence, the only part of a block that mixes positions.

    Hyper-parameters are the fields made by :func:`synthbench.options.option`; the fields below describe the model
    around it.
    """

    kind: ClassVar = "mechanism"
    name: ClassVar[str]
    """The registered name: the file's name with ``-`` for ``_``."""
    label: ClassVar[str]
    """Label in tables."""
    family: ClassVar[str]
    """``softmax``, ``linear``, ``yat``, ``slay``, ...: which idea it descends from."""
    version: ClassVar[int] = 1
    """Raised by whoever changes what is computed."""
    source: ClassVar[str]
    """Key of the paper in :mod:`synthbench.sources`."""
    complexity: ClassVar[str] = "not stated"
    """Cost of one head in the length T, the width d of a head and the hyper-parameters: ``T^2 d``."""
    bare: ClassVar[Mapping[str, Value]] = MappingProxyType({})
    """The options of the condition ``bare``, which leave the recurrence or the scores alone. The defaults are the
    layer as its authors build it, ``stock``."""
    own_positions: ClassVar[Literal["none", "rope"]] = "none"
    """The position encoding that its authors use."""

    model_dim: int = 64
    num_heads: int = 4
    max_length: int = 512
    bias: bool = True
    generator: InitVar[torch.Generator | None] = None

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Check the hyper-parameters and draw what is random.

        Raises:
            UsageError: If a hyper-parameter lies outside its range.
        """
        check(self)
        with _module.drawing_from(generator):
            self.initialise(generator)

    def __init_subclass__(cls) -> None:
        """Take ``forward_last`` and ``advance`` from ``forward`` where that alone is overridden, as by a gate."""
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
        """Draw frozen features or create parameters; a mechanism that has none leaves this alone.

        What ordinary layers such as ``nn.Linear`` draw follows from ``generator`` too.
        """

    @abstractmethod
    def forward(self, x: Tokens) -> Tokens:
        """Mix positions causally: output t depends on inputs 0..t."""

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position: all that is needed where nothing else is scored."""
        return self.forward(x)[..., -1:, :]

    def init_state(self) -> State:
        """Return the state before the first token: nothing."""
        return State()

    def stream_step(
        self, x: Float[Tensor, "*batch model_dim"], state: State
    ) -> tuple[Float[Tensor, "*batch model_dim"], State]:
        """Take in one token of every sequence; what ``forward`` gives there, and the state after it.

        The given state is left as it was.

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
        """The output at one token, whose numbers take their place in ``state``; ``state.position`` tokens came before.

        A mechanism with no form of its own keeps every input and computes the last position.
        """
        return self.forward_last(state.append(EVERY_INPUT, x))

    @abstractmethod
    def state_elements(self, length: int) -> int:
        """Numbers that one layer must keep to go on after ``length`` tokens of one sequence."""

    @classmethod
    def layers_of(cls, values: dict[str, Any], num_layers: int) -> "list[Layer]":
        """Choose the mechanism of each layer of a model: a class, and its arguments but for its generator."""
        return [(cls, values)] * num_layers


EVERY_INPUT = "every input"
"""Under this name a mechanism keeps its inputs that has no form of its own for single tokens."""

Layer = tuple[type[Mechanism], dict[str, Any]]


@dataclass(eq=False, repr=False, kw_only=True)
class Attention(Mechanism):
    """A mechanism made of queries, keys and values in heads.

    One fused projection gives q, k and v in this order, split into heads; the heads' outputs are concatenated and
    projected once more.
    """

    own_positions: ClassVar[Literal["none", "rope"]] = "rope"
    takes_last_queries: ClassVar[bool] = False
    """True if ``attend`` also takes fewer queries than keys, which are then the last ones."""
    rotation_note: ClassVar[str] = ""
    """The reason why rotated queries and keys mean nothing to it; empty if they see the offsets between tokens."""

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Create the projections, then the mechanism's own parameters.

        Raises:
            UsageError: If the heads do not divide the width.
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
        """Widths of what a position encoding turns, by a rotation each: of queries and keys alone."""
        return (self.head_dim,)

    def turn_by(self, rotations: Sequence[Rotation]) -> None:
        """Let rotations of ``turned_widths`` turn by position."""
        (self.rotation,) = rotations

    @abstractmethod
    def attend(self, q: KeyHeads, k: KeyHeads, v: ValueHeads) -> ValueHeads:
        """Attend causally: output t mixes the values 0..t."""

    def forward(self, x: Tokens) -> Tokens:
        """Project to heads, attend, project back."""
        return self.merge_heads(self.attend(*self.heads(x)))

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position, from the last query alone where ``attend`` takes that."""
        q, k, v = self.heads(x)
        if self.takes_last_queries:
            return self.merge_heads(self.attend(q[..., -1:, :], k, v))
        return self.merge_heads(self.attend(q, k, v)[..., -1:, :])

    def advance(self, x: Token, state: State) -> Token:
        """Go on from a state: by an ``attend`` that takes one, or by the last query and all keys and values so far."""
        if takes_state(self.attend):
            return self.merge_heads(self.attend(*self.heads(x, state), state=state))  # type: ignore[call-arg]
        if not self.takes_last_queries:
            return super().advance(x, state)
        q, k, v = self.heads(x, state)
        return self.merge_heads(self.attend(q, state.append("keys", k), state.append("values", v)))

    def heads(
        self, x: Tokens, state: State | None = None, fused: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project to queries, keys and values, each [..., heads, length, head_dim]; positions turn the first two.

        With a state ``x`` is the one token after it. A mechanism that projects something else than ``x`` gives the
        ``fused`` projection itself.
        """
        fused = self.qkv(x) if fused is None else fused
        if self.convolution is not None:  # of the block, with an activation
            fused = silu(convolved(self.convolution, fused, state))
        if self.own_convolution is not None:  # of its authors, whose activation is the mechanism's own
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
        x: Tokens,  # noqa: ARG002 - for those that read something off the tokens
        state: State | None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Prepare queries, keys and values for the rotation: unchanged, or shifted and normed."""
        return q, k, v

    def rotated(self, x: Float[Tensor, "*batch heads length head_dim"], state: State | None) -> Tensor:
        """Turn queries or keys by their positions, which begin at 0, or where the state ends."""
        if self.rotation is None:
            return x
        turned: Tensor = self.rotation(x) if state is None else self.rotation(x, state.position)
        return turned

    def split_heads(self, fused: Float[Tensor, "*batch length fused"]) -> tuple[Tensor, Tensor, Tensor]:
        """Cut the fused projection into q, k and v, each [..., heads, length, head_dim]."""
        q, k, v = fused.reshape(*fused.shape[:-1], 3, self.num_heads, self.head_dim).transpose(-2, -4).unbind(-3)
        # Copied once here, or again and again by whatever works on them; 10 to 20 % of a step of the linear mechanisms.
        return q.contiguous(), k.contiguous(), v.contiguous()

    def merge_heads(self, heads: ValueHeads) -> Tensor:
        """Concatenate the heads' outputs and project them: [..., length, model_dim]."""
        projected: Tensor = self.out(heads.transpose(-2, -3).flatten(-2))
        return projected

    def state_elements(self, length: int) -> int:
        """Every key and every value seen so far: what exact attention must keep."""
        return 2 * length * self.model_dim


@dataclass(eq=False, repr=False, kw_only=True)
class ScoreAttention(Attention):
    """Attention by a score for every pair of positions: softmax of the scores, or the scores over their sum.

    A unit whose normaliser is not the softmax sets ``normaliser`` as a class variable, or makes it a hyper-parameter.
    """

    takes_last_queries: ClassVar = True

    @property
    def normaliser(self) -> Normaliser:
        """Normaliser that turns the scores of a query into weights: ``softmax``, ``sum`` or ``softermax``."""
        return "softmax"

    @property
    def softermax_power(self) -> float:
        """The exponent of a softermax; no other normaliser has one."""
        return 1.0

    @abstractmethod
    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Score every query against every key; the mask is not the author's business."""

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend in one piece, by tiles or blocks where length x length would be large, or by a GPU's kernel then."""
        kernel = self.gpu_kernel(q, k, v) if kernels.saves_launches(q) else None
        return self.attend_by_torch(q, k, v) if kernel is None else kernel(q, k, v)

    def attend_by_torch(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend by PyTorch's own operations, whatever the device."""
        tiled = yat_tiles.for_length(self, q, k)
        if tiled is not None:
            return tiled(q, k, v)
        return scores.attend(self.scores, self.normaliser, q, k, v, power=self.softermax_power)

    def gpu_kernel(self, q: Tensor, k: Tensor, v: Tensor) -> kernels.Form | None:
        """The kernel that attends to tensors like these on a GPU; None if there is none, or not for them."""
        return kernels.of(self, q, k, v)


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureAttention(Attention):
    """Attention by a kernel that is an inner product of features, linear in the length.

    The features may come as factors: (a, b) stands for the tensor product a ⊗ b. It is never formed, since ⟨a ⊗ b, a' ⊗
    b'⟩ = ⟨a, a'⟩⟨b, b'⟩.
    """

    takes_last_queries: ClassVar = True

    # `mechanism` makes dataclasses of the classes, which ruff cannot see: an option is a field, not a shared default.
    guard: Guard = option(  # noqa: RUF009
        "add", "how a small denominator z is kept from 0: z + delta, or max(z, delta)"
    )
    delta: float = option(1e-6, "smallest denominator, or what is added to it", low=0)

    @abstractmethod
    def features(self, x: KeyRows, side: Side) -> Tensor | tuple[Tensor, ...]:
        """Map queries or keys to features [..., length, m], or to factors whose tensor product they are."""

    def position_features(
        self,
        positions: Float[Tensor, " length"],  # noqa: ARG002 - for those that have some
        side: Side,  # noqa: ARG002 - the same
    ) -> Tensor | None:
        """A further factor [length, m] that depends on the position only; None if there is none."""
        return None

    def factors(self, x: KeyRows, side: Side, first_position: int = 0) -> linear.Factors:
        """All factors of the features of ``x``, whose first row stands at ``first_position``."""
        features = self.features(x, side)
        factors = features if isinstance(features, tuple) else (features,)
        if type(self).position_features is FeatureAttention.position_features:
            return factors
        positions = torch.arange(first_position, first_position + x.shape[-2], dtype=x.dtype, device=x.device)
        by_position = self.position_features(positions, side)
        return factors if by_position is None else (*factors, by_position)

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> AnswerHeads:
        """Attend in the form that is fastest at this length and device; all forms are the same function."""
        if state is not None:
            return self._attend_next(q, k, v, state)
        kernel = self.gpu_kernel(q, k, v) if kernels.saves_launches(q) else None
        return self.attend_by_torch(q, k, v) if kernel is None else kernel(q, k, v)

    def gpu_kernel(self, q: Tensor, k: Tensor, v: Tensor) -> kernels.Form | None:
        """The kernel that attends to tensors like these on a GPU; None if there is none, or not for them."""
        return None if self._has_trained_features() else kernels.of(self, q, k, v)

    def attend_by_torch(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend by PyTorch's own operations, whatever the device."""
        if not q.numel():  # features need not know what to do with nothing
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
        if type(self).attend_by_torch is not FeatureAttention.attend_by_torch:  # it may compute something else
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
        """Return whether features read something trained, which must then get its gradient from them."""
        return any(not name.startswith(("qkv.", "out.")) for name, _ in self.named_parameters())

    def _bound(self) -> "FeatureAttention":
        """This mechanism with the buffers that it has now, whatever is put in their place before the backward pass."""
        bound = copy(self)
        vars(bound)["_buffers"] = dict(vars(self)["_buffers"])
        return bound

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Features x (values + the denominator) in every head, whatever the length."""
        with torch.no_grad():
            factors = self.factors(self.qkv.weight.new_zeros(self.num_heads, 1, self.head_dim), "key")
        return self.num_heads * linear.rank(factors) * (self.head_dim + 1)


@dataclass(eq=False, repr=False, kw_only=True)
class ModuleMechanism(Mechanism):
    """A plain causal ``nn.Module``, made a mechanism by :func:`mechanism`; what was built is its ``module``."""

    module_class: ClassVar[type[nn.Module]]
    construction: ClassVar[_module.Construction]

    def initialise(self, generator: torch.Generator | None) -> None:
        """Build the module with the sizes and hyper-parameters that its constructor asks for by name.

        Raises:
            ContractError: If the constructor raises a TypeError, as for an argument that is not supplied.
        """
        values = {**vars(self), "generator": generator}
        fields = self.construction.fields
        try:
            self.module = self.module_class(**{parameter: values[field] for parameter, field in fields.items()})
        except TypeError as problem:
            raise ContractError(_module.refusal(self.module_class, f"TypeError: {problem}", problem)) from problem

    def forward(self, x: Tokens) -> Tokens:
        """Call the module."""
        mixed: Tensor = self.module(x)
        return mixed

    def state_elements(self, length: int) -> int:
        """Ask the module's own ``state_elements``; else give an upper bound, every input so far."""
        own = getattr(self.module, "state_elements", None)
        return int(own(length)) if callable(own) else length * self.model_dim


def convolved(
    convolution: ShortConvolution,
    x: Float[Tensor, "*leading length dim"],
    state: State | None,
    *,
    kept: str = "convolution",
) -> Float[Tensor, "*leading length dim"]:
    """Convolve; with a state ``x`` is the one token after it, and what the next one needs is ``kept`` there."""
    if state is None:
        everything: Tensor = convolution(x)
        return everything
    seen = state.append(kept, x, most=convolution.weight.shape[-2] - 1)
    newest: Tensor = convolution(seen)[..., -1:, :]
    return newest


def kept_by_convolution(width: int, channels: int, length: int) -> int:
    """Numbers that a causal convolution keeps after ``length`` tokens: what the next token reads of those before."""
    return min(length, max(width - 1, 0)) * channels


def takes_state(attend: Callable[..., Tensor]) -> bool:
    """Return whether an ``attend`` can go on from a state with one token."""
    return "state" in inspect.signature(attend).parameters


class Mechanisms(Registry[Mechanism]):
    """The registered mechanisms, and the patterns of them that a name such as ``gla+softmax`` stands for."""

    def __getitem__(self, name: str) -> type[Mechanism]:
        """The class called ``name``, or the hybrid whose layers it names.

        Raises:
            UnknownName: If there is none; the message names the nearest.
            UsageError: If it is a pattern that is not allowed.
        """
        if "+" not in name:
            return super().__getitem__(name)
        from synthbench.mechanisms._hybrid import hybrid  # noqa: PLC0415 - it is made of what is defined here

        return hybrid(name)

    def __contains__(self, name: object) -> bool:
        """Tell whether a mechanism, or each part of a pattern, has this name; imports no package."""
        return isinstance(name, str) and all(super(Mechanisms, self).__contains__(part) for part in name.split("+"))

    def resolve(self, name: str) -> str:
        """The registered name that a user means by a name or a label, or by a pattern of them; imports no package.

        Raises:
            UsageError: If it means several.
        """
        found = super().resolve(name)
        return found if found in self or "+" not in name else "+".join(map(self.resolve, name.split("+")))

    def is_built_in(self, name: str) -> bool:
        """Tell whether a mechanism, or each part of a pattern, comes with synthbench; imports no package."""
        return all(super(Mechanisms, self).is_built_in(part) for part in name.split("+"))


MECHANISMS = Mechanisms("mechanism", room="synthbench.mechanisms")


def options_of(name: str, listed: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The options of a mechanism among those of some; of a hybrid those of its parts, as it calls them.

    Args:
        name: A mechanism or a pattern.
        listed: Options by mechanism, as a suite has them.
    """
    if "+" not in name:
        return {**listed.get(name, {})}
    return {
        part_option(part, option): value for part in name.split("+") for option, value in listed.get(part, {}).items()
    }


def condition_options(unit: type[Mechanism], condition: str) -> dict[str, Value]:
    """The options of a mechanism that differ from its defaults in a condition.

    Args:
        unit: The class of the mechanism.
        condition: One of :data:`synthbench.suites.config.CONDITIONS`.
    """
    if condition == "stock":
        return {}
    return {**unit.bare} if condition == "bare" else absent_values(unit)


def mean_state(states: Sequence[int]) -> int:
    """Average state of layers, rounded up."""
    return -(-sum(states) // len(states))


def part_option(part: str, option: str) -> str:
    """Name of a part's option in a hybrid: ``slay_R``."""
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
    """Register a class as a mechanism, and return it: a :class:`Mechanism`, or any causal ``nn.Module``.

    The annotated fields of a ``Mechanism`` become its hyper-parameters. A module maps [batch, length, width] to the
    same shape and stays as it is; docs/plugins.md says what its constructor is given::

        @mechanism(family="convolution")
        class ShortConvolution(nn.Module): ...

    Args:
        unit: The class; without it, a decorator is returned.
        name: How it is called; default: what the class declares, else its name in snake case.
        label: What a table prints; default: what the class declares, else its name.
        family: Which idea it descends from; default: what the class declares, else ``other``.
        source: Key of its paper; default: what the class declares, else ``unpublished``.

    Raises:
        UsageError: If it is no class of a module, its name is not allowed or taken, or its constructor requires
            something unknown.
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
    """The mechanism that runs a module; the module remembers it, for an entry point that names the module.

    Args:
        module: Its class.
        facts: What is said of it, such as its ``name``, in place of what its class declares.
        origin: The Python module that it counts as defined in.
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
    """Count the real numbers of a tensor: two for a complex one."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)


def num_parameters(module: nn.Module) -> int:
    """Count the numbers in the parameters, frozen ones too; buffers do not count."""
    return sum(map(num_numbers, module.parameters()))
