"""The small model that is trained, and functions that combine the models of many runs into one model.

A mechanism, the layer that mixes tokens, is written for one run. Here several runs are computed together, along a
leading run axis, by one of three strategies:

* ``fold``: the run axis becomes part of the batch axis, if the mechanism has no tensors except its projections;
* ``stack``: each tensor of the mechanism gets a run axis and broadcasts against the activations;
* ``loop``: the runs are computed one after the other.

``fold`` is chosen where it is possible, otherwise ``stack``. If the chosen strategy gives other outputs than single
runs, ``loop`` is used.
"""

import copy
from collections.abc import Sequence
from functools import lru_cache, partial
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
from synthbench.plugins import is_built_in
from synthbench.positions import POSITIONS
from synthbench.suites.config import ModelSettings
from synthbench.tasks import Readout

Strategy = Literal["fold", "stack", "loop"]
RunIds = Int[Tensor, "runs batch length"]
"""Tokens or targets of every run."""
RunTokens = Float[Tensor, "runs batch length model_dim"]
RunToken = Float[Tensor, "runs batch 1 model_dim"]
RunVectors = Float[Tensor, "runs batch model_dim"]

OWN = "own"
"""Name of the setting in which each layer uses its own mechanism's position encoding."""
UNKNOWN_LOGIT = -1e30
"""The logit of a token outside a run's vocabulary. It is finite, since the weight decay of AdamW on CUDA would turn
minus infinity into NaN."""

M = TypeVar("M", bound=nn.Module)


class ModelSize(NamedTuple):
    """The size of one run's model, as recorded in the run's row of results."""

    num_parameters: int
    num_parameters_mixer: int
    """Parameters of all mechanisms, of the convolutions on their inputs, and of the gates on their outputs."""
    state_elements: int
    """Numbers in the state of one layer's mechanism and convolution; the mean over layers, rounded up."""


class SequenceModel(nn.Module):
    """The model of one run, or of many runs if :func:`stack_models` made it.

    It consists of an embedding, a position encoding, blocks and a head. Each entry of ``layers``, a mechanism's class
    with its arguments, makes one block.
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
        """Draw all parameters from ``generator``, in the order in which data passes through the model."""
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
        """Let the position encoding rotate the queries and keys of one layer, if the encoding has rotations."""
        if self.position.name == OWN and mixer.own_positions == "none":
            return mixer
        if isinstance(mixer, Attention):
            if rotations := self.position.rotations(mixer.turned_widths, generator):
                mixer.turn_by(rotations)
        elif self.position.rotation(generator) is not None:
            raise UsageError(
                f"positions {self.position.name!r} rotate queries and keys, but mechanism {mixer.name!r} has none; "
                "allowed: positions that do not rotate, such as learned or none"
            )
        return mixer

    @property
    def layers(self) -> list[Block]:
        """The blocks, first to last."""
        return cast("list[Block]", list(self.blocks))

    def size(self, length: int) -> ModelSize:
        """Count the parameters of the model, and the numbers in a layer's state after ``length`` tokens.

        The numbers in the state are averaged over layers.
        """
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
        """Compute logits at every position, or only at the positions ``columns``, which saves work in the head.

        A single entry in ``columns`` must be the last position; the last block then computes only this position. A
        :class:`BottleneckHead` always reads only the last position.
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
        """Read one token of every sequence; return its logits, the same as from ``forward``, and the new state.

        The object ``state`` is not changed. A model with a bottleneck head cannot stream.
        """
        after = state.copied()
        x = self.position.embed(self.embedding(tokens.unsqueeze(-1)), state.position).squeeze(-2)
        for layer, block in enumerate(self.layers):
            x, after.parts[str(layer)] = block.stream_step(x, after.part(str(layer)))
        after.position += 1
        logits: Tensor = self.head(x.unsqueeze(-2))
        return logits.squeeze(-2), after


def _num_unused(mechanism: Mechanism, length: int) -> int:
    """Count a plugin mechanism's parameters that affect no output at a given length; 0 for built-in mechanisms."""
    if is_built_in(type(mechanism)):
        return 0  # its tests check that it uses all of them
    x = torch.randn(1, length, mechanism.model_dim, generator=torch.Generator().manual_seed(length))
    try:
        unused = unused_parameters(copy.deepcopy(mechanism), x)
    except Exception:  # noqa: BLE001 - it may need another device, or fail when it is trained
        return 0
    return sum(num_numbers(mechanism.get_parameter(name)) for name in unused)


class BottleneckHead(nn.Module):
    """A two-layer head; logits at position t are computed from the last position's output and a learned vector for t.

    The hidden layer has twice the model's width. Source: Poli et al. (2024), appendix B.1, the compression task.
    """

    def __init__(self, length: int, model_dim: int, vocab_size: int, *, generator: torch.Generator) -> None:
        """Draw a vector for each of ``length`` positions, then the weights of both layers."""
        super().__init__()
        self.codes = Embedding(length, model_dim, generator=generator)
        self.hidden = Linear(model_dim, 2 * model_dim, bias=True, generator=generator)
        self.out = Linear(2 * model_dim, vocab_size, bias=True, generator=generator)

    def forward(
        self, x: Float[Tensor, "*leading batch 1 model_dim"], columns: Int[Tensor, " columns"]
    ) -> Float[Tensor, "*leading batch columns classes"]:
        """Compute the logits at the positions in ``columns`` from ``x``, the model's vector at the last position."""
        codes = self.codes(columns.expand(*x.shape[:-3], 1, len(columns)))
        logits: Tensor = self.out(gelu(self.hidden(x + codes)))
        return logits


class FoldedAttention(Mixer):
    """Attention of several runs with the run axis folded into the batch axis; only the projections have run axes."""

    def __init__(self, stacked: Attention) -> None:
        """Wrap a mechanism whose tensors already have a leading run axis."""
        super().__init__()
        self.mechanism = stacked

    def forward(self, x: RunTokens) -> RunTokens:
        """Project each run by its own matrices, then attend in all runs at once."""
        return self._attend(x, is_last_only=False)

    def forward_last(self, x: RunTokens) -> RunToken:
        """Compute ``forward`` at the last position."""
        return self._attend(x, is_last_only=True)

    def stream_step(self, x: RunVectors, state: State) -> tuple[RunVectors, State]:
        """Compute the output at the next token of every sequence; return it with the new state of all runs."""
        return self.mechanism.stream_step(x, state)

    def enter_phase(self, phase: int) -> None:
        """Tell the mechanism that a phase of the training curriculum begins; phases count from 1."""
        self.mechanism.enter_phase(phase)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return the mechanism's own metrics for all runs, with their names as keys."""
        return self.mechanism.metrics(x)

    def _attend(self, x: Tensor, *, is_last_only: bool) -> Tensor:
        attention = self.mechanism
        q, k, v = (part.flatten(0, 1) for part in attention.heads(x))
        if is_last_only and attention.takes_last_queries:
            q = q[..., -1:, :]
        attended = attention.attend(q, k, v)
        attended = attended.view(*x.shape[:2], *attended.shape[1:])
        return attention.merge_heads(attended[..., -1:, :] if is_last_only else attended)


class LoopedMixer(Mixer):
    """A token mixer for any mechanism, which computes the runs of a common model one by one.

    The tensors of the runs are joined along a run axis, so that one optimiser can update them all.
    """

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        """Take one mechanism per run and join their tensors along a leading run axis."""
        super().__init__()
        self._alone = list(mechanisms)  # a list hides their own tensors from PyTorch; copies would lose compiled code
        self._own: dict[str, list[Tensor]] = {}
        """For each stacked tensor, the mechanisms' own tensors, one per run; they share its memory."""
        for path, tensor in [*mechanisms[0].named_parameters(), *mechanisms[0].named_buffers()]:
            own = [_tensor(mechanism, path) for mechanism in mechanisms]
            stacked = _like(tensor, torch.stack([one.detach() for one in own]))
            flat = path.replace(".", "/")
            setattr(self, flat, stacked if isinstance(stacked, nn.Parameter) else nn.Buffer(stacked))
            self._own[flat] = own
            for run, one in enumerate(own):
                if one.requires_grad:
                    one.register_post_accumulate_grad_hook(partial(_pass_gradient, stacked, run))

    def forward(self, x: RunTokens) -> RunTokens:
        """Compute the runs one by one."""
        return torch.stack([alone(rows) for alone, rows in zip(self._current(), x, strict=True)])

    def stream_step(self, x: RunVectors, state: State) -> tuple[RunVectors, State]:
        """Compute the output at the next token of every sequence, run by run; return it with the runs' new state."""
        after, outs = state.copied(), []
        for name, (alone, rows) in enumerate(zip(self._current(), x, strict=True)):
            out, after.parts[str(name)] = alone.stream_step(rows, after.part(str(name)))
            outs.append(out)
        return torch.stack(outs), after

    def enter_phase(self, phase: int) -> None:
        """Tell the mechanism of every run that a phase of the training curriculum begins; phases count from 1."""
        for alone in self._alone:
            alone.enter_phase(phase)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return the mechanism's own metrics, with names as keys, computed run by run and joined along a run axis."""
        of_runs = [alone.metrics(rows) for alone, rows in zip(self._current(), x, strict=True)]
        return {name: torch.stack([metrics[name] for metrics in of_runs]) for name in of_runs[0]}

    def _current(self) -> list[Mechanism]:
        """Let the mechanisms' own tensors share the memory of the stacked tensors; return the mechanisms.

        The mechanisms keep their tensors, since new ones would lack the hooks of parameters. New tensors would also not
        reach a mechanism that keeps a parameter in a list or a function. The memory is set at each call, since models
        and optimisers move it.
        """
        for flat, own in self._own.items():
            for one, values in zip(own, getattr(self, flat).detach(), strict=True):
                one.data = values
        for alone in self._alone:
            alone.train(self.training)
        return self._alone


def _pass_gradient(stacked: Tensor, run: int, own: Tensor) -> None:
    """Add the gradient of a run's own parameter to this run's part of the stacked parameter's gradient."""
    if stacked.grad is None:
        stacked.grad = torch.zeros_like(stacked)
    if own.grad is not None:
        stacked.grad[run] += own.grad
    own.grad = None


def _tensor(module: nn.Module, name: str) -> Tensor:
    path, _, leaf = name.rpartition(".")
    tensor: Tensor = getattr(module.get_submodule(path), leaf)
    return tensor


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    """If ``tensor`` is a parameter, make ``values`` a parameter of the same class, frozen if ``tensor`` is frozen."""
    return type(tensor)(values, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else values


def stack_modules(modules: Sequence[M], activation_axes: int) -> M:
    """Combine the modules of several runs into one module, whose tensors have a leading run axis.

    In a :class:`RunLayer`, a tensor of shape [m, n] becomes [runs, m, n]. In any other module it becomes [runs, 1, ...,
    1, m, n], so that it broadcasts against inputs with ``activation_axes`` axes.
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
    """Combine the mechanisms of several runs into one token mixer that uses the given strategy."""
    if strategy == "loop":
        return LoopedMixer(mechanisms)
    stacked = stack_modules(mechanisms, activation_axes=5 if isinstance(mechanisms[0], Attention) else 4)
    # Only attention has projections to keep apart while the rest is folded.
    return FoldedAttention(stacked) if strategy == "fold" and isinstance(stacked, Attention) else stacked


def strategy_of(mechanism: type[Mechanism], fields: dict[str, Any]) -> Strategy:
    """Choose the fastest correct way to compute several runs of a mechanism together: ``fold``, ``stack`` or ``loop``.

    ``fold`` joins the run axis and the batch axis, ``stack`` gives each tensor of the mechanism a run axis, and
    ``loop`` computes one run after the other. Either ``fold`` or ``stack`` is tried first. If it fails, or if it
    changes the outputs of two small runs in float64, ``loop`` is chosen. ``fields`` are the mechanism's arguments.
    """
    return _strategy(mechanism, tuple(sorted(fields.items())))


@lru_cache(maxsize=256)
def _strategy(mechanism: type[Mechanism], fields: tuple[tuple[str, Any], ...]) -> Strategy:
    generator = torch.Generator().manual_seed(0)
    runs = [in_precision(mechanism(**dict(fields), generator=generator), torch.float64).eval() for _ in range(2)]
    names = [name for name, _ in [*runs[0].named_parameters(), *runs[0].named_buffers()]]
    has_own_tensors = any(not name.startswith(("qkv.", "out.")) for name in names)
    if any(parameter._backward_hooks for parameter in runs[0].parameters()):  # noqa: SLF001 - a copy has no hooks
        return "loop"
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


def copy_learned(model: nn.Module, trained: nn.Module, runs: Sequence[int] | None = None) -> None:
    """Copy parameters and buffers from a trained model of several runs into ``model``, which may have other sizes.

    ``runs`` lists the indices (from 0) of the runs to copy; None copies all. Along an axis of different sizes, only the
    common part is copied. So a model for longer sequences has untrained values at the added positions, and a smaller
    vocabulary drops the surplus tokens.
    """
    tensors = model.state_dict()
    for name, learned in trained.state_dict().items():
        values = learned if runs is None else learned[list(runs)]
        shared = tuple(slice(min(sizes)) for sizes in zip(values.shape, tensors[name].shape, strict=True))
        tensors[name][shared] = values[shared]


def pad_vocabulary(model: SequenceModel, vocab_size: int) -> SequenceModel:
    """Enlarge the vocabulary of a model by tokens that never occur in its task.

    Their logits are :data:`UNKNOWN_LOGIT`, so low that the tokens add nothing to a loss and get no gradient.
    """
    num_new = vocab_size - model.embedding.weight.shape[0]
    if num_new == 0:
        return model
    wide = copy.copy(model)  # copies of parameters would lose their hooks
    enlarged = {name: copy.deepcopy(getattr(model, name)) for name in ("embedding", "head")}
    wide.__dict__["_modules"] = {**vars(model)["_modules"], **enlarged}
    last = wide.head if isinstance(wide.head, Linear) else wide.head.out
    wide.embedding.weight = nn.Parameter(pad(wide.embedding.weight.detach(), (0, 0, 0, num_new)))
    last.weight = nn.Parameter(pad(last.weight.detach(), (0, num_new)))
    last.bias = nn.Parameter(pad(cast("Tensor", last.bias).detach(), (0, num_new), value=UNKNOWN_LOGIT))
    return wide


def slowest(strategies: Sequence[Strategy]) -> Strategy:
    """Return the slowest of the given strategies: ``loop`` if it is among them, else ``stack``, else ``fold``."""
    return max(strategies, key=get_args(Strategy).index)


def stack_models(models: Sequence[SequenceModel], strategies: Strategy | Sequence[Strategy]) -> SequenceModel:
    """Combine the models of several runs into one model, which reads tokens of shape [runs, batch, length].

    All tensors get a leading run axis. ``strategies`` is one result of :func:`strategy_of` for all layers, or one per
    layer. Smaller vocabularies are enlarged to the largest.
    """
    vocab_size = max(model.embedding.weight.shape[0] for model in models)
    models = [pad_vocabulary(model, vocab_size) for model in models]
    stacked = stack_modules(models, activation_axes=4)
    of_layers = [strategies] * len(stacked.layers) if isinstance(strategies, str) else strategies
    for layer, (block, strategy) in enumerate(zip(stacked.layers, of_layers, strict=True)):
        mechanisms = [cast("Mechanism", model.layers[layer].mixer) for model in models]
        block.mixer = stack_mixers(mechanisms, strategy)
    return stacked
