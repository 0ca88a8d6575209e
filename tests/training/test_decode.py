"""Greedy decoding: streamed and at once alike for every mechanism, and what its scores count."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from synthbench.forms.state import State
from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.mechanisms.gla import Gla
from synthbench.tasks import IGNORE, TASKS
from synthbench.training.cell import Run
from synthbench.training.decode import Decoded, decode, decoded_scores, own_tokens, scores_of, streams
from synthbench.training.ensemble import SequenceModel, Strategy, stack_models, strategy_of
from synthbench.training.train import GroupResult, Trainer, train_group
from tests.contract.test_states import Gated
from tests.mechanisms.loops import moved
from tests.training.cells import CPU, FIELDS, LENGTH, VOCABULARY, make_cell, model_of, on_ladder

TERMS = [*(name for name in MECHANISMS if MECHANISMS.is_built_in(name)), "gla+softmax", "lstm+local"]


def models_of(unit: type[Mechanism], strategy: Strategy | None = None, **around: Any) -> SequenceModel:
    """Two runs, drawn and then moved."""
    around = {"block": "transformer", "layers": 2, **around}
    runs = [moved(model_of(unit, **around, seed=seed), seed=seed) for seed in range(2)]
    return stack_models(runs, strategy or [strategy_of(*layer) for layer in unit.layers_of(FIELDS, around["layers"])])


def sequences(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens of two runs, and which are their own: at other places in every sequence."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (2, 3, LENGTH), generator=generator)
    is_own = torch.rand(2, 3, LENGTH, generator=generator) < 0.7
    is_own[..., :2] = False
    return tokens, is_own


@torch.no_grad()
def by_prefixes(model: SequenceModel, inputs: Tensor, is_own: Tensor) -> Tensor:
    """The same, token by token, from the logits at the end of every prefix."""
    read, outs = inputs.clone(), torch.zeros_like(inputs)
    for position in range(inputs.shape[-1]):
        if position:
            read[..., position] = torch.where(is_own[..., position], outs[..., position - 1], inputs[..., position])
        outs[..., position] = model(read[..., : position + 1])[..., -1, :].argmax(-1)
    return outs


def decoded_by_both(model: SequenceModel, tokens: Tensor, is_own: Tensor) -> Tensor:
    streamed, at_once = decode(model, tokens, is_own, "streamed"), decode(model, tokens, is_own, "parallel")

    assert streams(model, tokens)
    assert model.training
    assert torch.equal(streamed, at_once)
    with torch.no_grad():
        assert not torch.equal(model(tokens).argmax(-1), streamed)  # other tokens than if it were shown the given ones
    return streamed


@pytest.mark.parametrize("name", TERMS)
def test_every_mechanism_decodes_the_same_streamed_and_at_once(name: str) -> None:
    layers = 2 if "+" in name else 1  # how layers follow each other is no matter of the mechanism
    decoded_by_both(models_of(MECHANISMS[name], block="transformer:conv=4", layers=layers), *sequences())


@pytest.mark.parametrize(
    ("name", "around"),  # every block and all positions, and a rotation of what a convolution gives
    [
        ("gated-deltanet", {"block": "attention_only", "positions": "none"}),
        ("gated-deltanet", {"block": "transformer", "positions": "string"}),
        ("gated-deltanet", {"block": "aether:norm=post", "positions": "learned"}),
        ("gated-deltanet", {"block": "transformer:conv=4,conv_on=qkv", "positions": "espr:commuting=false"}),
        ("gated-deltanet", {"block": "transformer:conv=4,conv_on=qkv", "positions": "rope"}),
        *product(("softmax", "slay", "lstm"), ({"strategy": "stack"}, {"strategy": "loop"})),
    ],
)
def test_so_do_all_blocks_and_positions_and_runs_however_they_are_batched(name: str, around: dict[str, Any]) -> None:
    model, (tokens, is_own) = models_of(MECHANISMS[name], **around), sequences()

    assert torch.equal(decoded_by_both(model, tokens, is_own), by_prefixes(model, tokens, is_own))


class Wrong(Gla):
    """Has a form for single tokens that computes something else."""

    def advance(self, x: Tensor, state: State) -> Tensor:
        return -super().advance(x, state)


class Raising(Gla):
    """Has a form for single tokens that cannot be called, as with a rotation that knows of no first position."""

    def advance(self, x: Tensor, state: State) -> Tensor:  # noqa: ARG002 - they are those of the base
        raise TypeError


@pytest.mark.parametrize("unit", [Gated, Wrong, Raising])
def test_what_has_no_right_form_for_single_tokens_is_decoded_at_once(unit: type[Mechanism]) -> None:
    model = models_of(unit)
    tokens, is_own = sequences()

    assert not streams(model, tokens)
    assert torch.equal(decode(model, tokens, is_own, "parallel"), by_prefixes(model, tokens, is_own))


ANSWERS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4)


def laid_out(answers: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
    """Inputs, targets and own tokens of a sequence of questions, 9, and answers, without gaps but for the questions."""
    inputs, targets, own = [9], [IGNORE], [0]
    for answer in answers:
        inputs += [9, *answer[:-1]]
        targets += answer
        own += [0, *[1] * (len(answer) - 1)]
        inputs, targets, own = [*inputs, 9], [*targets, IGNORE], [*own, 0]
    return inputs, targets, own


@given(ANSWERS)
def test_own_tokens_are_those_of_an_answer_after_its_first(answers: list[list[int]]) -> None:
    inputs, targets, own = (torch.tensor(part).view(1, 1, -1) for part in laid_out(answers))

    assert torch.equal(own_tokens(inputs, targets).long(), own)
    for position in own.flatten().nonzero().flatten().tolist():
        broken = inputs.clone()
        broken[..., position] = 8
        assert not own_tokens(broken, targets).any()  # a task that shows something else does not answer in steps


@given(answers=ANSWERS, wrong=st.lists(st.booleans(), min_size=40, max_size=40))
def test_scores_are_counted_token_by_token_and_as_a_whole(answers: list[list[int]], wrong: list[bool]) -> None:
    _, targets, own = (torch.tensor(part).view(1, 1, -1) for part in laid_out([*answers, [0, 1]]))
    decoded = targets + torch.tensor(wrong[: targets.shape[-1]])
    is_right = (decoded == targets).flatten().tolist()
    scored, whole, place = [], [], 1
    for answer in [*answers, [0, 1]]:
        of_answer = is_right[place : place + len(answer)]
        scored += of_answer
        whole.append(all(of_answer))
        place += len(answer) + 1

    assert scores_of(decoded, targets, own.bool()) == [Decoded(float(np.mean(scored)), float(np.mean(whole)))]


IN_STEPS = {"ancestors", "anbncn", "fuzzy_recall", "palindrome", "periodic_pattern", "permutation_hops"}


def test_a_task_answers_in_steps_if_it_shows_what_it_asked_for() -> None:
    found = set()
    for name in TASKS:
        batch = TASKS[name]().sample(np.random.default_rng(0), 32, TASKS[name].length)
        inputs, targets = (torch.from_numpy(part.astype(np.int64)).unsqueeze(0) for part in batch)
        if own_tokens(inputs, targets).any():
            found.add(name)

    assert found == IN_STEPS


def metrics_of(result: GroupResult) -> list[dict[str, float]]:
    return [{name: value for name, value in run.metrics.items() if value is not None} for run in result.runs]


def test_a_row_has_the_scores_of_every_level_with_answers_in_steps() -> None:
    runs = [
        Run(on_ladder("permutation_hops", "deltanet", limit=32, longest=32, extended=False), seed, 1e-2)
        for seed in (1, 2)
    ]

    for metrics in metrics_of(train_group(runs, CPU)):
        names = [f"rung{number}.decoded.{of}" for number in runs[0].cell.tests for of in ("tokens", "answers")]
        assert list(metrics) == names
        assert all(0 <= metrics[name] <= 1 for name in names)
        assert all(metrics[f"rung{n}.decoded.answers"] <= metrics[f"rung{n}.decoded.tokens"] for n in (1, 2))


@pytest.mark.parametrize(
    ("task", "names"), [("permutation_hops", ["decoded.tokens", "decoded.answers"]), ("interleaved_stacks", [])]
)
def test_off_ladders_only_a_row_whose_task_answers_in_steps_has_them(task: str, names: list[str]) -> None:
    (metrics,) = metrics_of(train_group(make_cell(task, length=64).runs([1]), CPU))

    assert list(metrics) == names


@pytest.mark.parametrize(("can_stream", "number"), [(True, 64), (False, 16)])
def test_scores_of_a_batch_are_those_of_its_first_sequences(*, can_stream: bool, number: int) -> None:
    cell = on_ladder("ancestors", "gla", limit=32, longest=32, extended=False)
    trainer = Trainer([Run(cell, seed, 1e-2) for seed in (1, 2)], CPU)
    model = moved(trainer.model, seed=10)  # which gets some tokens of each run right
    if not can_stream:
        model.stream_step = None  # type: ignore[method-assign,assignment]
    block = next(trainer.batches("test", 1, 80))
    inputs = block.inputs[0, :, :number]
    targets = torch.full_like(inputs, IGNORE)
    targets[..., block.columns] = block.targets[0, :, :number]
    is_own = own_tokens(inputs, targets)

    expected = scores_of(decode(model, inputs, is_own, "parallel"), targets, is_own)

    assert decoded_scores(model, block) == expected
    assert all(scores is not None and scores.answers < scores.tokens for scores in expected)
