"""Elementwise ops: most have a StableHLO name in the reader's table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.ops.comparison import Compare
from hlokit.ops.conversion import ReducePrecision
from hlokit.stablehlo.elementwise import ACCURATE, MHLO_ACCURATE, PLAIN
from hlokit.stablehlo.printer.site import PrintSite, Rule, Value
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape


def _plain(name: str) -> Rule:
    def rule(site: PrintSite) -> list[Value]:
        return [site.short(name, site.operands)]

    return rule


def _accurate(name: str) -> Rule:
    def rule(site: PrintSite) -> list[Value]:
        return [site.short(name, site.operands, attributes=_accuracy(site))]

    return rule


def _accuracy(site: PrintSite) -> dict[str, str]:
    """#stablehlo.result_accuracy<...>, where it is not the default."""
    given: Sequence[str] | None = getattr(site.instruction.op, "result_accuracy")  # noqa: B009  # of every accurate op
    if given is None:
        return {}
    mode = f"mode = #stablehlo.result_accuracy_mode<{given[0].upper()}>"
    if given[0] == "tolerance":
        absolute, relative, ulps = given[1:]
        mode = f"atol = {float(absolute):e}, rtol = {float(relative):e}, ulps = {ulps}, {mode}"
    return {"result_accuracy": f"#stablehlo.result_accuracy<{mode}>"}


def same(site: PrintSite) -> Sequence[Value]:
    """The operand itself."""
    return site.states(0)


def _function(name: str) -> Rule:
    """chlo.erf %x : type -> type."""

    def rule(site: PrintSite) -> list[Value]:
        return [site.chlo(name, site.operands)]

    return rule


def _compare(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Compare)
    lhs, rhs = site.operands
    kind = ", TOTALORDER" if op.type == "TOTALORDER" else ""
    return [site.short(f"stablehlo.compare {op.direction},", [lhs, rhs], middle=kind, types="function")]


def _cast(name: str) -> Rule:
    """Operations of which the result's type says what they do."""

    def rule(site: PrintSite) -> list[Value]:
        return [site.short(name, site.operands, types="function")]

    return rule


def cast(site: PrintSite, value: Value, result: Shape | None) -> Value:
    """The value in the element type of `result`; of the instruction, if None."""
    if result is not None and value.shape.dtype is result.dtype:
        return value
    return site.short("stablehlo.convert", [value], result, types="function")


def _bitcast_convert(site: PrintSite) -> list[Value]:
    return [reinterpreted(site, site.operand(), None)]


def reinterpreted(site: PrintSite, value: Value, result: Shape | None) -> Value:
    """The bits of a value under another type; a pred has 8 bits in HLO, one in StableHLO."""
    source, target = value.shape.dtype, (result or site.shape).dtype
    if "pred" in (source.kind, target.kind) and source is not target:
        if target.kind != "pred" and target.is_integral and target.bits == 8:  # 0 or 1
            return site.short("stablehlo.convert", [value], result, types="function")
        raise site.unsupported("the bits of a pred")
    return site.short("stablehlo.bitcast_convert", [value], result, types="function")


def _select(site: PrintSite) -> list[Value]:
    """`pred, type` where both values and the result are of one type."""
    pred, on_true, on_false = site.operands
    return [site.chosen("stablehlo.select", pred, on_true, on_false)]


def _reduce_precision(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, ReducePrecision)
    return [
        site.short(
            "stablehlo.reduce_precision", site.operands, middle=f", format = e{op.exponent_bits}m{op.mantissa_bits}"
        )
    ]


def _exp2(site: PrintSite) -> list[Value]:
    """StableHLO has powers only."""
    (operand,) = site.operands
    two = site.dense("dense<2.0>", operand.shape)
    return [site.short("stablehlo.power", [two, operand])]


def _log2(site: PrintSite) -> list[Value]:
    """The natural logarithm in f64, divided by that of 2."""
    (operand,) = site.operands
    wide = operand.shape.with_dtype(dtypes.f64)
    logarithm = site.short("stablehlo.log", [cast(site, operand, wide)], wide)
    scale = site.dense(f"dense<{math.log2(math.e)!r}>", wide)
    return [cast(site, site.short("stablehlo.multiply", [logarithm, scale], wide), operand.shape)]


RULES: dict[str, Rule] = {
    **{op_class.opcode: _plain(f"stablehlo.{name}") for name, op_class in PLAIN.items()},
    **{op_class.opcode: _accurate(f"stablehlo.{name}") for name, op_class in ACCURATE.items()},
    **{op_class.opcode: _accurate(f"mhlo.{name}") for name, op_class in MHLO_ACCURATE.items()},
    "atan": _function("chlo.atan"),
    "bitcast-convert": _bitcast_convert,
    "clamp": _plain("stablehlo.clamp"),
    "compare": _compare,
    "complex": _cast("stablehlo.complex"),
    "convert": _cast("stablehlo.convert"),
    "copy": same,
    "erf": _function("chlo.erf"),
    "exp2": _exp2,
    "imag": _cast("stablehlo.imag"),
    "is-finite": _cast("stablehlo.is_finite"),
    "log2": _log2,
    "mulhi": _function("chlo.mulhi"),
    "real": _cast("stablehlo.real"),
    "reduce-precision": _reduce_precision,
    "select": _select,
    "stochastic-convert": lambda site: site.generic("mhlo.stochastic_convert", site.operands),
}
