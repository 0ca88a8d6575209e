"""Compile every kernel for compute capability 9.0, which needs no GPU, and print what each takes as JSON lines."""

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from synthbench.forms.kernels import _linear, _slay, _yat_spherical
from synthbench.forms.kernels._tiles import ROWS, padded

TYPES = {"which_ptr": "*i64", "constant": "fp32", "delta": "fp32"}
OF_USERS = {
    *("q_ptr", "k_ptr", "v_ptr", "out_ptr", "d_q_ptr", "d_k_ptr", "d_v_ptr"),
    *("x_ptr", "values_ptr", "other_ptr", "other_values_ptr", "d_x_ptr", "d_values_ptr"),
}
"""Tensors of the type that a user gives; the others are float32."""


def compile_kernel(kernel: triton.JITFunction, dtype: str, num_warps: int, **constants: object) -> dict[str, object]:
    """Compile for those of the constants that the kernel has; an error of the compiler ends the script."""
    types = {**TYPES, **dict.fromkeys(OF_USERS, f"*{dtype}")}
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "*fp32" if name.endswith("_ptr") else "i32")
        for name in kernel.arg_names
    }
    # What a launch finds out about its arguments: it changes how loads are pipelined, and so the shared memory.
    multiples_of_16 = {
        (position,): [["tt.divisibility", 16]]
        for position, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or (signature[name] == "i32" and name not in kernel.do_not_specialize)
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=multiples_of_16)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})
    return {
        "kernel": f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__}",
        **constants,
        "shared_bytes": compiled.metadata.shared,
        "has_machine_code": bool(compiled.asm["cubin"]),
    }


def main(dtype: str, key_dim: int, value_dim: int, num_anchors: int, num_features: int) -> None:
    """Compile all kernels for one type and size, in the precisions that this type is computed in."""
    widths = {
        "key_dim": key_dim,
        "value_dim": value_dim,
        "num_anchors": num_anchors,
        "num_features": num_features,
        "dims": padded(key_dim),
        "columns": padded(value_dim),
        "features": padded(num_features),
        "anchor_columns": padded(num_anchors),
        "num_halvings": _slay.num_halvings(padded(num_features), padded(value_dim)),
        "is_clamped": False,
        "is_key": True,  # the larger half
    }
    for precision in ("ieee", "tf32") if dtype == "fp32" else ("tf32",):
        for kernel in (
            _linear.state_kernel,
            _linear.output_kernel,
            _slay.state_kernel,
            _slay.output_kernel,
            _slay.gradient_kernel,
            _yat_spherical.output_kernel,
            _yat_spherical.query_gradient_kernel,
            _yat_spherical.key_gradient_kernel,
        ):
            rows = _slay.GRADIENT_ROWS if kernel is _slay.gradient_kernel else ROWS
            num_warps = _slay.STATE_WARPS if kernel is _slay.state_kernel else 4  # Triton's own choice
            facts = compile_kernel(kernel, dtype, num_warps, **widths, rows=rows, precision=precision)
            print(json.dumps(facts), flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
