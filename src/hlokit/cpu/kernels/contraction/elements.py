"""Elements of arrays as a product computes with them: read and converted, converted and written, vectors at a time.

A product computes in the register types float, double, i32 and i64; a complex number is a pair of the first two.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hlokit.cpu.llvm import Function, Module, float_constant, memory_type, scalar_type, splat, vector
from hlokit.ops.numerics import float_format
from hlokit.types.dtype import DType, f32

_BYTES = {"float": 4, "double": 8, "half": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}


def size_of(scalar: str) -> int:
    """Bytes of a register type in memory."""
    return _BYTES[scalar]


def mangled(scalar: str, lanes: int) -> str:
    """A type as it stands in the names of intrinsics."""
    name = _SUFFIX.get(scalar, scalar)
    return name if lanes == 1 else f"v{lanes}{name}"


def element_bytes(dtype: DType) -> int:
    """Bytes of an element in memory."""
    return max(1, dtype.bits // 8)


# -- vectors


def lane_numbers(lanes: int, scalar: str = "i64") -> str:
    return "<" + ", ".join(f"{scalar} {i}" for i in range(lanes)) + ">"


def broadcast(fn: Function, value: str, scalar: str, lanes: int) -> str:
    """The scalar in every lane."""
    if lanes == 1:
        return value
    type = vector(scalar, lanes)
    one = fn.let(f"insertelement {type} poison, {scalar} {value}, i64 0")
    return fn.let(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")


def constant_mask(count: int, lanes: int) -> str | None:
    """The first `count` lanes; None for all."""
    if count >= lanes:
        return None
    return "<" + ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(lanes)) + ">"


def first_lanes(fn: Function, count: str, lanes: int, skip: int = 0) -> str:
    """A mask of the lanes i with skip + i < count."""
    if lanes == 1:
        return fn.let(f"icmp sgt i64 {count}, {skip}")
    left = fn.let(f"sub nsw i64 {count}, {skip}") if skip else count
    # in i32 for narrow comparisons; counts are those of a tile
    short = broadcast(fn, fn.let(f"trunc i64 {left} to i32"), "i32", lanes)
    return fn.let(f"icmp slt <{lanes} x i32> {lane_numbers(lanes, 'i32')}, {short}")


def pointer(fn: Function, base: str, offset: str, bytes: int) -> str:
    """The address of element `offset` of elements of so many bytes."""
    return fn.let(f"getelementptr inbounds [{bytes} x i8], ptr {base}, i64 {offset}", "p")


def load(fn: Function, scalar: str, lanes: int, address: str, mask: str | None = None) -> str:
    """Consecutive elements; 0 where the mask is not set."""
    type, align = vector(scalar, lanes), size_of(scalar)
    if mask is None:
        return fn.let(f"load {type}, ptr {address}, align {align}")
    name = f"llvm.masked.load.{mangled(scalar, lanes)}.p0"
    if lanes == 1:
        name, type, one = f"llvm.masked.load.v1{mangled(scalar, 1)}.p0", f"<1 x {scalar}>", mask
        mask = fn.let(f"insertelement <1 x i1> poison, i1 {one}, i64 0")
    operands = f"ptr {address}, i32 {align}, <{lanes} x i1> {mask}, {type} zeroinitializer"
    value = fn.let(f"call {type} @{name}({operands})")
    return fn.let(f"extractelement {type} {value}, i64 0") if lanes == 1 else value


def store(fn: Function, scalar: str, lanes: int, value: str, address: str, mask: str | None = None) -> None:
    """Consecutive elements, those where the mask is set."""
    type, align = vector(scalar, lanes), size_of(scalar)
    if mask is None:
        fn.do(f"store {type} {value}, ptr {address}, align {align}")
        return
    if lanes == 1:
        with fn.when(mask):
            fn.do(f"store {type} {value}, ptr {address}, align {align}")
        return
    name = f"llvm.masked.store.{mangled(scalar, lanes)}.p0"
    fn.do(f"call void @{name}({type} {value}, ptr {address}, i32 {align}, <{lanes} x i1> {mask})")


# -- reading


def read(
    fn: Function, module: Module, dtype: DType, base: str, offset: str, lanes: int, wide: str, mask: str | None = None
) -> list[str]:
    """Elements from `offset` on, converted to the register type `wide`: one value, or a pair for complex numbers."""
    if dtype.is_complex:
        return _read_complex(fn, module, dtype, base, offset, lanes, wide, mask)
    raw = load(fn, memory_type(dtype), lanes, pointer(fn, base, offset, element_bytes(dtype)), mask)
    return [widened(fn, module, dtype, raw, lanes, wide)]


def _read_complex(
    fn: Function, module: Module, dtype: DType, base: str, offset: str, lanes: int, wide: str, mask: str | None
) -> list[str]:
    scalar = scalar_type(dtype.real)
    address = pointer(fn, base, offset, element_bytes(dtype))
    if lanes == 1:
        imaginary = pointer(fn, address, "1", size_of(scalar))
        raw = [load(fn, scalar, 1, address, mask), load(fn, scalar, 1, imaginary, mask)]
    else:
        if mask is not None:
            mask = _twice(fn, mask, lanes)
        both = load(fn, scalar, 2 * lanes, address, mask)
        raw = [_every_second(fn, both, scalar, lanes, part) for part in (0, 1)]
    return [widened(fn, module, dtype.real, part, lanes, wide) for part in raw]


def _twice(fn: Function, mask: str, lanes: int) -> str:
    order = ", ".join(f"i32 {i // 2}" for i in range(2 * lanes))
    return fn.let(f"shufflevector <{lanes} x i1> {mask}, <{lanes} x i1> poison, <{2 * lanes} x i32> <{order}>")


def _every_second(fn: Function, both: str, scalar: str, lanes: int, part: int) -> str:
    order = ", ".join(f"i32 {2 * i + part}" for i in range(lanes))
    type = vector(scalar, 2 * lanes)
    return fn.let(f"shufflevector {type} {both}, {type} poison, <{lanes} x i32> <{order}>")


def widened(fn: Function, module: Module, dtype: DType, raw: str, lanes: int, wide: str) -> str:
    """A value of memory type in the register type that computes; what wraps is cut, what does not fit is rounded."""
    if dtype.is_floating:
        return _widened_float(fn, module, dtype, raw, lanes, wide)
    raw, signed = _whole_byte(fn, dtype, raw, lanes), dtype.kind == "signed"
    source, scalar = vector(memory_type(dtype), lanes), memory_type(dtype)
    if wide in ("float", "double"):
        return fn.let(f"{'sitofp' if signed else 'uitofp'} {source} {raw} to {vector(wide, lanes)}")
    if size_of(scalar) == size_of(wide):
        return raw
    cast = "trunc" if size_of(scalar) > size_of(wide) else "sext" if signed else "zext"
    return fn.let(f"{cast} {source} {raw} to {vector(wide, lanes)}")


def _whole_byte(fn: Function, dtype: DType, raw: str, lanes: int) -> str:
    """Integers below a byte, whose upper bits in memory mean nothing, extended to the byte."""
    if dtype.bits >= 8:
        return raw
    type, shift = vector("i8", lanes), splat(str(8 - dtype.bits), "i8", lanes)
    up = fn.let(f"shl {type} {raw}, {shift}")
    return fn.let(f"{'ashr' if dtype.kind == 'signed' else 'lshr'} {type} {up}, {shift}")


def _widened_float(fn: Function, module: Module, dtype: DType, raw: str, lanes: int, wide: str) -> str:
    scalar = scalar_type(dtype)
    if dtype.name == "bf16":
        bits = fn.let(f"zext {vector('i16', lanes)} {raw} to {vector('i32', lanes)}")
        bits = fn.let(f"shl {vector('i32', lanes)} {bits}, {splat('16', 'i32', lanes)}")
        raw, scalar = fn.let(f"bitcast {vector('i32', lanes)} {bits} to {vector('float', lanes)}"), "float"
    elif dtype.bits <= 8:
        raw, scalar = _looked_up(fn, module, dtype, raw, lanes), "float"
    if scalar == wide:
        return raw
    cast = "fpext" if size_of(scalar) < size_of(wide) else "fptrunc"
    return fn.let(f"{cast} {vector(scalar, lanes)} {raw} to {vector(wide, lanes)}")


@cache
def _values(dtype: DType) -> tuple[float, ...]:
    """The number that each byte stands for."""
    bits = np.arange(256, dtype=np.uint8)
    if dtype.bits < 8:
        bits &= np.uint8((1 << dtype.bits) - 1)
    return tuple(float(v) for v in bits.view(dtype.numpy).astype(np.float32))


def _looked_up(fn: Function, module: Module, dtype: DType, raw: str, lanes: int) -> str:
    table = module.table(f"values_{dtype}", "float", _values(dtype))
    index = fn.let(f"zext {vector('i8', lanes)} {raw} to {vector('i64', lanes)}")
    address = fn.let(f"getelementptr inbounds float, ptr {table}, {vector('i64', lanes)} {index}")
    if lanes == 1:
        return fn.let(f"load float, ptr {address}, align 4")
    every = splat("true", "i1", lanes)
    operands = f"<{lanes} x ptr> {address}, i32 4, <{lanes} x i1> {every}, <{lanes} x float> zeroinitializer"
    return fn.let(f"call <{lanes} x float> @llvm.masked.gather.v{lanes}f32.v{lanes}p0({operands})")


# -- results


def write(fn: Function, dtype: DType, base: str, offset: str, value: str, lanes: int, mask: str | None = None) -> None:
    """A value of register type (complex: interleaved parts) to elements from `offset` on."""
    address = pointer(fn, base, offset, element_bytes(dtype))
    scalar = memory_type(dtype)
    if dtype.kind == "pred":
        value = fn.let(f"zext {vector('i1', lanes)} {value} to {vector('i8', lanes)}")
    elif dtype.is_integral and dtype.bits < 8:
        value = fn.let(f"and {vector('i8', lanes)} {value}, {splat(str((1 << dtype.bits) - 1), 'i8', lanes)}")
    store(fn, scalar, lanes, value, address, mask)


def write_complex(
    fn: Function, dtype: DType, base: str, offset: str, parts: list[str], lanes: int, mask: str | None = None
) -> None:
    """Complex numbers, given by their parts, to elements from `offset` on."""
    scalar = scalar_type(dtype.real)
    address = pointer(fn, base, offset, element_bytes(dtype))
    if lanes == 1:
        store(fn, scalar, 1, parts[0], address, mask)
        store(fn, scalar, 1, parts[1], pointer(fn, address, "1", size_of(scalar)), mask)
        return
    both = interleaved(fn, parts, scalar, lanes)
    store(fn, scalar, 2 * lanes, both, address, None if mask is None else _twice(fn, mask, lanes))


def interleaved(fn: Function, parts: list[str], scalar: str, lanes: int) -> str:
    """Two vectors' lanes in turn."""
    order = ", ".join(f"i32 {i // 2 + lanes * (i % 2)}" for i in range(2 * lanes))
    type = vector(scalar, lanes)
    return fn.let(f"shufflevector {type} {parts[0]}, {type} {parts[1]}, <{2 * lanes} x i32> <{order}>")


def rounded(fn: Function, dtype: DType, value: str, lanes: int, wide: str) -> str:
    """A computed value in the register type of `dtype`: rounded once, saturated, wrapped, or whether it is not zero."""
    type = vector(wide, lanes)
    if wide in ("i32", "i64"):
        return _wrapped(fn, dtype, value, lanes, wide)
    if dtype.kind == "pred":
        return fn.let(f"fcmp une {type} {value}, {splat(float_constant(0.0, wide), wide, lanes)}")
    if dtype.is_integral:
        name = "fptosi" if dtype.is_signed else "fptoui"
        target = vector(f"i{dtype.bits}", lanes)
        suffix = f"{mangled(f'i{dtype.bits}', lanes)}.{mangled(wide, lanes)}"
        whole = fn.let(f"call {target} @llvm.{name}.sat.{suffix}({type} {value})")
        if dtype.bits >= 8:
            return whole
        return fn.let(f"{'sext' if dtype.is_signed else 'zext'} {target} {whole} to {vector('i8', lanes)}")
    if scalar_type(dtype) == wide:
        return value
    if dtype is f32:
        return fn.let(f"fptrunc {type} {value} to {vector('float', lanes)}")
    if dtype.name == "f64":
        return fn.let(f"fpext {type} {value} to {vector('double', lanes)}")
    if wide == "double":
        value = _rounded_to_odd(fn, value, lanes)
    if dtype.name == "f16":
        return fn.let(f"fptrunc {vector('float', lanes)} {value} to {vector('half', lanes)}")
    return _Narrow(fn, dtype, lanes).bits_of(value)


def _wrapped(fn: Function, dtype: DType, value: str, lanes: int, wide: str) -> str:
    scalar = scalar_type(dtype)
    if scalar != wide:
        cast = "trunc" if size_of(scalar) < size_of(wide) else "sext"
        value = fn.let(f"{cast} {vector(wide, lanes)} {value} to {vector(scalar, lanes)}")
    return _whole_byte(fn, dtype, value, lanes)


def _rounded_to_odd(fn: Function, value: str, lanes: int) -> str:
    """f64 as f32 towards zero, its last bit set where inexact: what rounds this further rounds once."""
    double, float, i32 = (vector(t, lanes) for t in ("double", "float", "i32"))
    near = fn.let(f"fptrunc {double} {value} to {float}")
    back = fn.let(f"fpext {float} {near} to {double}")
    inexact = fn.let(f"fcmp one {double} {back}, {value}")
    sizes = [fn.let(f"call {double} @llvm.fabs.{mangled('double', lanes)}({double} {v})") for v in (back, value)]
    above = fn.let(f"fcmp ogt {double} {sizes[0]}, {sizes[1]}")
    bits = fn.let(f"bitcast {float} {near} to {i32}")
    step = fn.let(f"sext {vector('i1', lanes)} {above} to {i32}")
    toward = fn.let(f"add {i32} {bits}, {step}")
    odd = fn.let(f"or {i32} {toward}, {splat('1', 'i32', lanes)}")
    chosen = fn.let(f"select {vector('i1', lanes)} {inexact}, {i32} {odd}, {i32} {bits}")
    return fn.let(f"bitcast {i32} {chosen} to {float}")


class _Narrow:
    """Rounding f32 to a type of 16 bits or less by arithmetic on the bits."""

    def __init__(self, fn: Function, dtype: DType, lanes: int) -> None:
        self.fn, self.dtype, self.lanes = fn, dtype, lanes
        self.i32, self.i1 = vector("i32", lanes), vector("i1", lanes)

    def bits_of(self, value: str) -> str:
        """The nearest value's bits, in i16 for bf16, else i8."""
        bits = self.fn.let(f"bitcast {vector('float', self.lanes)} {value} to {self.i32}")
        if self.dtype.name == "bf16":
            return self._cut(self._bf16(bits), "i16")
        if self.dtype.name == "f8e8m0fnu":
            return self._cut(self._power_of_two(bits), "i8")
        return self._cut(self._small(value, bits), "i8")

    def _cut(self, bits: str, scalar: str) -> str:
        return self.fn.let(f"trunc {self.i32} {bits} to {vector(scalar, self.lanes)}")

    def _op(self, name: str, x: str, y: int | str) -> str:
        y = splat(str(y), "i32", self.lanes) if isinstance(y, int) else y
        return self.fn.let(f"{name} {self.i32} {x}, {y}")

    def _select(self, condition: str, x: int | str, y: int | str) -> str:
        shown = [splat(str(v), "i32", self.lanes) if isinstance(v, int) else v for v in (x, y)]
        return self.fn.let(f"select {self.i1} {condition}, {self.i32} {shown[0]}, {self.i32} {shown[1]}")

    def _nearest(self, bits: str, shift: int) -> str:
        """bits >> shift, rounded to nearest even."""
        last = self._op("and", self._op("lshr", bits, shift), 1)
        return self._op("lshr", self._op("add", self._op("add", bits, (1 << (shift - 1)) - 1), last), shift)

    def _bf16(self, bits: str) -> str:
        size = self._op("and", bits, 0x7FFFFFFF)
        is_nan = self._op("icmp ugt", size, 0x7F800000)
        quiet = self._op("or", self._op("lshr", bits, 16), 0x40)
        return self._select(is_nan, quiet, self._nearest(bits, 16))

    def _power_of_two(self, bits: str) -> str:
        """Exponents alone: the nearest power of two, ties up; NaN, which is 255, for what is not positive."""
        near = self._op("lshr", self._op("add", bits, 0x400000), 23)
        near = self._select(self._op("icmp eq", bits, 0x400000), 0, near)  # 2^-127 itself, a denormal
        is_positive = self._op("icmp sgt", bits, 0)
        return self._select(is_positive, self._select(self._op("icmp ugt", near, 255), 255, near), 255)

    def _small(self, value: str, bits: str) -> str:
        form = _small_format(self.dtype)
        size = self._op("and", bits, 0x7FFFFFFF)
        shift = 23 - form.mantissa
        normal = self._op("sub", self._nearest(size, shift), (form.least + 126) << form.mantissa)
        scaled = self._scaled(value, 2.0 ** (form.mantissa - form.least))
        is_small = self._op("icmp ult", size, (form.least + 127) << 23)
        code = self._select(is_small, scaled, normal)
        code = self._select(self._op("icmp ugt", code, form.greatest), form.overflow, code)
        code = self._select(self._op("icmp ugt", size, 0x7F7FFFFF), form.infinity, code)
        signed = self._op("or", code, self._op("lshr", self._op("and", bits, -(1 << 31)), 32 - self.dtype.bits))
        if form.zero_is_plain:  # no -0: its bits are NaN's
            signed = self._select(self._op("icmp eq", code, 0), 0, signed)
        return self._select(self._op("icmp ugt", size, 0x7F800000), form.nan, signed)

    def _scaled(self, value: str, factor: float) -> str:
        """|value| * factor as the nearest integer, for the denormals."""
        fn, float, name = self.fn, vector("float", self.lanes), mangled("float", self.lanes)
        size = fn.let(f"call {float} @llvm.fabs.{name}({float} {value})")
        scaled = fn.let(f"fmul {float} {size}, {splat(float_constant(factor, 'float'), 'float', self.lanes)}")
        # below 2^23 adding 2^23 leaves the nearest integer in the lowest bits
        least = fn.let(f"fadd {float} {scaled}, {splat(float_constant(2.0**23, 'float'), 'float', self.lanes)}")
        return self._op("and", fn.let(f"bitcast {float} {least} to {self.i32}"), 0x7FFFFF)


class _SmallFormat:
    """What a type of 8 bits or less makes of numbers, as NumPy converts; codes are without the sign."""

    def __init__(self, dtype: DType) -> None:
        format = float_format(dtype.numpy)
        self.mantissa, self.least = format.mantissa_bits, format.least_exponent
        values = np.array(_values(dtype)[: 1 << (dtype.bits - 1)])
        self.greatest = int(np.argmax(np.where(np.isfinite(values), values, -1)))
        specials = np.array([1e30, np.inf, np.nan, -0.0], np.float32).astype(dtype.numpy)
        codes = [int(c) for c in specials.view(np.uint8)]
        self.overflow, self.infinity, self.nan = codes[:3]
        self.zero_is_plain = codes[3] == 0


@cache
def _small_format(dtype: DType) -> _SmallFormat:
    return _SmallFormat(dtype)
