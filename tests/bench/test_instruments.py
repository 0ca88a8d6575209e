"""Benches measure as workers train."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from synthbench.bench.instruments import of_glibc, seconds

FAULTS = """
import resource
import numpy as np
from synthbench.bench.instruments import as_in_a_worker

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = [faults() for _ in range(3)]
with as_in_a_worker():
    kept = [faults() for _ in range(3)]
print(given_back[-1], kept[-1])
"""


def test_memory_that_was_freed_is_not_faulted_in_again(need: Callable[[str, bool, str], None]) -> None:
    need("glibc", of_glibc("mallopt") is not None, "only glibc can be told to keep memory")
    untold = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    said = subprocess.run([sys.executable, "-c", FAULTS], env=untold, capture_output=True, text=True, check=True).stdout

    given_back, kept = map(int, said.split())
    assert given_back > 10 * kept


GIVEN_BACK = """
import numpy as np
from synthbench.bench.instruments import as_in_a_worker, give_back_memory

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

with as_in_a_worker():
    before = held()
    pieces = [np.ones(2**20) for _ in range(32)]
    wall = pieces[-1]  # what is freed below it cannot shrink the heap
    del pieces
    kept = held()
    give_back_memory()
    print(kept - before, held() - before)
"""


def test_memory_that_no_later_trial_may_fit_is_given_back(need: Callable[[str, bool, str], None]) -> None:
    need("glibc", of_glibc("malloc_trim") is not None, "only glibc keeps memory so")
    untold = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    said = subprocess.run(
        [sys.executable, "-c", GIVEN_BACK], env=untold, capture_output=True, text=True, check=True
    ).stdout

    kept, left = map(int, said.split())
    assert kept > 4 * left


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
