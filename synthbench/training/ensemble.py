"""The small model, and the program that runs many runs' models as one.

A mechanism is written for one run. Here its tensors get a leading run axis, in one of three ways:

* ``fold``: the mechanism has no tensor beside its projections, so runs are more rows of the batch;
* ``stack``: each of its tensors is stacked over the runs and broadcasts against the activations;
* ``loop``: neither gives what single runs give, so the runs go one after the other.

The way is found by trial, not declared.
"""

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from synthbench.blocks import BLOCKS, Block, conv_elements
from synthbench.errors import UsageError
from synthbench.forms.state import State
from synthbench.layers import Embedding, Linear, Mixer, RunLayer, in_precision
from synthbench.mechanisms import Attention, Layer, Mechanism, mean_state, num_parameters
from synthbench.mechanisms._module import without_compilation
from synthbench.mechanisms._parameters import unused_parameters
from synthbench.mechanisms.base import num_numbers
from synthbench.positions import POSITIONS
from synthbench.registry import is_built_in
from synthbench.suites.config import ModelSettings
from synthbench.tasks import Readout

Strategy = Literal["fold", "stack", "loop"]
RunIds = Int[Tensor, "runs batch length"]
"""Tokens or targets of every run."""
RunTokens = Float[Tensor, "runs batch length model_dim"]
RunToken = Float[Tensor, "runs batch 1 model_dim"]
RunVectors = Float[Tensor, "runs batch model_dim"]

OWN = "own"
"""Name for the position encoding of each layer's own mechanism."""
NEVER = -1e30
"""The logit of a token unknown to a run. Not minus infinity, which AdamW on CUDA decays to NaN."""

M = TypeVar("M", bound=nn.Module)


class ModelSize(NamedTuple):
    """The size of one run's model, as its row states it."""

    num_parameters: int
    num_parameters_mixer: int
    """Parameters of all mechanisms, of the convolutions on their inputs, and of the gates on their outputs."""
    state_elements: int
    """Numbers kept by one layer's mechanism and convolution; the mean, rounded up, where layers differ."""


class SequenceModel(nn.Module):
    """Token embedding, positions, blocks and linear head, of one run or, after :func:`stack_models`, of many.

    It has a block for each of ``layers``, which a mechanism's ``layers_of`` returns.
    """

    def __init__(
        self,
        settings: ModelSettings,
        vocab_size: int,
        length: int,
        layers: Sequence[Layer],
        generator: torch.Generator,
        coordinates: Tensor | None = None,
        readout: Readout = "position",
    ) -> None:
        """Draw everything from ``generator``, in the order in which data passes through."""
        super().__init__()
        self.embedding = Embedding(vocab_size, settings.model_dim, generator=generator)
        encoding, encoding_arguments = POSITIONS.configured(settings.positions)
        self.position = encoding(
            model_dim=settings.model_dim,
            num_heads=settings.num_heads,
            length=length,
            coordinates=coordinates,
            generator=generator,
            **encoding_arguments,
        )
        block, options = BLOCKS.configured(settings.block)
        block_arguments: dict[str, Any] = {**options}
        self.blocks = nn.ModuleList(
            block(
                mixer=self._turning(mechanism(**fields, generator=generator), generator),
                model_dim=settings.model_dim,
                generator=generator,
                **block_arguments,
            )
            for mechanism, fields in layers
        )
        self.head: Linear | BottleneckHead = (
            Linear(settings.model_dim, vocab_size, bias=True, generator=generator)
            if readout == "position"
            else BottleneckHead(length, settings.model_dim, vocab_size, generator=generator)
        )

    def _turning(self, mixer: Mechanism, generator: torch.Generator) -> Mechanism:
        """Let the position encoding turn one layer's queries and keys, if it turns any."""
        if self.position.name == OWN and mixer.own_positions == "none":
            return mixer
        if isinstance(mixer, Attention):
            if rotations := self.position.rotations(mixer.turned_widths, generator):
                mixer.turn_by(rotations)
        elif self.position.rotation(generator) is not None:
            raise UsageError(
                f"positions {self.position.name!r} turn queries and keys, which mechanism {mixer.name!r} has none "
                "of; allowed: positions that do not rotate, such as learned or none"
            )
        return mixer

    @property
    def layers(self) -> list[Block]:
        """The blocks, first to last."""
        return cast("list[Block]", list(self.blocks))

    def size(self, length: int) -> ModelSize:
        """Count the parameters of all layers and the state of one; the mean where layers differ."""
        mixing = [
            part
            for block in self.layers
            for part in (block.mixer, block.convolution, block.output_gate)
            if part is not None
        ]
        states = [
            cast("Mechanism", block.mixer).state_elements(length)
            + conv_elements(block.conv, block.conv_on, block.model_dim)
            for block in self.layers
        ]
        unused = sum(_num_unused(cast("Mechanism", block.mixer), length) for block in self.layers)
        num_mixing = sum(map(num_parameters, mixing))
        return ModelSize(num_parameters(self) - unused, num_mixing - unused, mean_state(states))

    def forward(
        self, tokens: Int[Tensor, "*leading batch length"], columns: Int[Tensor, " columns"] | None = None
    ) -> Float[Tensor, "*leading batch columns classes"]:
        """Compute logits at every position, or at ``columns``: where nothing is scored, the head need not run.

        A single column must be the last one, which is all that the last block then computes. A bottleneck always reads
        only the last position.
        """
        x = self.position.embed(self.embedding(tokens))
        *blocks, last = self.layers
        for block in blocks:
            x = block(x)
        if isinstance(self.head, BottleneckHead):
            if columns is None:
                columns = torch.arange(tokens.shape[-1], device=tokens.device)
            answers: Tensor = self.head(last.forward_last(x), columns)
            return answers
        if columns is not None and len(columns) == 1:
            x = last.forward_last(x)
        else:
            x = last(x)
            if columns is not None and len(columns) < x.shape[-2]:
                x = x.index_select(-2, columns)
        logits: Tensor = self.head(x)
        return logits

    def stream_step(
        self, tokens: Int[Tensor, "*leading batch"], state: State
    ) -> tuple[Float[Tensor, "*leading batch classes"], State]:
        """Read one token of every sequence; return its logits, as in ``forward``, and the new state.

        The given state is left as it was. A bottleneck has no such form: it reads the last position alone.
        """
        after = state.copied()
        x = self.position.embed(self.embedding(tokens.unsqueeze(-1)), state.position).squeeze(-2)
        for layer, block in enumerate(self.layers):
            x, after.parts[str(layer)] = block.stream_step(x, after.part(str(layer)))
        after.position += 1
        logits: Tensor = self.head(x.unsqueeze(-2))
        return logits.squeeze(-2), after


def _num_unused(mechanism: Mechanism, length: int) -> int:
    """Count the numbers in the parameters of a plugin's mechanism on which no output depends at a length."""
    if is_built_in(type(mechanism)):
        return 0  # its tests hold it to using all
    x = torch.randn(1, length, mechanism.model_dim, generator=torch.Generator().manual_seed(length))
    try:
        unused = unused_parameters(copy.deepcopy(mechanism), x)
    except Exception:  # noqa: BLE001 - it may need another device, or fail when it is trained
        return 0
    return sum(num_numbers(mechanism.get_parameter(name)) for name in unused)


class BottleneckHead(nn.Module):
    """A head that computes the logits at each position from the last vector and a position code.

    Source: Poli et al. (2024), appendix B.1, the compression task. Our hidden layer is twice the model's width.
    """

    def __init__(self, length: int, model_dim: int, vocab_size: int, *, generator: torch.Generator) -> None:
        """Draw a code for each of ``length`` positions, then the two layers."""
        super().__init__()
        self.codes = Embedding(length, model_dim, generator=generator)
        self.hidden = Linear(model_dim, 2 * model_dim, bias=True, generator=generator)
        self.out = Linear(2 * model_dim, vocab_size, bias=True, generator=generator)

    def forward(
        self, x: Float[Tensor, "*leading batch 1 model_dim"], columns: Int[Tensor, " columns"]
    ) -> Float[Tensor, "*leading batch columns classes"]:
        """Decode the vector at some positions."""
        codes = self.codes(columns.expand(*x.shape[:-3], 1, len(columns)))
        logits: Tensor = self.out(gelu(self.hidden(x + codes)))
        return logits


class StackedMixer(Mixer):
    """A mechanism with stacked tensors that broadcasts over the run axis by itself."""

    def __init__(self, stacked: Mechanism) -> None:
        """Take a mechanism whose tensors are stacked."""
        super().__init__()
        self.mechanism = stacked

    def forward(self, x: RunTokens) -> RunTokens:
        """Compute all runs at once."""
        mixed: Tensor = self.mechanism(x)
        return mixed

    def forward_last(self, x: RunTokens) -> RunToken:
        """Compute ``forward`` at the last position."""
        return self.mechanism.forward_last(x)

    def stream_step(self, x: RunVectors, state: State) -> tuple[RunVectors, State]:
        """Compute ``forward`` at one token of every sequence; return it with the new state of all runs."""
        return self.mechanism.stream_step(x, state)

    def enter_phase(self, phase: int) -> None:
        """Pass on the phase of a curriculum."""
        self.mechanism.enter_phase(phase)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return the metrics of all runs."""
        return self.mechanism.metrics(x)


class FoldedAttention(StackedMixer):
    """Attention whose only tensors are its stacked projections: runs are more rows of the batch."""

    mechanism: Attention

    def forward(self, x: RunTokens) -> RunTokens:
        """Project every run by its own matrices, then attend in all at once."""
        return self._attend(x, is_last_only=False)

    def forward_last(self, x: RunTokens) -> RunToken:
        """Compute ``forward`` at the last position."""
        return self._attend(x, is_last_only=True)

    def _attend(self, x: Tensor, *, is_last_only: bool) -> Tensor:
        attention = self.mechanism
        q, k, v = (part.flatten(0, 1) for part in attention.heads(x))
        if is_last_only and attention.takes_last_queries:
            q = q[..., -1:, :]
        attended = attention.attend(q, k, v)
        attended = attended.view(*x.shape[:2], *attended.shape[1:])
        return attention.merge_heads(attended[..., -1:, :] if is_last_only else attended)


class LoopedMixer(Mixer):
    """Any mechanism: its tensors are stacked for one optimiser, but the runs go one after the other."""

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        """Take one mechanism per run and replace their tensors."""
        super().__init__()
        self._alone = list(mechanisms)  # a list hides their own tensors; a copy would not copy what they compiled
        self._names: dict[str, list[str]] = {}
        """Paths of every tensor; several if layers share it."""
        for kind in ("parameters", "buffers"):
            paths: dict[int, list[str]] = {}
            for path, tensor in getattr(mechanisms[0], f"named_{kind}")(remove_duplicate=False):
                paths.setdefault(id(tensor), []).append(path)
            for path, *others in paths.values():
                tensor, flat = _tensor(mechanisms[0], path), path.replace(".", "/")
                self._names[flat] = [path, *others]
                stacked = torch.stack([_tensor(mechanism, path).detach() for mechanism in mechanisms])
                setattr(self, flat, _like(tensor, stacked) if kind == "parameters" else nn.Buffer(stacked))

    def forward(self, x: RunTokens) -> RunTokens:
        """Compute the runs one by one."""
        return torch.stack([alone(rows) for alone, rows in zip(self._current(), x, strict=True)])

    def forward_last(self, x: RunTokens) -> RunToken:
        """Compute ``forward`` at the last position."""
        return self.forward(x)[..., -1:, :]

    def stream_step(self, x: RunVectors, state: State) -> tuple[RunVectors, State]:
        """Compute ``forward`` at one token of every sequence, run by run; return it with the new states."""
        after, outs = state.copied(), []
        for name, (alone, rows) in enumerate(zip(self._current(), x, strict=True)):
            out, after.parts[str(name)] = alone.stream_step(rows, after.part(str(name)))
            outs.append(out)
        return torch.stack(outs), after

    def enter_phase(self, phase: int) -> None:
        """Pass on the phase of a curriculum."""
        for alone in self._alone:
            alone.enter_phase(phase)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return the metrics of all runs, one by one."""
        of_runs = [alone.metrics(rows) for alone, rows in zip(self._current(), x, strict=True)]
        return {name: torch.stack([metrics[name] for metrics in of_runs]) for name in of_runs[0]}

    def _current(self) -> list[Mechanism]:
        """Return the mechanisms with the tensors that are trained.

        These stay in place until the next call: an activation checkpoint calls the mechanism again in the backward
        pass, where a :func:`torch.func.functional_call` would have restored the first ones.
        """
        for run, alone in enumerate(self._alone):
            alone.train(self.training)
            for flat, paths in self._names.items():
                values = getattr(self, flat)[run]
                for path in paths:
                    owner, _, leaf = path.rpartition(".")
                    held = vars(alone.get_submodule(owner))
                    (held["_parameters"] if leaf in held["_parameters"] else held["_buffers"])[leaf] = values
        return self._alone


def _tensor(module: nn.Module, name: str) -> Tensor:
    path, _, leaf = name.rpartition(".")
    tensor: Tensor = getattr(module.get_submodule(path), leaf)
    return tensor


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    """Make values a parameter of the same kind, undecayed or frozen, if the given tensor is a parameter."""
    return type(tensor)(values, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else values


def stack_modules(modules: Sequence[M], activation_axes: int) -> M:
    """Build one module whose tensors carry a leading run axis.

    A :class:`RunLayer` handles that axis itself. Every other tensor is aligned to the right against activations of
    ``activation_axes`` axes, the run axis counted: [m, n] becomes [runs, 1, ..., 1, m, n].
    """
    stacked = copy.deepcopy(modules[0])
    for path, module in stacked.named_modules():
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, tensor in tensors:
            values = torch.stack([_tensor(each, f"{path}.{name}".lstrip(".")).detach() for each in modules])
            if not isinstance(module, RunLayer):
                padding = [1] * (activation_axes - 1 - tensor.ndim)
                values = values.view(len(modules), *padding, *tensor.shape)
            setattr(module, name, _like(tensor, values))
    return stacked


def stack_mixers(mechanisms: Sequence[Mechanism], strategy: Strategy) -> Mixer:
    """Build the program that runs one mechanism per run by the given strategy."""
    if strategy == "loop":
        return LoopedMixer(mechanisms)
    stacked = stack_modules(mechanisms, activation_axes=5 if isinstance(mechanisms[0], Attention) else 4)
    # Only attention has projections to keep apart while the rest is folded.
    if strategy == "fold" and isinstance(stacked, Attention):
        return FoldedAttention(stacked)
    return StackedMixer(stacked)


def strategy_of(mechanism: type[Mechanism], fields: dict[str, Any]) -> Strategy:
    """Choose the fastest way to batch runs of a mechanism that gives what single runs give.

    Tried on two runs of three short sequences, in float64.
    """
    return _strategy(mechanism, tuple(sorted(fields.items())))


@lru_cache(maxsize=256)
def _strategy(mechanism: type[Mechanism], fields: tuple[tuple[str, Any], ...]) -> Strategy:
    generator = torch.Generator().manual_seed(0)
    runs = [in_precision(mechanism(**dict(fields), generator=generator), torch.float64).eval() for _ in range(2)]
    names = [name for name, _ in [*runs[0].named_parameters(), *runs[0].named_buffers()]]
    has_own_tensors = any(not name.startswith(("qkv.", "out.")) for name in names)
    candidate: Strategy = "fold" if isinstance(runs[0], Attention) and not has_own_tensors else "stack"
    length = min(5, runs[0].max_length)
    x = torch.randn(2, 3, length, runs[0].model_dim, generator=generator, dtype=torch.float64)
    try:
        with torch.no_grad(), without_compilation():
            alone = torch.stack([run(rows) for run, rows in zip(runs, x, strict=True)])
            program = stack_mixers(runs, candidate)
            together, last = program(x), program.forward_last(x)
    except Exception:  # noqa: BLE001 - a mechanism that was not written for this may raise anything
        return "loop"
    return candidate if _is_close(together, alone) and _is_close(last, alone[..., -1:, :]) else "loop"


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    return actual.shape == expected.shape and torch.allclose(actual, expected, rtol=1e-9, atol=1e-9)


def inherit(model: nn.Module, trained: nn.Module, runs: Sequence[int] | None = None) -> None:
    """Copy to a stacked model all that some runs of another, or all, have learned or drawn.

    Where the model is larger along an axis, it keeps its own values for the rest; where it is smaller, the rest is
    dropped. So a model for longer sequences has untrained positions, and one with fewer tokens lacks those of other
    tasks.
    """
    tensors = model.state_dict()
    for name, learned in trained.state_dict().items():
        values = learned if runs is None else learned[list(runs)]
        shared = tuple(slice(min(sizes)) for sizes in zip(values.shape, tensors[name].shape, strict=True))
        tensors[name][shared] = values[shared]


def widened(model: SequenceModel, vocab_size: int) -> SequenceModel:
    """Enlarge the vocabulary of one run's model by tokens that it neither reads nor predicts.

    Their logits are :data:`NEVER`, so they have no share of a loss and no gradient.
    """
    num_new = vocab_size - model.embedding.weight.shape[0]
    if num_new == 0:
        return model
    wide = copy.deepcopy(model)
    last = wide.head if isinstance(wide.head, Linear) else wide.head.out
    wide.embedding.weight = nn.Parameter(pad(wide.embedding.weight.detach(), (0, 0, 0, num_new)))
    last.weight = nn.Parameter(pad(last.weight.detach(), (0, num_new)))
    last.bias = nn.Parameter(pad(cast("Tensor", last.bias).detach(), (0, num_new), value=NEVER))
    return wide


def slowest(strategies: Sequence[Strategy]) -> Strategy:
    """Return the strategy that shares least."""
    return max(strategies, key=get_args(Strategy).index)


def stack_models(models: Sequence[SequenceModel], strategies: Strategy | Sequence[Strategy]) -> SequenceModel:
    """Build one model of all runs: it reads tokens [runs, batch, length].

    All tensors are stacked, and the mixers run by the strategies: one for all layers, or one for each. If vocabularies
    differ, all runs get the largest.
    """
    vocab_size = max(model.embedding.weight.shape[0] for model in models)
    models = [widened(model, vocab_size) for model in models]
    stacked = stack_modules(models, activation_axes=4)
    of_layers = [strategies] * len(stacked.layers) if isinstance(strategies, str) else strategies
    for layer, (block, strategy) in enumerate(zip(stacked.layers, of_layers, strict=True)):
        mechanisms = [cast("Mechanism", model.layers[layer].mixer) for model in models]
        block.mixer = stack_mixers(mechanisms, strategy)
    return stacked
