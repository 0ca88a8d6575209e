"""A second test whose answers nobody sees but its marker."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from synthbench.training.exam import Mark, answer, hand_out, marks_of, papers_of, take_back
from torch import Tensor

from synthbench.runner.plan import make_cells, shortened
from synthbench.suites import load_suite
from synthbench.tasks import IGNORE
from synthbench.training import exam
from synthbench.training.cell import Cell, Member
from synthbench.training.ensemble import SequenceModel, stack_models
from synthbench.training.train import build_models

CPU = torch.device("cpu")


def on_ladder(task: str) -> Cell:
    suite = shortened(load_suite("core"), steps=8, limit=16)
    (cell,) = make_cells(suite, {task: {}}, {"softmax": {}}, device_type="cpu", is_full=False)
    return cell


def model_of(members: list[Member]) -> SequenceModel:
    return stack_models(build_models(members), "fold").eval()


def sat(members: list[Member], folder: Path, model: SequenceModel) -> list[dict[int, Mark] | None]:
    """The marks of some members."""
    papers = {member.run_id: papers_of(member, "salt") for member in members}
    for name, of_member in papers.items():
        hand_out(of_member, folder, name)
    answer(model, members, folder, CPU)
    return [marks_of(of_member, folder, name) for name, of_member in papers.items()]


@pytest.mark.parametrize("task", ["copy", "majority", "parity_final"])
def test_answers_are_marked_as_the_models_predictions_are(
    task: str, make_cell: Callable[..., Cell], tmp_path: Path
) -> None:
    members = make_cell(task, "softmax", length=12).members([0, 1])
    model = model_of(members)

    for index, marks in enumerate(sat(members, tmp_path, model)):
        (paper,) = papers_of(members[index], "salt").values()
        inputs = torch.from_numpy(paper.inputs[paper.order[: len(paper.targets)]])
        with torch.no_grad():
            logits = model(inputs.expand(2, *inputs.shape), torch.from_numpy(paper.columns))[index]
        expected = (logits.argmax(-1).numpy() == paper.targets)[paper.targets != IGNORE].mean()
        assert marks is not None
        assert marks[1].accuracy == pytest.approx(expected)
        assert marks[1].changed == 0


def test_every_rung_of_a_ladder_is_asked_for_what_is_new_on_it(tmp_path: Path) -> None:
    cell = on_ladder("parity_running")
    members = cell.members([1])[:1]
    (marks,) = sat(members, tmp_path, model_of(members))
    papers = papers_of(members[0], "salt")

    assert marks is not None
    assert list(papers) == list(marks) == list(range(1, len(cell.rungs) + 1))
    assert all(paper.columns.min() >= rung.first_new for paper, rung in zip(papers.values(), cell.rungs, strict=True))


def test_a_model_that_looks_ahead_gives_other_answers_to_twins(
    make_cell: Callable[..., Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = SequenceModel.forward

    def looking_ahead(model: SequenceModel, tokens: Tensor, columns: Tensor | None = None) -> Tensor:
        ahead = torch.nn.functional.one_hot(tokens.flip(-1), model.embedding.weight.shape[-2])
        logits = forward(model, tokens) + 100 * ahead
        return logits if columns is None else logits[..., columns, :]

    members = make_cell("copy", "softmax", length=12).members([0])
    model = model_of(members)
    monkeypatch.setattr(SequenceModel, "forward", looking_ahead)
    (marks,) = sat(members, tmp_path, model)

    assert marks is not None
    assert marks[1].changed > 0.1


def test_what_is_handed_out_has_no_targets_and_is_not_the_test(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    (member,) = make_cell("copy", "softmax", length=12).members([0])
    papers, others = papers_of(member, "salt"), papers_of(member, "another")
    hand_out(papers, tmp_path, member.run_id)
    names = sorted(path.name for path in tmp_path.iterdir())

    assert names == [f"{member.run_id}.1.{kind}" for kind in ("columns", "inputs")]
    assert not np.array_equal(papers[1].inputs, others[1].inputs)
    assert np.array_equal(papers[1].inputs, papers_of(member, "salt")[1].inputs)
    assert len(papers_of(member, "salt", 3)[1].targets) == 3
    take_back(tmp_path, member.run_id)
    assert not list(tmp_path.iterdir())


def test_twins_agree_up_to_where_they_part(make_cell: Callable[..., Cell]) -> None:
    (member,) = make_cell("copy", "softmax", length=12).members([0])
    paper = papers_of(member, "salt")[1]
    sequences, twins = np.split(paper.inputs[paper.order], 2)
    alike = np.minimum.accumulate(sequences == twins, axis=1)[:, paper.columns]

    assert paper.is_before.any()
    assert alike[paper.is_before].all()
    assert (sequences != twins).any(axis=1).mean() > 0.5


@pytest.mark.parametrize("content", [None, b"", b"\0" * 5, b"\xff" * 10**6])
def test_answers_that_do_not_fit_are_none(
    content: bytes | None, make_cell: Callable[..., Cell], tmp_path: Path
) -> None:
    (member,) = make_cell("copy", "softmax", length=12).members([0])
    papers = papers_of(member, "salt")
    if content is not None:
        exam._file(tmp_path, member.run_id, 1, "answers").write_bytes(content)

    assert marks_of(papers, tmp_path, member.run_id) is None


def test_a_model_without_papers_writes_nothing(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    members = make_cell("copy", "softmax", length=12).members([0, 1])
    hand_out(papers_of(members[0], "salt"), tmp_path, members[0].run_id)
    answer(model_of(members), members, tmp_path, CPU)

    assert not list(tmp_path.glob("*.answers"))
