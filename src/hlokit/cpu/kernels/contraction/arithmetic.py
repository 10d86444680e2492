"""The arithmetic of a product: types of factors and sums, and the number of products of one instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.amx import INSTRUCTIONS, REGISTER, ROW_BYTES, ROWS
from hlokit.cpu.kernels.contraction.denormals import needs_denormals
from hlokit.cpu.kernels.contraction.split import PRODUCTS
from hlokit.cpu.llvm import I8, I16, I32, I64, Type, Value, type_of
from hlokit.cpu.target import Target
from hlokit.ops.contraction import compute_type
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

FLOAT, DOUBLE = type_of("float"), type_of("double")
_TOTALS = {"float32": FLOAT, "float64": DOUBLE, "complex64": FLOAT, "complex128": DOUBLE}
_DOT_INSTRUCTIONS = {
    "bf16": "llvm.x86.avx512bf16.dpbf16ps.{}",
    "i16": "llvm.x86.avx512.vpdpwssd.{}",
    "i8": "llvm.x86.avx512.vpdpbusd.{}",
}
"""By the arithmetic's name and the bits of a vector. vpdpbusd takes bytes without sign first, with sign second."""


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of a product.

    name       float, int; bf16, i16, i8: those of `group` products at a time, their factors side by side in 32 bits;
               s8, u8: so in AMX
    total      type of the sums
    packed     type of a factor in packed panels
    group      how many steps of the inner axis one multiplication takes
    is_fused   whether the machine has a fused multiply-add
    is_matrix  whether tiles are AMX's
    """

    name: str
    total: Type
    packed: Type
    group: int = 1
    is_complex: bool = False
    is_fused: bool = True
    is_matrix: bool = False

    @property
    def parts(self) -> int:
        return 2 if self.is_complex else 1

    @property
    def unit_bytes(self) -> int:
        """Bytes of what one multiplication takes of one row or column."""
        return self.packed.bytes * self.group * self.parts

    @property
    def total_bytes(self) -> int:
        return self.total.bytes * self.parts

    def lanes(self, target: Target) -> int:
        return target.vector_bytes // self.total.bytes

    def multiplied(self, x: Value, y: Value, total: Value) -> Value:
        """total + x * y in each lane; of groups x is an i32 a lane, y the packed elements."""
        if self.name == "float" and self.is_fused:
            return x.fma(y, total)
        if self.group == 1:
            return total + x * y
        operand = type_of("bfloat" if self.name == "bf16" else self.packed.scalar, total.lanes * self.group)
        name = _DOT_INSTRUCTIONS[self.name].format(total.lanes * 32)
        return total.fn.call_for(total.type, name, total, x.bitcast(operand), y.bitcast(operand))


FUSED = Arithmetic("float", FLOAT, FLOAT)
"""Multiply-adds of f32, one after the other."""


def outer_product(
    multiplied: Callable[[Value, Value, Value], Value],
    left: Iterable[Sequence[Value]],
    right: Sequence[Sequence[Value]],
    sums: Iterable[Value],
) -> list[Value]:
    """The sums with the products of one step: each factor of lhs times each of rhs, row by row.

    multiplied  gives total + x * y, as `Arithmetic.multiplied` does
    left        factors, each of one part, or the two of a complex number; an iterator loads them where a row begins
    right       factors of as many parts
    sums        parts of sums, in the order of the products
    """
    former, found = iter(sums), list[Value]()
    for x in left:
        negative = [-part for part in x[1:]]
        for y in right:
            real = multiplied(x[0], y[0], next(former))
            if not negative:
                found.append(real)
                continue
            found.append(multiplied(negative[0], y[1], real))
            found.append(multiplied(x[1], y[0], multiplied(x[0], y[1], next(former))))
    return found


def arithmetic(operand: DType, result: DType, target: Target, *, is_grouped: bool = True) -> Arithmetic:
    """The arithmetic of sums of products: as op.reference's compute_type, integers in no more than the result keeps."""
    wide = compute_type(operand, result)
    if wide.kind in "iu":
        return _of_integers(operand, result, target, is_grouped=is_grouped)
    total = _TOTALS[wide.name]
    is_bf16 = operand is dtypes.bf16 and total is FLOAT and wide.kind == "f" and not needs_denormals(result)
    # by the CPU's name for speed alone: on Sapphire Rapids vdpbf16ps is slower than converting to f32
    if is_grouped and is_bf16 and _has(target, "avx512bf16") and target.cpu.startswith("znver"):
        return Arithmetic("bf16", FLOAT, I16, 2)
    is_fused = target.has("fma") or target.has("avx512f") or target.arch == "aarch64"
    return Arithmetic("float", total, total, 1, wide.kind == "c", is_fused)


def _of_integers(operand: DType, result: DType, target: Target, *, is_grouped: bool) -> Arithmetic:
    total = I64 if result.bits > 32 else I32
    least = operand.bits if operand.kind == "signed" else 1 if operand.kind == "pred" else operand.bits + 1
    if is_grouped and total is I32 and _has(target, "avx512vnni"):
        if least <= 8:
            return Arithmetic("i8", total, I8, 4)
        if least <= 16:
            return Arithmetic("i16", total, I16, 2)
    return Arithmetic("int", total, total)


def _has(target: Target, feature: str) -> bool:
    return target.vector_bytes == 64 and target.has(feature)


@dataclass(frozen=True)
class AmxFactors:
    """The factors of a product as AMX multiplies them: those of `group` steps of a sum share a lane of 32 bits.

    name       of the operands' type
    memory     type of an element in memory
    parts      bf16 numbers whose sum a factor is (split.py); 1: it is multiplied as it is
    has_least  whether parts can be too small to be multiplied
    """

    name: str
    memory: Type
    parts: int = 1
    group: int = 2
    has_least: bool = False

    @property
    def depth(self) -> int:
        """Steps of a sum in a row of a register."""
        return ROW_BYTES // 4 * self.group

    @property
    def total(self) -> Type:
        return FLOAT if self.group == 2 else I32

    @property
    def instruction(self) -> str:
        """The name of the multiplication, of bytes or of bf16."""
        return INSTRUCTIONS[self.name if self.group == 4 else "bf16"]

    @property
    def products(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Which parts of lhs are multiplied with which of rhs, the small products first."""
        return PRODUCTS[self.parts]

    @property
    def count(self) -> int:
        """Multiplications of parts for one of factors."""
        return sum(map(len, self.products))

    @property
    def block_bytes(self) -> int:
        """Bytes of all parts of `depth` steps, of two registers of rows or columns."""
        return self.parts * 2 * REGISTER

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of factors that are multiplied as they are."""
        return Arithmetic(self.name, self.total, self.memory, self.group, is_matrix=True)

    def number(self, unit: int, own: int) -> int:
        """The step of number `own` in a lane: splitting never moves lanes (split.py)."""
        return unit * self.group + own if self.parts == 1 else unit + own * ROWS


_EXACT_STEPS = 1 << 15
"""Products of bytes whose sum fits an i32, whatever they are."""
_AMX_FLOATS = {
    dtypes.f32: AmxFactors("f32", FLOAT, 3, has_least=True),
    dtypes.f16: AmxFactors("f16", type_of("half"), 2),
    dtypes.bf16: AmxFactors("bf16", I16),
}


def amx_factors(operand: DType, result: DType, steps: int, target: Target) -> AmxFactors | None:
    """The factors of sums of so many products, if the machine has AMX for these types."""
    if target.vector_bytes != ROW_BYTES:  # rows of 16 columns
        return None
    if operand.kind in ("signed", "unsigned", "pred") and operand.bits <= 8:
        # where sums are not to wrap they must fit
        is_right = compute_type(operand, result).kind in "iu" or steps < _EXACT_STEPS
        if not is_right or result.bits > 32 or not target.has("amx-int8"):
            return None
        return AmxFactors("u8" if operand.kind == "unsigned" else "s8", I8, group=4)
    is_float = compute_type(operand, result).name == "float32" and not needs_denormals(operand, result)
    return _AMX_FLOATS.get(operand) if is_float and target.has("amx-bf16") else None


def has_32_registers(target: Target) -> bool:
    """Whether the machine has 32 vector registers, else 16."""
    return target.vector_bytes == 64 or target.arch == "aarch64"


def register_tile(arithmetic: Arithmetic, target: Target) -> tuple[int, int]:
    """Rows and vectors of columns of the largest tile that the registers hold."""
    has_32 = has_32_registers(target)
    if arithmetic.is_complex:
        return (6, 2) if has_32 else (2, 2)
    if arithmetic.name == "int" or not arithmetic.is_fused:
        return (12, 2) if has_32 else (5, 2)
    return (14, 2) if has_32 else (6, 2)
