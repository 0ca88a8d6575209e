import os

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.process import WORKSPACE, deterministic_algorithms, reserve_workspace

GPU = torch.device("cuda")


def settings() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.deterministic,
        not cudnn.benchmark,
        not cudnn.allow_tf32,
        not torch.backends.cuda.matmul.allow_tf32,
    )


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":0:0")  # what was there is put back


def test_all_settings_are_made_and_put_back() -> None:
    before = settings()
    with deterministic_algorithms(torch.device("cpu")):
        assert all(settings())

    assert settings() == before
    assert not all(before)


def test_the_workspace_is_reserved_before_cuda_starts_and_for_processes_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for found in (":0:0", None):
        if found is None:
            monkeypatch.delenv(WORKSPACE)
        reserve_workspace(GPU)
        assert os.environ[WORKSPACE] == ":4096:8"


@pytest.mark.parametrize(("found", "said"), [(None, "unset"), (":0:0", "':0:0'")])
def test_it_is_refused_once_cuda_has_started(found: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    if found is None:
        monkeypatch.delenv(WORKSPACE)
    with (
        pytest.raises(UsageError, match=f"{WORKSPACE} {said}; allowed: :4096:8 or :16:8"),
        deterministic_algorithms(GPU),
    ):
        pytest.fail("it began")


@pytest.mark.parametrize(("device", "found"), [("cuda", ":4096:8"), ("cuda", ":16:8"), ("cpu", ":0:0")])
def test_a_workspace_that_was_reserved_in_time_will_do_and_a_cpu_needs_none(
    device: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setenv(WORKSPACE, found)
    reserve_workspace(torch.device(device))
