import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from synthbench.forms import kernels

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")


SPECIALISED = """
from importlib import import_module

for room in ("_linear", "_slay", "_yat_spherical"):
    for name, kernel in vars(import_module(f"synthbench.forms.kernels.{room}")).items():
        if name.endswith("_kernel"):
            print(*(one.name for one in kernel.params if not one.is_constexpr and not one.do_not_specialize))
"""


def test_no_kernel_is_compiled_anew_for_another_length() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    script = [sys.executable, "-c", SPECIALISED]
    said = subprocess.run(script, env=environment, capture_output=True, text=True, check=True).stdout

    kernels_arguments = [line.split() for line in said.splitlines()]
    assert len(kernels_arguments) == 8
    assert all("q_ptr" in names or "x_ptr" in names or "k_ptr" in names for names in kernels_arguments)
    assert not any({"length", "num_states", "offset"} & set(names) for names in kernels_arguments)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sizes", ["fp32 32 32 8 48", "fp32 64 64 64 128", "bf16 64 64 64 128", "fp32 1 1 1 1"])
def test_every_kernel_compiles_for_compute_capability_9_and_fits_its_shared_memory(sizes: str, tmp_path: Path) -> None:
    """The second and third sizes are the largest that are allowed."""
    script = Path(__file__).parent / "compile_all.py"
    # The interpreter takes the compiler's place where it is on, so it must be off from the start.
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, script, *sizes.split()], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({each["kernel"] for each in compiled}) == 8
    assert all(each["has_machine_code"] for each in compiled)
    assert max(each["shared_bytes"] for each in compiled) <= kernels.MAX_SHARED_BYTES
