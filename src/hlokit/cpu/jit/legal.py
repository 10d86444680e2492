"""Legalization: operations without an instruction become functions of the module itself: `legal(text, target)`.

LLVM would call __extendhfsf2 and __truncsfhf2 of the compiler's library, and floor, roundeven, fmaf and the like of
C's: one element at a time, and not every process and linker has them. Only fma of f64 is left to C.
"""

from __future__ import annotations

import re
from functools import cache

from hlokit.cpu.llvm import Function, Type, Value, type_of, vector
from hlokit.cpu.target import Target

_EXTENSION = re.compile(r"= fpext (half|<(\d+) x half>) (.+) to (?:<\d+ x )?(float|double)>?$", re.MULTILINE)
_TRUNCATION = re.compile(r"= fptrunc (float|<(\d+) x float>) (.+) to (?:half|<\d+ x half>)$", re.MULTILINE)
_ROUNDING = re.compile(r"@llvm\.(roundeven|floor|ceil|trunc)\.(?:v(\d+))?f(32|64)\(")
_FUSED = re.compile(r"@llvm\.fma\.(?:v(\d+))?f32\(")


def legal(text: str, target: Target) -> str:
    """The LLVM text with calls in the place of such instructions, and with the functions that they call."""
    if target.arch != "x86_64":
        return text
    functions: dict[str, str] = {}

    def named(name: str, lanes: str | None, *rest: str) -> str:
        """The name of the function that does it for so many lanes."""
        count = int(lanes or 1)
        full = "_".join(["hlokit", name, *rest, str(count)])
        functions[full] = _WRITERS[name](full, count, *rest)
        return f"@{full}"

    def call(match: re.Match[str], result: str, name: str, *rest: str) -> str:
        return f"= call {vector(result, int(match[2] or 1))} {named(name, match[2], *rest)}({match[1]} {match[3]})"

    if not target.has("f16c"):
        text = _EXTENSION.sub(lambda m: call(m, m[4], "extended", m[4]), text)
        text = _TRUNCATION.sub(lambda m: call(m, "half", "truncated"), text)
    if not target.has("sse4.1"):
        text = _ROUNDING.sub(lambda m: named("rounded", m[2], m[1], m[3]) + "(", text)
    if not (target.has("fma") or target.has("avx512f")):
        text = _FUSED.sub(lambda m: named("fused", m[1]) + "(", text)
    return "\n".join([text, *functions.values()])


def _function(name: str, result: Type, *parameters: Type) -> tuple[Function, list[Value]]:
    """A function that is inlined, and its parameters."""
    names = "xyz"[: len(parameters)]
    f = Function(name, list(zip(parameters, names, strict=True)), result, "alwaysinline")
    return f, [f.argument(parameter) for parameter in names]


@cache
def _extended(name: str, lanes: int, result: str) -> str:
    """f16 to f32 or f64, exactly: the exponent moved; of denormals a normal number of the same unit less its power of
    two."""
    f, (x,) = _function(name, type_of(result, lanes), type_of("half", lanes))
    bits = x.as_bits().zext(32)
    size = bits & 0x7FFF
    moved = size << 13
    normal = moved + (112 << 23)
    special = normal + (112 << 23)  # infinity and NaN
    large = special.where(size > 0x7BFF, normal)
    small = ((moved + (113 << 23)).as_float() - 2.0**-14).as_bits()
    magnitude = small.where(size < 0x400, large)
    value = (magnitude | ((bits & 0x8000) << 16)).as_float()
    f.returns(value if result == "float" else value.cast("fpext", "double"))
    return f.text()


@cache
def _truncated(name: str, lanes: int) -> str:
    """f32 to f16, to nearest even; of f16's denormals adding 1/2 rounds, whose last bit is their unit."""
    f, (x,) = _function(name, type_of("half", lanes), type_of("float", lanes))
    bits = x.as_bits()
    size = bits & 0x7FFF_FFFF
    odd = (size >> 13) & 1
    normal = (size + (0xFFF - (112 << 23)) + odd) >> 13
    large = f.constant(0x7C00, bits.type).where(size > 0x477F_EFFF, normal)
    high = f.constant(0x7E00, bits.type).where(size > 0x7F80_0000, large)
    small = (size.as_float() + 0.5).as_bits() - 0x3F00_0000
    magnitude = small.where(size < (113 << 23), high)
    f.returns((magnitude | ((bits >> 16) & 0x8000)).trunc(16).as_float())
    return f.text()


@cache
def _rounded(name: str, lanes: int, way: str, bits: str) -> str:
    """To an integral value, with the operand's sign: adding the first power of two without fractions rounds to even."""
    type = type_of({"32": "float", "64": "double"}[bits], lanes)
    f, (x,) = _function(name, type, type)
    size, least = x.abs(), 2.0 ** {"32": 23, "64": 52}[bits]
    given = size if way == "trunc" else x
    power = f.constant(least, type).copysign(given)
    near = (given + power) - power
    one = f.constant(1.0, type)
    if way == "ceil":
        near = near + one.where(near < given, 0.0)
    elif way != "roundeven":
        near = near - one.where(near > given, 0.0)
    signed = near.copysign(x)
    f.returns(x.where(size.compare("uge", least), signed))
    return f.text()


@cache
def _fused(name: str, lanes: int) -> str:
    """x y + z of f32 in f64, in which the product is exact."""
    single = type_of("float", lanes)
    f, operands = _function(name, single, single, single, single)
    a, b, c = (x.cast("fpext", "double") for x in operands)
    f.returns((a * b + c).cast("fptrunc", "float"))
    return f.text()


_WRITERS = {"extended": _extended, "truncated": _truncated, "rounded": _rounded, "fused": _fused}
