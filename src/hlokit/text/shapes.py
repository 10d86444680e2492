"""Shapes and layouts in text (HSHAPE, HLAY): reading. Writing is Shape.to_text."""

from __future__ import annotations

import re

from hlokit.errors import ShapeError
from hlokit.text.lexer import END, INTEGER, WORD, Lexer
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DTYPES, DType
from hlokit.types.layout import Layout
from hlokit.types.shape import OPAQUE, TOKEN, ProgramShape, Shape

_BY_NAME = {name: t for name, t in DTYPES.items() if t.is_array or name in ("token", "opaque")}

# The plain forms, complete at this point: no further token can belong to the shape. 3 x faster than the tokens.
_PLAIN = re.compile(r"([a-z][a-z0-9]*+)\[([0-9,]*+)\](?:\{([0-9,]++)\}|(?= ?[^ \t\r\n{/]))")


MAX_RANK = 200
"""More than can ever run (NumPy stops at 64), and few enough that no check of dimension lists takes long."""


def parse_shape(text: str) -> Shape:
    """The shape that `text` says, e.g. "f32[2,<=3]{1,0}" or "(s32[], pred[4])". Raises ParseError."""
    lexer = Lexer(text)
    shape = read_shape(lexer)
    _expect_end(lexer)
    return shape


def parse_program_shape(text: str) -> ProgramShape:
    """The program shape that `text` says, e.g. "(x: f32[2], f32[]) -> f32[2]". Raises ParseError."""
    lexer = Lexer(text)
    shape = read_program_shape(lexer)
    _expect_end(lexer)
    return shape


def _expect_end(lexer: Lexer) -> None:
    if lexer.kind != END:
        raise lexer.unexpected("the end of the shape", "HSHAPE-1")


def starts_shape(lexer: Lexer) -> bool:
    """Whether a shape stands here (and neither a name nor an opcode)."""
    value = lexer.value
    if value == "(":
        return True
    if lexer.kind != WORD:
        return False
    return (value in _BY_NAME and lexer.peek() == "[") or (value == "b" and lexer.peek() == "(")


def read_shape(lexer: Lexer) -> Shape:
    """Reads a shape. A `{` after it is its layout only if an integer or `:` follows (HLAY-1)."""
    plain = _PLAIN.match(lexer.text, lexer.start)
    if plain is not None:
        shape = lexer.shapes.get(plain[0])
        if shape is None:
            shape = _plain_shape(lexer, plain)
        if shape is not None:
            lexer.end = plain.end()
            lexer.advance()
            return shape
    if lexer.value == "(":
        return _read_tuple(lexer)
    if lexer.value == "b" and lexer.peek() == "(":
        lexer.advance()
        lexer.advance()
        lexer.enter()
        content = read_shape(lexer)
        lexer.leave()
        lexer.expect(")", "HSHAPE-5")
        return Shape.buffer(content)
    return _read_array(lexer)


def _plain_shape(lexer: Lexer, plain: re.Match[str]) -> Shape | None:
    """The shape of a plain text, or None where the slow way knows the error."""
    element_type = DTYPES.get(plain[1])
    if element_type is None or not element_type.is_array:
        return None
    try:
        sizes = [int(size) for size in plain[2].split(",")] if plain[2] else []
        if len(sizes) > MAX_RANK:
            return None
        order = Layout(tuple(map(int, plain[3].split(",")))) if plain[3] else None
        shape = Shape.array(element_type, sizes, None, order)
    except (ShapeError, ValueError):
        return None
    lexer.shapes[plain[0]] = shape
    return shape


def _read_tuple(lexer: Lexer) -> Shape:
    lexer.enter()
    lexer.advance()
    elements: list[Shape] = []
    while lexer.value != ")":
        elements.append(read_shape(lexer))
        if not lexer.accept(","):
            break
    lexer.expect(")", "HSHAPE-4")
    lexer.leave()
    return Shape.tuple(elements)


def _read_array(lexer: Lexer) -> Shape:
    start = lexer.start
    element_type = read_type(lexer, "HSHAPE-2")
    lexer.expect("[", "HSHAPE-1")
    sizes: list[int | str] = []
    while lexer.value != "]":
        if len(sizes) == MAX_RANK:
            raise lexer.error(f"a shape of more than {MAX_RANK} dimensions", "HSHAPE-1", start)
        sizes.append(_read_size(lexer))
        if not lexer.accept(","):
            break
    lexer.expect("]", "HSHAPE-1")
    if not element_type.is_array:
        if sizes:
            raise lexer.error(f"{element_type} has no dimensions", "HSHAPE-5", start)
        return TOKEN if element_type is dtypes.token else OPAQUE
    layout = None
    if lexer.value == "{" and (lexer.peek() == ":" or lexer.peek().lstrip("-").isdecimal()):
        layout = read_layout(lexer, len(sizes))
    return Shape.array(element_type, sizes, None, layout)


def _read_size(lexer: Lexer) -> int | str:
    if lexer.accept("?"):
        return "?"
    bounded = lexer.accept("<=")
    size = lexer.integer("HSHAPE-1", 0)
    return f"<={size}" if bounded else size


def read_type(lexer: Lexer, label: str) -> DType:
    """Reads the name of an array type, `token` or `opaque`."""
    if lexer.kind != WORD or lexer.value not in _BY_NAME:
        raise lexer.unexpected("an element type", label)
    element_type = _BY_NAME[lexer.value]
    lexer.advance()
    return element_type


def read_layout(lexer: Lexer, rank: int) -> Layout:
    """Reads a layout, `{1,0:T(8,128)S(1)}`, of an array of this rank (HLAY-2)."""
    start = lexer.start
    lexer.expect("{", "HLAY-1")
    order: list[int] = []
    while lexer.kind == INTEGER:
        order.append(lexer.integer("HLAY-1"))
        if not lexer.accept(","):
            break
    if len(order) != rank:
        raise lexer.error(f"{rank} dimensions, but {len(order)} in minor_to_major", "HLAY-2", start)
    if sorted(order) != list(range(rank)):
        raise lexer.error(f"minor_to_major is not a permutation of 0..{rank - 1}", "HLAY-2", start)
    layout = _read_layout_fields(lexer, tuple(order)) if lexer.accept(":") else Layout(tuple(order))
    lexer.expect("}", "HLAY-1")
    return layout


def _read_layout_fields(lexer: Lexer, order: tuple[int, ...]) -> Layout:
    """The fields after `:`, each optional, in the order of HLAY-4."""
    if lexer.value == "D":
        _skip_level_types(lexer)
    return Layout(
        order,
        tiles=_read_tiles(lexer),
        tail_padding_alignment=_read_field(lexer, "L", 1),
        index_type=_read_type_field(lexer, "#"),
        pointer_type=_read_type_field(lexer, "*"),
        element_size_in_bits=_read_field(lexer, "E", 0),
        memory_space=_read_field(lexer, "S", 0),
        splits=_read_splits(lexer),
        dynamic_prefix_bytes=_read_field(lexer, "M", 0),
    )


def _skip_level_types(lexer: Lexer) -> None:
    """D(C+,S~): what sparse layouts had; accepted and dropped (HLAY-5)."""
    lexer.advance()
    lexer.expect("(", "HLAY-4")
    while True:
        lexer.choice(("D", "C", "S", "H"), "HLAY-4")
        while lexer.value in ("+", "~"):
            lexer.advance()
        if not lexer.accept(","):
            break
    lexer.expect(")", "HLAY-4")


def _read_tiles(lexer: Lexer) -> tuple[tuple[int | None, ...], ...]:
    if not lexer.accept("T"):
        return ()
    tiles: list[tuple[int | None, ...]] = []
    while lexer.accept("("):
        sizes: list[int | None] = []
        while True:
            sizes.append(None if lexer.accept("*") else lexer.integer("HLAY-4"))
            if not lexer.accept(","):
                break
        lexer.expect(")", "HLAY-4")
        tiles.append(tuple(sizes))
    if not tiles:
        raise lexer.unexpected("'('", "HLAY-4")
    return tuple(tiles)


def _read_field(lexer: Lexer, name: str, default: int) -> int:
    if lexer.value != name:
        return default
    lexer.advance()
    lexer.expect("(", "HLAY-4")
    value = lexer.integer("HLAY-4", 0)
    lexer.expect(")", "HLAY-4")
    return value


def _read_type_field(lexer: Lexer, mark: str) -> DType | None:
    if not lexer.accept(mark):
        return None
    lexer.expect("(", "HLAY-4")
    element_type = read_type(lexer, "HLAY-4")
    lexer.expect(")", "HLAY-4")
    return element_type


def _read_splits(lexer: Lexer) -> tuple[tuple[int, tuple[int, ...]], ...]:
    if not lexer.accept("SC"):
        return ()
    splits: list[tuple[int, tuple[int, ...]]] = []
    while lexer.accept("("):
        dimension = lexer.integer("HLAY-4", 0)
        lexer.expect(":", "HLAY-4")
        at = [lexer.integer("HLAY-4", 0)]
        while lexer.accept(","):
            at.append(lexer.integer("HLAY-4", 0))
        lexer.expect(")", "HLAY-4")
        splits.append((dimension, tuple(at)))
    return tuple(splits)


def read_program_shape(lexer: Lexer) -> ProgramShape:
    """Reads `(name: shape, ...) -> shape`; names may be missing."""
    lexer.expect("(", "HCOMP-1")
    names: list[str] = []
    parameters: list[Shape] = []
    while lexer.value != ")":
        names.append(f"p{len(names)}" if starts_shape(lexer) else lexer.name("HCOMP-1"))
        lexer.accept(":")
        parameters.append(read_shape(lexer))
        if not lexer.accept(","):
            break
    lexer.expect(")", "HCOMP-1")
    lexer.expect("->", "HCOMP-1")
    return ProgramShape(parameters, read_shape(lexer), names)
