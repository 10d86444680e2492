"""Ops that call a computation on scalars: reduce, windows, scatter, sort, map."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.ops.control_flow import Map
from hlokit.ops.reduction import Reduce
from hlokit.ops.scatter import Scatter
from hlokit.ops.sorting import Sort
from hlokit.ops.windows import ReduceWindow, SelectAndScatter
from hlokit.stablehlo.elementwise import PLAIN
from hlokit.stablehlo.printer.movement import numbers_text
from hlokit.stablehlo.printer.site import PrintSite, Rule, Value
from hlokit.stablehlo.printer.spelling import array_text, boolean_text, list_text, matrix_text, results_text, types_text
from hlokit.types.window import WindowDimension

_NAMES = {op_class.opcode: name for name, op_class in PLAIN.items()}
_SCATTER_LISTS = (
    "update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims",
)  # fmt: skip


def _reduce(site: PrintSite) -> list[Value]:
    """`applies stablehlo.add` where the computation is one commutative operation."""
    op = site.instruction.op
    assert isinstance(op, Reduce)
    name = _single(site)
    if name is None:
        properties = {"dimensions": array_text(op.dimensions)}
        return site.generic("stablehlo.reduce", site.operands, properties=properties, regions=[site.region()])
    value, init = site.operands
    head = f"stablehlo.reduce({value.name} init: {init.name}) applies stablehlo.{name} "
    head += f"across dimensions = {list_text(op.dimensions)}"
    types = f"({types_text([value.shape, init.shape])}) -> {results_text(site.leaves)}"
    bound, values = site.into.bind(site.leaves)
    marks = site.marks_text()
    site.into.line(f"{bound}{head}{marks} : {types}{site.location()}")
    return values


def _single(site: PrintSite) -> str | None:
    """The name of the one commutative operation of two scalars that the computation is."""
    computation, operands = site.called[0], site.operands
    root, parameters = computation.root, computation.parameters
    if len(operands) != 2 or len(computation) != 3 or list(root.operands) != parameters or not root.op.commutative:
        return None
    scalars = {p.shape.static for p in parameters} | {operands[0].shape.dtype[()], operands[1].shape.static}
    return _NAMES.get(root.opcode) if len(scalars) == 1 else None


def _reduce_window(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, ReduceWindow)
    window = op.window.dimensions
    if any(d.reversal for d in window):
        raise site.unsupported("a reversed window")
    properties = {
        "base_dilations": array_text([d.base_dilation for d in window]),
        "padding": _padding(window),
        "window_dilations": array_text([d.window_dilation for d in window]),
        "window_dimensions": array_text([d.size for d in window]),
        "window_strides": array_text([d.stride for d in window]),
    }
    return site.generic("stablehlo.reduce_window", site.operands, properties=properties, regions=[site.region()])


def _padding(window: Sequence[WindowDimension]) -> str:
    return matrix_text([(d.padding_low, d.padding_high) for d in window], 2)


def _select_and_scatter(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, SelectAndScatter)
    window = op.window.dimensions
    if any(d.reversal or d.base_dilation != 1 or d.window_dilation != 1 for d in window):
        raise site.unsupported("a window that is dilated or reversed")
    properties = {
        "padding": _padding(window),
        "window_dimensions": array_text([d.size for d in window]),
        "window_strides": array_text([d.stride for d in window]),
    }
    regions = [site.region(0), site.region(1)]
    return site.generic("stablehlo.select_and_scatter", site.operands, properties=properties, regions=regions)


def _scatter(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Scatter)
    properties = {
        "indices_are_sorted": boolean_text(op.indices_are_sorted),
        "scatter_dimension_numbers": numbers_text("scatter", op, _SCATTER_LISTS),
        "unique_indices": boolean_text(op.unique_indices),
    }
    return site.generic("stablehlo.scatter", site.operands, properties=properties, regions=[site.region()])


def _sort(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Sort)
    properties = {"dimension": f"{op.dimension} : i64", "is_stable": boolean_text(op.is_stable)}
    return site.generic("stablehlo.sort", site.operands, properties=properties, regions=[site.region()])


def _map(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Map)
    properties = {"dimensions": array_text(op.dimensions or ())}
    return site.generic("stablehlo.map", site.operands, properties=properties, regions=[site.region()])


RULES: dict[str, Rule] = {
    "map": _map,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
}
