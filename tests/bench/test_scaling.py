from typing import Any

import pytest
import torch

from synthbench.bench import instruments, scaling
from synthbench.bench.published import per_node_chunks, prefix_sums
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, _linear
from synthbench.mechanisms.base import FeatureAttention
from synthbench.mechanisms.slay._base import ProductAttention

CPU = torch.device("cpu")
GENEROUS = scaling.Limits(seconds=1e6, gigabytes=1e6)


def measured(mechanism: str, lengths: list[int], limits: scaling.Limits = GENEROUS) -> list[dict[str, Any]]:
    return list(
        scaling.measure(
            {mechanism: {}}, lengths, batch_size=2, num_repeats=2, device="cpu", dtype="float32", limits=limits
        )
    )


def test_every_form_is_measured_in_both_directions_at_every_length() -> None:
    rows = measured("linear", [32, 16])

    assert {(row["form"], row["direction"], row["length"]) for row in rows} == {
        (form, direction, length)
        for form in ("layer", "gram", "chunked", "streamed", "published")
        for direction in scaling.DIRECTIONS
        for length in (16, 32)
    }
    for row in rows:
        assert row["status"] == "ok"
        assert row["tokens_per_s"] == pytest.approx(2 * row["length"] / row["median_ms"] * 1e3)
        assert row["roofline_share"] == pytest.approx(row["floor_ms"] / row["median_ms"])


@pytest.mark.parametrize("name", ["slay", "linear", "performer", "softmax", "yat-spherical", "cosformer"])
def test_forms_of_the_heads_are_one_function(name: str) -> None:
    unit = MECHANISMS[name](model_dim=16, num_heads=2, max_length=40, generator=torch.Generator().manual_seed(0))
    unit = unit.double()
    q, k, v = (torch.randn(1, 2, 40, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for _ in "qkv")

    first, *others = (form.call(q, k, v) for form in scaling.forms_of(unit) if form.takes == "heads")

    for other in others:
        torch.testing.assert_close(other, first)


def test_the_published_forms_compute_the_definition() -> None:
    slay = MECHANISMS["slay"](model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(0)).double()
    assert isinstance(slay, ProductAttention)
    q, k, v = (
        torch.randn(2, 2, 300, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for _ in "qkv"
    )
    factors = slay.factors(q, "query"), slay.factors(k, "key")
    expected = _linear.gram(*factors, v, guard=slay.guard, delta=slay.delta)

    torch.testing.assert_close(per_node_chunks(slay, q, k, v), expected)
    query, key = (_linear.outer(*factor) for factor in factors)
    torch.testing.assert_close(prefix_sums(query, key, v, guard=slay.guard, delta=slay.delta), expected)


def test_a_form_that_would_exceed_a_limit_says_so_and_is_measured_no_further() -> None:
    # Scores of 2 x 8 heads take 64 KiB at length 32, 256 KiB at 64 and 1 MiB at 128.
    rows = measured("softmax", [32, 64, 128, 256], scaling.Limits(seconds=1e6, gigabytes=0.9 / 1024))

    dense = [(row["length"], row["status"]) for row in rows if (row["form"], row["direction"]) == ("dense", "forward")]
    assert dense == [(32, "ok"), (64, "ok"), (128, "over budget")]


def test_running_out_of_memory_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(_linear, "gram", fail)
    rows = [row for row in measured("linear", [16, 32]) if row["form"] not in ("layer", "published", "chunked")]

    assert {row["form"]: row["status"] for row in rows if row["length"] == 16} == {"gram": "oom", "streamed": "ok"}
    assert {row["form"] for row in rows if row["length"] == 32} == {"streamed"}


def test_exponents_are_slopes_in_logarithms() -> None:
    lengths = [64, 128, 256, 512]

    assert instruments.exponent(lengths, [3.0 * length**2 for length in lengths]) == pytest.approx(2)
    with pytest.raises(ValueError, match="two lengths"):
        instruments.exponent([64], [1.0])


def test_peak_memory_is_what_was_held_at_once() -> None:
    def call() -> None:
        first = torch.zeros(1000)
        second = first + 1
        del first
        torch.cat([second, second])

    assert instruments.peak_bytes(call, CPU) == 3 * 4000


def test_memory_of_the_streamed_form_grows_with_the_length_and_that_of_the_dense_form_with_its_square() -> None:
    slay = MECHANISMS["slay"](model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(0))
    assert isinstance(slay, FeatureAttention)
    calls = {form.name: form.call for form in scaling.forms_of(slay)}
    peaks = {
        name: [
            instruments.peak_bytes(lambda: calls[name](*(torch.ones(1, 2, length, 8) for _ in "qkv")), CPU)  # noqa: B023
            for length in (4096, 8192)
        ]
        for name in ("streamed", "gram")
    }

    assert peaks["streamed"][1] / peaks["streamed"][0] < 2
    assert peaks["gram"][1] / peaks["gram"][0] > 3.5


def test_what_is_not_allowed_is_refused() -> None:
    with pytest.raises(UsageError, match="float8"):
        next(scaling.measure({}, [8], batch_size=1, num_repeats=1, device="cpu", dtype="float8", limits=GENEROUS))
