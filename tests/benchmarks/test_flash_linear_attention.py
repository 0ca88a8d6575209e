"""The adapter to flash-linear-attention, by a stand-in for it: plain PyTorch with the signature that it documents."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from benchmarks import flash_linear_attention as fla
from synthbench.bench import instruments, scaling
from synthbench.bench.forms import DIRECTIONS, Setting
from synthbench.bench.rows import Table
from synthbench.forms import linear
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import FeatureAttention
from tests.tensors import with_gradients

CPU = torch.device("cpu")

Shapes = list[tuple[torch.Size, ...]]


class Standin(ModuleType):
    """``fla.ops.linear_attn``, which lists the shapes that it is called with."""

    def __init__(self) -> None:
        super().__init__(fla.OPERATIONS)
        self.shapes: Shapes = []

    def chunk_linear_attn(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float | None = None,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,  # noqa: FBT001, FBT002 - not our signature
        normalize: bool = True,  # noqa: FBT001, FBT002 - the same
    ) -> tuple[Tensor, None]:
        """Queries, keys and values [batch, length, heads, width] to outputs laid out like the values."""
        assert q.shape == k.shape
        assert q.shape[:-1] == v.shape[:-1]
        assert q.shape[1] >= q.shape[2], "fewer tokens than heads"
        assert (initial_state, output_final_state) == (None, False)
        self.shapes.append((q.shape, v.shape))
        scores = torch.einsum("bthm,bshm->bhts", q, k).tril() * (q.shape[-1] ** -0.5 if scale is None else scale)
        out = torch.einsum("bhts,bshd->bthd", scores, v)
        return (out / (scores.sum(-1).mT.unsqueeze(-1) + 1e-10) if normalize else out), None


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    """Take the stand-in for the package, on a CPU."""
    found = Standin()
    monkeypatch.setitem(sys.modules, fla.OPERATIONS, found)
    monkeypatch.setattr(fla, "missing", lambda _device: None)
    monkeypatch.setattr(fla, "FIRST_CALL", (1, 24, 2, 6))
    fla._choose_tiles.cache_clear()
    yield found
    fla._choose_tiles.cache_clear()


def built(name: str, **options: Any) -> FeatureAttention:
    unit = MECHANISMS[name](
        model_dim=16, num_heads=2, max_length=40, generator=torch.Generator().manual_seed(0), **options
    )
    assert isinstance(unit, FeatureAttention)
    return unit


def draw(length: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    return tuple(torch.randn(3, 2, length, 8, generator=generator).requires_grad_() for _ in "qkv")


@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize("guard", ["add", "clamp"])
@pytest.mark.parametrize("name", ["slay", "linear", "performer", "cosformer"])
def test_it_computes_what_the_mechanism_does_and_so_do_its_gradients(name: str, guard: str) -> None:
    unit, case = built(name, guard=guard, delta=0.5), draw(37)
    expected = linear.gram(
        unit.factors(case[0], "query"), unit.factors(case[1], "key"), case[2], guard=unit.guard, delta=unit.delta
    )

    torch.testing.assert_close(
        with_gradients(fla.attend(unit, *case), case), with_gradients(expected, case), rtol=1e-4, atol=1e-5
    )


def test_its_tiles_are_chosen_once_by_a_call_of_their_own(standin: Standin) -> None:
    unit = built("slay")
    for _ in range(2):
        fla.attend(unit, *draw(37))

    features = linear.rank(unit.factors(draw(37)[1], "key"))
    own = (torch.Size([3, 37, 2, features]), torch.Size([3, 37, 2, 9]))
    assert standin.shapes == [(torch.Size([1, 24, 2, 6]), torch.Size([1, 24, 2, 33])), own, own]


@pytest.mark.usefixtures("standin")
def test_it_is_measured_beside_the_other_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthbench.bench.forms.MODEL_DIM", 16)
    monkeypatch.setattr("synthbench.bench.forms.NUM_HEADS", 2)
    mechanisms: dict[str, dict[str, object]] = {"linear": {}, "softmax": {}}
    how: dict[str, Any] = {"batch_size": 1, "num_repeats": 1, "dtype": "float32", "limits": scaling.Limits(1e6, 1e6)}
    forms: dict[str, Any] = {"forms": ["fla", "chunked"], "offered": fla.offered}
    rows = list(scaling.measure(mechanisms, [1, 16], Table(scaling.IDENTITY, CPU), **forms, **how))

    assert {(row["mechanism"], row["direction"], row["length"]) for row in rows if row["form"] == "fla"} == {
        ("linear", direction, 16) for direction in DIRECTIONS
    }
    assert {row["status"] for row in rows} == {"ok"}
    one, other = (row["flops"] for row in rows if (row["length"], row["direction"]) == (16, "forward"))
    assert one == other  # those of chunks: of features that are one factor already, the same


def test_the_operations_that_it_is_taken_to_do_are_those_of_wide_chunks() -> None:
    unit = built("slay")
    q, k, v = (x.detach() for x in draw(64))
    width = linear.rank(unit.factors(k, "key"))
    making = instruments.flops_of(lambda: (unit.factors(q, "query"), unit.factors(k, "key")))

    flops = instruments.flops_of(lambda: fla.counted(unit, q, k, v))

    assert flops - making == 3 * 2 * 2 * 64 * 64 * (width + 9)  # scores, then values beside a column of ones


@pytest.mark.usefixtures("standin")
def test_it_is_offered_what_it_takes() -> None:
    served = {(8, torch.float32): True, (7, torch.float32): False, (8, torch.bfloat16): True, (8, torch.float64): False}

    for (length, dtype), is_served in served.items():
        assert fla.serves(Setting("forward", length, 1, CPU, dtype)) == is_served


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, missing = torch.device("cuda"), fla.missing.__wrapped__

    def older(q: Tensor, head_first: bool = True) -> None:  # noqa: FBT001, FBT002 - not our signature
        """Heads before the length."""

    assert missing(CPU) == "cpu does not run its kernels"
    monkeypatch.setattr(fla, "find_spec", lambda _name: None)
    assert "not installed" in str(missing(gpu))
    monkeypatch.setattr(fla, "find_spec", lambda _name: object())
    monkeypatch.setitem(sys.modules, fla.OPERATIONS, None)
    assert "cannot be imported" in str(missing(gpu))
    standin = Standin()
    monkeypatch.setitem(sys.modules, fla.OPERATIONS, standin)
    assert missing(gpu) is None
    monkeypatch.setattr(standin, "chunk_linear_attn", older)
    assert "older than 2025" in str(missing(gpu))


def test_a_line_says_that_it_is_left_out() -> None:
    result = CliRunner().invoke(fla.app, ["--mech", "linear", "--lengths", "16", "--device", "cpu"])

    assert result.exit_code == 0, result.output
    assert "flash-linear-attention is left out: cpu does not run its kernels" in result.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["slay", "linear", "performer"])
def test_the_package_itself_computes_what_the_mechanism_does(
    name: str, dtype: torch.dtype, need: Callable[[str, bool, str], None]
) -> None:
    device = torch.device("cuda")
    reason = fla.missing(device)
    need("fla", reason is None, str(reason))
    case = tuple(x.detach() for x in draw(200))
    doubles, inputs = (
        tuple(x.to(where, kind).requires_grad_() for x in case)
        for where, kind in ((CPU, torch.float64), (device, dtype))
    )
    expected = with_gradients(built(name).double().attend(*doubles), doubles)

    found = with_gradients(fla.attend(built(name).to(device, dtype), *inputs), inputs)

    for own, true in zip(found, expected, strict=True):
        assert (own.cpu().double() - true).abs().max() <= 0.05 * float(true.abs().max())
