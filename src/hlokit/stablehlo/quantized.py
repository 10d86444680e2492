"""Operations on quantised values: data movement works on the integers, all else on the numbers that they represent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hlokit.builder.core import XlaOp
from hlokit.stablehlo.quantization import dequantized, quantized, same_but_axis
from hlokit.stablehlo.quantized_checks import check
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import Block, Operation, Quantized, QuantizedTensor, Type
from hlokit.types.shape import Shape

_MOVES = frozenset(
    [
        "all_gather",
        "all_to_all",
        "broadcast",
        "broadcast_in_dim",
        "collective_broadcast",
        "collective_permute",
        "concatenate",
        "dynamic_broadcast_in_dim",
        "dynamic_gather",
        "dynamic_pad",
        "dynamic_reshape",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "pad",
        "real_dynamic_slice",
        "reshape",
        "reverse",
        "slice",
        "torch_index_select",
        "transpose",
    ]
)
"""They give elements of the operands as they are: results have the same scales, but for the number of the axis."""

_HOLDS = frozenset(
    [
        "after_all",
        "all_reduce",
        "bitcast_convert",
        "case",
        "composite",
        "constant",
        "custom_call",
        "get_dimension_size",
        "get_tuple_element",
        "if",
        "infeed",
        "map",
        "optimization_barrier",
        "outfeed",
        "recv",
        "reduce",
        "reduce_scatter",
        "reduce_window",
        "scatter",
        "select_and_scatter",
        "send",
        "set_dimension_size",
        "sort",
        "tuple",
        "while",
    ]
)
"""They pass integers on, or to regions whose operations know what these stand for."""


def lower(site: Site, rule: Rule, given: Sequence[Quantized | None]) -> XlaOp | Sequence[XlaOp]:
    """The results of an operation of which an operand or a result is quantised."""
    check(site, given, elements(site.operation.result_types))
    dialect, _, name = site.name.partition(".")
    if name == "uniform_quantize":
        return _uniform_quantize(site, given)
    if name == "uniform_dequantize":
        return _uniform_dequantize(site, given)
    if name in _HOLDS or dialect not in ("stablehlo", "mhlo", "chlo"):
        _spell_out(site, given)
        return rule(site)
    if name in _MOVES and not _fits_move(site, name, given):
        raise site.error(f"{site.name}: operands and result are quantised in different ways")
    if name in _MOVES or (name == "select" and _is_same(site, given)):
        return rule(site)
    return _on_numbers(site, rule, given)


def elements(types: Sequence[Type]) -> list[Quantized | None]:
    """The quantised element types of these types."""
    return [t.element if isinstance(t, QuantizedTensor) else None for t in types]


def _uniform_quantize(site: Site, given: Sequence[Quantized | None]) -> XlaOp:
    """From floats, or from other integers that stand for numbers."""
    (operand,) = site.exactly(1)
    (target,) = elements(site.operation.result_types)
    if target is None or not (given[0] is not None or operand.dtype.is_floating):
        raise site.error(f"{site.name} takes floats or quantised values, and gives quantised ones")
    number = operand.dtype if given[0] is None else given[0].expressed
    if number is not target.expressed:
        raise site.error(f"{site.name}: the result stands for {target.expressed}, the operand for {number}")
    return quantized(dequantized(operand, given[0]) if given[0] is not None else operand, target)


def _uniform_dequantize(site: Site, given: Sequence[Quantized | None]) -> XlaOp:
    (operand,) = site.exactly(1)
    if given[0] is None:
        raise site.error(f"{site.name} takes quantised values, found {operand.shape}")
    return dequantized(operand, given[0])


def _is_same(site: Site, given: Sequence[Quantized | None]) -> bool:
    found = [e for e in (*given, *elements(site.operation.result_types)) if e is not None]
    return all(same_but_axis(found[0], other) for other in found)


def _fits_move(site: Site, name: str, given: Sequence[Quantized | None]) -> bool:
    """Whether the integers stand for the same numbers where they are moved to."""
    found = [e for e in (*given, *elements(site.operation.result_types)) if e is not None]
    if all(e.axis is None for e in found):
        return _is_same(site, given)
    if len(found) != 2 or found[0].axis is None or found[1].axis is None:
        return False
    source, target = found
    spread = replace(
        source, scales=source.scales * len(target.scales), zero_points=source.zero_points * len(target.scales)
    )
    alike = source if name not in _BROADCASTS or len(source.scales) > 1 else spread
    return same_but_axis(alike, target) and _is_at(site, name, found[0].axis, found[1].axis)


_BROADCASTS = ("broadcast_in_dim", "dynamic_broadcast_in_dim")


def _is_at(site: Site, name: str, axis: int, there: int) -> bool:
    """Whether the operand's dimension `axis` is the result's dimension `there`."""
    if name in _BROADCASTS:
        return site.integers("broadcast_dimensions", "dims")[axis : axis + 1] == (there,)
    if name == "transpose":
        return site.integers("permutation", "dims")[there : there + 1] == (axis,)
    if name not in ("reshape", "dynamic_reshape"):
        return False
    before, after = site.operand(0).shape.dimensions, site.result().dimensions
    return site.result().is_unbounded or math.prod(before[:axis]) == math.prod(after[:there])


def _on_numbers(site: Site, rule: Rule, given: Sequence[Quantized | None]) -> list[XlaOp]:
    """dequantize, the operation on floats, quantize."""
    operation = site.operation
    targets = elements(operation.result_types)
    site.operands = [o if e is None else dequantized(o, e) for o, e in zip(site.operands, given, strict=True)]
    site.operation = replace(operation, operand_types=(), result_types=tuple(map(_expressed, operation.result_types)))
    made = rule(site)
    results = [made] if isinstance(made, XlaOp) else list(made)
    site.operation = operation
    if len(results) != len(targets):
        raise site.error(f"{site.name}: {len(targets)} types for {len(results)} values")
    return [r if e is None else quantized(r, e) for r, e in zip(results, targets, strict=True)]


def _expressed(type: Type) -> Type:
    if not isinstance(type, QuantizedTensor):
        return type
    return Shape.array(type.element.expressed, type.shape.dimensions)


def _spell_out(site: Site, given: Sequence[Quantized | None]) -> None:
    """`applies stablehlo.add` as the region that it is short for, which knows what the integers stand for."""
    name: Any = site.operation.attributes.get("applies")
    if name is None or not given or given[0] is None:
        return
    scalar = QuantizedTensor(site.operand(0).dtype[()], replace(given[0], axis=None))
    if given[0].axis is not None:
        raise site.unsupported("a reduction of values with a scale for each index")
    start = site.operation.start
    body = [
        Operation(str(name), start, [("%2", 1)], ["%0", "%1"], result_types=(scalar,)),
        Operation("stablehlo.return", start, [], ["%2"]),
    ]
    attributes = {k: v for k, v in site.operation.attributes.items() if k != "applies"}
    region = Block([("%0", scalar), ("%1", scalar)], body, start)
    site.operation = replace(site.operation, attributes=attributes, regions=[region])


def _nothing_quantised(site: Site) -> XlaOp:
    """Where it comes to this, neither operand nor result is quantised: else `lower` has done it."""
    raise site.error(f"{site.name}: no type of it is quantised")


RULES: dict[str, Rule] = {"uniform_dequantize": _nothing_quantised, "uniform_quantize": _nothing_quantised}
