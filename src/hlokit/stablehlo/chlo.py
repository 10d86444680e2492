"""CHLO: functions that are composed of HLO ops (with the builder's compositions), and operations that broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlokit.builder import (
    constants,
    contraction,
    elementwise,
    error_functions,
    gamma,
    hyperbolic,
    math,
    movement,
)
from hlokit.builder.core import XlaOp
from hlokit.ops.elementwise import Mulhi
from hlokit.ops.scan import Scan
from hlokit.ops.sorting import TopK
from hlokit.stablehlo.movement import RULES as MOVEMENT
from hlokit.stablehlo.products import precisions
from hlokit.stablehlo.site import Rule, Site
from hlokit.types.dimension_numbers import DotDimensionNumbers, RaggedDotDimensionNumbers
from hlokit.types.shape import UNBOUNDED, Shape

UNARY: dict[str, Callable[[XlaOp], XlaOp]] = {
    "acos": hyperbolic.acos,
    "acosh": hyperbolic.acosh,
    "asin": hyperbolic.asin,
    "asinh": hyperbolic.asinh,
    "atan": hyperbolic.atan,
    "atanh": hyperbolic.atanh,
    "bessel_i1e": error_functions.bessel_i1e,
    "conj": lambda x: elementwise.conj(x) if x.dtype.is_complex else x,
    "cosh": hyperbolic.cosh,
    "digamma": gamma.digamma,
    "erf": elementwise.erf,
    "erf_inv": error_functions.erf_inv,
    "erfc": error_functions.erfc,
    "is_inf": math.is_inf,
    "is_neg_inf": math.is_neg_inf,
    "is_pos_inf": math.is_pos_inf,
    "lgamma": gamma.lgamma,
    "sinh": hyperbolic.sinh,
    "square": math.square,
    "tan": elementwise.tan,
}
BINARY: dict[str, Callable[[XlaOp, XlaOp], XlaOp]] = {
    "next_after": math.next_after,
    "polygamma": gamma.polygamma,
    "zeta": gamma.zeta,
}
BROADCASTING: dict[str, Callable[[XlaOp, XlaOp], XlaOp]] = {
    "add": elementwise.add,
    "and": elementwise.and_,
    "atan2": elementwise.atan2,
    "complex": elementwise.complex,
    "divide": elementwise.div,
    "maximum": elementwise.max,
    "minimum": elementwise.min,
    "multiply": elementwise.mul,
    "next_after": math.next_after,
    "or": elementwise.or_,
    "polygamma": gamma.polygamma,
    "power": elementwise.pow,
    "remainder": elementwise.rem,
    "shift_left": elementwise.shift_left,
    "shift_right_arithmetic": elementwise.shift_right_arithmetic,
    "shift_right_logical": elementwise.shift_right_logical,
    "subtract": elementwise.sub,
    "xor": elementwise.xor,
    "zeta": gamma.zeta,
}
"""chlo.broadcast_NAME."""


def _unary(function: Callable[[XlaOp], XlaOp]) -> Rule:
    def rule(site: Site) -> XlaOp:
        return function(*site.exactly(1))

    return rule


def _binary(function: Callable[[XlaOp, XlaOp], XlaOp]) -> Rule:
    def rule(site: Site) -> XlaOp:
        return function(*site.exactly(2))

    return rule


def _broadcasting(function: Callable[[XlaOp, XlaOp], XlaOp]) -> Rule:
    def rule(site: Site) -> XlaOp:
        lhs, rhs = site.exactly(2)
        return function(*_broadcast(site, lhs, rhs))

    return rule


def _broadcast(site: Site, *operands: XlaOp) -> list[XlaOp]:
    """Operands brought to one shape, as NumPy does; broadcast_dimensions say where the one of lower rank lies."""
    for operand in operands:
        if not operand.shape.is_array or operand.shape.is_unbounded:
            raise site.error(f"{site.name}: {operand.shape} is not an array of known sizes")
    rank = max(operand.rank for operand in operands)
    given = site.integers("broadcast_dimensions", default=()) if site.has("broadcast_dimensions") else None
    places: list[tuple[int, ...]] = []
    for operand in operands:
        trailing = tuple(range(rank - operand.rank, rank))
        places.append(given if given is not None and operand.rank < rank and len(given) == operand.rank else trailing)
    if any(not 0 <= d < rank for dims in places for d in dims):
        raise site.error(f"{site.name}: broadcast_dimensions that do not exist")
    sizes = [1] * rank
    for operand, dims in zip(operands, places, strict=True):
        for size, d in zip(operand.shape.dimensions, dims, strict=True):
            sizes[d] = size if sizes[d] == 1 else sizes[d]
    return [
        o if o.shape.dimensions == tuple(sizes) else movement.broadcast_in_dim(o, sizes, dims)
        for o, dims in zip(operands, places, strict=True)
    ]


def _broadcast_compare(site: Site) -> XlaOp:
    lhs, rhs = _broadcast(site, *site.exactly(2))
    kind = site.word("compare_type", default="NOTYPE")
    is_total = kind == "TOTALORDER" and lhs.dtype.is_floating
    return elementwise.compare(lhs, rhs, (), site.word("comparison_direction"), "TOTALORDER" if is_total else None)


def _broadcast_select(site: Site) -> XlaOp:
    return elementwise.select(*_broadcast(site, *site.exactly(3)))


def _constant_like(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    value: Any = site.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise site.error(f"{site.name}: the value is not a number")
    dtype = site.result().dtype
    if dtype.is_integral and isinstance(value, float):
        raise site.error(f"{site.name}: the value {value} is not of the result's type {dtype}")
    if dtype is not operand.dtype:
        operand = elementwise.convert_element_type(operand, dtype)
    if dtype.is_integral:
        value = int(value) if abs(value) < 2**64 else 0
    return constants.full_like(operand, value)


def _mulhi(site: Site) -> XlaOp:
    return site.emit(Mulhi(), *site.exactly(2))


def _top_k(site: Site) -> list[XlaOp]:
    (operand,) = site.exactly(1)
    return list(site.emit(TopK(site.integer("k"), site.boolean("largest", default=True)), operand))


def _ragged_dot(site: Site) -> XlaOp:
    lhs, rhs, sizes = site.exactly(3)
    given = site.parameters("ragged_dot_dimension_numbers")

    def listed(name: str) -> tuple[int, ...]:
        return site.as_integers(given.get(name, ()), name)

    numbers = RaggedDotDimensionNumbers(
        DotDimensionNumbers(
            listed("lhs_contracting_dimensions"),
            listed("rhs_contracting_dimensions"),
            listed("lhs_batching_dimensions"),
            listed("rhs_batching_dimensions"),
        ),
        listed("lhs_ragged_dimensions"),
        listed("rhs_group_dimensions"),
    )
    return contraction.ragged_dot(lhs, rhs, sizes, numbers, precisions(site) or None, site.result().dtype)


def _scan(site: Site) -> list[XlaOp]:
    """Inputs and initial carries; outputs and last carries. The region takes slices without the dimension."""
    counts = site.integers("operandSegmentSizes")
    if len(counts) != 2 or min(counts) < 0 or sum(counts) != len(site.operands):
        raise site.error(f"{site.name}: operandSegmentSizes are the numbers of inputs and of initial values")
    dimension, results = site.integer("dimension"), site.results
    for operand in site.operands[: counts[0]]:
        if not operand.shape.is_array or not 0 <= dimension < operand.rank:
            raise site.error(f"{site.name}: {operand.shape} has no dimension {dimension}")
    sizes = [o.shape.dimensions for o in site.operands[: counts[0]]]
    if site.has("scan_dim_size"):
        steps = site.integer("scan_dim_size")
        if any(size[dimension] not in (steps, UNBOUNDED) for size in sizes):
            raise site.error(f"{site.name}: scan_dim_size is {steps}, dimension {dimension} has another size")
    slices = [
        Shape.array(o.dtype, (*size[:dimension], *size[dimension + 1 :]))
        for o, size in zip(site.operands, sizes, strict=False)
    ]
    parameters = [*slices, *(o.shape for o in site.operands[counts[0] :])]
    fields: dict[str, Any] = {
        "dimension": dimension,
        "num_carries": counts[1],
        "is_reverse": site.boolean("is_reverse", default=False),
        "is_associative": site.boolean("is_associative", default=False),
        "scan_shape": results[0] if len(results) == 1 else Shape.tuple(results),
    }
    called = (site.computation(0, parameters, "scanned"),)
    return site.unpacked(site.emit(Scan(**fields), *site.operands, called=called), len(results))


RULES: dict[str, Rule] = {
    **{name: _unary(function) for name, function in UNARY.items()},
    **{name: _binary(function) for name, function in BINARY.items()},
    **{f"broadcast_{name}": _broadcasting(function) for name, function in BROADCASTING.items()},
    "broadcast_compare": _broadcast_compare,
    "broadcast_select": _broadcast_select,
    "constant": MOVEMENT["constant"],
    "constant_like": _constant_like,
    "dynamic_reshape": MOVEMENT["dynamic_reshape"],
    "mulhi": _mulhi,
    "ragged_dot": _ragged_dot,
    "scan": _scan,
    "top_k": _top_k,
}
