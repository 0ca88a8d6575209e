import pytest
import torch

from synthbench.bench import generators, suite
from synthbench.errors import UnknownName
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
    assert fact["processes/loop"] == fact["processes"] / fact["loop"]
    assert torch.get_num_threads() == threads


def test_an_unknown_mechanism_is_named() -> None:
    with pytest.raises(UnknownName, match="linear"):
        suite.measure(["liner"], [8], num_members=2, num_steps=1, num_repeats=1, device="cpu")
