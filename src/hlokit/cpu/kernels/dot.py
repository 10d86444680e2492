"""dot and scaled-dot as routines."""

from __future__ import annotations

import math
from typing import Any

from hlokit.cpu.kernels.axes import Dimension, Space, row_major_strides, space
from hlokit.cpu.kernels.gemm import Product
from hlokit.cpu.kernels.routine import KERNELS, Call, Phase, Routine
from hlokit.cpu.kernels.tile import Arithmetic
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target
from hlokit.ops.contraction import compute_type, free_dimensions
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_TOTALS = {"float32": "float", "float64": "double", "complex64": "float", "complex128": "double"}


def arithmetic(operand: DType, result: DType, target: Target, *, is_grouped: bool = True) -> Arithmetic:
    """What sums of products are made in: as op.reference's compute_type, integers in no more than the result keeps."""
    wide = compute_type(operand, result)
    if wide.kind in "iu":
        return _of_integers(operand, result, target, is_grouped=is_grouped)
    total = _TOTALS[wide.name]
    if is_grouped and operand is dtypes.bf16 and total == "float" and wide.kind == "f" and _has(target, "avx512bf16"):
        return Arithmetic("bf16", "float", "i16", 2)
    is_fused = target.has("fma") or target.has("avx512f") or target.triple.startswith(("aarch64", "arm64"))
    return Arithmetic("float", total, total, 1, wide.kind == "c", is_fused)


def _has(target: Target, feature: str) -> bool:
    return target.vector_bytes == 64 and target.has(feature)


def _of_integers(operand: DType, result: DType, target: Target, *, is_grouped: bool) -> Arithmetic:
    total = "i64" if result.bits > 32 else "i32"
    least = operand.bits if operand.kind == "signed" else 1 if operand.kind == "pred" else operand.bits + 1
    if is_grouped and total == "i32" and _has(target, "avx512vnni"):
        if least <= 8:
            return Arithmetic("i8", total, "i8", 4)
        if least <= 16:
            return Arithmetic("i16", total, "i16", 2)
    return Arithmetic("int", total, total)


def dimensions(call: Call) -> tuple[list[Dimension], list[Dimension], list[Dimension], list[Dimension]]:
    """Batch, lhs's free, rhs's free and contracting dimensions of a dot."""
    op: Any = call.op
    left, right = call.operands[:2]
    strides = row_major_strides(left.dimensions), row_major_strides(right.dimensions)
    free_left = free_dimensions(left.rank, op.lhs_batch_dims, op.lhs_contracting_dims)
    free_right = free_dimensions(right.rank, op.rhs_batch_dims, op.rhs_contracting_dims)
    batch = [
        Dimension(left.dimensions[i], strides[0][i], strides[1][j])
        for i, j in zip(op.lhs_batch_dims, op.rhs_batch_dims, strict=True)
    ]
    rows = [Dimension(left.dimensions[i], strides[0][i], 0) for i in free_left]
    columns = [Dimension(right.dimensions[j], 0, strides[1][j]) for j in free_right]
    inner = [
        Dimension(left.dimensions[i], strides[0][i], strides[1][j])
        for i, j in zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True)
    ]
    return batch, rows, columns, inner


def dot_space(call: Call) -> Space:
    batch, rows, columns, inner = dimensions(call)
    kept = [*batch, *rows, *columns]
    for dimension, stride in zip(kept, row_major_strides([d.size for d in kept]), strict=True):
        dimension.out = stride
    # the order of the sum is free: consecutive elements last
    inner.sort(key=lambda d: (-d.lhs - d.rhs, -d.lhs))
    return space(batch, rows, columns, inner)


def is_refused(call: Call) -> bool:
    """Dynamic dimensions have no code; strict asks for the reference's order, which only integers do not have."""
    shapes = (*call.operands, *call.results)
    if any(shape.is_dynamic for shape in shapes):
        return True
    return call.strict and compute_type(call.operands[0].dtype, call.results[0].dtype).kind not in "iu"


def no_result(module: Module) -> Routine:
    """For results without elements."""
    function = Function("dot_nothing", [("ptr", "table"), ("i64", "begin"), ("i64", "end")])
    function.do("ret void")
    module.add(function)
    return Routine((Phase(function.name),))


def dot(call: Call, module: Module) -> Routine | None:
    """Products of any shapes and types."""
    if is_refused(call):
        return None
    if math.prod(call.results[0].dimensions) == 0:
        return no_result(module)
    left, right = (shape.dtype for shape in call.operands[:2])
    how = arithmetic(left, call.results[0].dtype, call.target, is_grouped=left is right)
    return Routine((Product(call, module, dot_space(call), how).write(),))


KERNELS["dot"] = dot
