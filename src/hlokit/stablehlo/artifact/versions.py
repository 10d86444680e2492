"""Versioned operations (vhlo.NAME_vN) as the corresponding operations of StableHLO."""

from __future__ import annotations

import re
from typing import Any

from hlokit.errors import UnsupportedError
from hlokit.stablehlo.artifact.cursor import failure
from hlokit.stablehlo.tree import DialectAttribute, Dictionary, Operation, OtherType, Symbol

_VERSIONED = re.compile(r"vhlo\.(.+)_v([0-9]+)\Z")
_OF_TWO_VERSIONS = {
    "all_gather", "all_reduce", "all_to_all", "cbrt", "collective_broadcast", "composite", "cosine", "custom_call",
    "dot_general", "dynamic_conv", "dynamic_gather", "exponential", "exponential_minus_one", "gather", "log",
    "log_plus_one", "logistic", "recv", "rsqrt", "scatter", "send", "sine", "sqrt", "tan", "tanh",
}  # fmt: skip
"""Operations that StableHLO 1.x has in a second version; of the others there is one."""
_OF_FUNC = ("func", "call")
GATHER = (
    "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
    "index_vector_dim",
)  # fmt: skip
SCATTER = (
    "update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims", "index_vector_dim",
)  # fmt: skip
CONVOLUTION = (
    "input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension",
    "kernel_output_feature_dimension", "kernel_spatial_dimensions", "output_batch_dimension",
    "output_feature_dimension", "output_spatial_dimensions",
)  # fmt: skip
DOT = (
    "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions",
)  # fmt: skip
ALGORITHM = (
    "lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count", "rhs_component_count",
    "num_primitive_operations", "allow_imprecise_accumulation",
)  # fmt: skip
_GROUPED: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "convolution": (("dimension_numbers", "conv", CONVOLUTION),),
    "dot_general": (("dot_dimension_numbers", "dot", DOT), ("algorithm", "dot_algorithm", ALGORITHM)),
    "dynamic_conv": (("dimension_numbers", "conv", CONVOLUTION),),
    "dynamic_gather": (("dimension_numbers", "gather", GATHER),),
    "gather": (("dimension_numbers", "gather", GATHER),),
    "scatter": (("scatter_dimension_numbers", "scatter", SCATTER),),
}
"""An attribute, the name of its kind, and the attributes of vhlo that are its parameters, by operation."""
_EMPTY = ("called_computations", "operand_layouts", "output_operand_aliases", "precision_config", "result_layouts",
    "result_tilings",
)  # fmt: skip
"""Attributes that StableHLO leaves out where they are empty."""


def check_version(name: str, start: int) -> None:
    """UnsupportedError for an operation of vhlo in a version that is not known; `start`: its byte."""
    found = _VERSIONED.match(name)
    if found is not None and found[2] not in (("1", "2") if found[1] in _OF_TWO_VERSIONS else ("1",)):
        raise UnsupportedError(f"byte {start}: {name}: the version is not known")


def upgraded(operation: Operation) -> None:
    """Gives an operation of vhlo the name and the attributes that it has in StableHLO."""
    found = _VERSIONED.match(operation.name)
    if found is None:
        return
    name, attributes = found[1], operation.attributes
    operation.name = f"func.{name}" if name in _OF_FUNC else f"stablehlo.{name}"
    for attribute, kind, parts in _GROUPED.get(name, ()):
        _group(attributes, attribute, kind, parts)
    if "channel_id" in attributes:
        handle = {"handle": attributes.pop("channel_id"), "type": attributes.pop("channel_type", 1)}
        attributes["channel_handle"] = DialectAttribute("stablehlo.channel_handle", Dictionary(handle))
    for attribute in _EMPTY:
        if attributes.get(attribute) == []:
            del attributes[attribute]
    for attribute in ("callee", "decomposition", "called_computations"):
        if attribute in attributes:
            attributes[attribute] = _symbols(operation, attributes[attribute])
    groups = getattr(attributes.get("replica_groups"), "value", None)
    if isinstance(groups, Dictionary) and isinstance(groups.get("mesh"), str):  # axes of a mesh that has a name
        groups["mesh"] = _symbols(operation, groups["mesh"])
    if name == "func" and not attributes.get("sym_visibility"):
        attributes.pop("sym_visibility", None)


def _group(attributes: dict[str, Any], name: str, kind: str, parts: tuple[str, ...]) -> None:
    """Makes one attribute of several; none where they have the type none."""
    found = Dictionary((part, attributes.pop(part)) for part in parts if part in attributes)
    values = [value for value in found.values() if not (isinstance(value, OtherType) and value.text == "none")]
    if len(values) == len(found) and found:
        attributes[name] = DialectAttribute(f"stablehlo.{kind}", found)


def _symbols(operation: Operation, value: Any) -> Any:
    """Names of functions are strings in vhlo."""
    if isinstance(value, list):
        return [_symbols(operation, part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Symbol):
        return value
    if not isinstance(value, str):
        raise failure(f"{operation.name}: a function's name that is not a string", operation.start)
    return Symbol(value)
