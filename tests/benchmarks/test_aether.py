import pytest
import torch

from benchmarks import aether


def test_blocks_are_compared_with_the_same_attention_in_one_run() -> None:
    device = torch.device("cpu")
    facts = aether.measure(["softmax", "yat"], (2, 16, 16), num_layers=2, num_repeats=2, device=device)

    assert [fact["attention"] for fact in facts] == ["softmax", "yat"]
    for fact in facts:
        assert fact["time ratio"] == pytest.approx(fact["aether ms"] / fact["transformer ms"])
        assert fact["memory ratio"] == pytest.approx(fact["aether MB"] / fact["transformer MB"])
        assert fact["transformer MB"] > 2 * 16 * 16 * 4 / 2**20
