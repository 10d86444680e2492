"""Elements between memory and the wide type that products are summed in; conversions for any number of lanes."""

from __future__ import annotations

import numpy as np

from hlokit.cpu.llvm import Function, Module, float_constant, memory_type, scalar_type, splat, vector
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType


def sum_type(operand: DType, result: DType) -> DType:
    """What products are summed in: f32 or wider, complex of it, integers of the result's width (they wrap alike)."""
    if result.is_complex or operand.is_complex:
        is_double = dtypes.c128 in (operand, result)
        return dtypes.c128 if is_double else dtypes.c64
    if operand.is_floating or result.is_floating:
        return dtypes.f64 if dtypes.f64 in (operand, result) else dtypes.f32
    if result.kind == "pred":
        return dtypes.f32
    return dtypes.s64 if result.bits == 64 else dtypes.s32


def widened(f: Function, module: Module, value: str, dtype: DType, wide: DType, lanes: int = 1) -> str:
    """Elements as they lie in memory (`memory_type`), no complex ones, as f32, f64, s32 or s64."""
    of, to = vector(memory_type(dtype), lanes), vector(scalar_type(wide), lanes)
    if of == to and not (dtype.is_integral and wide.is_floating):
        return value
    if dtype.is_floating:
        return _widened_float(f, module, value, dtype, wide, lanes)
    if dtype.bits < 8:
        narrow = vector(f"i{dtype.bits}", lanes)
        value, of = f.let(f"trunc {of} {value} to {narrow}"), narrow
    signed = dtype.kind == "signed"
    if wide.is_floating:
        return f.let(f"{'sitofp' if signed else 'uitofp'} {of} {value} to {to}")
    if dtype.bits > wide.bits:
        return f.let(f"trunc {of} {value} to {to}")
    return f.let(f"{'sext' if signed else 'zext'} {of} {value} to {to}")


def _widened_float(f: Function, module: Module, value: str, dtype: DType, wide: DType, lanes: int) -> str:
    to = vector(scalar_type(wide), lanes)
    single = vector("float", lanes)
    if dtype is dtypes.f64:
        return f.let(f"fptrunc {vector('double', lanes)} {value} to {single}")
    if dtype is dtypes.bf16:
        bits = f.let(f"zext {vector('i16', lanes)} {value} to {vector('i32', lanes)}")
        bits = f.let(f"shl {vector('i32', lanes)} {bits}, {splat('16', 'i32', lanes)}")
        value = f.let(f"bitcast {vector('i32', lanes)} {bits} to {single}")
    elif dtype.bits < 16:
        value = _looked_up(f, module, value, dtype, lanes)
    elif dtype is dtypes.f16:
        return f.let(f"fpext {vector('half', lanes)} {value} to {to}")
    return value if to == single else f.let(f"fpext {single} {value} to {to}")


def _looked_up(f: Function, module: Module, value: str, dtype: DType, lanes: int) -> str:
    """f32 of a float of 8 bits or less, from a table of all of them."""
    codes = np.arange(256, dtype=np.uint8) & ((1 << dtype.bits) - 1)
    table = module.table(f"values_{dtype.name}", "i32", codes.view(dtype.numpy).astype(np.float32).view(np.uint32))
    index = f.let(f"zext {vector('i8', lanes)} {value} to {vector('i64', lanes)}")
    place = f.let(f"getelementptr float, ptr {table}, {vector('i64', lanes)} {index}")
    if lanes == 1:
        return f.let(f"load float, ptr {place}, align 4")
    kind, every = f"<{lanes} x float>", f"<{lanes} x i1> {splat('true', 'i1', lanes)}"
    call = f"@llvm.masked.gather.v{lanes}f32.v{lanes}p0"
    return f.let(f"call {kind} {call}(<{lanes} x ptr> {place}, i32 4, {every}, {kind} poison)")


def narrowed(f: Function, module: Module, value: str, wide: DType, dtype: DType, lanes: int = 1) -> str:
    """A sum in f32, f64, s32 or s64, in the register type of the result's (real) element type: rounded once."""
    of, to = vector(scalar_type(wide), lanes), vector(scalar_type(dtype), lanes)
    if dtype.kind == "pred":
        if wide.is_floating:
            return f.let(f"fcmp une {of} {value}, {splat('0.0', scalar_type(wide), lanes)}")
        return f.let(f"icmp ne {of} {value}, {splat('0', scalar_type(wide), lanes)}")
    if dtype.is_integral:
        return _narrowed_to_integer(f, value, wide, dtype, lanes)
    if dtype.bits == 64:
        return value
    if dtype is dtypes.f32:
        return value if wide is dtypes.f32 else f.let(f"fptrunc {of} {value} to {to}")
    if wide is dtypes.f64:
        value = _rounded_to_odd(f, value, lanes)
    if dtype is dtypes.f16:
        return f.let(f"fptrunc {vector('float', lanes)} {value} to {to}")
    if dtype is dtypes.bf16:
        return _bf16(f, value, lanes)
    return _small_float(f, module, value, dtype, lanes)


def _narrowed_to_integer(f: Function, value: str, wide: DType, dtype: DType, lanes: int) -> str:
    of, to = vector(scalar_type(wide), lanes), vector(scalar_type(dtype), lanes)
    exact = vector(f"i{dtype.bits}", lanes)
    signed = dtype.kind == "signed"
    if wide.is_floating:
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{_suffix(exact)}.{_suffix(of)}"
        value = f.let(f"call {exact} @{name}({of} {value})")
    elif of != exact:
        value = f.let(f"trunc {of} {value} to {exact}")
    return value if exact == to else f.let(f"{'sext' if signed else 'zext'} {exact} {value} to {to}")


def _suffix(type: str) -> str:
    """A type as intrinsics' names have it."""
    short = {"float": "f32", "double": "f64"}
    if not type.startswith("<"):
        return short.get(type, type)
    lanes, scalar = type[1:-1].split(" x ")
    return f"v{lanes}{short.get(scalar, scalar)}"


def _rounded_to_odd(f: Function, value: str, lanes: int) -> str:
    """f64 to f32, towards zero with the last bit set where inexact: rounding this to a narrower type rounds once."""
    double, single, bits = vector("double", lanes), vector("float", lanes), vector("i32", lanes)
    rounded = f.let(f"fptrunc {double} {value} to {single}")
    back = f.let(f"fpext {single} {rounded} to {double}")
    inexact = f.let(f"fcmp one {double} {back}, {value}")
    sizes = [f.let(f"call {double} @llvm.fabs.{_suffix(double)}({double} {x})") for x in (back, value)]
    above = f.let(f"fcmp ogt {double} {sizes[0]}, {sizes[1]}")
    image = f.let(f"bitcast {single} {rounded} to {bits}")
    step = f.let(f"zext {vector('i1', lanes)} {above} to {bits}")
    odd = f.let(f"zext {vector('i1', lanes)} {inexact} to {bits}")
    down = f.let(f"sub {bits} {image}, {step}")
    image = f.let(f"or {bits} {down}, {odd}")
    return f.let(f"bitcast {bits} {image} to {single}")


def _bf16(f: Function, value: str, lanes: int) -> str:
    """The bits of an f32 rounded to nearest even."""
    bits, half = vector("i32", lanes), vector("i16", lanes)

    def const(number: int) -> str:
        return splat(str(number), "i32", lanes)

    image = f.let(f"bitcast {vector('float', lanes)} {value} to {bits}")
    upper = f.let(f"lshr {bits} {image}, {const(16)}")
    last = f.let(f"and {bits} {upper}, {const(1)}")
    bias = f.let(f"add {bits} {last}, {const(0x7FFF)}")
    image = f.let(f"add {bits} {image}, {bias}")
    near = f.let(f"lshr {bits} {image}, {const(16)}")
    quiet = f.let(f"or {bits} {upper}, {const(0x40)}")
    is_nan = f.let(f"fcmp uno {vector('float', lanes)} {value}, {value}")
    chosen = f.let(f"select {vector('i1', lanes)} {is_nan}, {bits} {quiet}, {bits} {near}")
    return f.let(f"trunc {bits} {chosen} to {half}")


def _small_float(f: Function, module: Module, value: str, dtype: DType, lanes: int) -> str:
    """A float of 8 bits or less: the number of thresholds that the magnitude reaches is its code (binary search)."""
    if lanes > 1:
        result = "poison"
        for i in range(lanes):
            lane = f.let(f"extractelement <{lanes} x float> {value}, i32 {i}")
            code = _small_float(f, module, lane, dtype, 1)
            result = f.let(f"insertelement <{lanes} x i8> {result}, i8 {code}, i32 {i}")
        return result
    starts, codes = _thresholds(dtype)
    count = len(starts)
    thresholds = module.table(f"thresholds_{dtype.name}", "i32", starts)
    table = module.table(f"codes_{dtype.name}", "i8", codes)
    image = f.let(f"bitcast float {value} to i32")
    place = "0"
    step = 1 << (count - 1).bit_length()
    while step:
        following = f.let(f"add i32 {place}, {step}")
        inside = f.let(f"icmp ult i32 {following}, {count}")
        safe = f.let(f"select i1 {inside}, i32 {following}, i32 0")
        threshold = f.let(f"load i32, ptr {f.let(f'getelementptr i32, ptr {thresholds}, i32 {safe}')}, align 4")
        reached = f.let(f"icmp uge i32 {image}, {threshold}")
        up = f.let(f"and i1 {inside}, {reached}")
        place = f.let(f"select i1 {up}, i32 {following}, i32 {place}")
        step >>= 1
    return f.let(f"load i8, ptr {f.let(f'getelementptr i8, ptr {table}, i32 {place}')}, align 1")


def _thresholds(dtype: DType) -> tuple[list[int], list[int]]:
    """Where, in the order of f32's bits, the code of the rounded value changes, and the codes from there on."""

    def code(images: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return images.astype(np.uint32).view(np.float32).astype(dtype.numpy).view(np.uint8).astype(np.int64)

    with np.errstate(all="ignore"):
        values = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    finite = np.unique(np.abs(values[np.isfinite(values)]).astype(np.float64))
    above = finite[-1] + (finite[-1] - finite[-2]) / 2
    middles = np.concatenate([[0.0, finite[0] / 2], (finite[1:] + finite[:-1]) / 2, finite, [above, finite[-1] * 1.5]])
    with np.errstate(all="ignore"):
        near = np.concatenate([middles, [np.inf]]).astype(np.float32).view(np.uint32).astype(np.int64)
    probes = np.concatenate([near - 1, near, near + 1, [0x7F800001, 0x7FFFFFFF]])
    probes = np.unique(np.clip(probes, 0, 0x7FFFFFFF))
    probes = np.concatenate([probes, probes + 0x80000000])
    found = code(probes)
    changes = np.concatenate([[True], found[1:] != found[:-1]])
    return [int(p) for p in probes[changes]], [int(c) for c in found[changes]]


def zero(wide: DType) -> str:
    """0 of a sum's type, as LLVM spells it."""
    return float_constant(0.0, scalar_type(wide)) if wide.is_floating else "0"
