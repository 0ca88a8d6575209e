import pytest

from benchmarks import generators
from synthbench.tasks import TASKS


def test_generators_are_timed_at_their_published_length() -> None:
    facts = generators.measure(["@basic"], batch_size=8, num_repeats=2)

    assert [fact["task"] for fact in facts] == [name for name in TASKS if TASKS[name].category() == "basic"]
    for fact in facts:
        tokens = 8 * TASKS[fact["task"]].length
        assert fact["million_tokens_per_s"] == pytest.approx(tokens / fact["draw_ms"] / 1e3)
