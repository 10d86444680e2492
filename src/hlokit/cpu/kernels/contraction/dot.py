"""dot and scaled-dot as routines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from hlokit.cpu.kernels.contraction.axes import (
    Axis,
    Dimension,
    Space,
    added,
    row_major_strides,
    scaled,
    space,
    unravelled,
)
from hlokit.cpu.kernels.contraction.denormals import may_flush, needs_denormals
from hlokit.cpu.kernels.contraction.elements import broadcast, read, size_of
from hlokit.cpu.kernels.contraction.gemm import Packer, Product
from hlokit.cpu.kernels.contraction.packing import Operand
from hlokit.cpu.kernels.contraction.parts import PartsProduct, form_of, packing
from hlokit.cpu.kernels.contraction.row_dots import row_dots
from hlokit.cpu.kernels.contraction.tile import Arithmetic
from hlokit.cpu.kernels.routine import KERNELS, PACKERS, PHASE, Call, Packing, Phase, Routine
from hlokit.cpu.llvm import Function, Module, vector
from hlokit.cpu.target import Target
from hlokit.ops.contraction import Dot, compute_type, free_dimensions
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

_TOTALS = {"float32": "float", "float64": "double", "complex64": "float", "complex128": "double"}


def arithmetic(operand: DType, result: DType, target: Target, *, is_grouped: bool = True) -> Arithmetic:
    """What sums of products are made in: as op.reference's compute_type, integers in no more than the result keeps."""
    wide = compute_type(operand, result)
    if wide.kind in "iu":
        return _of_integers(operand, result, target, is_grouped=is_grouped)
    total = _TOTALS[wide.name]
    is_bf16 = operand is dtypes.bf16 and total == "float" and wide.kind == "f" and not needs_denormals(result)
    # by the CPU's name for speed alone: on Sapphire Rapids vdpbf16ps is slower than converting to f32
    if is_grouped and is_bf16 and _has(target, "avx512bf16") and target.cpu.startswith("znver"):
        return Arithmetic("bf16", "float", "i16", 2)
    is_fused = target.has("fma") or target.has("avx512f") or target.arch == "aarch64"
    return Arithmetic("float", total, total, 1, wide.kind == "c", is_fused)


def matrix_arithmetic(call: Call, index: Space) -> Arithmetic | None:
    """That of the machine's matrix registers, if it has such for these types and the product fills a good part of them.

    lhs must have the factors of a row side by side.
    """
    left, right = call.operands[:2]
    if left.dtype is not right.dtype or index.inner.stride("lhs") != 1 or index.rows.size < 8 or index.columns.size < 8:
        return None
    wide = compute_type(left.dtype, call.results[0].dtype)
    if left.dtype is dtypes.bf16 and wide.name == "float32" and call.target.has("amx-bf16") and may_flush(call):
        how = Arithmetic("bf16", "float", "i16", 2, is_matrix=True)
    elif left.dtype.kind in ("signed", "unsigned", "pred") and left.dtype.bits <= 8 and call.target.has("amx-int8"):
        if call.results[0].dtype.bits > 32:
            return None
        how = Arithmetic("u8" if left.dtype.kind == "unsigned" else "s8", "i32", "i8", 4, is_matrix=True)
    else:
        return None
    is_wide = call.target.vector_bytes == 64  # rows of 16 columns, as the registers have
    return how if is_wide and index.inner.size * size_of(how.packed) >= 64 else None


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
    op = cast(Dot, call.op)
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
    number_results([*batch, *rows, *columns])
    # the order of the sum is free: consecutive elements last
    inner.sort(key=lambda d: (-d.lhs - d.rhs, -d.lhs))
    return space(batch, rows, columns, inner)


def number_results(kept: list[Dimension]) -> None:
    """Gives the dimensions their strides in a result that has just these, in this order."""
    for dimension, stride in zip(kept, row_major_strides([d.size for d in kept]), strict=True):
        dimension.out = stride


def is_refused(call: Call) -> bool:
    """Dynamic dimensions have no code; strict asks for the reference's order, which only integers do not have."""
    shapes = (*call.operands, *call.results)
    if any(shape.is_dynamic for shape in shapes):
        return True
    return call.strict and compute_type(call.operands[0].dtype, call.results[0].dtype).kind not in "iu"


def no_result(module: Module) -> Routine:
    """For results without elements."""
    function = Function("dot_nothing", PHASE)
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
    index = dot_space(call)
    single = arithmetic(left, call.results[0].dtype, call.target, is_grouped=False)
    how = matrix_arithmetic(call, index)
    form = None if how is not None else form_of(call, index, packed=call.packed)
    if form is not None:
        return Routine((PartsProduct(call, module, index, form).write(),), flushes=may_flush(call))
    product = row_dots(call, module, index, single)
    if product is None:
        how = how or arithmetic(left, call.results[0].dtype, call.target, is_grouped=left is right)
        product = Product(call, module, index, how)
    return Routine((product.write(),), flushes=may_flush(call))


def dot_packing(call: Call, module: Module) -> Packing | None:
    """rhs of a product of large enough matrices, packed apart."""
    if is_refused(call) or math.prod(call.results[0].dimensions) == 0:
        return None
    left, right = (shape.dtype for shape in call.operands[:2])
    index = dot_space(call)
    if matrix_arithmetic(call, index) is not None:
        return None
    in_parts = packing(call, module, index)
    if in_parts is not None:
        return in_parts
    single = arithmetic(left, call.results[0].dtype, call.target, is_grouped=False)
    if row_dots(call, module, index, single) is not None:
        return None
    how = arithmetic(left, call.results[0].dtype, call.target, is_grouped=left is right)
    packer = Packer(call, module, index, how)
    return Packing(0 if index.swapped else 1, packer.nbytes, packer.write) if packer.fits() else None


class ScaledProduct(Product):
    """A product whose operands are multiplied by block scales while they are packed."""

    def operands(self) -> tuple[Operand, Operand]:
        return self._scaled(0), self._scaled(1)

    def _scaled(self, number: int) -> Operand:
        plain = self.operand(number)
        shape, scale = self.call.operands[number], self.call.operands[number + 2]
        base = self.pointer(number + 2)
        return Scaled(**vars(plain), shape=shape, scale_shape=scale, scale=base)


@dataclass
class Scaled(Operand):
    """An operand times its block scales (BEY-44)."""

    shape: Shape
    scale_shape: Shape
    scale: str

    @property
    def addresses(self) -> dict[str, str]:
        return {"base": self.base, "scale": self.scale}

    def read(self, place: str, lanes: int, mask: str | None = None) -> list[str]:
        (value,) = super().read(place, lanes, mask)
        scalar = self.arithmetic.packed
        scale = broadcast(self.fn, self._scale(place), scalar, lanes)
        return [self.fn.let(f"fmul {vector(scalar, lanes)} {value}, {scale}")]

    def is_factor(self) -> bool:
        return False

    def goes_by_vectors(self, axis: Axis, lanes: int, *, from_any: bool) -> bool:
        if not super().goes_by_vectors(axis, lanes, from_any=from_any):
            return False
        if self.scale_shape.size <= 1:
            return True
        # a vector's elements must lie in one block
        block = self.shape.dimensions[-1] // self.scale_shape.dimensions[-1]
        return block % lanes == 0 and not from_any

    def _scale(self, place: str) -> str:
        """The scale of one element."""
        fn, offset = self.fn, "0"
        if not self.scale_shape.is_scalar:
            sizes, blocks = self.shape.dimensions, self.scale_shape.dimensions
            strides = row_major_strides(blocks)
            terms: list[str] = []
            for index, size, count, stride in zip(unravelled(fn, place, sizes), sizes, blocks, strides, strict=True):
                block = size // count if count else 1  # of no blocks none is read
                index = index if block == 1 or index == "0" else fn.let(f"udiv i64 {index}, {block}")
                terms.append(scaled(fn, index, stride) if count > 1 else "0")
            offset = added(fn, *terms)
        (scale,) = read(fn, self.module, self.scale_shape.dtype, self.scale, offset, 1, self.arithmetic.packed)
        return scale


def scaled_dot(call: Call, module: Module) -> Routine | None:
    """dot of operands with block scales, in real floating arithmetic."""
    if is_refused(call):
        return None
    if math.prod(call.results[0].dimensions) == 0:
        return no_result(module)
    how = arithmetic(call.operands[0].dtype, call.results[0].dtype, call.target, is_grouped=False)
    if how.name != "float" or how.is_complex:
        return None
    return Routine((ScaledProduct(call, module, dot_space(call), how).write(),), flushes=may_flush(call))


KERNELS["dot"] = dot
PACKERS["dot"] = dot_packing
KERNELS["scaled-dot"] = scaled_dot
