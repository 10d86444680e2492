"""Custom calls whose sizes are operands, which JAX uses where StableHLO has no operation with such sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hlokit.builder import elementwise, linalg
from hlokit.builder.core import XlaOp
from hlokit.ops.sorting import TopK
from hlokit.ops.windows import ReduceWindow
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import Symbol
from hlokit.types.shape import Shape
from hlokit.types.window import Window

_SHAPES = "indices_of_shape_operands"


def refined(site: Site) -> tuple[list[Shape], list[XlaOp]]:
    """(shapes of the results, operands): the operands that only give the results' sizes are taken out."""
    shapes = site.results
    if not site.has(_SHAPES):
        return shapes, site.operands
    numbers = site.integers(_SHAPES)
    if len(numbers) != len(shapes) or not all(0 <= i < len(site.operands) for i in numbers):
        raise site.error(f"{site.name}: {_SHAPES} name an operand for each result")
    found = [known_shape(site, shape, i) for shape, i in zip(shapes, numbers, strict=True)]
    kept = [i for i in range(len(site.operands)) if i not in numbers]
    attributes = dict(site.operation.attributes)
    layouts: Any = attributes.get("operand_layouts")
    if isinstance(layouts, list):
        attributes["operand_layouts"] = [layouts[i] for i in kept if i < len(layouts)]  # pyright: ignore[reportUnknownArgumentType]
    site.operation = replace(site.operation, attributes=attributes)
    return found, [site.operands[i] for i in kept]


def known_shape(site: Site, written: Shape, index: int) -> Shape:
    """The sizes that an operand gives, checked against the type that is written."""
    sizes = site.known(index, "sizes")
    if not written.is_array or len(sizes) != written.rank:
        raise site.error(f"{site.name}: {len(sizes)} sizes for {written}")
    return Shape.array(written.dtype, sizes)


def _dynamic_top_k(site: Site) -> list[XlaOp]:
    operand, _ = site.exactly(2)
    return list(site.emit(TopK(site.known(1, "numbers of results")[0], True), operand))


def _dynamic_reduce_window(site: Site) -> list[XlaOp]:
    """N arrays, N initial values, then sizes, strides, dilations of base and window, and padding."""
    count = (len(site.operands) - 5) // 2
    if count < 1 or len(site.operands) != 2 * count + 5:
        raise site.error(f"{site.name} takes N arrays, N initial values and 5 lists")
    arrays, inits = site.operands[:count], site.operands[count : 2 * count]
    lists = [site.known(2 * count + i, "windows") for i in range(5)]
    padding = [(lists[4][i], lists[4][i + 1]) for i in range(0, len(lists[4]) - 1, 2)]
    window = Window.make(lists[0], lists[1], padding, lists[2], lists[3])
    called: Any = site.get("called_computations")
    if not isinstance(called, list) or len(called) != 1 or not isinstance(called[0], Symbol):  # pyright: ignore[reportUnknownArgumentType]
        raise site.error(f"{site.name}: called_computations are one @symbol")
    scalars = [init.shape for init in inits]
    reducer = site.scope.lowering.function(called[0].name, [*scalars, *scalars], site.operation.start)
    return site.unpacked(site.emit(ReduceWindow(window), *arrays, *inits, called=(reducer,)), count)


def _dynamic_rng_bit_generator(site: Site) -> list[XlaOp]:
    """(new state, bits)."""
    state, _ = site.exactly(2)
    shape = known_shape(site, site.result(1), 1)
    after, bits = linalg.rng_bit_generator(f"rng_{site.word('rng_algorithm').lower()}", state, shape)
    return [after, bits if bits.dtype is shape.dtype else elementwise.bitcast_convert_type(bits, shape.dtype)]


CUSTOM_CALLS: dict[str, Rule] = {
    "stablehlo.dynamic_reduce_window": _dynamic_reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _dynamic_rng_bit_generator,
    "stablehlo.dynamic_top_k": _dynamic_top_k,
}
