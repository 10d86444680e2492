"""What a target has no instruction for, as functions of the module itself: `legal(text, target)`.

LLVM would call __extendhfsf2 and __truncsfhf2 of the compiler's library, and floor, roundeven, fmaf and the like of
C's: one element at a time, and not every process and linker has them. Only fma of f64 is left to C.
"""

from __future__ import annotations

import re
from functools import cache

from hlokit.cpu.llvm import float_constant, splat, type_of, vector
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
        full = "_".join(["@hlokit", name, *rest, str(count)])
        functions[full] = _WRITERS[name](full, count, *rest)
        return full

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


def _function(name: str, result: str, parameters: str, body: str) -> str:
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    return f"define internal {result} {name}({parameters}) alwaysinline {{\n{lines}\n}}\n"


@cache
def _extended(name: str, lanes: int, result: str) -> str:
    """f16 to f32 or f64, exactly: the exponent moved; of denormals a normal number of the same unit less its power of
    two."""
    half, i16, i32, float_ = (vector(scalar, lanes) for scalar in ("half", "i16", "i32", "float"))

    def n(value: int) -> str:
        return splat(str(value), "i32", lanes)

    least = splat(float_constant(2.0**-14, "float"), "float", lanes)
    last = f"%result = fpext {float_} %value to {vector('double', lanes)}"
    if result == "float":
        last = f"%result = bitcast {float_} %value to {float_}"
    return _function(name, vector(result, lanes), f"{half} %x", f"""
        %h = bitcast {half} %x to {i16}
        %bits = zext {i16} %h to {i32}
        %size = and {i32} %bits, {n(0x7FFF)}
        %moved = shl {i32} %size, {n(13)}
        %normal = add {i32} %moved, {n(112 << 23)}
        %special = add {i32} %normal, {n(112 << 23)}
        %is_special = icmp sgt {i32} %size, {n(0x7BFF)}
        %large = select {vector("i1", lanes)} %is_special, {i32} %special, {i32} %normal
        %above = add {i32} %moved, {n(113 << 23)}
        %above_value = bitcast {i32} %above to {float_}
        %small_value = fsub {float_} %above_value, {least}
        %small = bitcast {float_} %small_value to {i32}
        %is_small = icmp slt {i32} %size, {n(0x400)}
        %magnitude = select {vector("i1", lanes)} %is_small, {i32} %small, {i32} %large
        %sign = and {i32} %bits, {n(0x8000)}
        %sign_bit = shl {i32} %sign, {n(16)}
        %all = or {i32} %magnitude, %sign_bit
        %value = bitcast {i32} %all to {float_}
        {last}
        ret {vector(result, lanes)} %result""")  # fmt: skip


@cache
def _truncated(name: str, lanes: int) -> str:
    """f32 to f16, to nearest even; of f16's denormals adding 1/2 rounds, whose last bit is their unit."""
    half, i16, i32, float_, i1 = (vector(scalar, lanes) for scalar in ("half", "i16", "i32", "float", "i1"))

    def n(value: int) -> str:
        return splat(str(value), "i32", lanes)

    return _function(name, half, f"{float_} %x", f"""
        %bits = bitcast {float_} %x to {i32}
        %size = and {i32} %bits, {n(0x7FFFFFFF)}
        %kept = lshr {i32} %size, {n(13)}
        %odd = and {i32} %kept, {n(1)}
        %moved = add {i32} %size, {n(0xFFF - (112 << 23))}
        %up = add {i32} %moved, %odd
        %normal = lshr {i32} %up, {n(13)}
        %over = icmp sgt {i32} %size, {n(0x477FEFFF)}
        %large = select {i1} %over, {i32} {n(0x7C00)}, {i32} %normal
        %is_nan = icmp sgt {i32} %size, {n(0x7F800000)}
        %high = select {i1} %is_nan, {i32} {n(0x7E00)}, {i32} %large
        %value = bitcast {i32} %size to {float_}
        %lifted = fadd {float_} %value, {splat(float_constant(0.5, "float"), "float", lanes)}
        %lifted_bits = bitcast {float_} %lifted to {i32}
        %small = sub {i32} %lifted_bits, {n(0x3F000000)}
        %is_small = icmp slt {i32} %size, {n(113 << 23)}
        %magnitude = select {i1} %is_small, {i32} %small, {i32} %high
        %sign = lshr {i32} %bits, {n(16)}
        %sign_bit = and {i32} %sign, {n(0x8000)}
        %all = or {i32} %magnitude, %sign_bit
        %short = trunc {i32} %all to {i16}
        %result = bitcast {i16} %short to {half}
        ret {half} %result""")  # fmt: skip


@cache
def _rounded(name: str, lanes: int, way: str, bits: str) -> str:
    """To an integral value, with the operand's sign: adding the first power of two without fractions rounds to even."""
    scalar = {"32": "float", "64": "double"}[bits]
    type, suffix = vector(scalar, lanes), type_of(scalar, lanes).suffix
    power, one, zero = (
        splat(float_constant(value, scalar), scalar, lanes) for value in (2.0 ** {"32": 23, "64": 52}[bits], 1.0, 0.0)
    )
    step = {
        "roundeven": "%stepped = bitcast TYPE %near to TYPE",
        "floor": "%off = fcmp ogt TYPE %near, %from\n%step = select I1 %off, TYPE ONE, TYPE ZERO\n"
        "%stepped = fsub TYPE %near, %step",
        "ceil": "%off = fcmp olt TYPE %near, %from\n%step = select I1 %off, TYPE ONE, TYPE ZERO\n"
        "%stepped = fadd TYPE %near, %step",
    }
    from_, rule = ("%size", "floor") if way == "trunc" else ("%x", way)
    chosen = step[rule].replace("TYPE", type).replace("I1", vector("i1", lanes))
    chosen = chosen.replace("ONE", one).replace("ZERO", zero).replace("%from", from_)
    return _function(name, type, f"{type} %x", f"""
        %size = call {type} @llvm.fabs.{suffix}({type} %x)
        %power = call {type} @llvm.copysign.{suffix}({type} {power}, {type} {from_})
        %sum = fadd {type} {from_}, %power
        %near = fsub {type} %sum, %power
        {chosen}
        %signed = call {type} @llvm.copysign.{suffix}({type} %stepped, {type} %x)
        %is_whole = fcmp uge {type} %size, {power}
        %result = select {vector("i1", lanes)} %is_whole, {type} %x, {type} %signed
        ret {type} %result""")  # fmt: skip


@cache
def _fused(name: str, lanes: int) -> str:
    """x y + z of f32 in f64, in which the product is exact."""
    float_, double = vector("float", lanes), vector("double", lanes)
    return _function(name, float_, f"{float_} %x, {float_} %y, {float_} %z", f"""
        %a = fpext {float_} %x to {double}
        %b = fpext {float_} %y to {double}
        %c = fpext {float_} %z to {double}
        %product = fmul {double} %a, %b
        %sum = fadd {double} %product, %c
        %result = fptrunc {double} %sum to {float_}
        ret {float_} %result""")  # fmt: skip


_WRITERS = {"extended": _extended, "truncated": _truncated, "rounded": _rounded, "fused": _fused}
