import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from synthbench.mechanisms import kernels

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "sizes", ["fp32 4096 32 32 8 48", "fp32 4096 64 64 64 128", "bf16 4096 64 64 64 128", "fp32 1 1 1 1 1"]
)
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
