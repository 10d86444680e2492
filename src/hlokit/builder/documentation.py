"""Docstrings of op functions, completed: a parameter that many functions have is described once, here.

A docstring has the sections of NumPy's standard that are the function's own: parameters, results, errors. What it
leaves out is taken from these tables when the function is first used as `hk.NAME`, so that `help(hk.add)` and the site
show all of them, in the signature's order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import CO_VARARGS, CO_VARKEYWORDS, cleandoc, unwrap
from types import FunctionType
from typing import TypeAlias

Entry: TypeAlias = "tuple[str, str]"
"""The type of a parameter or result, in words, and its description: lines of a docstring."""

SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Examples")
"""The sections of a docstring, in their order; the text before the first one has the name ""."""

_VALUE = "XlaOp, number or array"
_COMPUTATION = "Computation, HloModule or callable"
_NUMBERS = "mapping or object with its fields"

PARAMETERS: Mapping[str, Mapping[str, Entry]] = {
    "elementwise": {
        "operand": ("XlaOp", "The argument x: an array of any shape."),
        "lhs": (
            _VALUE,
            "The first operand. Both operands have the same element type, and the same shape up to broadcasting: a\n"
            "scalar is combined with every element of the other operand, and a dimension of size 1 with any size. One\n"
            "of the two may be a number or an array, which becomes a constant.",
        ),
        "rhs": (_VALUE, "The second operand."),
        "broadcast_dimensions": (
            "sequence of int",
            "Needed if the ranks differ and neither operand is a scalar: entry i is the dimension of the operand of\n"
            "higher rank to which dimension i of the other operand corresponds. There is one entry for each dimension\n"
            "of the operand of lower rank, in ascending order. Otherwise empty.",
        ),
    },
    "convolution": {
        "lhs": ("XlaOp", "The input: batch, feature and spatial dimensions, in the order of the dimension numbers."),
        "rhs": (
            _VALUE,
            "The kernel, of the same rank: output feature, input feature and spatial dimensions. Its input features\n"
            "times `feature_group_count` are the features of `lhs`.",
        ),
        "padding": (
            "sequence of (int, int)",
            "(low, high) for each spatial dimension: zeros before and after it; negative ones remove elements.\n"
            "Empty: none.",
        ),
    },
    "reduction": {
        "padding": ("str", '"SAME" (a window for each element, if strides are 1) or "VALID".'),
    },
    "gamma": {"x": ("XlaOp", "The argument: a real floating array of any shape.")},
    "": {
        "builder": ("Builder", "The builder to which the instruction is added."),
        "result_accuracy": (
            'None, "highest" or tuple',
            'The requested accuracy: `("tolerance", atol, rtol, ulps)`, "highest", or None for the default. It is\n'
            "stored with the instruction and does not change values (BEY-17).",
        ),
        "replica_groups": (
            "ReplicaGroups or sequence of sequences of int",
            "The groups of devices that take part together: lists of ids. Empty: one group of all devices (GRP-1).",
        ),
        "channel_id": (
            "int or ChannelHandle",
            "With a channel, devices of all partitions take part; without, the replicas of a partition (GRP-4).",
        ),
        "layout": ("Layout", "The result's layout in memory."),
        "use_global_device_ids": (
            "bool",
            "Whether ids in `replica_groups` are replica * partitions + partition, which needs `channel_id`.",
        ),
        "shard_count": ("int", "The size of each group."),
        "shape_with_layout": ("Shape", "The result's shape, with its layout in memory."),
        "has_dynamic_root": (
            "bool",
            "Whether the last operand is a vector s32[n] that gives, for each of the n other operands, its member.",
        ),
        "precision_config": (
            "str or sequence of str",
            'The requested precision, "default", "high" or "highest", for both operands or for each.',
        ),
        "preferred_element_type": ("DType", "The result's element type; by default the operands'."),
        "algorithm": ("str", 'How products are computed, by its name in HLO text, as "dot_bf16_bf16_f32_x3".'),
        "window_strides": (
            "sequence of int",
            "The distance between neighbouring positions of the window, for each of its dimensions. Empty: 1 in each.",
        ),
        "window_dimensions": ("sequence of int", "The window's sizes, one for each dimension of the operand."),
        "lhs_dilation": (
            "sequence of int",
            "The distance between elements of `lhs`, for each spatial dimension. Empty: 1.",
        ),
        "rhs_dilation": (
            "sequence of int",
            "The distance between elements of `rhs`, for each spatial dimension. Empty: 1.",
        ),
        "feature_group_count": (
            "int",
            "The number of groups into which features are divided; each is convolved separately.",
        ),
        "batch_group_count": (
            "int",
            "The number of groups into which the batch is divided; each has its own output features.",
        ),
        "padding_type": ("str", '"PADDING_VALID" or "PADDING_SAME".'),
        "token": ("XlaOp", "The token that precedes the operation."),
        "handle": ("ChannelHandle", "The channel, of one send and one recv."),
        "channel_handle": ("ChannelHandle", "The channel, of one send and one recv."),
        "shape": ("Shape or DType", "The shape of the result; an element type stands for its scalar."),
        "dtype": ("DType", "The element type."),
        "prototype": ("XlaOp", "The array whose shape and element type the result has."),
        "epsilon": ("float", "The number that is added to the variance."),
        "feature_index": ("int", "The feature dimension of `operand`; F is its size."),
        "scale": (_VALUE, "The factor of each feature, [F], of the operand's element type."),
        "offset": (_VALUE, "The number added to each feature, [F], of the operand's element type."),
        "call_target_name": ("str", "The name under which the function is registered."),
        "opaque": ("str", "A string for the function, or the attributes of an FFI handler (CCALL-7)."),
        "options": ("Any", "Further arguments of custom_call, by name."),
        "operand_shapes_with_layout": ("sequence of Shape", "The operands' shapes, with layouts."),
        "key": ("XlaOp", "The key of the generator, u64[]."),
        "initial_state": ("XlaOp", "The state of the generator, u64[] for ThreeFry, u64[2] for Philox."),
        "bit_generator": ("callable", "`three_fry_bit_generator` or `philox_bit_generator`."),
        "indices_are_sorted": ("bool", "A promise that the indices are in ascending order. No value depends on it."),
        "computation": (_COMPUTATION, "Takes two scalars of the element type to one."),
        "dimension_numbers": (
            f"ConvolutionDimensionNumbers, {_NUMBERS}",
            "The roles of the dimensions of lhs, rhs and the result.",
        ),
    },
}
"""Parameters by the module of the functions that have them, "" for those that mean the same everywhere."""

_ELEMENTWISE = ("elementwise", "error_functions", "hyperbolic", "math")
"""Modules of functions of an element, or of the elements of two operands."""

TYPE_RULES: Mapping[str, str] = {
    "error_functions": "BEY-80",
    "hyperbolic": "BEY-6",
    "math": "BEY-80",
    "abs": "ABS-4",
    "and_": "BIN-5",
    "div": "BIN-4",
    "imag": "REAL-2",
    "is_finite": "ISFINITE-2",
    "max": "MAX-4",
    "min": "MAX-4",
    "mulhi": "BEY-15",
    "neg": "NEG-3",
    "not_": "NOT-2",
    "or_": "BIN-5",
    "pow": "BEY-8",
    "real": "REAL-2",
    "rem": "BIN-4, REM-5",
    "round_to_even": "UN-6",
    "shift_left": "BEY-13",
    "shift_right_arithmetic": "BEY-13",
    "shift_right_logical": "BEY-13",
    "sign": "SIGN-4",
    "square": "BIN-3",
    "sub": "BIN-4",
    "xor": "BEY-12",
}
"""The rules by which elementwise functions, or those of a module, refuse element types. Others of one operand: UN-6."""

_ORDERS = ("ge", "gt", "le", "lt")
_COMPARISONS = ("eq", "ne", *_ORDERS)
_BROADCAST = "BCAST-3, BCAST-5 to BCAST-8, BCAST-13, BCAST-16"
_HANDLES = "An operand belongs to another builder, or its builder has been built (BUILDER-3)."


def completed(function: FunctionType) -> str | None:
    """The docstring with all sections; None for a function that has none (`python -OO`)."""
    if function.__doc__ is None:
        return None
    sections = split(cleandoc(function.__doc__))
    code, module = unwrap(function).__code__, function.__module__.rpartition(".")[2]
    starred = bool(code.co_flags & CO_VARARGS)
    positional, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:positional] + code.co_varnames[named : named + starred]
    names += code.co_varnames[positional:named]
    names += code.co_varnames[named + starred : named + starred + bool(code.co_flags & CO_VARKEYWORDS)]
    first = code.co_argcount - len(unwrap(function).__defaults__ or ())
    has_default = {*names[first : code.co_argcount], *(unwrap(function).__kwdefaults__ or ())}
    table = PARAMETERS.get("elementwise" if module in _ELEMENTWISE else module, {})
    own = entries(sections.get("Parameters", ""))
    parameters = dict[str, str]()
    for name in names:
        head = next((head for head in own if name in _names_of(head)), None)
        entry = table.get(name) or PARAMETERS[""].get(name)
        if head is not None:
            parameters[head] = own[head]
        elif entry is not None:
            parameters[f"{name} : {entry[0]}{', optional' * (name in has_default)}"] = entry[1]
    raises = entries(sections.get("Raises", ""))
    if module in _ELEMENTWISE and names[:1] in (("operand",), ("lhs",)):
        result, error = _elementwise(function.__name__, module, len(names) > 1 and names[1] == "rhs")
        sections.setdefault("Returns", _text({"XlaOp": result}))
        raises.setdefault("ShapeError", error)
    if "XlaOp" in str(function.__annotations__.get("return")):
        raises.setdefault("BuildError", _HANDLES)
    sections |= {"Parameters": _text(parameters), "Raises": _text(raises)}
    parts = [f"{title}\n{'-' * len(title)}\n{sections[title]}" for title in SECTIONS if sections.get(title)]
    return "\n\n".join([sections[""], *parts])


def _elementwise(name: str, module: str, is_binary: bool) -> tuple[str, str]:
    """The descriptions of the result and of ShapeError."""
    rule = TYPE_RULES.get(name) or TYPE_RULES.get(module)
    compared = name.removesuffix("_total_order")
    if compared in _COMPARISONS:
        refused = "CMP-8" if compared != name else "CMP-11" if name in _ORDERS else ""
        types = f" that is not complex ({refused})" if refused else ""
        return "A pred array of the shape that the operands broadcast to.", _two_refused(f"(CMP-2){types}")
    if is_binary:
        result = "An array of the operands' element type, and of the shape that they broadcast to."
        return result, _two_refused(f"(BIN-2){f' that the function takes ({rule})' if rule else ''}")
    result = "A pred array of the operand's shape." if name.startswith("is_") else _SAME
    if module in TYPE_RULES and name not in TYPE_RULES:
        return result, f"`operand` is not an array of an element type that the function takes ({rule})."
    return result, f"`operand` is not an array (UN-3) of an element type that the function takes ({rule or 'UN-6'})."


_SAME = "An array of the shape and element type of `operand`."


def _two_refused(types: str) -> str:
    return f"The operands are not arrays (BIN-3) of one element type {types},\nor do not broadcast ({_BROADCAST})."


def split(text: str) -> dict[str, str]:
    """The sections of a docstring by title; the text before the first one under ""."""
    parts = re.split(rf"^({'|'.join(SECTIONS)})\n-+\n", text, flags=re.MULTILINE)
    return {"": parts[0].rstrip()} | {title: body.rstrip() for title, body in zip(parts[1::2], parts[2::2])}


def entries(section: str) -> dict[str, str]:
    """The entries of a section: the line that is not indented, "lhs, rhs : XlaOp", and the description below it."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in section.split("\n") if section else []:
        if line and not line.startswith(" "):
            lines = found[line] = []
        else:
            lines.append(line[4:])
    return {head: "\n".join(lines).rstrip() for head, lines in found.items()}


def _names_of(head: str) -> list[str]:
    return [name.strip().lstrip("*") for name in head.partition(" : ")[0].split(",")]


def _text(found: Mapping[str, str]) -> str:
    indented = {head: re.sub(r"^(?=.)", "    ", text, flags=re.MULTILINE) for head, text in found.items()}
    return "\n".join(f"{head}\n{text}" for head, text in indented.items())
