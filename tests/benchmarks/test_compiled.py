import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compiled import CASES, innermost_loops, measure
from synthbench.errors import UsageError
from synthbench.forms import kernels

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

COMPILING = {**os.environ, "TRITON_INTERPRET": "0"}
"""The interpreter takes the compiler's place where it is on, so it must be off from the start."""

SPECIALISED = """
from importlib import import_module

for room in ("_slay", "_tiles", "_yat_spherical"):
    for name, kernel in vars(import_module(f"synthbench.forms.kernels.{room}")).items():
        if name.endswith("_kernel"):
            print(*(one.name for one in kernel.params if not one.is_constexpr and not one.do_not_specialize))
"""


@pytest.mark.end_to_end
def test_no_kernel_is_compiled_anew_for_another_length() -> None:
    script = [sys.executable, "-c", SPECIALISED]
    said = subprocess.run(script, env=COMPILING, capture_output=True, text=True, check=True).stdout

    kernels_arguments = [line.split() for line in said.splitlines()]
    assert len(kernels_arguments) == 7
    assert all({"q_ptr", "x_ptr", "k_ptr", "sums_ptr"} & set(names) for names in kernels_arguments)
    assert not any({"length", "num_states"} & set(names) for names in kernels_arguments)


COMPILED = """
import json, sys, torch
from benchmarks import compiled
cases, dtypes, directions = json.loads(sys.argv[1])
dtypes = tuple(getattr(torch, dtype) for dtype in dtypes)
print(json.dumps(list(compiled.measure([compiled.Case(*case) for case in cases], dtypes, directions))))
"""

ALL_SIDES = "in use at once: gradients, values and both factors of a row, and the factors of those it meets"
IN_PARTS = f"{ALL_SIDES}; all in three parts"
SPILLS = {
    ("slay", "head width 32, 8 anchors x 48 features", "float32"): (720, IN_PARTS),
    ("slay", "head width 32, 16 anchors x 48 features", "float32"): (728, IN_PARTS),
    ("slay", "head width 64, 8 anchors x 48 features", "float32"): (1_656, IN_PARTS),
    ("slay", "head width 32, 8 anchors x 48 features", "bfloat16"): (96, ALL_SIDES),
    ("slay", "head width 32, 16 anchors x 48 features", "bfloat16"): (88, ALL_SIDES),
    ("slay", "head width 64, 8 anchors x 48 features", "bfloat16"): (472, ALL_SIDES),
    ("yat-spherical", "head width 32", "float32"): (8, "four products a pair, with all operands in three parts"),
    ("yat-spherical", "head width 64", "float32"): (416, "four products a pair, with all operands in three parts"),
    ("yat-spherical", "head width 64", "bfloat16"): (24, "four products a pair"),
}
"""Bytes that backward kernels may spill, by form, size and type, and why; all other kernels, nothing."""


def compile_all(cases: list[tuple[str | int, ...]], dtypes: list[str], directions: list[str]) -> list[dict[str, Any]]:
    """Rows of these."""
    script = [sys.executable, "-c", COMPILED, json.dumps([cases, dtypes, directions])]
    done = subprocess.run(script, env=COMPILING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def check(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["shared_bytes"] <= kernels.MAX_SHARED_BYTES, row
        assert row["products_on_tensor_cores"] == row["products"], row
        has_products = row["kernel"] != "running"
        assert (row["products"] > 0) == (row["tensor_core_instructions"] > 0) == has_products, row
        known = (row["form"], row["size"], row["dtype"])
        allowed = SPILLS[known][0] if row["direction"] == "backward" and known in SPILLS else 0
        assert row["spilled_bytes"] <= allowed, row


@pytest.mark.end_to_end
def test_forward_kernels_spill_nothing_and_multiply_on_tensor_cores() -> None:
    """At the default size, in bfloat16; the others take longer."""
    rows = compile_all([("slay", 32, 8, 48)], ["bfloat16"], ["forward"])

    assert [row["kernel"] for row in rows] == ["state", "running", "output"]
    check(rows)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["slay", "yat-spherical"])
def test_no_kernel_spills_more_than_is_known_and_all_multiply_on_tensor_cores(form: str) -> None:
    cases = [case for case in CASES if case.form == form]

    rows = compile_all([tuple(case) for case in cases], ["float32", "bfloat16"], ["forward", "backward"])

    assert {(row["size"], row["dtype"]) for row in rows} == {
        (case.size, dtype) for case in cases for dtype in ("float32", "bfloat16")
    }
    check(rows)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sizes", [(64, 16, 128), (64, 16, 16), (1, 1, 1)], ids=["largest", "few features", "smallest"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_kernel_compiles_at_the_limits_and_fits_the_shared_memory(
    sizes: tuple[int, int, int], dtype: str
) -> None:
    cases: list[tuple[str | int, ...]] = [("slay", *sizes), ("yat-spherical", sizes[0])]

    rows = compile_all(cases, [dtype], ["forward", "backward"])

    assert {row["form"] for row in rows} == {"slay", "yat-spherical"}
    assert len({(row["form"], row["kernel"]) for row in rows}) == 8  # seven, and one on either side
    assert max(row["shared_bytes"] for row in rows) <= kernels.MAX_SHARED_BYTES


def test_loops_are_found_in_machine_code() -> None:
    """The inner of two, but no loop of a few instructions, in which a warp waits."""
    code = dict.fromkeys(range(0, 0x900, 16), "FADD R1, R1, R2")
    code |= {0x400: "@P0 BRA 0x200", 0x420: "@!P1 BRA.U 0x410", 0x800: "BRA 0x100", 0x880: "BRA 0x900"}

    assert innermost_loops(code) == [(0x200, 0x400)]


def test_the_interpreter_compiles_nothing() -> None:
    with pytest.raises(UsageError, match="interpreter is on, which compiles nothing; allowed: TRITON_INTERPRET=0"):
        next(measure())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_committed_table_is_what_the_kernels_compile_to(need: Callable[[str, bool, str], None]) -> None:
    folder = Path(__file__).parents[2] / "reports" / "bench" / "sm_90"
    is_pinned = f"Triton {triton.__version__} " in (folder / "README.md").read_text(encoding="utf-8")
    need("pinned-triton", is_pinned, f"the table is of another version than {triton.__version__}")
    command = [sys.executable, "-m", "benchmarks.compiled", "--check", "--out", str(folder)]

    done = subprocess.run(command, env=COMPILING, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
