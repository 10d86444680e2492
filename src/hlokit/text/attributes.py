"""Attribute values in text (HATTR): for each kind of attribute one reader and one writer. Knows no ops."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hlokit.hlo.names import KEYWORDS
from hlokit.text.groups import read_replica_groups, read_sharding
from hlokit.text.lexer import ATTRIBUTE, CONV_LABELS, INTEGER, PADDING, SIZES, STRING, WORD, Lexer, escaped
from hlokit.text.lists import integers_text, read_integers, read_lists
from hlokit.text.literals import read_literal
from hlokit.text.numbers import float_text, literal_text
from hlokit.text.shapes import read_shape
from hlokit.types import attributes as kinds
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import PRECISIONS, Kind
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from hlokit.types.window import PaddingDimension, Window

Reader = Callable[[Lexer], Any]
Writer = Callable[[Any], str]


def reader_of(kind: Kind) -> Reader:
    """The function that reads a value of this kind."""
    return _choice_reader(kind) if kind.choices else _READERS[kind]


def writer_of(kind: Kind) -> Writer:
    """The function that writes a value of this kind."""
    return str if kind.choices else _WRITERS[kind]


# -- lists


def _choice_reader(kind: Kind) -> Reader:
    return lambda lexer: lexer.choice(kind.choices, "HINST-6")


def read_int_list(lexer: Lexer) -> tuple[int, ...]:
    return read_integers(lexer, "HINST-6")


def _read_single(lexer: Lexer) -> int:
    start = lexer.start
    values = read_integers(lexer, "HINST-6")
    if len(values) != 1:
        raise lexer.error(f"exactly one integer is allowed here, found {len(values)}", "HINST-6", start)
    return values[0]


def _lists_text(lists: tuple[tuple[int, ...], ...]) -> str:
    return f"{{{','.join(map(integers_text, lists))}}}"


def _read_slices(lexer: Lexer) -> tuple[tuple[int, ...], ...]:
    """{[start:limit:stride], ...}; a missing stride is 1 (HATTR-6)."""
    lexer.expect("{", "HATTR-6")
    ranges: list[tuple[int, ...]] = []
    while lexer.accept("["):
        start = lexer.integer("HATTR-6")
        lexer.expect(":", "HATTR-6")
        limit = lexer.integer("HATTR-6")
        stride = lexer.integer("HATTR-6") if lexer.accept(":") else 1
        lexer.expect("]", "HATTR-6")
        ranges.append((start, limit, stride))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HATTR-6")
    return tuple(ranges)


def _slices_text(ranges: tuple[tuple[int, ...], ...]) -> str:
    if all(stride == 1 for _, _, stride in ranges):
        return "{" + ", ".join(f"[{start}:{limit}]" for start, limit, _ in ranges) + "}"
    return "{" + ", ".join(f"[{start}:{limit}:{stride}]" for start, limit, stride in ranges) + "}"


# -- padding and windows


def _read_padding(lexer: Lexer) -> tuple[PaddingDimension, ...]:
    """lo_hi[_interior] joined by x; nothing for rank 0 (HATTR-7)."""
    if lexer.kind != PADDING:
        return ()
    dimensions = [part.split("_") for part in lexer.value.split("x")]
    values = [tuple(_bounded(lexer, number) for number in part) for part in dimensions]
    lexer.advance()
    return tuple(PaddingDimension(*part) for part in values)


def _bounded(lexer: Lexer, digits: str) -> int:
    value = lexer.number_of(digits)
    if not -(2**63) <= value < 2**63:
        raise lexer.error(f"{value} does not fit 64 bits", "LEX-10")
    return value


def _padding_text(dimensions: tuple[PaddingDimension, ...]) -> str:
    if any(d.interior_padding for d in dimensions):
        return "x".join(f"{d.edge_padding_low}_{d.edge_padding_high}_{d.interior_padding}" for d in dimensions)
    return "x".join(f"{d.edge_padding_low}_{d.edge_padding_high}" for d in dimensions)


def _read_window(lexer: Lexer) -> Window:
    """Fields in any order, each once; `size` first of all must be there (HATTR-1, HATTR-2)."""
    start = lexer.start
    lexer.expect("{", "HATTR-1")
    fields: dict[str, tuple[Any, ...]] = {}
    while lexer.value != "}":
        name = lexer.value
        if name not in _WINDOW_FIELDS:
            raise lexer.unexpected("one of " + " ".join(_WINDOW_FIELDS), "HATTR-1")
        if name in fields:
            raise lexer.error(f"{name} is given twice", "HATTR-2")
        lexer.advance()
        fields[name] = _read_pads(lexer) if name == "pad=" else _read_sizes(lexer)
        lexer.accept(",")
    lexer.expect("}", "HATTR-1")
    if not fields:
        return Window()
    rank = len(fields.get("size=", ()))
    if not rank:
        raise lexer.error("a window needs size=", "HATTR-2", start)
    for name, values in fields.items():
        if len(values) != rank:
            raise lexer.error(f"{name} has {len(values)} dimensions, size= has {rank}", "HATTR-2", start)
        if name in ("size=", "stride=", "lhs_dilate=", "rhs_dilate=") and min(values) < 1:
            raise lexer.error(f"{name} must be > 0", "HATTR-2", start)
    return Window.make(
        fields["size="],
        fields.get("stride=", ()),
        fields.get("pad=", ()),
        fields.get("lhs_dilate=", ()),
        fields.get("rhs_dilate=", ()),
        fields.get("rhs_reversal=", ()),
    )


_WINDOW_FIELDS = ("size=", "stride=", "pad=", "lhs_dilate=", "rhs_dilate=", "rhs_reversal=")


def _read_sizes(lexer: Lexer) -> tuple[int, ...]:
    if lexer.kind not in (SIZES, INTEGER):
        raise lexer.unexpected("sizes like 3x3", "HATTR-1")
    values = tuple(_bounded(lexer, part) for part in lexer.value.split("x"))
    lexer.advance()
    return values


def _read_pads(lexer: Lexer) -> tuple[tuple[int, ...], ...]:
    if lexer.kind != PADDING or lexer.value.count("_") != lexer.value.count("x") + 1:
        raise lexer.unexpected("padding like 0_1x0_1", "HATTR-1")
    values = tuple(tuple(_bounded(lexer, n) for n in part.split("_")) for part in lexer.value.split("x"))
    lexer.advance()
    return values


def window_text(window: Window) -> str:
    """Fields in fixed order, each only where some dimension differs from the default (HATTR-3)."""
    dimensions = window.dimensions
    fields = [f"size={'x'.join(str(d.size) for d in dimensions)}"] if dimensions else []
    if any(d.stride != 1 for d in dimensions):
        fields.append("stride=" + "x".join(str(d.stride) for d in dimensions))
    if any(d.padding_low or d.padding_high for d in dimensions):
        fields.append("pad=" + "x".join(f"{d.padding_low}_{d.padding_high}" for d in dimensions))
    if any(d.base_dilation != 1 for d in dimensions):
        fields.append("lhs_dilate=" + "x".join(str(d.base_dilation) for d in dimensions))
    if any(d.window_dilation != 1 for d in dimensions):
        fields.append("rhs_dilate=" + "x".join(str(d.window_dilation) for d in dimensions))
    if any(d.reversal for d in dimensions):
        fields.append("rhs_reversal=" + "x".join("1" if d.reversal else "0" for d in dimensions))
    return f"{{{' '.join(fields)}}}"


# -- convolution labels


def _read_labels(lexer: Lexer) -> ConvolutionDimensionNumbers:
    """b01f_01io->b01f: position is the dimension, the letter or digit its role (HATTR-4, HATTR-5)."""
    if lexer.kind != CONV_LABELS:
        raise lexer.unexpected("convolution labels like b01f_01io->b01f", "HATTR-4")
    lhs, rhs, output = re.split("_|->", lexer.value)
    counts = {len(group.replace("?", "")) for group in (lhs, rhs, output)}
    if len(counts) != 1:
        raise lexer.error("the three groups have different numbers of spatial dimensions", "HATTR-5")
    (count,) = counts
    letters = ("bf", "io", "bf")
    groups = [
        _label_positions(lexer, group, roles, count - 2)
        for group, roles in zip((lhs, rhs, output), letters, strict=True)
    ]
    lexer.advance()
    return ConvolutionDimensionNumbers(*groups[0], *groups[1], *groups[2])


def _label_positions(lexer: Lexer, group: str, letters: str, spatial: int) -> tuple[int, int, tuple[int, ...]]:
    """The places of the two letters and the digits 0..S-1, each once."""
    if spatial > 10 or sorted(group.replace("?", "")) != sorted([*letters, *map(str, range(spatial))]):
        expected = f"{letters[0]}, {letters[1]} and each digit below {spatial} once"
        raise lexer.error(f"'{group}': expected {expected}", "HATTR-5")
    first, second = (group.index(letter) for letter in letters)
    return first, second, tuple(group.index(str(i)) for i in range(spatial))


def labels_text(numbers: ConvolutionDimensionNumbers) -> str:
    lhs = _labels("bf", numbers.lhs)
    rhs = _labels("oi", numbers.rhs)
    return f"{lhs}_{rhs}->{_labels('bf', numbers.output)}"


def _labels(letters: str, dimensions: tuple[int, ...]) -> str:
    roles = [*letters, *map(str, range(len(dimensions) - 2))]
    labels = ["?"] * (max(dimensions) + 1)
    for role, dimension in zip(roles, dimensions, strict=True):
        labels[dimension] = role
    return "".join(labels)


# -- shapes, literals


def _read_shapes(lexer: Lexer) -> tuple[Shape, ...]:
    """{f32[2]{0}, f32[]}."""
    lexer.expect("{", "HOP-39")
    shapes: list[Shape] = []
    while lexer.value != "}":
        shapes.append(read_shape(lexer))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HOP-39")
    return tuple(shapes)


def _shapes_text(shapes: tuple[Shape, ...]) -> str:
    return "{" + ", ".join(shape.to_text() for shape in shapes) + "}"


def _read_literal(lexer: Lexer) -> Literal:
    return read_literal(lexer, read_shape(lexer))


def _literal_text(literal: Literal) -> str:
    return f"{literal.shape.to_text()} {literal_text(literal)}"


# -- dictionaries and maps


def _read_aliasing(lexer: Lexer) -> tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...]:
    """{ {out}: (operand, {index}), ... }."""
    lexer.expect("{", "HOP-38")
    aliases: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []
    while lexer.value == "{":
        output = read_integers(lexer, "HOP-38")
        lexer.expect(":", "HOP-38")
        lexer.expect("(", "HOP-38")
        operand = lexer.integer("HOP-38", 0)
        index = read_integers(lexer, "HOP-38") if lexer.accept(",") else ()
        lexer.expect(")", "HOP-38")
        aliases.append((output, operand, index))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HOP-38")
    return tuple(aliases)


def _index_text(index: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(str, index))}}}"


def aliasing_text(aliases: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...]) -> str:
    parts = [f"{_index_text(out)}: ({operand}, {_index_text(index)})" for out, operand, index in aliases]
    return "{" + ", ".join(parts) + "}"


def _read_accuracy(lexer: Lexer) -> tuple[str, ...] | None:
    """{mode=highest} or {tolerance={atol=..,rtol=..,ulps=..}}; the default is None (HATTR-10)."""
    lexer.expect("{", "HATTR-10")
    if lexer.accept("mode="):
        mode = lexer.take(WORD, "HATTR-10")
        if mode not in ("default", "highest"):
            raise lexer.error(f"the mode is default or highest, not {mode}", "HATTR-10")
        lexer.expect("}", "HATTR-10")
        return None if mode == "default" else (mode,)
    lexer.expect("tolerance=", "HATTR-10")
    lexer.expect("{", "HATTR-10")
    values = {"atol=": 0.0, "rtol=": 0.0, "ulps=": 0}
    while lexer.value != "}":
        name = lexer.value
        if name not in values:
            raise lexer.unexpected("atol=, rtol= or ulps=", "HATTR-10")
        lexer.advance()
        values[name] = lexer.integer("HATTR-10") if name == "ulps=" else lexer.decimal("HATTR-10")
        lexer.accept(",")
    lexer.advance()
    lexer.expect("}", "HATTR-10")
    return ("tolerance", *(float_text(values[name], dtypes.f64) for name in ("atol=", "rtol=")), str(values["ulps="]))


def _accuracy_text(accuracy: tuple[str, ...] | None) -> str:
    if accuracy is None:
        return "{mode=default}"
    if len(accuracy) == 1:
        return f"{{mode={accuracy[0]}}}"
    atol, rtol = (float_text(float(value), dtypes.f64) for value in accuracy[1:3])
    return f"{{tolerance={{atol={atol},rtol={rtol},ulps={accuracy[3]}}}}}"


def _read_domain(lexer: Lexer) -> tuple[Any, ...]:
    """{kind="sharding", entry={..}, exit={..}} (HOP-42)."""
    lexer.expect("{", "HOP-42")
    lexer.expect("kind=", "HOP-42")
    kind = lexer.string("HOP-42")
    if kind != "sharding":
        raise lexer.error(f'the kind is "sharding", not "{kind}"', "HOP-42")
    lexer.expect(",", "HOP-42")
    lexer.expect("entry=", "HOP-42")
    entry = read_sharding(lexer)
    lexer.expect(",", "HOP-42")
    lexer.expect("exit=", "HOP-42")
    domain = (kind, entry, read_sharding(lexer))
    lexer.expect("}", "HOP-42")
    return domain


def _domain_text(domain: tuple[Any, ...]) -> str:
    return f'{{kind="{domain[0]}", entry={domain[1]}, exit={domain[2]}}}'


def _read_precision(lexer: Lexer) -> tuple[str, ...]:
    """{default,highest}, in either case; all default is the same as none (HATTR-8)."""
    lexer.expect("{", "HATTR-8")
    precisions: list[str] = []
    while lexer.value.lower() in PRECISIONS:
        precisions.append(lexer.value.lower())
        lexer.advance()
        if not lexer.accept(","):
            break
    lexer.expect("}", "HATTR-8")
    return () if set(precisions) <= {"default"} else tuple(precisions)


def precision_text(precisions: tuple[str, ...]) -> str:
    return f"{{{','.join(precisions)}}}"


def read_dictionary(lexer: Lexer, label: str = "HCATTR-2") -> dict[str, str]:
    """{k="v",k2={json}}: a string's value is its content, a JSON value its text, braces included.

    A key that is not an identifier is quoted: XLA lets any key in by its protos, prints it bare and cannot read it.
    """
    lexer.expect("{", label)
    values: dict[str, str] = {}
    while lexer.value != "}":
        start = lexer.start
        if lexer.kind == STRING:
            key = lexer.string(label)
            lexer.expect("=", label)
        elif lexer.kind == ATTRIBUTE and lexer.value[:-1] not in KEYWORDS:
            key = lexer.value[:-1]
            lexer.advance()
        else:
            raise lexer.unexpected("a key followed by =", label)
        if key in values:
            raise lexer.error(f"the key {key} is given twice", label, start)
        if lexer.value == "{":
            values[key] = lexer.balanced(label)
        else:
            values[key] = lexer.string(label)
        if not lexer.accept(","):
            break
    lexer.expect("}", label)
    return values


_READERS: dict[Kind, Reader] = {
    kinds.INT: lambda lexer: lexer.integer("HINST-6"),
    kinds.OPTIONAL_INT: lambda lexer: lexer.integer("HINST-6"),
    kinds.BOOL: lambda lexer: lexer.boolean("HINST-6"),
    kinds.STABILITY: lambda lexer: lexer.boolean("HINST-6"),
    kinds.FLOAT: lambda lexer: lexer.decimal("HINST-6"),
    kinds.STRING: lambda lexer: lexer.string("HINST-6"),
    kinds.INT_LIST: read_int_list,
    kinds.OPTIONAL_INT_LIST: read_int_list,
    kinds.INT_LISTS: lambda lexer: read_lists(lexer, "HOP-35"),
    kinds.OPTIONAL_SHAPE: read_shape,
    kinds.SINGLE: _read_single,
    kinds.OPTIONAL_SINGLE: _read_single,
    kinds.SLICE_RANGES: _read_slices,
    kinds.PADDING: _read_padding,
    kinds.WINDOW: _read_window,
    kinds.OPTIONAL_WINDOW: _read_window,
    kinds.CONV_LABELS: _read_labels,
    kinds.OPTIONAL_CONV_LABELS: _read_labels,
    kinds.GROUPS: read_replica_groups,
    kinds.PAIRS: lambda lexer: read_lists(lexer, "HGRP-7"),
    kinds.SHAPE: read_shape,
    kinds.SHAPES: _read_shapes,
    kinds.LITERAL: _read_literal,
    kinds.OPTIONAL_LITERAL: _read_literal,
    kinds.ALIASING: _read_aliasing,
    kinds.ACCURACY: _read_accuracy,
    kinds.SHARDING: read_sharding,
    kinds.DOMAIN: _read_domain,
    kinds.PRECISION: _read_precision,
}

_WRITERS: dict[Kind, Writer] = {
    kinds.INT: str,
    kinds.OPTIONAL_INT: str,
    kinds.BOOL: lambda value: "true" if value else "false",
    kinds.STABILITY: lambda value: "true" if value else "false",
    kinds.FLOAT: lambda value: float_text(value, dtypes.f32),
    kinds.STRING: lambda value: f'"{escaped(value)}"',
    kinds.INT_LIST: integers_text,
    kinds.OPTIONAL_INT_LIST: integers_text,
    kinds.INT_LISTS: _lists_text,
    kinds.OPTIONAL_SHAPE: lambda shape: shape.to_text(),
    kinds.SINGLE: lambda value: f"{{{value}}}",
    kinds.OPTIONAL_SINGLE: lambda value: f"{{{value}}}",
    kinds.SLICE_RANGES: _slices_text,
    kinds.PADDING: _padding_text,
    kinds.WINDOW: window_text,
    kinds.OPTIONAL_WINDOW: window_text,
    kinds.CONV_LABELS: labels_text,
    kinds.OPTIONAL_CONV_LABELS: labels_text,
    kinds.GROUPS: str,
    kinds.PAIRS: _lists_text,
    kinds.SHAPE: lambda shape: shape.to_text(),
    kinds.SHAPES: _shapes_text,
    kinds.LITERAL: _literal_text,
    kinds.OPTIONAL_LITERAL: _literal_text,
    kinds.ALIASING: aliasing_text,
    kinds.ACCURACY: _accuracy_text,
    kinds.SHARDING: str,
    kinds.DOMAIN: _domain_text,
    kinds.PRECISION: precision_text,
}
