"""StableHLO's operations as the vhlo operations of a version: names, attributes, unsupported features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.artifact.encoding import NONE, Encoder
from hlokit.stablehlo.artifact.generic import (
    convolution_numbers,
    element_of,
    generic_attributes,
    integer,
    integers,
    is_set,
    plain_integers,
)
from hlokit.stablehlo.artifact.properties import ACCURATE, properties_of
from hlokit.stablehlo.artifact.versions import ALGORITHM, CONVOLUTION, DOT, GATHER, SCATTER
from hlokit.stablehlo.tree import Block, Dense, DialectAttribute, Dictionary, Operation, Type, Typed, Unit
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

Version = tuple[int, int, int]

NEWEST: Version = (1, 22, 0)
OLDEST: Version = (0, 9, 0)

_SECOND: dict[str, Version] = {
    "all_gather": (1, 5, 0),
    "all_reduce": (1, 5, 0),
    "all_to_all": (1, 5, 0),
    "collective_broadcast": (1, 20, 0),
    "composite": (1, 14, 0),
    "custom_call": (1, 18, 0),
    "dot_general": (1, 6, 0),
    "dynamic_conv": (0, 20, 0),
    "dynamic_gather": (1, 1, 0),
    "gather": (1, 1, 0),
    "recv": (1, 12, 0),
    "scatter": (1, 1, 0),
    "send": (1, 12, 0),
    **dict.fromkeys(ACCURATE, (1, 10, 0)),
    "exponential": (1, 9, 0),
}
"""Operations that have a second version, and from which version of vhlo on it is written."""
_FIRST: dict[str, Version] = {
    "async_done": (1, 15, 0),
    "async_start": (1, 15, 0),
    "collective_broadcast": (0, 16, 0),
    "collective_reduce": (1, 19, 0),
    "composite": (0, 19, 0),
    "tan": (1, 4, 0),
}
"""Operations that the oldest version lacks."""
_VARIADIC = ("all_gather", "all_reduce", "all_to_all", "collective_broadcast")
_PROMOTING = ("all_reduce", "reduce", "reduce_scatter", "reduce_window", "scatter", "select_and_scatter")
_PROMOTED: Version = (0, 17, 0)
_DICTIONARIES: Version = (1, 3, 0)
_BUFFERS: Version = (1, 13, 0)
_FUTURES_OF_CALLS: Version = (1, 17, 0)
_GROUPED = {
    "convolution": (("dimension_numbers", CONVOLUTION),),
    "dot_general": (("dot_dimension_numbers", DOT), ("algorithm", ALGORITHM)),
    "dynamic_conv": (("dimension_numbers", CONVOLUTION),),
    "dynamic_gather": (("dimension_numbers", GATHER),),
    "gather": (("dimension_numbers", GATHER),),
    "scatter": (("scatter_dimension_numbers", SCATTER),),
}
"""An attribute, and the attributes of vhlo that are its parameters, by operation."""
_API_VERSIONS = 5
_OF_INDICES = ("operand_layouts", "result_layouts", "result_tilings")
_DEFAULT_ACCURACY = DialectAttribute(
    "stablehlo.result_accuracy",
    Dictionary(atol=0.0, rtol=0.0, ulps=0, mode=DialectAttribute("stablehlo.result_accuracy_mode", "DEFAULT")),
)
_NO_PRECISION = [DialectAttribute("stablehlo.precision", "DEFAULT")] * 2


class Versioned(NamedTuple):
    """An operation of vhlo: its properties in their order, and the other attributes, by name, as numbers."""

    name: str
    properties: dict[str, int]
    others: dict[str, int]


def versioned(
    encoder: Encoder, operation: Operation, operands: Sequence[Type], results: Sequence[Type], where: str
) -> Versioned:
    """The operation for the encoder's target. UnsupportedError, with the first version that can, if it cannot."""
    full = operation.name
    name = full.partition(".")[2]
    encoder.where = f"{where}{full}: "
    target = encoder.target
    encoder.require(_FIRST.get(name, OLDEST), "the operation")
    second = _SECOND.get(name, NEWEST)
    is_second = name in _SECOND and target >= second
    attributes = generic_attributes(operation, where)
    for attribute, parts in _GROUPED.get(name, ()):
        _ungroup(attributes, attribute, parts)
    handle = attributes.pop("channel_handle", None)
    if handle is not None:
        parameters: Mapping[str, Any] = handle.value if isinstance(handle, DialectAttribute) else {}
        attributes["channel_id"] = integer(_number(parameters.get("handle", 0)))
        if name in ("send", "recv"):
            attributes["channel_type"] = integer(_number(parameters.get("type", 1)))
    _check(encoder, name, operation, operands, results, attributes)
    if name in _SECOND and not is_second:
        _check_first(encoder, name, second, operation, attributes)
    vhlo = f"vhlo.{name}_v{2 if is_second else 1}"
    known = () if name in ACCURATE and not is_second else properties_of(vhlo) or ()
    properties: dict[str, int] = {}
    for attribute in known:
        value = attributes.pop(attribute, None)
        if value is None or (isinstance(value, Unit) and attribute in _FLAGS):
            value = value is not None or _default(name, attribute, attributes, operands, encoder)
        properties[attribute] = _property(encoder, attribute, value)
    if name in _SECOND and not is_second:
        for attribute in properties_of(f"vhlo.{name}_v2") or ():
            attributes.pop(attribute, None)
    others = {k: encoder.attribute(v, True) for k, v in attributes.items()}
    return Versioned(vhlo, properties, others)


def _property(encoder: Encoder, attribute: str, value: Any) -> int:
    """The number of an operation's own attribute."""
    if attribute == "api_version":
        number = _number(value)
        if not 0 <= number < _API_VERSIONS:
            raise encoder.unsupported(f"api_version {number}")
        return encoder.tables.attribute("vhlo", bytes([5 << 1 | 1, number << 1 | 1]))
    if attribute in _OF_INDICES:
        return _of_indices(encoder, value)
    return encoder.attribute(value, True)


def _of_indices(encoder: Encoder, value: Any) -> int:
    """A list, maybe of lists, of dense attributes of type index."""
    if isinstance(value, Dense):
        return encoder.dense(value, True, is_index=True)
    if not isinstance(value, list):
        raise encoder.unsupported(f"the attribute {str(value)[:60]}")
    parts: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return encoder.array([_of_indices(encoder, part) for part in parts], True)


def _number(value: Any) -> int:
    return int(value.value if isinstance(value, Typed) else value)


def _ungroup(attributes: dict[str, Any], name: str, parts: Sequence[str]) -> None:
    """Attributes for the parameters of one."""
    given = attributes.pop(name, None)
    value: Any = given.value if isinstance(given, DialectAttribute) else given
    if isinstance(value, str):
        value = convolution_numbers(value)
    if value is None:
        return
    for part in parts:
        found: Any = value.get(part, 0 if part.endswith(("_dim", "_dimension")) else [])
        if part in ALGORITHM:
            attributes[part] = found
        elif isinstance(found, (list, tuple)) or (isinstance(found, Typed) and isinstance(found.value, tuple)):
            attributes[part] = integers(plain_integers(found))
        else:
            attributes[part] = integer(_number(found))


# -- what a version lacks


def _check(
    encoder: Encoder,
    name: str,
    operation: Operation,
    operands: Sequence[Type],
    results: Sequence[Type],
    attributes: Mapping[str, Any],
) -> None:
    """Checks the operation for either of its versions."""
    if name in _PROMOTING and operation.regions and operation.regions[-1] is not None:
        _check_promotion(encoder, operation.regions[-1], operands)
    if name != "custom_call":
        return
    if isinstance(attributes.get("backend_config"), dict):
        encoder.require(_DICTIONARIES, "a backend_config that is a dictionary")
    texts = [str(t) for t in (*operands, *results)]
    if any(text.startswith("memref") for text in texts):
        encoder.require(_BUFFERS, "a buffer")
    if any(text.startswith("!stablehlo.future") for text in texts):
        encoder.require(_FUTURES_OF_CALLS, "the type !stablehlo.future of a custom call")


def _check_promotion(encoder: Encoder, region: Block, operands: Sequence[Type]) -> None:
    """Older reducers compute in the type of the operand."""
    for (_, type), operand in zip(region.arguments[: len(region.arguments) // 2], operands, strict=False):
        if element_of(type) != element_of(operand):
            encoder.require(_PROMOTED, f"a reducer of {element_of(type)} for operands of {element_of(operand)}")


def _check_first(
    encoder: Encoder, name: str, second: Version, operation: Operation, attributes: Mapping[str, Any]
) -> None:
    """Checks that the first version of an operation can say it."""
    if name in _VARIADIC and len(operation.operands) != 1:
        encoder.require(second, f"the form with {len(operation.operands)} operands")
    if name == "composite" and operation.regions:
        encoder.require(second, "the form with regions")
    first = {*(properties_of(f"vhlo.{name}_v1") or ())} if name not in ACCURATE else set[str]()
    for attribute in properties_of(f"vhlo.{name}_v2") or ():
        value = attributes.get(attribute)
        if attribute not in first and value is not None and not _is_default(value):
            encoder.require(second, f"the attribute {attribute}")


def _is_default(value: Any) -> bool:
    """Whether a value says nothing that its absence does not."""
    if isinstance(value, DialectAttribute) and isinstance(value.value, Dictionary):
        mode: Any = value.value.get("mode", "DEFAULT")
        numbers = [_number(value.value.get(part, 0)) for part in ("atol", "rtol", "ulps")]
        return getattr(mode, "value", mode) == "DEFAULT" and not any(numbers)
    if is_set(value):
        return False
    if value is False or value == NONE:
        return True
    try:
        return not plain_integers(value)
    except TypeError:
        return False


# -- defaults


_FLAGS = ("has_dynamic_root", "has_side_effect", "indices_are_sorted", "is_host_transfer", "is_stable", "lower",
          "unique_indices", "use_global_device_ids")  # fmt: skip
_EMPTY: dict[str, Any] = {
    "called_computations": [], "composite_attributes": Dictionary(), "infeed_config": "", "layout": [],
    "operand_layouts": [], "outfeed_config": "", "output_operand_aliases": [], "result_layouts": [],
    "result_tilings": [],
}  # fmt: skip
_NO_INTEGERS = (
    "known_expanding_dimensions", "known_nonexpanding_dimensions", "operand_batching_dims", "source_target_pairs",
    "start_indices_batching_dims", "input_batching_dims", "scatter_indices_batching_dims",
)  # fmt: skip
_ONES = ("window_strides", "lhs_dilation", "rhs_dilation", "base_dilations", "window_dilations")


def _default(
    name: str, attribute: str, attributes: Mapping[str, Any], operands: Sequence[Type], encoder: Encoder
) -> Any:
    """The value that an attribute has where it is left out."""
    rank = _window_rank(name, attributes, operands)
    if attribute in _FLAGS:
        return False
    if attribute in _EMPTY:
        return _EMPTY[attribute]
    if attribute in _NO_INTEGERS:
        return integers([])
    if attribute in ("channel_id", "version"):
        return integer(0)
    if attribute in _ONES:
        return integers([1] * rank)
    if attribute == "padding":
        return Dense(dtypes.s64[rank, 2], np.zeros((1, 1), np.int64))
    if attribute == "window_reversal":
        return Typed((False,) * rank, dtypes.pred[()])
    if attribute == "dimension" and name == "sort":
        return integer(-1)
    if attribute == "precision_config":
        return _NO_PRECISION
    if attribute == "compare_type":
        return DialectAttribute("stablehlo.comparison_type", "NOTYPE")
    if attribute == "result_accuracy":
        return _DEFAULT_ACCURACY
    if attribute == "api_version":
        return integer(1)
    if attribute == "backend_config":
        is_typed = _number(attributes.get("api_version", 1)) == 4
        return Dictionary() if is_typed else ""
    if attribute in ALGORITHM:
        return NONE
    default = _REQUIRED_DEFAULTS.get((name, attribute))
    if default is not None:
        return default()
    raise UnsupportedError(f"{encoder.where}without the attribute {attribute}, is not supported")


_REQUIRED_DEFAULTS: dict[tuple[str, str], Callable[[], Any]] = {
    ("convolution", "feature_group_count"): lambda: integer(1),
    ("convolution", "batch_group_count"): lambda: integer(1),
    ("dynamic_conv", "feature_group_count"): lambda: integer(1),
    ("dynamic_conv", "batch_group_count"): lambda: integer(1),
}


def _window_rank(name: str, attributes: Mapping[str, Any], operands: Sequence[Type]) -> int:
    """The dimensions of a window: of all of the operand's, or in a convolution of the spatial ones."""
    shape = getattr(operands[0], "shape", operands[0]) if operands else None
    if not isinstance(shape, Shape) or not shape.is_array:
        return 0
    return max(0, shape.rank - 2) if name in ("convolution", "dynamic_conv") else shape.rank


def is_versioned(operation: Operation) -> bool:
    """Whether vhlo has the operation: others are kept as they are."""
    return operation.name in ("func.call", "func.return") or operation.name.partition(".")[0] == "stablehlo"
