"""Products and linear algebra, random numbers and batch norms."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlokit.ops.batch_norm import BatchNorm
from hlokit.ops.contraction import Dot, ScaledDot, compute_type
from hlokit.ops.convolution import Convolution
from hlokit.ops.fourier import Fft
from hlokit.ops.linalg import Cholesky, TriangularSolve
from hlokit.ops.ragged_dot import RaggedDot
from hlokit.ops.random import Rng, RngBitGenerator, RngGetAndUpdateState
from hlokit.ops.sorting import TopK
from hlokit.stablehlo.printer.elementwise import cast
from hlokit.stablehlo.printer.site import PrintSite, Rule, Value
from hlokit.stablehlo.printer.spelling import boolean_text, list_text, type_text, types_text
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_ALGORITHM = re.compile(r"dot_(any_f8|[a-z0-9]+)_(any_f8|[a-z0-9]+)_([a-z0-9]+?)(?:_x([0-9]+))?(_fast_accum)?\Z")
_PRECISIONS = ("default", "high", "highest")


def _precisions(site: PrintSite, given: Sequence[str]) -> list[str]:
    """DEFAULT, HIGH or HIGHEST for each operand; none where all are the default."""
    if any(word not in _PRECISIONS for word in given):
        raise site.unsupported(f"the precision {' '.join(given)}")
    return [word.upper() for word in given] if any(word != "default" for word in given) else []


def _dot(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Dot)
    return [site.short("stablehlo.dot_general", site.operands, middle=_dot_numbers(site, op), types="function")]


def _dot_numbers(site: PrintSite, op: Dot | ScaledDot) -> str:
    """Dimension numbers, precision and algorithm."""
    middle = ""
    if op.lhs_batch_dims:
        middle += f", batching_dims = {list_text(op.lhs_batch_dims)} x {list_text(op.rhs_batch_dims)}"
    middle += f", contracting_dims = {list_text(op.lhs_contracting_dims)} x {list_text(op.rhs_contracting_dims)}"
    words = _precisions(site, op.operand_precision)
    middle += f", precision = {list_text(words)}" if words else ""
    return middle + (f", algorithm = <{_algorithm(site, op.algorithm)}>" if _has_algorithm(op.algorithm) else "")


def _scaled_dot(site: PrintSite) -> list[Value]:
    """The product of what the operands are times their scales, computed as the op's meaning is: rounded once."""
    op = site.instruction.op
    assert isinstance(op, ScaledDot)
    lhs, rhs, lhs_scale, rhs_scale = site.operands
    if not lhs.shape.dtype.is_floating or not site.shape.dtype.is_floating:
        raise site.unsupported("operands or a result that are not floating numbers")
    wide = dtypes.dtype(compute_type(lhs.shape.dtype, site.shape.dtype))
    sides = [_scaled(site, lhs, lhs_scale, wide), _scaled(site, rhs, rhs_scale, wide)]
    numbers = _dot_numbers(site, op)
    if site.shape.dtype is wide:
        return [site.short("stablehlo.dot_general", sides, middle=numbers, types="function")]
    shape = site.shape.with_dtype(wide)
    return [cast(site, site.short("stablehlo.dot_general", sides, shape, numbers, types="function"), None)]


def _scaled(site: PrintSite, operand: Value, scale: Value, wide: DType) -> Value:
    """The operand times its scale, of which each element holds for a block."""
    shape = operand.shape.with_dtype(wide)
    operand, scale = cast(site, operand, shape), cast(site, scale, scale.shape.with_dtype(wide))
    if scale.shape.is_scalar:
        scale = site.short("stablehlo.broadcast_in_dim", [scale], shape, ", dims = []", types="function")
    elif scale.shape.dimensions != shape.dimensions:
        sizes: list[int] = []
        for part, whole in zip(scale.shape.dimensions, shape.dimensions, strict=True):
            sizes += [part, whole // part if part else 1]
        dims = f", dims = {list_text(range(0, len(sizes), 2))}"
        blocks = shape.with_dimensions(sizes)
        scale = site.short("stablehlo.broadcast_in_dim", [scale], blocks, dims, types="function")
        scale = site.short("stablehlo.reshape", [scale], shape, types="function")
    return site.short("stablehlo.multiply", [operand, scale], shape)


def _has_algorithm(name: str | None) -> bool:
    return name is not None and name != "unset"


def _algorithm(site: PrintSite, name: str | None) -> str:
    """dot_bf16_bf16_f32_x3 by the parameters of #stablehlo.dot_algorithm."""
    found = _ALGORITHM.match(name or "")
    if found is None:
        raise site.unsupported(f"the algorithm {name}")
    lhs, rhs = ("f8E5M2" if found[i] == "any_f8" else found[i] for i in (1, 2))
    return (
        f"lhs_precision_type = {lhs}, rhs_precision_type = {rhs}, accumulation_type = {found[3]}, "
        f"lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = {found[4] or 1}, "
        f"allow_imprecise_accumulation = {boolean_text(found[5] is not None)}"
    )


def _ragged_dot(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, RaggedDot)
    if _has_algorithm(op.algorithm):
        raise site.unsupported("an algorithm")
    lists = {
        "lhs_batching_dimensions": op.lhs_batch_dims,
        "rhs_batching_dimensions": op.rhs_batch_dims,
        "lhs_contracting_dimensions": op.lhs_contracting_dims,
        "rhs_contracting_dimensions": op.rhs_contracting_dims,
        "lhs_ragged_dimensions": op.lhs_ragged_dims,
        "rhs_group_dimensions": op.rhs_group_dims,
    }
    numbers = ", ".join(f"{name} = {list_text(dims)}" for name, dims in lists.items())
    properties = {"ragged_dot_dimension_numbers": f"#chlo.ragged_dot<{numbers}>"}
    words = _precisions(site, op.operand_precision)
    if words:
        properties["precision_config"] = list_text(f"#chlo<precision {word}>" for word in words)
    return site.generic("chlo.ragged_dot", site.operands, properties=properties)


def _convolution(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Convolution)
    numbers, window = op.dim_labels, op.window.dimensions
    labels = [
        _labels(numbers.input_batch_dimension, numbers.input_feature_dimension, numbers.input_spatial_dimensions, "bf"),
        _labels(
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
            numbers.kernel_spatial_dimensions,
            "io",
        ),
        _labels(
            numbers.output_batch_dimension, numbers.output_feature_dimension, numbers.output_spatial_dimensions, "bf"
        ),
    ]
    columns = {
        "stride": [d.stride for d in window],
        "pad": [list_text((d.padding_low, d.padding_high)) for d in window],
        "lhs_dilate": [d.base_dilation for d in window],
        "rhs_dilate": [d.window_dilation for d in window],
    }
    if any(d.reversal for d in window):
        columns["reverse"] = [d.reversal for d in window]
    spelled = ", ".join(f"{name} = {list_text(column)}" for name, column in columns.items()) if window else ""
    attributes = {
        "batch_group_count": f"{op.batch_group_count} : i64",
        "feature_group_count": f"{op.feature_group_count} : i64",
    }
    words = _precisions(site, op.operand_precision)
    if words:
        attributes["precision_config"] = list_text(f"#stablehlo<precision {word}>" for word in words)
    head = f" dim_numbers = {labels[0]}x{labels[1]}->{labels[2]}, window = {{{spelled}}}"
    return [site.applied("stablehlo.convolution", site.operands, head, attributes)]


def _labels(first: int, second: int, spatial: Sequence[int], names: str) -> str:
    """[b, f, 0, 1]."""
    places = {first: names[0], second: names[1], **{d: str(i) for i, d in enumerate(spatial)}}
    return list_text(places[d] for d in sorted(places))


def _fft(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Fft)
    middle = f", type = {op.fft_type}, length = {list_text(op.fft_length)}"
    return [site.short("stablehlo.fft", site.operands, middle=middle, types="function")]


def _cholesky(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Cholesky)
    return [site.short("stablehlo.cholesky", site.operands, middle=f", lower = {boolean_text(op.lower)}")]


def _triangular_solve(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, TriangularSolve)
    properties = {
        "left_side": boolean_text(op.left_side),
        "lower": boolean_text(op.lower),
        "transpose_a": f"#stablehlo<transpose {op.transpose_a}>",
        "unit_diagonal": boolean_text(op.unit_diagonal),
    }
    return site.generic("stablehlo.triangular_solve", site.operands, properties=properties)


def _rng(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, Rng)
    sizes = site.integers(site.shape.dimensions, dtypes.s64)
    middle = f", distribution = {op.distribution.removeprefix('rng_').upper()}"
    return [site.short("stablehlo.rng", [*site.operands, sizes], middle=middle, types="function")]


def _rng_bit_generator(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, RngBitGenerator)
    name = op.algorithm.removeprefix("rng_").upper()
    properties = {"rng_algorithm": f"#stablehlo<rng_algorithm {name}>"}
    return site.generic("stablehlo.rng_bit_generator", site.operands, properties=properties)


def _rng_get_and_update_state(site: PrintSite) -> list[Value]:
    op = site.instruction.op
    assert isinstance(op, RngGetAndUpdateState)
    return site.generic("mhlo.xla.rng_get_and_update_state", [], properties={"delta": f"{op.delta} : i64"})


def _batch_norm(name: str) -> Rule:
    def rule(site: PrintSite) -> list[Value]:
        op = site.instruction.op
        assert isinstance(op, BatchNorm)
        properties = {"epsilon": f"{_float_text(op.epsilon)} : f32", "feature_index": f"{op.feature_index} : i64"}
        return site.generic(name, site.operands, properties=properties)

    return rule


def _float_text(value: float) -> str:
    text = repr(float(value))
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"


def _top_k(site: PrintSite) -> list[Value]:
    """chlo's gives the largest; mhlo's either."""
    op = site.instruction.op
    assert isinstance(op, TopK)
    operand = site.operand()
    name, largest = ("chlo.top_k", "") if op.largest else ("mhlo.topk", ", largest = false")
    bound, values = site.into.bind(site.leaves)
    types = f"{type_text(operand.shape)} -> ({types_text(site.leaves)})"
    site.into.line(f"{bound}{name}({operand.name}, k = {op.k}{largest}) : {types}{site.location()}")
    return values


RULES: dict[str, Rule] = {
    "batch-norm-grad": _batch_norm("stablehlo.batch_norm_grad"),
    "batch-norm-inference": _batch_norm("stablehlo.batch_norm_inference"),
    "batch-norm-training": _batch_norm("stablehlo.batch_norm_training"),
    "cholesky": _cholesky,
    "convolution": _convolution,
    "dot": _dot,
    "fft": _fft,
    "ragged-dot": _ragged_dot,
    "rng": _rng,
    "rng-bit-generator": _rng_bit_generator,
    "rng-get-and-update-state": _rng_get_and_update_state,
    "scaled-dot": _scaled_dot,
    "topk": _top_k,
    "triangular-solve": _triangular_solve,
}
