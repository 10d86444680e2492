"""StableHLO's products and linear algebra, random numbers and batch norms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hlokit.builder import einsum as einsums
from hlokit.builder import elementwise, linalg
from hlokit.builder.core import XlaOp
from hlokit.ops.batch_norm import BatchNormGrad, BatchNormInference, BatchNormTraining
from hlokit.ops.contraction import Dot
from hlokit.ops.convolution import Convolution
from hlokit.ops.fourier import Fft
from hlokit.ops.linalg import Cholesky, TriangularSolve
from hlokit.ops.random import Rng, RngGetAndUpdateState
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import DialectAttribute
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.dtype import f32
from hlokit.types.shape import Shape
from hlokit.types.window import Window

_LABELS = re.compile(r"\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]\Z")
_DOT_LISTS = ("lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims")
_CONVOLUTION = {
    "input_batch_dimension": 1, "input_feature_dimension": 1, "input_spatial_dimensions": 0,
    "kernel_input_feature_dimension": 1, "kernel_output_feature_dimension": 1, "kernel_spatial_dimensions": 0,
    "output_batch_dimension": 1, "output_feature_dimension": 1, "output_spatial_dimensions": 0,
}  # fmt: skip
"""The parameters of the convolution's dimension numbers, and whether each is one number or a list."""


def precisions(site: Site) -> tuple[str, ...]:
    """precision_config: of each operand; empty where all are the default."""
    given = site.get("precision_config", "precision", default=[])
    if not isinstance(given, list):
        raise site.error(f"{site.name}: precision_config is not a list")
    words = [v.value if isinstance(v, DialectAttribute) else v for v in given]  # pyright: ignore[reportUnknownVariableType]
    if not all(isinstance(word, str) for word in words):  # pyright: ignore[reportUnknownVariableType]
        raise site.error(f"{site.name}: precision_config is not a list of words")
    if len(words) > 2:  # pyright: ignore[reportUnknownArgumentType]
        raise site.error(f"{site.name}: precision_config has at most 2 elements, found {len(words)}")  # pyright: ignore[reportUnknownArgumentType]
    return tuple(str(word).lower() for word in words)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _dot(site: Site) -> XlaOp:
    """The last dimension of lhs with the first of rhs."""
    lhs, rhs = site.exactly(2)
    if not (lhs.shape.is_array and lhs.rank and rhs.shape.is_array and rhs.rank):
        raise site.error(f"{site.name} takes vectors and matrices")
    return site.emit(Dot((), (lhs.rank - 1,), (), (0,), precisions(site), None, site.result()), lhs, rhs)


def _dot_general(site: Site) -> XlaOp:
    fields: dict[str, Any] = dict(zip(_DOT_LISTS, dot_dimensions(site), strict=True))
    fields |= {"operand_precision": precisions(site), "algorithm": _algorithm(site), "output_shape": site.result()}
    return site.emit(Dot(**fields), *_of_one_type(*site.exactly(2)))


def dot_dimensions(site: Site) -> list[tuple[int, ...]]:
    """Batch and contracting dimensions of lhs, then those of rhs, in either spelling."""
    if site.has("dot_dimension_numbers"):
        given = site.parameters("dot_dimension_numbers")
        names = ("lhs_batching", "lhs_contracting", "rhs_batching", "rhs_contracting")
        return [site.as_integers(given.get(f"{name}_dimensions", ()), name) for name in names]
    batch, contracting = _pair(site, "batching_dims"), _pair(site, "contracting_dims")
    return [batch[0], contracting[0], batch[1], contracting[1]]


def _of_one_type(lhs: XlaOp, rhs: XlaOp) -> tuple[XlaOp, XlaOp]:
    """StableHLO multiplies floating types that differ; HLO's dot wants one type (DOTG-16): one that holds both."""
    types = lhs.shape.dtype, rhs.shape.dtype
    if types[0] == types[1] or not all(t.is_floating for t in types):
        return lhs, rhs
    common = max(*types, f32, key=lambda t: t.bits)
    return elementwise.convert_element_type(lhs, common), elementwise.convert_element_type(rhs, common)


def _pair(site: Site, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """contracting_dims = [1] x [0]."""
    given = site.get(name, default=((), ()))
    if not isinstance(given, tuple) or len(given) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise site.error(f"{site.name}: {name} is [..] x [..]")
    return site.as_integers(given[0], name), site.as_integers(given[1], name)


def _algorithm(site: Site) -> str | None:
    """#stablehlo.dot_algorithm<lhs_precision_type = bf16, ...> by HLO's name, where it has one."""
    if site.get("algorithm", default=None) is None:
        return None
    given = site.parameters("algorithm")
    counts = ("lhs_component_count", "rhs_component_count", "num_primitive_operations")
    numbers = site.each_integer([given.get(name, 1) for name in counts], "algorithm")
    if any(number < 1 for number in numbers):
        raise site.error(f"{site.name}: the counts of an algorithm are positive")
    if numbers[:2] != (1, 1):
        raise site.error(f"{site.name}: no algorithm has operands of several components, found {numbers[:2]}")
    if any(precision != "default" for precision in precisions(site)):
        raise site.error(f"{site.name}: an algorithm and precisions other than the default")

    def named(key: str) -> str:
        value: Any = given.get(key)
        return value.dtype.name if isinstance(value, Shape) and value.is_array else str(value).lower()

    types = [named(f"{key}_type") for key in ("lhs_precision", "rhs_precision", "accumulation")]
    count, fast = given.get("num_primitive_operations", 1), given.get("allow_imprecise_accumulation") is True
    if types[0].startswith("f8"):
        types[:2] = ["any_f8", "any_f8"]
    name = "dot_" + "_".join(types) + (f"_x{count}" if count != 1 else "") + ("_fast_accum" if fast else "")
    field = next(a for a in Dot.attributes if a.name == "algorithm")
    if name not in field.kind.choices:
        raise site.unsupported(f"the algorithm {name}")
    return name


def _convolution(site: Site) -> XlaOp:
    lhs, rhs = site.exactly(2)
    window: Any = site.get("window", default={})
    padding = window.get("pad") if isinstance(window, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    given = site.get("padding", default=padding if padding is not None else ())  # pyright: ignore[reportUnknownArgumentType]
    array = site.as_array(given, "padding")
    if array.ndim == 2 and array.shape[1] != 2:
        raise site.error(f"{site.name}: the padding of a dimension is two numbers, found {array.shape[1]}")
    return convolved(
        site, lhs, rhs, [tuple(map(int, row)) for row in array.reshape(-1, 2)] if array.size % 2 == 0 else []
    )


def convolved(site: Site, lhs: XlaOp, rhs: XlaOp, padding: Sequence[tuple[int, ...]]) -> XlaOp:
    """The convolution whose window and dimension numbers the attributes say, in either spelling."""
    numbers = convolution_numbers(site)
    if lhs.dtype is not rhs.dtype:
        raise site.error(f"{site.name}: element types of lhs and rhs differ: {lhs.dtype} and {rhs.dtype}")
    if not rhs.shape.is_array or any(not 0 <= d < rhs.rank for d in numbers.kernel_spatial_dimensions):
        raise site.error(f"{site.name}: spatial dimensions that the kernel does not have")
    window: Any = site.get("window", default={})

    def spelled(name: str, short: str) -> tuple[int, ...]:
        given = window.get(short, ()) if isinstance(window, dict) else ()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return site.integers(name, default=given)  # pyright: ignore[reportUnknownArgumentType]

    made = Window.make(
        [rhs.shape.dimensions[d] for d in numbers.kernel_spatial_dimensions],
        spelled("window_strides", "stride"),
        [(low, high) for low, high in padding],
        spelled("lhs_dilation", "lhs_dilate"),
        spelled("rhs_dilation", "rhs_dilate"),
        [bool(flag) for flag in spelled("window_reversal", "reverse")],
    )
    fields: dict[str, Any] = {
        "window": made,
        "dim_labels": numbers,
        "feature_group_count": site.integer("feature_group_count", default=1),
        "batch_group_count": site.integer("batch_group_count", default=1),
        "operand_precision": precisions(site),
        "output_shape": site.array_result(),
    }
    return site.emit(Convolution(**fields), lhs, rhs)


def convolution_numbers(site: Site) -> ConvolutionDimensionNumbers:
    """[b, f, 0]x[o, i, 0]->[b, f, 0], or a dictionary of all parameters."""
    given = site.get("dimension_numbers", "dim_numbers")
    given = given.value if isinstance(given, DialectAttribute) else given
    if isinstance(given, dict):
        fields: list[Any] = []
        for name, is_one in _CONVOLUTION.items():
            numbers = site.as_integers(given.get(name, ()), name)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            fields.append((*numbers, 0)[0] if is_one else numbers)
        return ConvolutionDimensionNumbers(*fields)
    found = _LABELS.match(re.sub(r"\s", "", str(given)))
    if found is None:
        raise site.error(f"{site.name}: dimension numbers are [b, f, 0]x[o, i, 0]->[b, f, 0]")
    parts = [found[i].split(",") for i in (1, 2, 3)]
    spatial = len(parts[0]) - 2
    fields = []
    for labels, (first, second) in zip(parts, (("b", "f"), ("i", "o"), ("b", "f")), strict=True):
        wanted = sorted([first, second, *map(str, range(spatial))])
        if sorted(label for label in labels if label != "?") != wanted:
            raise site.error(f"{site.name}: dimension numbers name each dimension once")
        fields += [labels.index(first), labels.index(second), tuple(labels.index(str(i)) for i in range(spatial))]
    return ConvolutionDimensionNumbers(*fields)


def _einsum(site: Site) -> XlaOp:
    lhs, rhs = site.exactly(2)
    wider = site.result().dtype if site.result().dtype is not lhs.dtype else None
    return einsums.einsum(lhs, rhs, site.string("einsum_config", "config"), precisions(site) or None, wider)


def _unary_einsum(site: Site) -> XlaOp:
    """The operand with a scalar one: "ab->b" is "ab,->b"."""
    (operand,) = site.exactly(1)
    inputs, arrow, output = site.string("einsum_config", "config").partition("->")
    if not arrow or not operand.shape.is_array:
        raise site.error(f'{site.name}: a config is "ab->b" or the like')
    one = site.builder.constant(1, operand.dtype)
    return einsums.einsum(operand, one, f"{inputs},->{output}")


def _fft(site: Site) -> XlaOp:
    return site.emit(Fft(site.word("fft_type", "type"), site.integers("fft_length", "length")), *site.exactly(1))


def _cholesky(site: Site) -> XlaOp:
    return site.emit(Cholesky(site.boolean("lower", default=False)), *site.exactly(1))


def _triangular_solve(site: Site) -> XlaOp:
    left, lower, unit = (site.boolean(name) for name in ("left_side", "lower", "unit_diagonal"))
    transpose = site.word("transpose_a")
    if transpose == "TRANSPOSE_INVALID":
        raise site.error(f"{site.name}: transpose_a is not one of NO_TRANSPOSE, TRANSPOSE and ADJOINT")
    return site.emit(TriangularSolve(left, lower, unit, transpose), *site.exactly(2))


def _rng(site: Site) -> XlaOp:
    a, b, sizes = site.exactly(3)
    if not sizes.shape.is_array or sizes.rank != 1:
        raise site.error(f"{site.name}: the sizes are a vector, found {sizes.shape}")
    kinds = {"UNIFORM": "rng_uniform", "NORMAL": "rng_normal"}
    kind = kinds.get(site.word("rng_distribution", "distribution"))
    if kind is None:
        raise site.error(f"{site.name}: the distribution is UNIFORM or NORMAL")
    shape = site.result()
    if shape.is_unbounded:
        shape = Shape.array(shape.dtype, site.known(2, "sizes"))
    known = site.constant(2)
    if known is not None and tuple(known.tolist()) != shape.dimensions:
        raise site.error(f"{site.name}: the sizes are {known.tolist()}, the result is {shape}")
    return site.emit(Rng(kind, shape), a, b)


def _rng_bit_generator(site: Site) -> list[XlaOp]:
    """(new state, bits): HLO makes unsigned integers, which become what is asked for."""
    (state,) = site.exactly(1)
    name = site.word("rng_algorithm", "algorithm").lower()
    shape = site.result(1)
    after, bits = linalg.rng_bit_generator(f"rng_{name}", state, shape)
    return [after, bits if bits.dtype is shape.dtype else elementwise.bitcast_convert_type(bits, shape.dtype)]


def _rng_get_and_update_state(site: Site) -> XlaOp:
    return site.emit(RngGetAndUpdateState(site.integer("delta"), site.array_result()))


def _batch_norm_training(site: Site) -> list[XlaOp]:
    op = BatchNormTraining(site.number("epsilon"), site.integer("feature_index"))
    return list(site.emit(op, *site.exactly(3)))


def _batch_norm_inference(site: Site) -> XlaOp:
    return site.emit(BatchNormInference(site.number("epsilon"), site.integer("feature_index")), *site.exactly(5))


def _batch_norm_grad(site: Site) -> list[XlaOp]:
    return list(site.emit(BatchNormGrad(site.number("epsilon"), site.integer("feature_index")), *site.exactly(5)))


RULES: dict[str, Rule] = {
    "batch_norm_grad": _batch_norm_grad,
    "batch_norm_inference": _batch_norm_inference,
    "batch_norm_training": _batch_norm_training,
    "cholesky": _cholesky,
    "convolution": _convolution,
    "dot": _dot,
    "dot_general": _dot_general,
    "einsum": _einsum,
    "fft": _fft,
    "rng": _rng,
    "rng_bit_generator": _rng_bit_generator,
    "triangular_solve": _triangular_solve,
    "unary_einsum": _unary_einsum,
}

MHLO_RULES: dict[str, Rule] = {"xla.rng_get_and_update_state": _rng_get_and_update_state}
"""mhlo.NAME alone."""
