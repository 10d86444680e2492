"""The codes of the dialects vhlo, stablehlo and chlo, and which dialects are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hlokit.stablehlo.artifact import builtin, sharding
from hlokit.stablehlo.artifact.cursor import Cursor
from hlokit.stablehlo.artifact.entries import Codec, Entries
from hlokit.stablehlo.tree import DialectAttribute, Dictionary, OtherType, Type
from hlokit.types import dtype as dtypes
from hlokit.types.shape import TOKEN, Shape

DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
COMPARISONS = ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
FFTS = ("FFT", "IFFT", "RFFT", "IRFFT")
PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE")
ALGORITHMS = ("DEFAULT", "THREE_FRY", "PHILOX")
DISTRIBUTIONS = ("", "UNIFORM", "NORMAL")
TRANSPOSES = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
ACCURACIES = ("DEFAULT", "HIGHEST", "TOLERANCE")


def _word(name: str, words: Sequence[str]) -> Codec:
    """An enumeration's value by its number."""

    def codec(entries: Entries, cursor: Cursor) -> DialectAttribute:
        number = cursor.varint()
        if number >= len(words) or not words[number]:
            raise cursor.error(f"{name} {number}")
        return DialectAttribute(f"stablehlo.{name}", words[number])

    return codec


def _parameters(name: str, parts: Mapping[str, Any]) -> Codec:
    """An attribute of several parameters, each with the function of a cursor that reads it, or of entries too."""

    def codec(entries: Entries, cursor: Cursor) -> DialectAttribute:
        found = Dictionary()
        for part, read in parts.items():
            value = read(entries, cursor)
            if value is not None:
                found[part] = value
        return DialectAttribute(f"stablehlo.{name}", found)

    return codec


def _number(entries: Entries, cursor: Cursor) -> int:
    return cursor.signed()


def _numbers(entries: Entries, cursor: Cursor) -> list[int]:
    return cursor.signed_list()


def _flag(entries: Entries, cursor: Cursor) -> bool:
    return bool(cursor.byte())


def _optional(entries: Entries, cursor: Cursor) -> Any:
    """An attribute behind a byte that says whether there is one."""
    return entries.inner(cursor) if cursor.byte() else None


def _vhlo_optional(entries: Entries, cursor: Cursor) -> Any:
    """An attribute behind an integer that says whether there is one."""
    return entries.inner(cursor) if cursor.varint() else None


def _flagged_optional(entries: Entries, cursor: Cursor) -> Any:
    """An attribute's number whose lowest bit says whether there is one."""
    index, is_there = cursor.flagged()
    return entries.attribute(index, cursor) if is_there else None


def _future(entries: Entries, cursor: Cursor) -> Type:
    """Futures as the types themselves, a tuple of several."""
    types = entries.inner_types(cursor)
    shapes = [kind for kind in types if isinstance(kind, Shape)]
    if len(shapes) < len(types):
        return OtherType(f"!stablehlo.future<{', '.join(map(str, types))}>")
    return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)


def _bounds(entries: Entries, cursor: Cursor) -> DialectAttribute:
    return DialectAttribute("stablehlo.bounds", cursor.signed_list())


_ALIAS = _parameters(
    "output_operand_alias",
    {"output_tuple_indices": _numbers, "operand_index": _number, "operand_tuple_indices": _numbers},
)
_ACCURACY = _parameters(
    "result_accuracy", {"atol": Entries.double, "rtol": Entries.double, "ulps": _number, "mode": Entries.inner}
)
_SUB_AXIS = _parameters("sub_axis_info", {"pre_size": _number, "size": _number})

# -- vhlo


def _vhlo_integer(entries: Entries, cursor: Cursor) -> int:
    return int(entries.integer(cursor))


def _vhlo_boolean(entries: Entries, cursor: Cursor) -> bool:
    return bool(cursor.varint())


def _vhlo_tensor(entries: Entries, cursor: Cursor) -> Any:
    kind = entries.inner_type(cursor)
    return entries.dense(cursor, kind, cursor.take(cursor.varint()))


def _vhlo_api_version(entries: Entries, cursor: Cursor) -> int:
    return cursor.varint()


_VHLO_ATTRIBUTES: dict[int, Codec] = {
    1: Entries.inner_list,
    2: _vhlo_boolean,
    3: _word("comparison_direction", DIRECTIONS),
    4: _word("comparison_type", COMPARISONS),
    5: _vhlo_api_version,
    6: builtin.dictionary,
    7: _word("fft_type", FFTS),
    8: Entries.float,
    9: _vhlo_integer,
    10: _ALIAS,
    11: _word("precision", PRECISIONS),
    12: _word("rng_algorithm", ALGORITHMS),
    13: _word("rng_distribution", DISTRIBUTIONS),
    14: Entries.string,
    15: _vhlo_tensor,
    16: _word("transpose", TRANSPOSES),
    17: Entries.inner_type,
    18: _bounds,
    19: _word("result_accuracy_mode", ACCURACIES),
    20: _ACCURACY,
    21: _SUB_AXIS,
    22: _parameters("axis_ref", {"name": Entries.inner, "sub_axis_info": _vhlo_optional}),
    23: _parameters("replica_group_mesh_axes", {"mesh": Entries.inner, "axes": Entries.inner}),
    24: _parameters("mesh_axis", {"name": Entries.inner, "size": _number}),
    25: _parameters("mesh", {"axes": Entries.inner, "device_ids": _flagged_optional}),
}


def _quantized(entries: Entries, cursor: Cursor) -> Type:
    """One scale and zero point for all elements."""
    flags, storage, expressed = cursor.varint(), entries.inner_type(cursor), entries.inner_type(cursor)
    scale, zero = entries.double(cursor), cursor.signed()
    low, high = cursor.signed(), cursor.signed()
    text = f"{_stored(flags, storage, low, high)}:{_named(expressed)}, {_scale(scale, zero)}"
    return entries.parsed(f"!quant.uniform<{text}>", True, cursor.offset)


def _quantized_per_axis(entries: Entries, cursor: Cursor) -> Type:
    """A scale and a zero point for each index of one dimension."""
    flags, storage, expressed = cursor.varint(), entries.inner_type(cursor), entries.inner_type(cursor)
    axis, low, high = cursor.varint(), cursor.signed(), cursor.signed()
    scales = [entries.double(cursor) for _ in range(cursor.varint())]
    zeros = cursor.signed_list()
    if len(scales) != len(zeros):
        raise cursor.error(f"{len(scales)} scales and {len(zeros)} zero points")
    parts = ", ".join(map(_scale, scales, zeros))
    text = f"{_stored(flags, storage, low, high)}:{_named(expressed)}:{axis}, {{{parts}}}"
    return entries.parsed(f"!quant.uniform<{text}>", True, cursor.offset)


def _stored(flags: int, storage: Type, low: int, high: int) -> str:
    """i8, or u8 where the flag of signed storage is not set; with the range where it is not the type's."""
    name = _named(storage)
    bits = int(name[1:]) if name[1:].isdecimal() else 0
    whole = (-(1 << bits >> 1), (1 << bits >> 1) - 1) if flags & 1 else (0, (1 << bits) - 1)
    named = name if flags & 1 else f"u{name.removeprefix('i')}"
    return named if (low, high) == whole else f"{named}<{low}:{high}>"


def _named(kind: Type) -> str:
    """An element type as MLIR writes it."""
    name = str(kind).removesuffix("[]")
    return f"i{name[1:]}" if name[:1] in "su" and name[1:].isdecimal() else name


def _scale(scale: float, zero: int) -> str:
    return f"{scale!r}:{zero}" if zero else repr(scale)


def _buffer(entries: Entries, cursor: Cursor) -> Type:
    """memref<2x3xf32>."""
    sizes = "".join(f"{size}x" if size >= 0 else "?x" for size in cursor.signed_list())
    return OtherType(f"memref<{sizes}{_named(entries.inner_type(cursor))}>")


_VHLO_TYPES: dict[int, Codec] = {
    0: builtin.fixed(dtypes.pred),
    1: Entries.complex,
    2: builtin.fixed(dtypes.bf16),
    3: builtin.fixed(dtypes.f16),
    4: builtin.fixed(dtypes.f32),
    5: builtin.fixed(dtypes.f64),
    6: builtin.fixed(dtypes.f8e4m3fn),
    7: builtin.fixed(dtypes.f8e5m2),
    8: builtin.function_type,
    9: builtin.fixed(dtypes.s64),
    10: builtin.fixed(dtypes.s4),
    11: builtin.fixed(dtypes.s8),
    12: builtin.fixed(dtypes.s16),
    13: builtin.fixed(dtypes.s32),
    14: builtin.fixed(dtypes.s64),
    15: builtin.fixed(dtypes.u4),
    16: builtin.fixed(dtypes.u8),
    17: builtin.fixed(dtypes.u16),
    18: builtin.fixed(dtypes.u32),
    19: builtin.fixed(dtypes.u64),
    20: builtin.tensor,
    21: builtin.tensor_with_encoding,
    22: lambda entries, cursor: TOKEN,
    23: Entries.tuple,
    24: _quantized,
    25: builtin.unranked,
    26: builtin.fixed("!shape.witness"),
    27: builtin.fixed(dtypes.f8e4m3fnuz),
    28: builtin.fixed(dtypes.f8e5m2fnuz),
    29: builtin.fixed(dtypes.f8e4m3b11fnuz),
    30: _quantized_per_axis,
    31: builtin.fixed(dtypes.s2),
    32: builtin.fixed(dtypes.u2),
    33: builtin.fixed("none"),
    34: builtin.fixed("tf32"),
    35: builtin.fixed(dtypes.f8e4m3),
    36: builtin.fixed(dtypes.f8e3m4),
    37: builtin.fixed(dtypes.f4e2m1fn),
    38: builtin.fixed(dtypes.f6e2m3fn),
    39: builtin.fixed(dtypes.f6e3m2fn),
    40: builtin.fixed(dtypes.f8e8m0fnu),
    41: _buffer,
    42: _future,
}

# -- stablehlo and chlo

_STABLEHLO_ATTRIBUTES: dict[int, Codec] = {
    1: _parameters("channel_handle", {"handle": _number, "type": _number}),
    2: _word("comparison_direction", DIRECTIONS),
    3: _word("comparison_type", COMPARISONS),
    4: _parameters(
        "conv",
        {
            "input_batch_dimension": _number,
            "input_feature_dimension": _number,
            "input_spatial_dimensions": _numbers,
            "kernel_input_feature_dimension": _number,
            "kernel_output_feature_dimension": _number,
            "kernel_spatial_dimensions": _numbers,
            "output_batch_dimension": _number,
            "output_feature_dimension": _number,
            "output_spatial_dimensions": _numbers,
        },
    ),
    5: _parameters(
        "dot",
        {
            "lhs_batching_dimensions": _numbers,
            "rhs_batching_dimensions": _numbers,
            "lhs_contracting_dimensions": _numbers,
            "rhs_contracting_dimensions": _numbers,
        },
    ),
    6: _word("fft_type", FFTS),
    7: _parameters(
        "gather",
        {
            "offset_dims": _numbers,
            "collapsed_slice_dims": _numbers,
            "operand_batching_dims": _numbers,
            "start_indices_batching_dims": _numbers,
            "start_index_map": _numbers,
            "index_vector_dim": _number,
        },
    ),
    8: _word("precision", PRECISIONS),
    9: _word("rng_algorithm", ALGORITHMS),
    10: _word("rng_distribution", DISTRIBUTIONS),
    11: _parameters(
        "scatter",
        {
            "update_window_dims": _numbers,
            "inserted_window_dims": _numbers,
            "input_batching_dims": _numbers,
            "scatter_indices_batching_dims": _numbers,
            "scatter_dims_to_operand_dims": _numbers,
            "index_vector_dim": _number,
        },
    ),
    12: _word("transpose", TRANSPOSES),
    13: _bounds,
    14: _ALIAS,
    15: _parameters(
        "dot_algorithm",
        {
            "lhs_precision_type": Entries.inner_type,
            "rhs_precision_type": Entries.inner_type,
            "accumulation_type": Entries.inner_type,
            "lhs_component_count": _number,
            "rhs_component_count": _number,
            "num_primitive_operations": _number,
            "allow_imprecise_accumulation": _flag,
        },
    ),
    16: _word("result_accuracy_mode", ACCURACIES),
    17: _ACCURACY,
    18: _parameters("replica_group_mesh_axes", {"mesh": Entries.inner, "axes": Entries.inner_list}),
    19: _SUB_AXIS,
    20: _parameters("axis_ref", {"name": Entries.string, "sub_axis_info": _optional}),
    21: _parameters("mesh_axis", {"name": Entries.string, "size": _number}),
    22: _parameters("mesh", {"axes": Entries.inner, "device_ids": _optional}),
}

_CHLO_ATTRIBUTES: dict[int, Codec] = {
    0: _word("comparison_direction", DIRECTIONS),
    1: _word("comparison_type", COMPARISONS),
}

ATTRIBUTES: dict[str, dict[int, Codec]] = {
    "builtin": builtin.ATTRIBUTES,
    "chlo": _CHLO_ATTRIBUTES,
    "sdy": sharding.ATTRIBUTES,
    "stablehlo": _STABLEHLO_ATTRIBUTES,
    "vhlo": _VHLO_ATTRIBUTES,
}
TYPES: dict[str, dict[int, Codec]] = {
    "builtin": builtin.TYPES,
    "stablehlo": {0: lambda entries, cursor: TOKEN, 1: _future},
    "vhlo": _VHLO_TYPES,
}
