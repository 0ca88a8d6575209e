"""Benches measure as workers train."""

import os
import subprocess
import sys
from collections.abc import Callable

from synthbench.bench.instruments import mallopt

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
    need("glibc", mallopt() is not None, "only glibc can be told to keep memory")
    untold = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    said = subprocess.run([sys.executable, "-c", FAULTS], env=untold, capture_output=True, text=True, check=True).stdout

    given_back, kept = map(int, said.split())
    assert given_back > 10 * kept


def test_a_bench_says_nothing_of_the_profiler_that_counts_its_memory() -> None:
    bench = ["bench", "scaling", "--mech", "linear", "--lengths", "16", "--forms", "layer", "--device", "cpu"]
    done = subprocess.run([sys.executable, "-m", "synthbench", *bench], capture_output=True, text=True, check=True)

    assert "linear layer forward 16: ok" in done.stderr
    assert "profiler" not in done.stderr
