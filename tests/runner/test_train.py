from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from synthbench.runner import stream
from synthbench.runner.config import Cell, Member
from synthbench.runner.ensemble import SequenceModel
from synthbench.runner.train import CellResult, Trainer, train_cell

CPU = torch.device("cpu")


def curve(result: CellResult, index: int, split: str, metric: str) -> list[tuple[int, float]]:
    points = result.members[index].curve
    return [(point.step, point.value) for point in points if (point.split, point.metric) == (split, metric)]


def test_training_lowers_the_loss_and_scores_every_member(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell("copy", "linear", steps=60, limit=64, length=8)
    result = train_cell(cell, [Member(0, 1e-2), Member(1, 1e-2)], CPU)

    for index, member in enumerate(result.members):
        losses = [value for _, value in curve(result, index, "train", "loss")]
        assert losses[-1] < losses[0] / 2
        assert member.score is not None
        assert member.score.accuracy > 0.9
        assert member.score.num_scored == 64 * 8
        assert member.steps_to_threshold is not None
        assert member.steps_to_threshold <= 60


def test_the_curve_has_a_point_every_interval_and_at_the_end(make_cell: Callable[..., Cell]) -> None:
    result = train_cell(make_cell(steps=50, length=4), [Member(0, 1e-3)], CPU)

    for split, metric in (("train", "loss"), ("validation", "loss"), ("validation", "accuracy")):
        assert [step for step, _ in curve(result, 0, split, metric)] == [20, 40, 50]


@pytest.mark.parametrize("mechanism", ["softmax", "slay", "performer"])
def test_a_member_trains_the_same_alone_and_beside_others(mechanism: str, make_cell: Callable[..., Cell]) -> None:
    cell = make_cell("reverse", mechanism, steps=20, length=8)
    members = [Member(seed, 1e-3) for seed in range(3)]
    together = train_cell(cell, members, CPU)
    for member, beside in zip(members, together.members, strict=True):
        (alone,) = train_cell(cell, [member], CPU).members
        assert alone.train_loss == pytest.approx(beside.train_loss, rel=1e-5)
        assert alone.score is not None
        assert beside.score is not None
        assert alone.score.accuracy == pytest.approx(beside.score.accuracy, abs=5e-3)


@pytest.mark.parametrize("task", ["reverse", "induction"])
def test_a_step_in_pieces_is_the_step_of_the_whole_batch(
    task: str, make_cell: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = make_cell(task, "slay", steps=20, length=8)
    members = [Member(0, 1e-3), Member(1, 1e-3)]
    whole = train_cell(cell, members, CPU).members
    monkeypatch.setitem(stream.TOKENS_AT_ONCE, "cpu", 2 * 8 * 7)
    forward = SequenceModel.forward
    sizes: set[int] = set()

    def recorded(self: SequenceModel, tokens: Tensor, columns: Tensor | None = None) -> Tensor:
        sizes.add(tokens.shape[1])
        return forward(self, tokens, columns)

    monkeypatch.setattr(SequenceModel, "forward", recorded)
    pieces = train_cell(cell, members, CPU).members

    assert max(sizes) <= 7
    for one, other in zip(whole, pieces, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)


def test_members_may_have_learning_rates_of_their_own(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell("copy", "linear", steps=20, length=8)
    slow, fast = train_cell(cell, [Member(0, 1e-5), Member(0, 1e-2)], CPU).members

    assert fast.train_loss < slow.train_loss


def test_a_cut_off_tail_changes_no_step(make_cell: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    from synthbench.runner import stream, train  # noqa: PLC0415 - patched below

    cell = make_cell("distant_match", "softmax", steps=20, length=16)
    short = train_cell(cell, [Member(0, 1e-3)], CPU).members[0]

    def whole(*arguments: object, **options: object) -> object:
        for block in stream.device_blocks(*arguments, **options):  # type: ignore[arg-type]
            padding = torch.zeros(*block.inputs.shape[:-1], 16 - block.inputs.shape[-1], dtype=torch.long)
            # Two columns instead of one, so that the last layer runs in full; the second is never scored.
            targets = torch.cat([block.targets, torch.full_like(block.targets, -100)], -1)
            yield block._replace(
                inputs=torch.cat([block.inputs, padding], -1), targets=targets, columns=torch.tensor([8, 15])
            )

    monkeypatch.setattr(train, "device_blocks", whole)
    long = train_cell(cell, [Member(0, 1e-3)], CPU).members[0]

    assert short.train_loss == pytest.approx(long.train_loss, rel=1e-5)
    assert short.score is not None
    assert long.score is not None
    assert short.score.num_scored == long.score.num_scored


def poison(monkeypatch: pytest.MonkeyPatch, at_step: int, members: list[int]) -> None:
    """From a step on, some members' losses are not numbers."""
    whole = Trainer.step
    steps = 0

    def step(self: Trainer, inputs: Tensor, targets: Tensor, columns: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        losses = whole(self, inputs, targets, columns)
        if steps >= at_step:
            losses[members] = torch.nan
        return losses

    monkeypatch.setattr(Trainer, "step", step)


def test_a_diverged_member_has_no_score_and_the_others_have(
    make_cell: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, at_step=30, members=[0])
    diverged, healthy = train_cell(make_cell(steps=80, length=4), [Member(0, 1e-3), Member(1, 1e-3)], CPU).members

    assert diverged.score is None
    assert diverged.diverged_at == 40
    assert {point.step for point in diverged.curve} == {20, 40}
    assert healthy.score is not None
    assert max(point.step for point in healthy.curve) == 80


def test_training_ends_when_every_member_has_diverged(
    make_cell: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, at_step=1, members=[0])
    result = train_cell(make_cell(steps=200, length=4), [Member(0, 1e-3)], CPU)

    assert result.steps == 20
    assert result.members[0].score is None


def test_what_a_row_says_of_the_model_is_counted_on_the_model(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell("reverse", "softmax", length=8)
    result = train_cell(cell, [Member(0, 1e-3)], CPU)
    width, vocabulary = 64, cell.task.vocab_size
    mixer = 2 * (width * 3 * width + 3 * width + width * width + width)

    assert result.num_parameters_mixer == mixer
    assert result.num_parameters == mixer + vocabulary * width + 8 * width + width * vocabulary + vocabulary
    assert result.state_elements == 2 * 8 * width


def test_data_does_not_depend_on_the_mechanism(make_cell: Callable[..., Cell]) -> None:
    cells = [make_cell("stack", mechanism) for mechanism in ("softmax", "slay")]
    first, second = (Trainer(cell, [Member(3, 1e-3)], CPU) for cell in cells)

    assert cells[0].identity != cells[1].identity
    torch.testing.assert_close(first.model.embedding.weight, second.model.embedding.weight, rtol=0, atol=0)
    assert replace(cells[0], mechanism_name="slay").identity["task_version"] == cells[1].identity["task_version"]


@pytest.mark.parametrize("mechanism", ["rewa-geometric", "rewa-lsh"])
def test_what_a_mechanism_says_of_itself_is_in_the_metrics_of_each_member(
    mechanism: str, make_cell: Callable[..., Cell]
) -> None:
    cell = make_cell("copy", mechanism, steps=20, length=8)
    members = [Member(0, 1e-2), Member(1, 1e-2)]
    together = [trained.metrics for trained in train_cell(cell, members, CPU).members]
    alone = [train_cell(cell, [member], CPU).members[0].metrics for member in members]

    assert len(together[0]) % (2 * 4) == 0  # layers x heads
    assert together[0]
    assert together[0] != together[1]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-3)


def test_a_mechanism_that_says_nothing_has_no_metrics(make_cell: Callable[..., Cell]) -> None:
    assert train_cell(make_cell("copy", "slay", length=4), [Member(0, 1e-3)], CPU).members[0].metrics == {}
