"""The same command gives the same bits, whatever runs it, on however many workers, in whatever order."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from synthbench.process import own_turn, settings_restored
from synthbench.runner.executors import Inline
from synthbench.runner.request import Request
from synthbench.runner.run import run
from tests.cli.commands import Need
from tests.results.stores import reader
from tests.runner.runs import MAY_DIFFER, command, lasting, planned, tiny


def test_no_result_may_differ() -> None:
    assert {"score", "skill", "metrics", "train_loss", "eval_loss"}.isdisjoint(MAY_DIFFER)


request = partial(
    tiny, tasks=("copy:length=8", "majority:length=9"), mechanisms=("slay", "softmax"), seeds=(0,), steps=3, limit=16,
    executor="inline", group_size=1,
)  # fmt: skip
"""Four jobs of one row each."""


@contextmanager
def double_by_default() -> Iterator[None]:
    with settings_restored():
        torch.set_default_dtype(torch.float64)
        yield


def run_command(asked: Request, *options: str, hash_seed: str = "0") -> None:
    """Run a request as a user types it."""
    words = command(asked, "--seeds", "0", *options)
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inline")
    run(request(folder))
    return folder


@pytest.mark.end_to_end
def test_rows_do_not_depend_on_workers_nor_on_the_hash_seed(expected: Path, tmp_path: Path) -> None:
    run_command(request(tmp_path, executor="pool"), "--workers", "3", hash_seed="4294967295")

    assert lasting(tmp_path) == lasting(expected)
    assert set(reader(tmp_path).runs()["executor"]) == {"pool"}


def test_rows_do_not_depend_on_the_order_of_jobs(expected: Path, tmp_path: Path) -> None:
    jobs, context = planned(request(tmp_path), "inline")
    list(Inline().run(jobs[::-1], context, lambda: False))

    assert len(jobs) == 4
    assert lasting(tmp_path) == lasting(expected)


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(torch.no_grad, id="no gradients"),
        pytest.param(torch.inference_mode, id="inference mode"),
        pytest.param(partial(torch.autocast, "cpu", dtype=torch.bfloat16), id="autocast"),
        pytest.param(partial(torch.device, "meta"), id="default device"),
        pytest.param(double_by_default, id="default dtype"),
    ],
)
def test_rows_do_not_depend_on_settings_of_the_caller(
    expected: Path, tmp_path: Path, setting: Callable[[], AbstractContextManager[object]]
) -> None:
    with setting():
        run(request(tmp_path))

    assert lasting(tmp_path) == lasting(expected)


def test_threads_train_one_after_the_other(expected: Path, tmp_path: Path) -> None:
    jobs, context = planned(request(tmp_path), "inline")
    stdout, has_begun = sys.stdout, Event()

    training = Inline().run(jobs, context, lambda: False, lambda _job: has_begun.set())
    thread = Thread(target=list, args=[training])
    with own_turn():
        thread.start()
        assert has_begun.wait(60)
        time.sleep(0.5)
        assert sys.stdout is stdout
        assert reader(tmp_path).runs().empty
    thread.join()

    assert lasting(tmp_path) == lasting(expected)


@pytest.mark.gpu
def test_deterministic_rows_of_a_gpu_are_the_same_bits_alone_and_beside_others(
    expected: Path, tmp_path: Path, need: Need
) -> None:
    need("cuda", torch.cuda.is_available(), "this machine has no CUDA device")
    for name, executor, options in (
        ("first", "inline", ()),
        ("again", "inline", ()),
        ("shared", "pool", ("--per-gpu", "2")),
    ):
        asked = request(tmp_path / name, device="cuda", executor=executor)
        run_command(asked, "--deterministic", *options)

    own = "n_visible_devices"  # of several GPUs a worker sees its own
    first, *others = (lasting(tmp_path / name, but=[own]) for name in ("first", "again", "shared"))
    assert others == [first, first]
    rows, on_cpu = (reader(folder).runs() for folder in (tmp_path / "first", expected))
    assert rows.deterministic.all()
    assert set(rows.status) == {"ok"}
    # Another device rounds differently, which after three steps is far from mattering.
    assert rows.eval_loss.tolist() == pytest.approx(on_cpu.eval_loss.tolist(), rel=1e-3)
