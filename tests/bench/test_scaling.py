from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.bench import instruments, scaling
from synthbench.bench.forms import DIRECTIONS, FORMS, Inputs, Setting, call_of, forms_of
from synthbench.bench.rows import Row, Table, load
from synthbench.forms import kernels, linear
from synthbench.mechanisms import MECHANISMS, Mechanism
from tests.tensors import normal

CPU = torch.device("cpu")
GENEROUS = scaling.Limits(seconds=1e6, gigabytes=1e6)


def measured(
    mechanism: str,
    lengths: list[int],
    *,
    table: Table | None = None,
    arguments: dict[str, Any] | None = None,
    **changes: Any,
) -> list[Row]:
    """Measure every form of a mechanism once, without limits, unless that is changed."""
    how: dict[str, Any] = {"batch_size": 2, "num_repeats": 1, "dtype": "float32", "limits": GENEROUS, **changes}
    return list(scaling.measure({mechanism: arguments or {}}, lengths, table or Table(scaling.IDENTITY, CPU), **how))


def built(name: str, length: int) -> Mechanism:
    return MECHANISMS[name](model_dim=16, num_heads=2, max_length=length, generator=torch.Generator().manual_seed(0))


def setting_of(length: int, dtype: torch.dtype = torch.float32) -> Setting:
    return Setting("forward", length, 1, CPU, dtype)


@pytest.mark.parametrize("mechanism", ["linear", "rewa-fourier"])  # of a function and of a module
def test_every_form_is_measured_in_both_directions(mechanism: str) -> None:
    rows = measured(mechanism, [16])

    assert {(row["form"], row["direction"]) for row in rows} == {
        (form, direction)
        for form in ("layer", "attend", "gram", "recurrent", "chunked", "streamed", "published")
        for direction in DIRECTIONS
    }
    for row in rows:
        assert row["status"] == "ok"
        assert row["tokens_per_s"] == pytest.approx(2 * 16 / row["median_ms"] * 1e3)
        assert row["roofline_share"] == pytest.approx(row["floor_ms"] / row["median_ms"])


@pytest.mark.parametrize("name", ["slay", "softmax", "yat-spherical", "cosformer"])
def test_forms_of_the_heads_are_one_function(name: str) -> None:
    """At a length of several chunks of the published code."""
    q, k, v = normal(3, 1, 2, 300, 8)

    forms = forms_of(built(name, 300).double(), setting_of(300, torch.float64))
    first, *others = (form.call(q, k, v) for form in forms if form.takes == "heads")

    for other in others:
        torch.testing.assert_close(other, first)


def test_every_form_can_be_asked_for() -> None:
    assert {form.name for name in MECHANISMS for form in forms_of(built(name, 40), setting_of(40))} <= set(FORMS)


GRAM_OF_16 = ("gram", 16, "oom")


@pytest.mark.parametrize(
    ("place", "name", "expected"),
    [
        (linear, "gram", [GRAM_OF_16, ("streamed", 16, "ok"), ("streamed", 32, "ok")]),
        (scaling, "inputs_of", [GRAM_OF_16, ("streamed", 16, "oom")]),
        (scaling, "_turn", [GRAM_OF_16, ("gram", 32, "oom"), ("streamed", 16, "ok"), ("streamed", 32, "ok")]),
    ],
)
def test_running_out_of_memory_is_a_row(
    place: ModuleType, name: str, expected: list[tuple[str, int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(trial: Any = None, *_arguments: object, **_options: object) -> float:
        if name == "_turn" and trial.form.name != "gram":  # where lengths take turns
            return 1.0
        raise torch.OutOfMemoryError

    monkeypatch.setattr(place, name, fail)
    rows = measured("linear", [16, 32], forms=["gram", "streamed"])

    assert sorted((row["form"], row["length"], row["status"]) for row in rows) == sorted(2 * expected)


def test_lengths_and_forms_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, int]] = []

    def record(form: str) -> Callable[..., Tensor]:
        def call(_queries: object, _keys: object, v: Tensor, **_options: object) -> Tensor:
            called.append((form, v.shape[-2]))
            return v * 1

        return call

    monkeypatch.setattr(linear, "gram", record("gram"))
    monkeypatch.setattr(linear, "chunked", record("chunked"))
    monkeypatch.setattr(scaling, "BRIEF_S", 0.0)
    monkeypatch.setattr(scaling, "DIRECTIONS", ["forward"])
    round_of_all = [("gram", 16), ("chunked", 16), ("gram", 32), ("chunked", 32)]

    rows = measured("linear", [16, 32], forms=["gram", "chunked"], num_repeats=3)

    assert called[-12:] == 3 * round_of_all
    assert [(row["form"], row["length"]) for row in rows] == round_of_all
    num_calls = len(called)
    monkeypatch.setattr(scaling, "BRIEF_S", 1e6)
    measured("linear", [16, 32], forms=["gram", "chunked"], num_repeats=3)
    assert len(called) == 2 * num_calls + 12  # each timed call with another before it


def test_peak_memory_is_what_was_held_at_once() -> None:
    def call() -> None:
        first = torch.zeros(1000)
        second = first + 1
        del first
        torch.cat([second, second])

    assert instruments.peak_bytes(call, CPU) == 3 * 4000


def test_products_are_counted_however_they_are_called() -> None:
    a, b, c = torch.ones(2, 3, 4), torch.ones(2, 4, 5), torch.ones(2, 3, 5)
    linear = torch.nn.Linear(4, 5)

    for call in (lambda: a @ b, lambda: c.baddbmm_(a, b)):
        assert instruments.flops_of(call) == 2 * 2 * 3 * 4 * 5
    for call in (lambda: c[0].addmm_(a[0], b[0]), lambda: linear(a[0])):
        assert instruments.flops_of(call) == 2 * 3 * 4 * 5


@pytest.mark.parametrize("name", ["slay", "yat-spherical"])
def test_forms_that_do_the_same_work_have_about_the_same_count(name: str) -> None:
    setting = Setting("forward+backward", 1100, 1, CPU, torch.float32)
    inputs: Inputs = {"heads": tuple(torch.ones(1, 2, 1100, 8) for _ in "qkv")}
    calls = {form.name: call_of(form, inputs, setting) for form in forms_of(built(name, 1100), setting)[1:]}

    by_blocks, plain = ("streamed", "chunked") if "streamed" in calls else ("tiled", "blocked")

    # What is made again in the backward pass is at most half as much again.
    assert 0.8 < instruments.flops_of(calls[by_blocks]) / instruments.flops_of(calls[plain]) < 1.5


def test_memory_of_the_streamed_form_grows_with_the_length_and_that_of_the_dense_form_with_its_square() -> None:
    calls = {form.name: form.call for form in forms_of(built("slay", 4096), setting_of(4096))}

    def growth(name: str) -> float:
        inputs = [tuple(torch.ones(1, 2, length, 8) for _ in "qkv") for length in (2048, 4096)]
        short, long = (instruments.peak_bytes(partial(calls[name], *qkv), CPU) for qkv in inputs)
        return long / short

    assert growth("streamed") < 2
    assert growth("gram") > 3.5


def test_the_same_call_again_measures_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "scaling.parquet"
    known: dict[str, Any] = {"arguments": {"P": "16"}, "forms": ["layer"]}
    table = Table(scaling.IDENTITY, CPU, file)
    before = measured("slay", [32], table=table, **known)

    table = Table(scaling.IDENTITY, CPU, file)
    new = measured("slay", [64, 32], table=table, **known | {"forms": ["layer", "gram"]})

    assert {row["mechanism"] for row in before} == {"slay:P=16"}
    assert {(row["form"], row["length"]) for row in new} == {("layer", 64), ("gram", 32), ("gram", 64)}
    assert [row["median_ms"] for row in load(file)[:2]] == [row["median_ms"] for row in before]
    assert len(load(file)) == 2 * 2 * 2


def test_rows_of_a_direction_are_in_the_file_before_those_of_the_next_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "scaling.parquet"
    how: dict[str, Any] = {"batch_size": 1, "num_repeats": 1, "dtype": "float32", "limits": GENEROUS}

    next(scaling.measure({"linear": {}}, [16, 32], Table(scaling.IDENTITY, CPU, file), forms=["layer"], **how))

    assert [row["length"] for row in load(file)] == [16, 32]


def test_a_form_that_would_exceed_a_limit_says_so_and_is_measured_no_further_but_under_a_larger_one() -> None:
    # Scores of 2 x 8 heads take 256 KiB at length 64 and 1 MiB at 128.
    small, table = scaling.Limits(seconds=1e6, gigabytes=0.9 / 1024), Table(scaling.IDENTITY, CPU)
    stopped = measured("softmax", [64, 128, 256], limits=small, table=table, forms=["dense"])
    assert [(row["length"], row["status"]) for row in stopped] == [(64, "ok"), (128, "over budget")] * 2
    assert measured("softmax", [64, 128, 256], limits=small, table=table, forms=["dense"]) == []

    again = measured("softmax", [64, 128, 256], table=table, forms=["dense"])

    assert [(row["length"], row["status"]) for row in again] == [(128, "ok"), (256, "ok")] * 2
    assert {row["status"] for row in table.rows} == {"ok"}


def test_a_first_length_whose_inputs_exceed_the_limit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(scaling, "inputs_of")
    small = scaling.Limits(seconds=1e6, gigabytes=1.0)

    rows = measured("linear", [2**24], limits=small, forms=["layer"])

    assert [(row["length"], row["status"]) for row in rows] == [(2**24, "over budget")] * 2


def test_kernels_are_measured_where_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")
    assert measured("yat-spherical", [8], forms=["kernel"]) == []
    monkeypatch.setattr(kernels, "runs_on", lambda _device: True)  # in Triton's interpreter, on a CPU
    monkeypatch.setattr(kernels.self_test, "passes", lambda *_: True)
    monkeypatch.setattr("synthbench.bench.forms.MODEL_DIM", 32)
    monkeypatch.setattr("synthbench.bench.forms.NUM_HEADS", 2)

    rows = measured("yat-spherical", [8], forms=["kernel"])

    assert {(row["form"], row["direction"], row["status"]) for row in rows} == {
        ("kernel", direction, "ok") for direction in DIRECTIONS
    }
    assert all(row["flops"] > 0 for row in rows)  # of the PyTorch form: Triton's are not counted
