"""Kernels as compiled for compute capability 9.0, which takes no GPU: registers, spills, tensor cores, instructions.

The launches of a form are recorded while it runs on tensors without data. Each is compiled with the arguments of its
launch, so nothing here repeats how kernels are launched.

python -m benchmarks.compiled --help
"""

import itertools
import math
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest import mock

import torch
import typer
from tabulate import tabulate
from torch import Tensor

from benchmarks.script import make_app, run
from synthbench.errors import UsageError
from synthbench.forms import kernels
from synthbench.reports import folder
from synthbench.reports.render.spreadsheet import csv_text

app = make_app()

CAPABILITY = 90
LENGTH, HEADS = 131_072, 8
"""Of the launches that are compiled; a kernel is compiled once for all lengths."""
DTYPES = (torch.float32, torch.bfloat16)
DIRECTIONS = ("forward", "backward")

ISSUED_PER_S = 132 * 4 * 1.755e9
"""Instructions of warps that an H100 issues in a second at best: one a scheduler and clock."""
ISSUE_SHARE = 0.6
"""Share of it that kernels are assumed to reach; not measured."""
BYTES_PER_S = 3.0e12

SHOWN = {
    "form": "form",
    "size": "size",
    "dtype": "type",
    "kernel": "kernel",
    "precision": "products in",
    "registers": "registers",
    "spilled_bytes": "spilled bytes",
    "shared_bytes": "shared bytes",
    "warps": "warps",
    "products_on_tensor_cores": "on tensor cores",
    "products": "of products",
    "in_loops": "instructions in loops",
    "predicted_ms": "ms, predicted",
}
"""Columns of the page, and their headings."""

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Case(NamedTuple):
    """A form at one size."""

    form: str
    head_dim: int
    num_anchors: int = 0
    num_features: int = 0

    @property
    def size(self) -> str:
        """In words."""
        widths = f"head width {self.head_dim}"
        if self.num_anchors:
            return f"{widths}, {self.num_anchors} anchors x {self.num_features} features"
        return widths

    def attend(self) -> Attend:
        """The form, with constants that have no data."""
        if self.form == "slay":
            slay = kernels.load("_slay")
            shapes = ((self.head_dim, self.num_anchors), *((n, self.num_features) for n in (self.head_dim, 1, 1)))
            constants = slay.Constants(*(torch.empty(shape, device="meta") for shape in shapes))
            return lambda q, k, v: slay.attend(constants, q, k, v, guard="add", delta=1e-6)
        yat = kernels.load("_yat_spherical")
        return lambda q, k, v: yat.attend(1e-3, q, k, v)

    def inputs(self, dtype: torch.dtype) -> list[Tensor]:
        """Queries, keys and values without data."""
        shape = HEADS, LENGTH, self.head_dim
        return [torch.empty(shape, dtype=dtype, device="meta", requires_grad=True) for _ in range(3)]


CASES = (
    Case("slay", 32, 8, 48),
    Case("slay", 32, 16, 48),
    Case("slay", 64, 8, 48),
    Case("yat-spherical", 16),
    Case("yat-spherical", 32),
    Case("yat-spherical", 64),
)
"""``slay`` with m = 384 and 768 at head width 32, and with m = 384 at width 64; then the other."""


class Launch(NamedTuple):
    """A kernel and what it is launched with."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    num_warps: int


def launches(case: Case, dtype: torch.dtype) -> list[tuple[str, Launch]]:
    """Record the launches of a form, forward and backward, each with that word.

    Raises:
        UsageError: If Triton is not installed.
    """
    try:
        kind = type(kernels.load("_slay").output_kernel)  # Triton's own, or its interpreter's
    except ImportError:
        raise UsageError("Triton is not installed: in a checkout: pip install -e '.[triton]'") from None
    found: list[Launch] = []

    def record(
        kernel: Any, *values: Any, grid: tuple[int, ...], warmup: bool = False, num_warps: int = 4, **named: Any
    ) -> None:
        del warmup
        found.append(Launch(kernel, grid, dict(zip(kernel.arg_names, values, strict=False)) | named, num_warps))

    attend, inputs = case.attend(), case.inputs(dtype)
    with mock.patch.object(kind, "run", record):
        out = attend(*inputs)
        num_forward = len(found)
        out.backward(torch.empty_like(out))
    return [(DIRECTIONS[place >= num_forward], launch) for place, launch in enumerate(found)]


def compile_launch(launch: Launch) -> dict[str, Any]:
    """Describe a kernel: its own facts and those of :func:`machine_code_facts`."""
    from triton import compile as compile_source  # noqa: PLC0415 - it may not be installed
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415

    kernel, constants = launch.kernel, _constants(launch)
    varying = {param.name for param in kernel.params if param.do_not_specialize}
    signature = {
        name: "constexpr" if name in constants else _type_of(launch.arguments[name]) for name in kernel.arg_names
    }
    # What a launch finds out about its arguments: it changes how loads are pipelined, and so the shared memory.
    multiples_of_16 = {
        (position,): [["tt.divisibility", 16]]
        for position, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
        or (signature[name] == "i32" and name not in varying and launch.arguments[name] % 16 == 0)
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=multiples_of_16)
    compiled = compile_source(source, GPUTarget("cuda", CAPABILITY, 32), {"num_warps": launch.num_warps})
    products = re.findall(r"(?:tt\.dot|warp_group_dot) .*-> tensor<.*, #(\w+)>", compiled.asm["ttgir"])
    return {
        "precision": constants.get("precision"),
        "warps": launch.num_warps,
        "shared_bytes": compiled.metadata.shared,
        "products": len(products),
        "products_on_tensor_cores": sum(layout.startswith("mma") for layout in products),
        **machine_code_facts(compiled.asm["cubin"]),
    }


def forward_ms(launch: Launch, facts: Mapping[str, Any]) -> float:
    """The model's time of a forward kernel: instructions at the rate that is assumed, or bytes, what takes longer."""
    programs = math.prod(launch.grid)
    instructions = programs * launch.num_warps * _instructions_of_program(launch, facts)
    num_bytes = sum(x.numel() * x.element_size() for x in launch.arguments.values() if isinstance(x, Tensor))
    return 1e3 * max(instructions / (ISSUED_PER_S * ISSUE_SHARE), num_bytes / BYTES_PER_S)


def _instructions_of_program(launch: Launch, facts: Mapping[str, Any]) -> float:
    """A warp's: each loop as often as it is gone through on average, all else once.

    Loops are over the anchors read at once, unless the compiler unrolled them, and over other rows before the tile. A
    loop over the rows beside it exists unless that is one step.
    """
    given, loops = launch.arguments, [int(count) for count in facts["in_loops"].split(" + ")]
    rows, reach = given["rows"], given.get("segment", given.get("length", given.get("num_states")))
    step = given.get("step", rows)
    if launch.kernel.fn.__name__ in {"state_kernel", "running_kernel"}:
        rounds = [reach / rows]
    else:
        beside = [rows / step] if rows > step else []
        rounds = [(reach - rows) / 2 / step, *beside]
        groups = given.get("num_anchors", 0) / given.get("at_once", 1)
        rounds = [*([groups] if len(loops) > len(rounds) else []), *rounds]
    extra = sum(count * (times - 1) for count, times in zip(loops, rounds, strict=True))
    return float(facts["instructions"] + extra)


def _constants(launch: Launch) -> dict[str, Any]:
    """Target of a kernel, which the interpreter does not know."""
    if not hasattr(launch.kernel, "params"):
        raise UsageError("Triton's interpreter is on, which compiles nothing; allowed: TRITON_INTERPRET=0")
    return {param.name: launch.arguments[param.name] for param in launch.kernel.params if param.is_constexpr}


def _type_of(value: Any) -> str:
    if isinstance(value, Tensor):
        types = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int64: "i64"}
        return f"*{types[value.dtype]}"
    if isinstance(value, float):
        return "fp32"
    return "i32" if value < 2**31 else "i64"


def machine_code_facts(cubin: bytes) -> dict[str, Any]:
    """Registers, spilled bytes (the stack: kernels have no arrays) a thread, and counts of instructions a warp."""
    from triton import knobs  # noqa: PLC0415 - it may not be installed

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", "-sass", file.name]
        text = subprocess.run(tool, capture_output=True, text=True, check=True).stdout  # noqa: S603 - Triton's own
    usage = {name: int(re.findall(rf"{name}:(\d+)", text)[0]) for name in ("REG", "STACK")}
    lines = re.findall(r"^\s*/\*([0-9a-f]{4,})\*/\s+([^;]*);", text, re.MULTILINE)
    code = {int(place, 16): words for place, words in lines}
    inner = [sum(first <= place <= last for place in code) for first, last in innermost_loops(code)]
    return {
        "registers": usage["REG"],
        "spilled_bytes": usage["STACK"],
        "tensor_core_instructions": sum("HGMMA" in words or "HMMA" in words for words in code.values()),
        "instructions": len(code),
        "in_loops": " + ".join(map(str, inner)),
    }


def innermost_loops(code: dict[int, str]) -> list[tuple[int, int]]:
    """First and last place of every loop that has no other inside; waiting in one place is none."""
    back = [
        (int(target, 16), place)
        for place, words in code.items()
        for target in re.findall(r"\bBRA(?:\.\w+)* .*?(0x[0-9a-f]+)", words)
        if int(target, 16) < place
    ]
    real = [(first, last) for first, last in back if last - first > 16 * 16]
    return [
        loop
        for loop in real
        if not any(loop != other and loop[0] <= other[0] and other[1] <= loop[1] for other in real)
    ]


def measure(
    cases: Sequence[Case] = CASES, dtypes: Sequence[torch.dtype] = DTYPES, directions: Sequence[str] = DIRECTIONS
) -> Iterator[dict[str, Any]]:
    """A row for every different kernel that the cases launch."""
    for case in cases:
        for dtype in dtypes:
            seen = []
            for direction, launch in launches(case, dtype):
                constants = _constants(launch)
                types = [x.dtype for x in launch.arguments.values() if isinstance(x, Tensor)]
                identity = (launch.kernel, constants, types)
                if direction not in directions or identity in seen:
                    continue
                seen.append(identity)
                facts = compile_launch(launch)
                side = {True: " of keys", False: " of queries", None: ""}[launch.arguments.get("is_key")]
                yield {
                    "form": case.form,
                    "size": case.size,
                    "dtype": str(dtype).removeprefix("torch."),
                    "direction": direction,
                    "kernel": launch.kernel.fn.__name__.removesuffix("_kernel") + side,
                    **facts,
                    "predicted_ms": round(forward_ms(launch, facts), 3) if direction == "forward" else None,
                }


def build(rows: Sequence[Mapping[str, Any]]) -> dict[str, str | bytes]:
    """The files of the report, by name."""
    from triton import __version__ as triton_version  # noqa: PLC0415 - it may not be installed

    about = (
        f"Every Triton kernel, compiled by Triton {triton_version} for compute capability 9.0 without a GPU; **nothing "
        "here was run**. `python -m benchmarks.compiled` writes this page and [compiled.csv](compiled.csv). Registers "
        "and spilled bytes are those of a thread, shared memory that of a program, instructions those of a warp: in "
        "each innermost loop, once around. Products are of matrices; `bf16x6` counts six for one of float32."
    )
    model = (
        f"The predicted time is that of a forward kernel for {LENGTH:,} tokens and {HEADS} heads on an H100: every "
        f"instruction takes a slot of {ISSUED_PER_S:.2e} a second, of which {ISSUE_SHARE:.0%} are assumed to be used, "
        f"loops go around as often as they do on average, and every tensor is moved once, at {BYTES_PER_S:.0e} bytes "
        "a second, if that takes longer. Waiting for memory beyond that, launches and the clock under load are left "
        "out."
    )
    shown = [{label: row.get(name) for name, label in SHOWN.items()} for row in rows]
    table = tabulate(shown, headers="keys", tablefmt="github", intfmt=",", missingval="–", disable_numparse=True)
    names = list(dict.fromkeys(itertools.chain(*rows)))
    title = "# Kernels compiled for compute capability 9.0"
    return {
        "README.md": f"{title}\n\n{about}\n\n{model}\n\n{_slay_ms(rows)}\n\n{table}\n",
        "compiled.csv": csv_text(names, ([row.get(name) for name in names] for row in rows)),
    }


def _slay_ms(rows: Sequence[Mapping[str, Any]]) -> str:
    """The whole forward pass of ``slay`` at the default size, in words."""
    case = CASES[0]
    kernels_ms = {
        row["kernel"]: row["predicted_ms"]
        for row in rows
        if (row["form"], row["size"], row["dtype"], row["direction"]) == (case.form, case.size, "bfloat16", "forward")
    }
    total = sum(kernels_ms.values())
    parts = ", ".join(f"{name} {ms:.2f}" for name, ms in kernels_ms.items())
    return f"`slay` with m = 384 in bfloat16, forward: {parts}, together {total:.2f} ms. The goal is 0.5."


@app.command()
def main(
    out: Annotated[Path, typer.Option(help="Folder for the table.")] = Path("reports/bench/sm_90"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the table is not up to date.")
    ] = False,
) -> None:
    """Compile every Triton kernel for an H100, without one: registers, spills, tensor cores. Print changed files."""
    rows = []
    for row in measure():
        typer.echo(f"{row['form']} {row['size']} {row['dtype']} {row['kernel']}: {row['spilled_bytes']} B", err=True)
        rows.append(row)
    changed = (folder.stale if check else folder.write)(build(rows), out)
    for name in changed:
        typer.echo(str(out / name))
    if check and changed:
        raise typer.Exit(1)


if __name__ == "__main__":
    run(app)
