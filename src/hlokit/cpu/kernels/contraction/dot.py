"""Plain products and those with block scales: which arithmetic, which way."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.denormals import may_flush, needs_denormals
from hlokit.cpu.kernels.contraction.elements import broadcast, read, size_of
from hlokit.cpu.kernels.contraction.gemm import Packer, Product
from hlokit.cpu.kernels.contraction.packing import Operand
from hlokit.cpu.kernels.contraction.parts import PartsProduct, form_of, packing
from hlokit.cpu.kernels.contraction.row_dots import row_dots
from hlokit.cpu.kernels.contraction.space import (
    Axis,
    Space,
    added,
    product_space,
    row_major_strides,
    scaled,
    unravelled,
)
from hlokit.cpu.kernels.contraction.tile import Arithmetic
from hlokit.cpu.kernels.routine import Call, Packing, Routine
from hlokit.cpu.llvm import Module, vector
from hlokit.cpu.target import Target
from hlokit.forms.contraction import Contraction
from hlokit.ops.contraction import compute_type
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


def dot(call: Call, module: Module, form: Contraction) -> Routine:
    """Products of any shapes and types."""
    left, right = (shape.dtype for shape in call.operands[:2])
    index = product_space(form, call.operands, call.results[0])
    single = arithmetic(left, call.results[0].dtype, call.target, is_grouped=False)
    how = matrix_arithmetic(call, index)
    split = None if how is not None else form_of(call, index, packed=call.packed)
    if split is not None:
        return Routine((PartsProduct(call, module, index, split).write(),), flushes=may_flush(call))
    product = row_dots(call, module, index, single)
    if product is None:
        how = how or arithmetic(left, call.results[0].dtype, call.target, is_grouped=left is right)
        product = Product(call, module, index, how)
    return Routine((product.write(),), flushes=may_flush(call))


def dot_packing(call: Call, module: Module, form: Contraction) -> Packing | None:
    """rhs of a product of large enough matrices, packed apart."""
    left, right = (shape.dtype for shape in call.operands[:2])
    index = product_space(form, call.operands, call.results[0])
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


def scaled_dot(call: Call, module: Module, form: Contraction) -> Routine | None:
    """A product of operands with block scales, in real floating arithmetic."""
    how = arithmetic(call.operands[0].dtype, call.results[0].dtype, call.target, is_grouped=False)
    if how.name != "float" or how.is_complex:
        return None
    index = product_space(form, call.operands, call.results[0])
    return Routine((ScaledProduct(call, module, index, how).write(),), flushes=may_flush(call))
