"""The guard against old assemblers, by executables that print a version, on a simulated compute capability."""

from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from synthbench.forms import kernels
from synthbench.forms.kernels import self_test
from synthbench.mechanisms.yat_spherical import YatSpherical

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from triton import knobs
from triton.backends.nvidia import compiler

from synthbench.forms.kernels import _assembler
from tests.forms.kernels.inputs import draw

HOPPER, BLACKWELL = (9, 0), (10, 0)

Use = Callable[..., str]
Simulate = Callable[[tuple[int, int]], None]


def write_assembler(folder: Path, version: str) -> str:
    """An executable that says its version as NVIDIA's does, and can do nothing else."""
    folder.mkdir(parents=True)
    file = folder / "ptxas"
    release = version.rpartition(".")[0]
    file.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{version}'\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Give Triton an assembler of a version, and the machine no other one but, if wanted, one on its path."""

    monkeypatch.setattr(_assembler, "files", Mock(side_effect=PackageNotFoundError))
    monkeypatch.setenv("PATH", str(tmp_path / "on path"), prepend=":")

    def use(version: str, *, on_path: str = "12.0.1") -> str:
        # Triton up to 3.8 reads the first on compute capability 9, then the second.
        for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
            monkeypatch.setenv(variable, write_assembler(tmp_path / variable, version))
        write_assembler(tmp_path / "on path", on_path)
        return str(compiler.get_ptxas(90).path)

    return use


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulate]:
    """Let tensors of the CPU seem to lie on a GPU of a compute capability, whose memory fits every tile."""

    def simulate(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(kernels, "fits", lambda _device: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
        monkeypatch.setattr(self_test, "passes", lambda _test: True)

    kernels.runs_on.cache_clear()
    self_test.warn_once.cache_clear()
    yield simulate
    kernels.runs_on.cache_clear()
    self_test.warn_once.cache_clear()


def kernel_for(case: tuple[Tensor, ...]) -> kernels.Form | None:
    return YatSpherical(model_dim=32, num_heads=2).gpu_kernel(*case)


@pytest.mark.parametrize(("version", "choice"), [("12.9.86", "auto"), ("13.2.78", "always")])
def test_an_old_assembler_on_compute_capability_9_means_no_kernel_and_one_line_that_says_why(
    use: Use, simulate: Simulate, version: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernels.SWITCH, choice)
    path = use(version)
    simulate(HOPPER)

    with pytest.warns(RuntimeWarning, match="PyTorch's forms run in place of Triton kernels") as said:
        found = [kernel_for(draw(length)) for length in (600, 700)]

    assert found == [None, None]
    (line,) = [str(warning.message) for warning in said]
    release = version.rpartition(".")[0]
    assert f"{path} is ptxas {release}, which may assemble them wrongly; needed: 13.3 or newer" in line
    assert "pip install 'nvidia-cuda-nvcc>=13.3' and set TRITON_PTXAS_" in line
    assert "\n" not in line


def test_the_line_names_a_good_one_and_its_variable(tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use("12.8.93", on_path="13.10.2")

    said: Any = _assembler.objection(HOPPER)

    variable, _, path = said.rpartition("set ")[2].partition("=")
    assert path == str(tmp_path / "on path" / "ptxas")
    assert _assembler.substitute(HOPPER) == {variable: path}
    assert variable in {"TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"}

    monkeypatch.setenv(variable, path)

    assert compiler.get_ptxas(90).path == path
    assert _assembler.objection(HOPPER) is None
    assert _assembler.substitute(HOPPER) == {}


@pytest.mark.parametrize(
    ("tool", "variable"), [("ptxas", "TRITON_PTXAS_PATH"), ("ptxas_blackwell", "TRITON_PTXAS_BLACKWELL_PATH")]
)
def test_the_variable_is_of_the_one_in_use(use: Use, tool: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use("12.8.93", on_path="13.3.33")
    monkeypatch.setattr(compiler, "get_ptxas", lambda _arch: getattr(knobs.nvidia, tool))

    assert list(_assembler.substitute(HOPPER)) == [variable]


@pytest.mark.parametrize(
    ("version", "capability"), [("13.3.33", HOPPER), ("14.0.1", HOPPER), ("12.8.93", BLACKWELL), ("12.8.93", (8, 6))]
)
def test_a_good_one_means_the_kernel(use: Use, simulate: Simulate, version: str, capability: tuple[int, int]) -> None:
    use(version)
    simulate(capability)

    assert kernel_for(draw(600)) is not None  # and a warning would be an error


def test_nobody_who_wants_no_kernels_is_warned(use: Use, simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    use("12.8.93")
    simulate(HOPPER)

    assert kernel_for(tuple(x.double() for x in draw(600))) is None
    monkeypatch.setenv(kernels.SWITCH, "off")
    assert kernel_for(draw(600)) is None


def test_an_assembler_that_is_not_found_is_not_trusted(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use("12.8.93", on_path="13.4.59")
    monkeypatch.setattr(compiler, "get_ptxas", Mock(side_effect=RuntimeError("Cannot find ptxas")))

    said: Any = _assembler.objection(HOPPER)

    assert "Triton's assembler was not found (Cannot find ptxas)" in said
    assert _assembler.substitute(HOPPER) == {}


def test_that_of_an_installed_package_is_found(tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use("12.8.93")
    monkeypatch.setattr(_assembler, "files", files)
    site, facts = tmp_path / "site", tmp_path / "site" / "nvidia_cuda_nvcc-13.5.37.dist-info"
    path = write_assembler(site / "nvidia" / "cu13" / "bin", "13.5.37")
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cuda-nvcc\nVersion: 13.5.37\n")
    (facts / "RECORD").write_text("nvidia/cu13/bin/nvcc,,\nnvidia/cu13/bin/ptxas,,\n")
    monkeypatch.syspath_prepend(str(site))

    assert _assembler.better() == path


def test_a_file_that_cannot_be_run_is_no_assembler(tmp_path: Path) -> None:
    path = tmp_path / "ptxas"
    path.write_text("no program")

    assert _assembler._tool(str(path)) is None
    assert _assembler._tool(str(tmp_path / "nothing")) is None
