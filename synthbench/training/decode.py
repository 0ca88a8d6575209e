"""Greedy decoding with any mechanism: the model reads its own predictions instead of the right answers."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from synthbench.forms.state import State
from synthbench.mechanisms.base import EVERY_INPUT
from synthbench.tasks import IGNORE
from synthbench.training.ensemble import UNKNOWN_LOGIT, RunIds, SequenceModel
from synthbench.training.stream import DeviceBlock, in_pieces

Form = Literal["streamed", "parallel"]
"""``streamed``: one token at a time, from a state. ``parallel``: all positions at once, until no token changes."""

SEQUENCES: dict[Form, int] = {"streamed": 64, "parallel": 16}
"""Number of test sequences to decode. It is small, since each token may take one pass of the model over all tokens."""

_TRIED = 4
"""Number of tokens on which both forms are compared."""
_AGREEMENT = 1e-3
"""Largest difference of logits that rounding may cause, relative to the largest logit."""


class Decoded(NamedTuple):
    """Accuracy of a run that reads its own predictions in place of the right answers."""

    tokens: float
    """Fraction of the tokens of all answers that are right."""
    answers: float
    """Fraction of answers with all tokens right; never above ``tokens`` if all answers have the same length."""


def own_tokens(inputs: RunIds, targets: RunIds) -> Bool[Tensor, "runs batch length"]:
    """Mark, with True, the inputs that the model's own predictions replace in decoding.

    An answer of several tokens is a stretch of scored positions. From its second position on, each input must be the
    target of the previous position; these inputs are marked. If any answer of a run breaks this rule, no input of the
    run is marked. The same holds if any sequence is scored at its first position, as in language modelling.

    >>> inputs, targets = torch.tensor([[[7, 8, 1, 2, 7]]]), torch.tensor([[[IGNORE, 1, 2, 3, IGNORE]]])
    >>> own_tokens(inputs, targets).int().tolist()
    [[[0, 0, 1, 1, 0]]]
    """
    is_scored = targets != IGNORE
    goes_on = is_scored[..., 1:] & is_scored[..., :-1]
    is_shown = inputs[..., 1:] == targets[..., :-1]
    in_steps = (is_shown | ~goes_on).flatten(1).all(1) & ~is_scored[..., 0].any(1)
    return torch.nn.functional.pad(goes_on & in_steps.view(-1, 1, 1), (1, 0))


@torch.no_grad()
def decode(model: SequenceModel, inputs: RunIds, is_own: Bool[Tensor, "runs batch length"], form: Form) -> RunIds:
    """Predict the most probable token at every position; at marked positions, the model reads its own prediction.

    In the form ``streamed``, the model reads token by token. In the form ``parallel``, it reads all positions several
    times, until the inputs no longer change; each pass settles at least one more input, since the model is causal. Both
    forms return the same tokens, except for ties within rounding. The parallel form is Jacobi iteration (Santilli et
    al., 2023, algorithm 1).

    Args:
        model: The model of all runs, with a leading run axis.
        inputs: The token sequences; tokens at marked positions are not read.
        is_own: True at marked positions, where the model reads the token that it predicted at the previous position;
            False at the first position.
        form: ``streamed`` or ``parallel``; ``streamed`` needs a model that can stream (see :func:`streams`).
    """
    was_training = model.training
    model.eval()
    given = inputs.masked_fill(is_own, 0)
    if form == "streamed":
        decoded = _streamed(model, given, is_own)
    else:
        pieces = in_pieces(given, is_own)
        decoded = torch.cat([_at_once(model, piece, is_own_there) for piece, is_own_there in pieces], dim=1)
    model.train(was_training)
    return decoded


def _streamed(model: SequenceModel, given: Tensor, is_own: Tensor) -> Tensor:
    state, outs = State(), [given[..., 0]]
    for token, is_own_here in zip(given.unbind(-1), is_own.unbind(-1), strict=True):
        logits, state = model.stream_step(torch.where(is_own_here, outs[-1], token), state)
        outs.append(logits.argmax(-1))
    return torch.stack(outs[1:], dim=-1)


def _at_once(model: SequenceModel, given: Tensor, is_own: Tensor) -> Tensor:
    read, outs, left = given, given.clone(), torch.arange(given.shape[1], device=given.device)
    for _ in range(given.shape[-1]):
        outs[:, left] = model(read[:, left]).argmax(-1)
        before, read = read, torch.where(is_own, outs.roll(1, dims=-1), given)
        left = (read != before).any(-1).any(0).nonzero().squeeze(-1)  # sequences that have not settled
        if not len(left):
            break
    return outs


@torch.no_grad()
def streams(model: SequenceModel, inputs: RunIds) -> bool:
    """Return True if a model can stream: read one token at a time, with the same logits as in one pass.

    The result is False if the mechanism has no streaming form, since each step would then compute all earlier tokens
    again. It is also False if a plugin's streaming form raises an error, for example because it cannot process several
    runs at once.
    """
    tokens, state, steps = inputs[:, :1, :_TRIED], State(), []
    try:
        for token in tokens.unbind(-1):
            logits, state = model.stream_step(token, state)
            steps.append(logits)
    except Exception:  # noqa: BLE001 - a plugin's code may raise anything
        return False
    expected = model(tokens)
    difference = (torch.stack(steps, dim=-2) - expected).abs().nan_to_num(0).max()
    largest = expected.nan_to_num(0, 0, 0).where(expected > UNKNOWN_LOGIT / 2, 0).abs().max()
    return not state.has(EVERY_INPUT) and bool(difference <= _AGREEMENT * largest.clamp(min=1))


def decoded_scores(model: SequenceModel, block: DeviceBlock) -> list[Decoded | None]:
    """Decode the first sequences of each run (see :data:`SEQUENCES`), and return one score of the answers per run.

    The model reads its own earlier predictions in place of right answers (see :func:`own_tokens`). The score is None if
    a run has nothing to replace, for example because every answer is a single token.
    """
    form: Form = "streamed" if streams(model, block.inputs[0]) else "parallel"
    inputs = block.inputs[0, :, : SEQUENCES[form]]
    targets = torch.full_like(inputs, IGNORE)
    targets[..., block.columns] = block.targets[0, :, : SEQUENCES[form]]
    is_own = own_tokens(inputs, targets)
    if not is_own.any():
        return [None] * len(inputs)
    return scores_of(decode(model, inputs, is_own, form), targets, is_own)


def scores_of(decoded: RunIds, targets: RunIds, is_own: Bool[Tensor, "runs batch length"]) -> list[Decoded | None]:
    """Score decoded answers: return, per run, the fraction of right tokens and the fraction of wholly right answers.

    ``is_own`` is True where the model reads its own previous prediction: at all tokens of an answer except the first.
    The score of a run is None if no answer has more than one token.
    """
    is_scored = targets != IGNORE
    is_wrong = (decoded != targets) & is_scored
    begins = is_scored & ~is_own
    answer = begins.flatten(1).cumsum(1) - 1
    num_wrong = torch.zeros_like(answer).scatter_add_(1, answer.clamp(min=0), is_wrong.flatten(1).long())
    num_answers = begins.flatten(1).sum(1)
    is_answer = torch.arange(answer.shape[1], device=answer.device) < num_answers.unsqueeze(1)
    num_right = ((num_wrong == 0) & is_answer).sum(1)
    num_tokens, num_wrong_tokens = (x.flatten(1).sum(1) for x in (is_scored, is_wrong))
    counts = torch.stack([num_tokens - num_wrong_tokens, num_tokens, num_right, num_answers], dim=1).tolist()
    return [
        Decoded(right / tokens, right_answers / answers) if has_own else None
        for (right, tokens, right_answers, answers), has_own in zip(
            counts, is_own.flatten(1).any(1).tolist(), strict=True
        )
    ]
