"""Suggested calls, which the builder's errors show for calls that are nearly right or written as in NumPy.

Imported when an error is made. Operands are called x, y and z, in the order of the call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from hlokit.builder import functions
from hlokit.builder.broadcasting import broadcast_sizes
from hlokit.errors import ShapeError
from hlokit.hlo.op import Op
from hlokit.hlo.values import is_sequence
from hlokit.types.dtype import DTYPES, DType, dtype
from hlokit.types.shape import Shape

# -- operands that do not go together


_FUNCTIONS = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "remainder": "rem", "maximum": "max", "minimum": "min",
    "power": "pow", "and": "and_", "or": "or_", "exponential": "exp", "exponential-minus-one": "expm1",
    "log-plus-one": "log1p", "sine": "sin", "cosine": "cos",
}  # fmt: skip
"""The elementwise functions that are named other than their ops."""


def function_of(op: Op) -> str:
    """The name of the function that makes `op`, which is elementwise."""
    direction = getattr(op, "direction", None)
    if direction is None:
        return _FUNCTIONS.get(op.opcode, op.opcode.replace("-", "_"))
    return direction.lower() + ("_total_order" if getattr(op, "type", None) == "TOTALORDER" else "")


def of_two(op: Op, shapes: Sequence[Shape], are_handles: Sequence[bool], dimensions: Any) -> str:
    """The calls that are near the one of `op` with these operands and broadcast_dimensions, and are right.

    are_handles   False for an operand that was given as an array, which the builder made a constant of
    """
    if not all(shape.is_array for shape in shapes):
        return ""
    listed: list[int] = []
    if is_sequence(dimensions) and all(isinstance(d, int) for d in dimensions):
        listed = [*dimensions]
    (x, lhs), (y, rhs) = _of_one_type(shapes, are_handles)
    small, large = (lhs, rhs) if lhs.rank < rhs.rank else (rhs, lhs)
    function = function_of(op)
    calls = [f"hk.{function}({x}, {y}{_last(placed)})" for placed in _placements(small, large)]
    if not calls or (small.rank == large.rank and listed):
        for order, placed in _orders(small, large, listed):
            turned = _turned(small is lhs, x, y, are_handles, order)
            calls.insert(0, f"hk.{function}({turned}{_last(placed)})")
    return " or ".join(calls[:2])


def _turned(first: bool, x: str, y: str, are_handles: Sequence[bool], order: Sequence[int]) -> str:
    """The operands as text, the first or the second one transposed."""
    operand, is_handle = (x, are_handles[0]) if first else (y, are_handles[1])
    turned = f"hk.transpose({operand if is_handle or operand not in 'xy' else f'b.constant({operand})'}, {[*order]})"
    return f"{turned}, {y}" if first else f"{x}, {turned}"


def _of_one_type(shapes: Sequence[Shape], are_handles: Sequence[bool]) -> list[tuple[str, Shape]]:
    """The operands, as text and shapes, all of one element type: that of the only handle, else the greatest."""
    handles = [shape.dtype for shape, is_handle in zip(shapes, are_handles) if is_handle]
    target = max(handles, key=_greatness)
    found: list[tuple[str, Shape]] = []
    for name, shape, is_handle in zip("xyz", shapes, are_handles):
        if shape.dtype is not target:
            name = f"hk.convert_element_type({name}, hk.{target})" if is_handle else f"b.constant({name}, hk.{target})"
        found.append((name, shape.with_dtype(target)))
    return found


def _greatness(element: DType) -> tuple[int, int]:
    return ("pred", "unsigned", "signed", "floating", "complex").index(element.kind), element.bits


def _last(dimensions: Sequence[int]) -> str:
    return f", {[*dimensions]}" if dimensions else ""


def _placements(small: Shape, large: Shape) -> Iterator[tuple[int, ...]]:
    """Places of the dimensions of one shape in another: as far right as possible, as NumPy does it, then left."""
    if small.rank == large.rank or not small.rank:
        if _fit(small, large, ()):
            yield ()
        return
    right = tuple(large.rank - 1 - d for d in _first_fits(small, large, -1))[::-1]
    left = tuple(_first_fits(small, large, 1))
    for found in dict.fromkeys((right, left)):
        if len(found) == small.rank and _fit(small, large, found):
            yield found


def _first_fits(small: Shape, large: Shape, step: int) -> Iterator[int]:
    """The first place, for each size of `small` in this direction, after the last one where `large` has it."""
    places = enumerate(large.dimensions[::step])
    for size in small.dimensions[::step]:
        found = next((d for d, other in places if size in (1, other) or other == 1), None)
        if found is None:
            return
        yield found


def _orders(small: Shape, large: Shape, dimensions: Sequence[int]) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Orders of `small`'s dimensions in which it fits, with the broadcast_dimensions that it has then."""
    if len(dimensions) == small.rank == len({*dimensions}):  # those given, in ascending order
        given = sorted(dimensions) if small.rank < large.rank else []
        order = sorted(range(small.rank), key=lambda i: dimensions[i])
        if order != [*range(small.rank)] and _fit(_transposed(small, order), large, given):
            yield order, given
    elif small.rank == large.rank and sorted(small.dimensions) == sorted(large.dimensions):
        unused, order = [*range(small.rank)], list[int]()
        for size in large.dimensions:
            order.append(next(i for i in unused if small.dimensions[i] == size))
            unused.remove(order[-1])
        if _fit(_transposed(small, order), large, ()):
            yield order, ()


def _transposed(shape: Shape, order: Sequence[int]) -> Shape:
    return Shape.array(shape.dtype, [shape.dimensions[i] for i in order], [shape.dynamic[i] for i in order])


def _fit(small: Shape, large: Shape, dimensions: Sequence[int]) -> bool:
    try:
        broadcast_sizes(small, large, tuple(dimensions))
    except ShapeError:
        return False
    return True


def of_three(function: str, shapes: Sequence[Shape]) -> str:
    """The call of select or clamp with these operands, brought to one shape and their element types; "" if none is."""
    if not all(s.is_array for s in shapes):
        return ""
    sizes = max((s.dimensions for s in shapes), key=len)
    greatest = max((s.dtype for s in shapes[-2:]), key=_greatness)
    arguments: list[str] = []
    for k, (text, shape) in enumerate(zip("xyz", shapes)):
        wanted = DTYPES["pred"] if function == "select" and k == 0 else greatest
        if shape.dtype is not wanted:
            text = f"hk.convert_element_type({text}, hk.{wanted})"
        arguments.append(text if shape.dimensions in ((), sizes) else in_dimensions(text, shape, sizes))
    return f"hk.{function}({', '.join(arguments)})" if all(arguments) else ""


def in_dimensions(x: str, operand: Shape, sizes: Sequence[int]) -> str:
    """The call of broadcast_in_dim that brings x, an array of this shape, to these sizes; "" if none does."""
    if not operand.is_array or operand.rank > len(sizes):
        return ""
    large = Shape.array(operand.dtype, sizes)
    found = range(large.rank) if operand.rank == large.rank else next(_placements(operand, large), None)
    if found is None or any(m not in (1, sizes[d]) for m, d in zip(operand.dimensions, found)):
        return ""
    return f"hk.broadcast_in_dim({x}, {[*sizes]}, {[*found]})"


# -- names of NumPy and JAX

_ALIASES = {
    "absolute": "abs", "fabs": "abs", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "fmod": "rem", "float_power": "pow", "power": "pow", "maximum": "max", "minimum": "min", "fmax": "max",
    "fmin": "min", "arctan2": "atan2", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor",
    "logical_and": "and_", "logical_or": "or_", "logical_xor": "xor", "logical_not": "not_", "bitwise_not": "not_",
    "invert": "not_", "bitwise_invert": "not_", "bitwise_count": "population_count", "left_shift": "shift_left",
    "right_shift": "shift_right_arithmetic", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge", "negative": "neg", "rint": "round_nearest_even", "isfinite": "is_finite",
    "isnan": "is_nan", "isinf": "is_inf", "isneginf": "is_neg_inf", "isposinf": "is_pos_inf", "conjugate": "conj",
    "nextafter": "next_after", "matmul": "dot", "vecdot": "dot", "inner": "dot", "where": "select",
    "sigmoid": "logistic", "concat": "concat_in_dim", "hstack": "concat_in_dim", "vstack": "concat_in_dim",
    "append": "concat_in_dim", "permute_dims": "transpose", "flip": "rev", "clip": "clamp", "tril": "lower_triangle",
    "triu": "upper_triangle", "diagonal": "get_matrix_diagonal", "diag": "get_matrix_diagonal",
    "eye": "identity_matrix", "argmax": "arg_max", "argmin": "arg_min", "take": "torch_index_select",
    "astype": "convert_element_type", "cast": "convert_element_type", "view": "bitcast_convert_type", "amax": "max",
    "amin": "min", "broadcast_to": "broadcast_in_dim", "cond": "conditional", "fori_loop": "while_",
    "psum": "all_reduce", "ppermute": "collective_permute", "dynamic_slice_in_dim": "dynamic_slice",
    "dynamic_update_slice_in_dim": "dynamic_update_slice", "full": "full_like", "ones": "ones_like",
    "while": "while_", "gammaln": "lgamma", "betainc": "regularized_incomplete_beta", "gammainc": "igamma",
    "gammaincc": "igammac", "erfinv": "erf_inv", "i0e": "bessel_i0e", "i1e": "bessel_i1e",
    "solve": "triangular_solve",
}  # fmt: skip
"""Names in NumPy and JAX of functions that have another name here."""


def _axes(shape: Shape) -> list[int]:
    return [*range(shape.rank)]


def _reduction(start: str, function: str) -> Callable[[Shape], str]:
    return lambda shape: f"hk.reduce(x, {start}, hk.{function}, {_axes(shape)})"


def _truth(shape: Shape) -> str:
    return "x" if shape.dtype.kind == "pred" else "hk.ne(x, 0)"


def _number(shape: Shape) -> str:
    return "x" if shape.dtype.kind != "pred" else "hk.convert_element_type(x, hk.s32)"


_METHODS: dict[str, Callable[[Shape], str]] = {
    "sum": lambda shape: f"hk.reduce({_number(shape)}, 0, hk.add, {_axes(shape)})",
    "prod": _reduction("1", "mul"),
    "max": _reduction("hk.min_value(x.builder, x.dtype)", "max"),
    "min": _reduction("hk.max_value(x.builder, x.dtype)", "min"),
    "amax": _reduction("hk.min_value(x.builder, x.dtype)", "max"),
    "amin": _reduction("hk.max_value(x.builder, x.dtype)", "min"),
    "any": lambda shape: f"hk.reduce({_truth(shape)}, False, hk.or_, {_axes(shape)})",
    "all": lambda shape: f"hk.reduce({_truth(shape)}, True, hk.and_, {_axes(shape)})",
    "mean": lambda shape: f"hk.reduce({_number(shape)}, 0, hk.add, {_axes(shape)}) / {shape.size}",
    "argmax": lambda shape: f"hk.arg_max(x, hk.s32, {max(shape.rank - 1, 0)})",
    "argmin": lambda shape: f"hk.arg_min(x, hk.s32, {max(shape.rank - 1, 0)})",
    "sort": lambda shape: "hk.sort(x)",
    "T": lambda shape: f"hk.transpose(x, {_axes(shape)[::-1]})",
    "mT": lambda shape: f"hk.transpose(x, {_axes(shape)[:-2] + _axes(shape)[-2:][::-1]})",
    "transpose": lambda shape: f"hk.transpose(x, {_axes(shape)[::-1]})",
    "ravel": lambda shape: f"hk.reshape(x, [{shape.size}])",
    "flatten": lambda shape: f"hk.reshape(x, [{shape.size}])",
    "squeeze": lambda shape: f"hk.reshape(x, {[n for n in shape.dimensions if n != 1]})",
    "size": lambda shape: "math.prod(x.shape.dimensions)",
    "ndim": lambda shape: "x.rank",
    "itemsize": lambda shape: "x.dtype.numpy.itemsize",
}
"""Calls in place of the methods of NumPy's arrays, for a handle of this shape."""

_VALUES = ("item", "tolist", "numpy", "tobytes", "block_until_ready")
"""Methods that give what is known only when a program has run."""


def no_attribute(shape: Shape, name: str) -> str:
    """The message for `x.name`, of a handle of this shape."""
    message = f"a handle has no attribute {name!r}"
    if name in _VALUES:
        return f"{message}: it has no value before the program runs, which hk.evaluate(b.build(x), ...) does"
    written = method(shape, name)
    return f"{message}: write {written}" if written else message


def method(shape: Shape, name: str) -> str:
    """The call in place of an array's method or NumPy's function of this name, for x of this shape; "" if none."""
    if name in _METHODS and shape.is_array and not shape.is_unbounded:
        return _METHODS[name](shape)
    return _call(name)


def _call(name: str) -> str:
    """The call of the op function that NumPy calls `name`."""
    known = _ALIASES.get(name, name)
    function = getattr(functions, known, None)
    if known.startswith("_") or not inspect.isfunction(function):
        return ""
    return f"hk.{known}({', '.join(_required(function))})"


def _required(function: Callable[..., Any]) -> list[str]:
    """The arguments that a call needs, the operands as x, y and z."""
    found: list[str] = []
    operands = iter("xyz")
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            is_operand = str(parameter.annotation) in ("XlaOp", "Any")
            found.append(next(operands, name) if is_operand else name)
    return found


def no_name(name: str, known: Sequence[str]) -> str:
    """The message for `hk.name`, which is none of the known names."""
    message = f"hlokit has no {name!r}"
    element = _element_type(name)
    if element:
        return f"{message}: write hk.{element}"
    if name in _OTHER:
        return f"{message}: write {_OTHER[name]}"
    if name in _REDUCED:
        return f"{message}: write {_METHODS[_REDUCED[name]](Shape.array(DTYPES['f32'], [2, 3]))} for x of f32[2,3]"
    called = _call(name)
    if called:
        return f"{message}: write {called}"
    close = get_close_matches(name, [k for k in known if not k.startswith("_")], 3, 0.75)
    return f"{message}: did you mean {', '.join(f'hk.{k}' for k in close)}?" if close else message


_OTHER = {
    "array": "b.constant(value, hk.f32)", "asarray": "b.constant(value, hk.f32)",
    "constant": "b.constant(value, hk.f32)", "parameter": "b.parameter(number, shape)",
    "iota": "b.iota(shape, dimension)", "arange": "b.iota(hk.s32, size)", "jit": "hk.compile(module)",
    "run": "hk.evaluate(module, ...)", "ShapeDtypeStruct": "hk.f32[2, 3]",
}  # fmt: skip
_REDUCED = {f"reduce_{name}": name for name in ("sum", "prod", "max", "min")} | {
    "reduce_and": "all", "reduce_or": "any", "sum": "sum", "prod": "prod", "mean": "mean", "all": "all",
}  # fmt: skip


def _element_type(name: str) -> str:
    """The element type that NumPy or ml_dtypes call `name`; "" if they call none so."""
    name = "bool" if name == "bool_" else name
    if not re.match("u?int|b?float|complex|bool|half|single|double", name):
        return ""
    import ml_dtypes  # noqa: F401  # pyright: ignore[reportUnusedImport]  # NumPy knows its names from then on

    try:
        return dtype(name).name
    except ShapeError:
        return ""


def of_shape(given: Any) -> str:
    """The shape that an argument in place of one means; "" if it means none."""
    if isinstance(given, str):
        from hlokit.errors import HlokitError
        from hlokit.text.shapes import parse_shape

        try:
            return written(parse_shape(given))
        except HlokitError:
            return ""
    if is_sequence(given):
        if not all(isinstance(n, int) for n in given):
            return ""
        return f"hk.f32[{', '.join(map(str, given)) or '()'}]"
    try:
        return written(Shape.array(dtype(given.dtype), given.shape))
    except (AttributeError, TypeError, ShapeError):
        return ""


def written(shape: Shape) -> str:
    """The Python that makes this shape; "" for what is not an array of fixed sizes."""
    if not shape.is_array or shape.is_dynamic:
        return ""
    return f"hk.{shape.dtype}[{', '.join(map(str, shape.dimensions)) or '()'}]"
