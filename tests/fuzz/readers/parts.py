"""Parts of HLO text that are read alone: literals, shapes, shardings, device groups."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import hlokit as hk
from hlokit.text.groups import parse_replica_groups, parse_sharding
from hlokit.text.literals import parse_literal
from hlokit.text.numbers import literal_text
from hlokit.text.shapes import parse_program_shape, parse_shape
from tests.fuzz.readers import hlo_text
from tests.fuzz.readers.fuzzer import Broken, Fuzzer, any_of, edited, noise

_TOKEN = re.compile(r"[A-Za-z_]\w*|-?[0-9][\w.]*|.", re.DOTALL)
_WORDS = (
    "0 -1 1 2 7 9223372036854775807 18446744073709551616 1e400 -nan nan(0x1) nan(0xffffffff) inf { } ( ) [ ] , : ? <= "
    "... <=[ T( f32 [2,3] f32[] pred s4 u2 f8e4m3fn bf16 c64 c128 token[] opaque[] b( {1,0 {0:T(8,128) S(1) E(4) -> "
    "{devices=[ replicated maximal device=0 manual unreduced last_tile_dim_replicate last_tile_dims={manual} metadata={ "
    "shard_as 1 true false 1.5 0.1 /*i0=0*/ 999999999999 " + "1" * 5000
).split(" ")


def _mutated(text: str, other: str, random_: random.Random) -> str:
    return "".join(edited(_TOKEN.findall(text), _TOKEN.findall(other), _WORDS, lambda: noise(random_), random_))


def _check(parse: Callable[[str], Any], write: Callable[[Any], str]) -> Callable[[str], str]:
    """Reads; what was read, written, reads back as what writes the same."""

    def check(text: str) -> str:
        written = write(parse(text))
        again = write(parse(written))
        if again != written:
            raise Broken(f"{written[:200]} reads back as {again[:200]}")
        return "read"

    return check


def _literal(literal: Any) -> str:
    return f"{literal.shape.to_text()} {literal_text(literal)}"


def _literals() -> list[str]:
    found: list[str] = []
    for text in hlo_text.texts():
        for instruction in hk.parse(text).instructions() if b"constant(" in text else ():
            literal = getattr(instruction.op, "literal", None)
            if literal is not None:
                found.append(_literal(literal))
    return [text for text in dict.fromkeys(found) if len(text) < 5000]


_SHAPES = (
    "f32[]", "f32[2,3]{1,0}", "(s32[], pred[4])", "f32[2,<=3]{0,1}", "((f32[1], c64[2,0]), token[], opaque[])",
    "b(f32[2])", "bf16[?,4]", "s8[16,32]{1,0:T(8,128)(4,1)S(1)}", "f8e4m3fn[3]{0:E(4)}", "u4[9]{0:L(8)#(u8)*(u32)}",
    "f32[4]{0:SC(0:1,2)}", "f32[4]{0:M(8)}", "(" * 20 + "f32[]" + ")" * 20,
)  # fmt: skip
_PROGRAM_SHAPES = ("(x: f32[2], y: (f32[], s32[3])) -> f32[2]", "(f32[], f32[2]{0}) -> (f32[])", "() -> token[]")
_SHARDINGS = (
    "{replicated}", "{manual}", "{unreduced}", "{maximal device=3}", "{devices=[2,1]0,1}", "{devices=[2,2]<=[4]}",
    "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", "{{replicated}, {devices=[2]<=[2]}, {maximal device=0}}",
    "{devices=[2,2]<=[4] last_tile_dims={manual}}", '{replicated metadata={op_name="a" source_line=3}}',
    "{devices=[2,2]0,1,2,3 shard_as 1}", "{}", "{mesh['a'=2,'b'=4], [{'a', ?}, {'b':(2)2}], unreduced=max{'b':(1)2}}",
    "{mesh['a'=2,'b'=2], device_ids=(3,2,1,0), [{}, {'b'}], manual={'a'}}", "{maximal_mesh[device_id=3]}",
    "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), replicated, metadata={op_name=\"x\"}}",
)  # fmt: skip
_GROUPS = ("{}", "{{0,1},{2,3}}", "[2,2]<=[4]", "[4,2]<=[2,2,2]T(2,0,1)", "[1,8]<=[8]", "{{0},{1}}",
           "mesh['a'=2,'b'=4] {'b':(2)2,'a'}", "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}")  # fmt: skip

LITERAL = Fuzzer(_literals, _mutated, _check(parse_literal, _literal))
SHAPE = Fuzzer(any_of(*_SHAPES), _mutated, _check(parse_shape, lambda s: s.to_text()))
PROGRAM_SHAPE = Fuzzer(any_of(*_PROGRAM_SHAPES), _mutated, _check(parse_program_shape, str))
SHARDING = Fuzzer(any_of(*_SHARDINGS), _mutated, _check(parse_sharding, str))
GROUPS = Fuzzer(any_of(*_GROUPS), _mutated, _check(parse_replica_groups, lambda g: (g.expand(8), str(g))[1]))
