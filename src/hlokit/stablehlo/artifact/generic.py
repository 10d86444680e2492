"""The attributes of an operation in the generic form, regardless of the form in which it was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.tree import (
    Dense,
    DialectAttribute,
    Dictionary,
    Operation,
    QuantizedTensor,
    Symbol,
    Type,
    Typed,
    Unit,
)
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

_LABELS = re.compile(r"\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]\Z")
_FORMAT = re.compile(r"e([0-9]{1,4})m([0-9]{1,4})\Z")
_CONVOLUTION = (
    ("input", {"b": "batch", "f": "feature"}),
    ("kernel", {"i": "input_feature", "o": "output_feature"}),
    ("output", {"b": "batch", "f": "feature"}),
)
_LISTS = {
    "broadcast": {"sizes": "broadcast_sizes"},
    "broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "dynamic_slice": {"sizes": "slice_sizes"},
    "fft": {"length": "fft_length"},
    "pad": {"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"},
    "reverse": {"dims": "dimensions"},
    "transpose": {"dims": "permutation"},
}
"""Names that the pretty form has for arrays of integers, by operation."""
_NUMBERS = {
    "concatenate": {"dim": "dimension"},
    "dynamic_iota": {"dim": "iota_dimension"},
    "get_dimension_size": {"dim": "dimension"},
    "iota": {"dim": "iota_dimension"},
    "set_dimension_size": {"dim": "dimension"},
    "torch_index_select": {"dim": "dim", "batch_dims": "batch_dims"},
}
_WORDS = {
    "fft": {"type": ("fft_type", "fft_type")},
    "rng": {"distribution": ("rng_distribution", "rng_distribution")},
    "rng_bit_generator": {"algorithm": ("rng_algorithm", "rng_algorithm")},
}
"""Names that the pretty form has for an enumeration's word, by operation: its attribute and the enumeration."""
_TEXTS = {"einsum": {"config": "einsum_config"}, "unary_einsum": {"config": "einsum_config"}}


def integer(value: int) -> Typed:
    return Typed(value, dtypes.s64[()])


def integers(values: Sequence[int]) -> Typed:
    return Typed(tuple(values), dtypes.s64[()])


def generic_attributes(operation: Operation, where: str) -> dict[str, Any]:
    """Reads the words and the shorter names of the pretty form. UnsupportedError for a form that is not known."""
    name = operation.name.partition(".")[2]
    attributes = dict(operation.attributes)
    words = list(operation.words)
    for short, full in _LISTS.get(name, {}).items():
        if short in attributes:
            attributes[full] = integers(plain_integers(attributes.pop(short)))
    for short, full in _NUMBERS.get(name, {}).items():
        if short in attributes:
            attributes[full] = integer(_plain(attributes.pop(short)))
    for short, (full, kind) in _WORDS.get(name, {}).items():
        if short in attributes:
            attributes[full] = DialectAttribute(f"stablehlo.{kind}", attributes.pop(short))
    for short, full in _TEXTS.get(name, {}).items():
        if short in attributes:
            attributes[full] = attributes.pop(short)
    reader = _READERS.get(operation.name, _READERS.get(name))
    if reader is not None and not (operation.name.startswith("sdy.") and operation.name not in _READERS):
        words = reader(attributes, words)
    if words:
        raise UnsupportedError(f"{where}{operation.name} in this form, with {str(words[0])[:40]!r}, is not supported")
    return attributes


def plain_integers(value: Any) -> list[int]:
    """Integers of an array, a list, or a dense attribute."""
    if isinstance(value, Typed):
        value = value.value
    if isinstance(value, Dense):
        full: Any = np.broadcast_to(value.array, value.shape.dimensions)
        return [int(v) for v in full.reshape(-1)]
    return [int(_plain(v)) for v in value]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Typed) else value


_Reader = Callable[[dict[str, Any], list[Any]], list[Any]]
"""Changes attributes; gives the words that it did not know."""


def _compare(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    for name, kind in (("comparison_direction", "comparison_direction"), ("compare_type", "comparison_type")):
        if words:
            attributes[name] = DialectAttribute(f"stablehlo.{kind}", str(words.pop(0)))
    return words


def _custom_call(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    if words and isinstance(words[0], Symbol):
        attributes["call_target_name"] = words.pop(0).name
    return words


def _composite(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    if words and isinstance(words[0], str):
        attributes["name"] = words.pop(0)
    return words


def _call(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    if words and isinstance(words[0], Symbol):
        attributes["callee"] = words.pop(0)
    return words


def _tuple_element(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    if words and isinstance(words[0], list):
        ranges: list[tuple[int, ...]] = words.pop(0)
        attributes["index"] = Typed(ranges[0][0], dtypes.s32[()])
    return words


def _slice(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    """[0:4:2, 3:5]."""
    if words and isinstance(words[0], list):
        ranges: list[tuple[int, ...]] = words.pop(0)
        parts: list[tuple[int, int, int]] = []
        for start, *rest in ranges:
            limit, stride = (*rest, start + 1, 1)[:2] if len(rest) != 1 else (rest[0], 1)
            parts.append((start, limit, stride))
        for i, name in enumerate(("start_indices", "limit_indices", "strides")):
            attributes[name] = integers([part[i] for part in parts])
    return words


def _reduce_precision(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    found = _FORMAT.match(str(attributes.get("format", "")))
    if found is not None:
        del attributes["format"]
        attributes["exponent_bits"] = Typed(int(found[1]), dtypes.s32[()])
        attributes["mantissa_bits"] = Typed(int(found[2]), dtypes.s32[()])
    return words


def _precision(attributes: dict[str, Any]) -> None:
    """[DEFAULT, HIGH]."""
    given = attributes.pop("precision", None)
    if given is not None:
        attributes["precision_config"] = [DialectAttribute("stablehlo.precision", str(word)) for word in given]


def _dot(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    """batching_dims = [0] x [0], contracting_dims = [1] x [0]."""
    if "contracting_dims" in attributes or "batching_dims" in attributes:
        numbers = Dictionary()
        for name in ("batching", "contracting"):
            sides = attributes.pop(f"{name}_dims", ((), ()))
            for side, values in zip(("lhs", "rhs"), sides, strict=True):
                numbers[f"{side}_{name}_dimensions"] = plain_integers(values)
        attributes["dot_dimension_numbers"] = DialectAttribute("stablehlo.dot", numbers)
    algorithm = attributes.get("algorithm")
    if isinstance(algorithm, dict):
        attributes["algorithm"] = DialectAttribute("stablehlo.dot_algorithm", algorithm)
    _precision(attributes)
    return words


def _convolution(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    """dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {stride = [2], pad = [[1, 1]], ...}."""
    given = attributes.pop("dim_numbers", None)
    if given is not None:
        attributes["dimension_numbers"] = DialectAttribute("stablehlo.conv", given)
    window = attributes.pop("window", {})
    for short, full in (("stride", "window_strides"), ("lhs_dilate", "lhs_dilation"), ("rhs_dilate", "rhs_dilation")):
        if short in window:
            attributes[full] = integers(plain_integers(window[short]))
    if "pad" in window:
        rows = [plain_integers(row) for row in window["pad"]]
        array = np.array(rows, np.int64).reshape(len(rows), 2)
        attributes["padding"] = Dense(dtypes.s64[array.shape], array)
    if "reverse" in window:
        flags = tuple(bool(_plain(flag)) for flag in window["reverse"])
        attributes["window_reversal"] = Typed(flags, dtypes.pred[()])
    _precision(attributes)
    return words


def convolution_numbers(labels: str) -> dict[str, Any]:
    """The dimension numbers of `[b, f, 0]x[o, i, 0]->[b, f, 0]`."""
    found = _LABELS.match(re.sub(r"\s", "", labels))
    numbers: dict[str, Any] = {}
    for (side, letters), listed in zip(_CONVOLUTION, found.groups() if found is not None else (), strict=False):
        places = {label: i for i, label in enumerate(listed.split(",") if listed else ())}
        for letter, word in letters.items():
            numbers[f"{side}_{word}_dimension"] = places.pop(letter)
        spatial = sorted((int(label), i) for label, i in places.items())
        numbers[f"{side}_spatial_dimensions"] = [i for _, i in spatial]
    return numbers


def _reduce(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    if isinstance(attributes.get("dimensions"), list):
        attributes["dimensions"] = integers(plain_integers(attributes["dimensions"]))
    attributes.pop("applies", None)  # is a region by now
    return words


def _scan(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    for name in ("dimension", "scan_dim_size"):
        if isinstance(attributes.get(name), int):
            attributes[name] = integer(attributes[name])
    return words


def _top_k(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    if isinstance(attributes.get("k"), int):
        attributes["k"] = integer(attributes["k"])
    return words


def _sharded(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    """sdy.sharding_constraint %x <@mesh, [{"a"}]>."""
    if words and isinstance(words[0], str):
        attributes["sharding"] = DialectAttribute("sdy.sharding", words.pop(0))
    return words


def _manual(attributes: dict[str, Any], words: list[Any]) -> list[Any]:
    """in_shardings=[<@mesh, [{}]>] out_shardings=[..] manual_axes={"a"}, which the parser gives as text."""
    for name, kind in (
        ("in_shardings", "sharding_per_value"),
        ("out_shardings", "sharding_per_value"),
        ("manual_axes", "manual_axes"),
    ):
        value = attributes.get(name)
        if isinstance(value, str):
            listed = f"[{value}]" if kind == "sharding_per_value" else f"{{{value}}}"
            attributes[name] = DialectAttribute(f"sdy.{kind}", value, f"#sdy<{kind}{listed}>")
    return words


_READERS: dict[str, _Reader] = {
    "call": _call,
    "chlo.scan": _scan,
    "chlo.top_k": _top_k,
    "compare": _compare,
    "composite": _composite,
    "convolution": _convolution,
    "custom_call": _custom_call,
    "dot": _dot,
    "dot_general": _dot,
    "dynamic_conv": _convolution,
    "get_tuple_element": _tuple_element,
    "reduce": _reduce,
    "reduce_precision": _reduce_precision,
    "sdy.manual_computation": _manual,
    "sdy.reshard": _sharded,
    "sdy.sharding_constraint": _sharded,
    "slice": _slice,
}


def element_of(type: Type) -> Type:
    """The scalar of a tensor's elements."""
    if isinstance(type, QuantizedTensor):
        return QuantizedTensor(Shape.array(type.shape.dtype, ()), type.element)
    return type.dtype[()] if isinstance(type, Shape) and type.is_array else type


def is_set(value: Any) -> bool:
    """A flag that is there, or true."""
    return isinstance(value, Unit) or value is True
