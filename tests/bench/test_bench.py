import pytest
import torch

from synthbench.bench import generators, published, suite
from synthbench.errors import UnknownName
from synthbench.runner.config import Member
from synthbench.suites import load_suite
from synthbench.tasks import TASKS


def test_generators_are_timed_at_their_published_length() -> None:
    facts = generators.measure(["@basic"], batch_size=8, num_repeats=2)

    assert [fact["task"] for fact in facts] == [name for name in TASKS if TASKS[name].category() == "basic"]
    for fact in facts:
        tokens = 8 * TASKS[fact["task"]].length
        assert fact["million_tokens_per_s"] == pytest.approx(tokens / fact["draw_ms"] / 1e3)


def test_the_three_ways_are_timed_side_by_side() -> None:
    threads = torch.get_num_threads()
    (fact,) = suite.measure(["linear"], [8], num_members=2, num_steps=2, num_repeats=1, device="cpu")

    assert fact["loop"] > 0
    assert fact["batched/loop"] == fact["batched"] / fact["loop"]
    assert fact["loop/published"] == fact["loop"] / fact["published"]
    assert fact["processes/loop"] == fact["processes"] / fact["loop"]
    assert torch.get_num_threads() == threads


def test_what_has_no_published_form_of_its_own_is_not_compared_with_one() -> None:
    (fact,) = suite.measure(["mean"], [8], num_members=2, num_steps=1, num_repeats=1, device="cpu")

    assert (fact["published"], fact["loop/published"]) == (None, None)


@pytest.mark.parametrize("name", ["softmax", "linear", "performer", "slay"])
def test_a_model_trains_the_same_in_its_published_form(name: str) -> None:
    cell = suite._cell(load_suite(suite.SUITE), name, 12, "cpu")
    ours, theirs = (suite._Program(cell, [Member(0, 1e-3)], 3, torch.device("cpu")) for _ in range(2))
    assert published.publish(theirs.trainer.model)

    losses = [
        [
            program.trainer.step(batch, labels, columns)
            for inputs, targets, columns in program.blocks
            for batch, labels in zip(inputs, targets, strict=True)
        ]
        for program in (ours, theirs)
    ]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)


def test_an_unknown_mechanism_is_named() -> None:
    with pytest.raises(UnknownName, match="linear"):
        suite.measure(["liner"], [8], num_members=2, num_steps=1, num_repeats=1, device="cpu")
