import json
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.compiled import innermost_loops, measure
from synthbench.errors import UsageError
from synthbench.forms import kernels
from tests.cli.commands import Need, python

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

compiling = partial(python, TRITON_INTERPRET="0")
"""The interpreter takes the compiler's place where it is on, so it must be off from the start."""
TABLE = Path(__file__).parents[2] / "reports" / "bench" / "sm_90"

SPECIALISED = """
from importlib import import_module

for room in ("_slay", "_tiles", "_yat_spherical"):
    for name, kernel in vars(import_module(f"synthbench.forms.kernels.{room}")).items():
        if name.endswith("_kernel"):
            print(*(one.name for one in kernel.params if not one.is_constexpr and not one.do_not_specialize))
"""


@pytest.mark.end_to_end
def test_no_kernel_is_compiled_anew_for_another_length() -> None:
    kernels_arguments = [line.split() for line in compiling("-c", SPECIALISED).stdout.splitlines()]
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


def compile_all(cases: list[tuple[str | int, ...]], dtypes: list[str], directions: list[str]) -> list[dict[str, Any]]:
    """Rows of these."""
    done = compiling("-c", COMPILED, json.dumps([cases, dtypes, directions]))
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def check(rows: list[dict[Any, Any]]) -> None:
    """Backward kernels may spill: gradients, values and factors of a row are in use at once, in float32 in parts."""
    for row in rows:
        assert row["shared_bytes"] <= kernels.MAX_SHARED_BYTES, row
        assert row["products_on_tensor_cores"] == row["products"], row
        has_products = row["kernel"] != "running"
        assert (row["products"] > 0) == (row["tensor_core_instructions"] > 0) == has_products, row
        assert row["direction"] == "backward" or row["spilled_bytes"] == 0, row


@pytest.mark.end_to_end
def test_forward_kernels_spill_nothing_and_multiply_on_tensor_cores() -> None:
    """At the default size, in bfloat16; the others take longer, and are in the committed table."""
    rows = compile_all([("slay", 32, 8, 48)], ["bfloat16"], ["forward"])

    assert [row["kernel"] for row in rows] == ["state", "running", "output"]
    check(rows)
    check(pd.read_csv(TABLE / "compiled.csv").to_dict("records"))


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
def test_the_committed_table_is_what_the_kernels_compile_to(need: Need) -> None:
    is_pinned = f"Triton {triton.__version__} " in (TABLE / "README.md").read_text(encoding="utf-8")
    need("pinned-triton", is_pinned, f"the table is of another version than {triton.__version__}")
    done = compiling("-m", "benchmarks.compiled", "--check", "--out", str(TABLE))

    assert done.returncode == 0, done.stdout
