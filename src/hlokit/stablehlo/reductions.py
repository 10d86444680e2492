"""StableHLO's operations that call a region on scalars: reduce, windows, scatter, sort, map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.builder.core import Builder, XlaOp
from hlokit.builder.elementwise import convert_element_type
from hlokit.hlo.computation import Computation
from hlokit.ops.control_flow import Call, Map
from hlokit.ops.reduction import Reduce
from hlokit.ops.scatter import Scatter
from hlokit.ops.sorting import Sort
from hlokit.ops.windows import ReduceWindow, SelectAndScatter
from hlokit.stablehlo import elementwise
from hlokit.stablehlo.site import Rule, Site
from hlokit.types.dtype import DType
from hlokit.types.window import Window

_SCATTER_LISTS = (
    "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "input_batching_dims",
    "scatter_indices_batching_dims",
)  # fmt: skip


def _reduce(site: Site) -> list[XlaOp]:
    values, inits = site.halves()
    if not site.has("applies"):
        values, inits = site.promoted(values), site.promoted(inits)
    reducer = _applied(site, inits) if site.has("applies") else site.reducer(inits)
    result = site.emit(Reduce(site.integers("dimensions")), *values, *inits, called=(reducer,))
    return site.unpacked(result, len(values))


def _applied(site: Site, inits: Sequence[XlaOp]) -> Computation:
    """The short form: `applies stablehlo.add`."""
    name = site.string("applies")
    op_class = elementwise.PLAIN.get(name.partition(".")[2])
    if op_class is None or op_class.arity != 2 or len(inits) != 1:
        raise site.error(f"{site.name}: {name[:60]} is not an operation on two values")
    builder = Builder("region", source_info=False)
    scalars = [builder.parameter(i, inits[0].shape) for i in range(2)]
    return builder.build_computation(builder.emit(op_class(), scalars))


def _reduce_window(site: Site) -> list[XlaOp]:
    values, inits = (site.promoted(half) for half in site.halves())
    sizes = site.integers("window_dimensions")
    window = Window.make(
        sizes,
        site.integers("window_strides", default=()),
        site.pairs("padding", default=()),
        site.integers("base_dilations", default=()),
        site.integers("window_dilations", default=()),
    )
    result = site.emit(ReduceWindow(window), *values, *inits, called=(site.reducer(inits),))
    return site.unpacked(result, len(values))


def _select_and_scatter(site: Site) -> XlaOp:
    operand, source, init = site.exactly(3)
    sizes = site.integers("window_dimensions", default=())
    if len(sizes) != operand.shape.rank:
        raise site.error(f"{site.name}: window_dimensions are {len(sizes)}, the operand has {operand.shape.rank}")
    window = Window.make(sizes, site.integers("window_strides", default=()), site.pairs("padding", default=()))
    select = site.reducer([operand], 0)
    narrow = operand.dtype
    operand, source, init = (site.promoted([value], 1)[0] for value in (operand, source, init))
    if operand.dtype is not narrow:
        select = _of_wider(select, narrow, operand.dtype)
    return site.emit(SelectAndScatter(window), operand, source, init, called=(select, site.reducer([init], 1)))


def _of_wider(comparison: Computation, narrow: DType, wide: DType) -> Computation:
    """A comparison of scalars, for scalars of a wider type that come from the narrow one."""
    builder = Builder("select", source_info=False)
    scalars = [convert_element_type(builder.parameter(i, wide[()]), narrow) for i in range(2)]
    return builder.build_computation(builder.emit(Call(False), scalars, (comparison,)))


def _scatter(site: Site) -> list[XlaOp]:
    count = (len(site.operands) - 1) // 2
    if count < 1 or len(site.operands) != 2 * count + 1:
        raise site.error(f"{site.name} takes N arrays, indices and N updates, found {len(site.operands)} operands")
    arrays = site.promoted(site.operands[:count])
    updates = site.promoted(site.operands[count + 1 :])
    numbers = site.parameters("scatter_dimension_numbers")
    fields: dict[str, Any] = {name: site.as_integers(numbers.get(name, ()), name) for name in _SCATTER_LISTS}
    fields["index_vector_dim"] = site.each_integer([numbers.get("index_vector_dim", 0)], "index_vector_dim")[0]
    fields |= {name: site.boolean(name, default=False) for name in ("indices_are_sorted", "unique_indices")}
    called = (site.reducer(arrays),)
    result = site.emit(Scatter(**fields), *arrays, site.operands[count], *updates, called=called)
    return site.unpacked(result, count)


def _sort(site: Site) -> list[XlaOp]:
    values = site.operands
    site.operand(0)
    dimension = site.integer("dimension", default=-1)
    dimension = values[0].shape.rank - 1 if dimension == -1 else dimension
    scalars = [value.dtype[()] for value in values for _ in range(2) if value.shape.is_array]
    comparator = site.computation(0, scalars, "comparator")
    result = site.emit(Sort(dimension, site.boolean("is_stable", default=False)), *values, called=(comparator,))
    return site.unpacked(result, len(values))


def _map(site: Site) -> XlaOp:
    site.operand(0)
    scalars = [value.dtype[()] for value in site.operands if value.shape.is_array]
    called = (site.computation(0, scalars, "mapped"),)
    return site.emit(Map(site.integers("dimensions")), *site.operands, called=called)


RULES: dict[str, Rule] = {
    "map": _map,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "scatter": _scatter,
    "select_and_scatter": _select_and_scatter,
    "sort": _sort,
}
