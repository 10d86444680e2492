"""Legalization: operations without an instruction become functions of the module itself: `legal(module, target)`.

LLVM would call __extendhfsf2 and __truncsfhf2 of the compiler's library, and floor, roundeven, fmaf and the like of
C's: one element at a time, and not every process and linker has them. Only fma of f64 is left to C.
"""

from __future__ import annotations

from functools import cache

from hlokit.cpu.llvm import Definition, Function, Module, Operation, Prototype, Type, Value
from hlokit.cpu.target import Target


def legal(module: Module, target: Target) -> Module:
    """The module with calls in the place of such instructions, and with the functions that they call."""
    lacking = _lacking(target)
    if not lacking:
        return module
    called: dict[Operation, Prototype[Value]] = {}

    def call(operation: Operation) -> Prototype[Value] | None:
        if operation.name not in lacking:
            return None
        if operation not in called:
            of = (operation.result if operation.name == "fpext" else operation.operand).scalar
            name = f"hlokit_{operation.name}_{of}_{operation.operand.lanes}"
            called[operation] = Prototype(name, operation.result)
        return called[operation]

    made = module.map(lambda definition: definition.replacing(call))
    for operation, prototype in called.items():
        made.add(_written(operation, prototype.name))
    return made


def _lacking(target: Target) -> set[str]:
    """The names of Operations that the target has no instruction for."""
    lacking: set[str] = set()
    if target.arch == "x86_64":
        if not target.has("f16c"):
            lacking |= {"fpext", "fptrunc"}
        if not target.has("sse4.1"):
            lacking |= {"roundeven", "floor", "ceil", "trunc"}
        if not (target.has("fma") or target.has("avx512f")):
            lacking.add("fma")
    return lacking


@cache
def _written(operation: Operation, name: str) -> Definition:
    """The function that does it."""
    count = 3 if operation.name == "fma" else 1
    f, operands = _function(name, operation.result, *[operation.operand] * count)
    write = {"fpext": _extended, "fptrunc": _truncated, "fma": _fused}.get(operation.name)
    f.returns(write(f, *operands) if write is not None else _rounded(f, *operands, way=operation.name))
    return f.definition()


def _function(name: str, result: Type, *parameters: Type) -> tuple[Function, list[Value]]:
    """A function that is inlined, and its parameters."""
    names = "xyz"[: len(parameters)]
    f = Function(name, list(zip(parameters, names, strict=True)), result, "alwaysinline")
    return f, [f.argument(parameter) for parameter in names]


def _extended(f: Function, x: Value) -> Value:
    """f16 to f32 or f64, exactly: the exponent moved; of denormals a normal number of the same unit less its power of
    two."""
    bits = x.as_bits().zext(32)
    size = bits & 0x7FFF
    moved = size << 13
    normal = moved + (112 << 23)
    special = normal + (112 << 23)  # infinity and NaN
    large = special.where(size > 0x7BFF, normal)
    small = ((moved + (113 << 23)).as_float() - 2.0**-14).as_bits()
    magnitude = small.where(size < 0x400, large)
    value = (magnitude | ((bits & 0x8000) << 16)).as_float()
    return value if f.result == value.type.text else value.cast("fpext", "double")


def _truncated(f: Function, x: Value) -> Value:
    """f32 to f16, to nearest even; of f16's denormals adding 1/2 rounds, whose last bit is their unit."""
    bits = x.as_bits()
    size = bits & 0x7FFF_FFFF
    odd = (size >> 13) & 1
    normal = (size + (0xFFF - (112 << 23)) + odd) >> 13
    large = f.constant(0x7C00, bits.type).where(size > 0x477F_EFFF, normal)
    high = f.constant(0x7E00, bits.type).where(size > 0x7F80_0000, large)
    small = (size.as_float() + 0.5).as_bits() - 0x3F00_0000
    magnitude = small.where(size < (113 << 23), high)
    return (magnitude | ((bits >> 16) & 0x8000)).trunc(16).as_float()


def _rounded(f: Function, x: Value, way: str) -> Value:
    """To an integral value, with the operand's sign: adding the first power of two without fractions rounds to even."""
    size, least = x.abs(), 2.0 ** (23 if x.bits == 32 else 52)
    given = size if way == "trunc" else x
    power = f.constant(least, x.type).copysign(given)
    near = (given + power) - power
    one = f.constant(1.0, x.type)
    if way == "ceil":
        near = near + one.where(near < given, 0.0)
    elif way != "roundeven":
        near = near - one.where(near > given, 0.0)
    signed = near.copysign(x)
    return x.where(size.compare("uge", least), signed)


def _fused(f: Function, *operands: Value) -> Value:
    """x y + z of f32 in f64, in which the product is exact."""
    x, y, z = (operand.cast("fpext", "double") for operand in operands)
    return (x * y + z).cast("fptrunc", "float")
