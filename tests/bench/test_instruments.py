"""Benches measure as workers train."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch

from synthbench.bench import instruments
from synthbench.bench.instruments import of_glibc, seconds

MEMORY = """
import resource
import numpy as np
from synthbench.bench.instruments import as_in_a_worker, give_back_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = [faults() for _ in range(3)]
with as_in_a_worker():
    kept = [faults() for _ in range(3)]
print(given_back[-1], kept[-1])

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

give_back_memory()
with as_in_a_worker():
    before = held()
    pieces = [np.ones(2**20) for _ in range(32)]
    wall = pieces[-1]  # what is freed below it cannot shrink the heap
    del pieces
    kept = held()
    give_back_memory()
    print(kept - before, held() - before)
"""


@pytest.mark.end_to_end
def test_memory_that_was_freed_is_not_faulted_in_again_but_given_back_before_what_it_may_not_fit(
    need: Callable[[str, bool, str], None],
) -> None:
    need("glibc", of_glibc("mallopt") is not None, "only glibc can be told to keep memory")
    untold = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    said = subprocess.run([sys.executable, "-c", MEMORY], env=untold, capture_output=True, text=True, check=True).stdout

    faulted, not_faulted, kept, left = map(int, said.split())
    assert faulted > 10 * not_faulted
    assert kept > 4 * left


@pytest.mark.end_to_end
def test_a_bench_says_nothing_of_the_profiler_that_counts_its_memory() -> None:
    bench = ["bench", "scaling", "--mech", "linear", "--lengths", "16", "--forms", "layer", "--device", "cpu"]
    done = subprocess.run([sys.executable, "-m", "synthbench", *bench], capture_output=True, text=True, check=True)

    assert "linear layer forward 16: ok" in done.stderr
    assert "profiler" not in done.stderr


def test_nothing_is_collected_while_a_call_is_timed() -> None:
    seen = []
    assert gc.isenabled()

    seconds(lambda: seen.append(gc.isenabled()), torch.device("cpu"))
    with pytest.raises(ZeroDivisionError):
        seconds(lambda: 1 / 0, torch.device("cpu"))

    assert seen == [False]
    assert gc.isenabled()


class Gpu:
    """A GPU and a host, each with its clock: what was launched runs as soon as the GPU is free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host_s, self.free_s = 100.0, 0.0
        self.num_calls = 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.host_s)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: self.wait())
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.launch(cycles / instruments.CLOCK_HZ))
        monkeypatch.setattr(torch.cuda, "Event", lambda **_options: Mark(self))

    def launch(self, seconds: float) -> None:
        self.free_s = max(self.free_s, self.host_s) + seconds

    def wait(self) -> None:
        self.host_s = max(self.host_s, self.free_s)

    def call(self, host_s: float, gpu_s: float, num_launches: int = 10) -> None:
        self.num_calls += 1
        for _ in range(num_launches):
            self.host_s += host_s / num_launches
            self.launch(gpu_s / num_launches)


class Mark:
    """An event."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at_s = gpu, 0.0

    def record(self) -> None:
        self.at_s = max(self.gpu.free_s, self.gpu.host_s)

    def elapsed_time(self, end: "Mark") -> float:
        return 1e3 * (end.at_s - self.at_s)


CUDA = torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


@pytest.mark.parametrize(("host_s", "gpu_s"), [(1e-4, 1e-5), (1e-4, 9e-5), (5e-5, 1e-3), (3e-3, 1e-4)])
def test_a_short_call_takes_what_the_gpu_needs_for_it_not_what_the_host_needs_to_launch_it(
    gpu: Gpu, host_s: float, gpu_s: float
) -> None:
    assert seconds(lambda: gpu.call(host_s, gpu_s), CUDA) == pytest.approx(gpu_s)


def test_a_long_call_is_made_once(gpu: Gpu) -> None:
    assert seconds(lambda: gpu.call(1e-4, 0.2), CUDA) == pytest.approx(0.2, rel=1e-3)
    assert gpu.num_calls == 1


def test_the_launches_of_short_calls_do_not_overfill_the_queue(gpu: Gpu) -> None:
    seconds(lambda: gpu.call(4e-6, 1e-6, num_launches=1), CUDA)

    assert gpu.num_calls <= 1024


def test_a_call_that_waits_for_the_gpu_has_its_wait_counted(gpu: Gpu) -> None:
    def call() -> None:
        gpu.call(1e-4, 1e-5)
        gpu.wait()

    assert seconds(call, CUDA) == pytest.approx(1e-4, rel=0.2)
