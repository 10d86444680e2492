"""LEX rules, and what all errors show."""

# tables: a case a row

from __future__ import annotations

import pytest

from hlokit.errors import ParseError
from hlokit.text.parser import parse_hlo
from tests.rules.labels import rule
from tests.text.texts import by_label, entry, printed, refused

P = "p = f32[2] parameter(0)\n"

ACCEPTED = [
    ("LEX-1: several on a line", "p = f32[2] parameter(0) y = f32[2]\tadd(p,\r\n p)", "%y = f32[2]{0} add(%p, %p)"),
    ("LEX-2: comments", "p = f32[2] /* a\n * b */ parameter(0) // c\n y = /**/ f32[2] add(p, p)", "%y = f32[2]{0} add(%p, %p)"),
    ("LEX-3: identifiers", "_p-1.x = f32[] parameter(0) y = f32[] negate(_p-1.x)", "%y = f32[] negate(%_p-1.x)"),
    ("LEX-3: case matters", "P = f32[] parameter(0) p = s32[] constant(1) y = f32[] negate(P)", "%y = f32[] negate(%P)"),
    ("LEX-4: with and without %", "%p = f32[2] parameter(0)\n y = f32[2] add(p, %p)", "%y = f32[2]{0} add(%p, %p)"),
    ("LEX-5: attached =", P + "y=f32[2] negate(p)", "%y = f32[2]{0} negate(%p)"),
    ("LEX-8: keywords with %", "%inf = f32[2] parameter(0)\n y = f32[2] negate(%inf)", "%y = f32[2]{0} negate(%inf)"),
    ("LEX-9: tuple is a name", "tuple = f32[2] parameter(0)\n y = f32[2] negate(tuple)", "%y = f32[2]{0} negate(%tuple)"),
    ("LEX-9: buffer is a name", "buffer = f32[2] parameter(0)\n y = f32[2] negate(buffer)", "%y = f32[2]{0} negate(%buffer)"),
    ("LEX-10: uint64", "y = u64[] constant(18446744073709551615)", "%y = u64[] constant(18446744073709551615)"),
    ("LEX-11: decimals", "y = f32[6] constant({1., .5, -1.5, 1e2, -.25, 2E-1})", "%y = f32[6]{0} constant({1, 0.5, -1.5, 100, -0.25, 0.2})"),
    ("LEX-11: a scalar", "y = f32[] constant(-3.5e+1)", "%y = f32[] constant(-35)"),
    ("LEX-11: a scalar without dot", "y = f32[] constant(1e+2)", "%y = f32[] constant(100)"),
    ("LEX-11: exponents", "y = f32[4] constant({1e+2, 2.E1, -3.5e+1, .5e-1})", "%y = f32[4]{0} constant({100, 20, -35, 0.05})"),
    ("LEX-12: special decimals", "y = f32[5] constant({inf, -inf, nan, -nan, nan(0x7)})", "%y = f32[5]{0} constant({inf, -inf, nan, -nan, nan(0x7)})"),
    ("LEX-13: labels from a digit", "p = f32[2,3,4] parameter(0) k = f32[1,4,5] parameter(1)\ny = f32[2,3,5] convolution(p, k), window={size=1}, dim_labels=b0f_0io->b0f", "%y = f32[2,3,5]{2,1,0} convolution(%p, %k), window={size=1}, dim_labels=b0f_0io->b0f"),
    ("LEX-14: DxD or an integer", "p = f32[4,4] parameter(0) z = f32[] constant(0)\ny = f32[2,2] reduce-window(p, z), window={size=3x3}, to_apply=add", "%y = f32[2,2]{1,0} reduce-window(%p, %z), window={size=3x3}, to_apply=%add"),
    ("LEX-15: padding", "p = f32[4,4] parameter(0) z = f32[] constant(0)\ny = f32[7,3] pad(p, z), padding=0_0_1x1_-2", "%y = f32[7,3]{1,0} pad(%p, %z), padding=0_0_1x1_-2_0"),
    ("LEX-16: 1_1 is padding, 11 an integer", "p = f32[4] parameter(0) z = f32[] constant(11)\ny = f32[6] pad(p, z), padding=1_1", "%y = f32[6]{0} pad(%p, %z), padding=1_1"),
    ("LEX-18: trailing commas", P + "y = f32[2] add(p, p,)", "%y = f32[2]{0} add(%p, %p)"),
    ("LEX-18: in literals", "y = s32[2] constant({1,2,})", "%y = s32[2]{0} constant({1, 2})"),
    ("LEX-19: index comments", "p = f32[] parameter(0) y = (f32[], f32[]) tuple(p, /*index=1*/p)", "%y = (f32[], f32[]) tuple(%p, %p)"),
]  # fmt: skip


@by_label(ACCEPTED)
def test_accepted(text: str, expected: str) -> None:
    assert printed(text, before="add { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] add(a, b) }") == expected


REFUSED = [
    ("LEX-1: semicolon", P + "y = f32[2] add(p, p);", "LEX-6"),
    ("LEX-2: comment without end", P + "/* y", "LEX-2"),
    ("LEX-3: digit first", "2p = f32[] parameter(0)", "HINST-1"),
    ("LEX-6: no token", P + "y = f32[2] add(p @ p)", "LEX-6"),
    ("LEX-7: string without end", 'p = f32[] parameter(0), backend_config="x', "LEX-7"),
    ("LEX-7: bad escape", r'p = f32[] parameter(0), backend_config="\q"', "LEX-7"),
    ("LEX-8: inf", P + "inf = f32[2] add(p, p)", "LEX-8"),
    ("LEX-8: ROOT", "ROOT = f32[2] parameter(0)", "HINST-1"),
    ("LEX-8: maximal", "maximal = f32[2] parameter(0)", "LEX-8"),
    ("LEX-9: s1", "s1 = f32[2] parameter(0)", "LEX-9"),
    ("LEX-9: %u8", "%u8 = f32[2] parameter(0)", "LEX-9"),
    ("LEX-9: token=", "token= f32[2] parameter(0)", "LEX-9"),
    ("LEX-10: leading +", "y = s32[] constant(+1)", "HLIT-5"),
    ("LEX-10: hexadecimal", "y = s32[] constant(0x10)", "HLIT-5"),
    ("LEX-10: beyond 64 bits", "y = f32[99999999999999999999] parameter(0)", "HSHAPE-1"),
    ("LEX-10: very long", "y = s64[] constant(" + "9" * 100 + ")", "LEX-10"),
    ("LEX-11: two dots", "y = f32[] constant(1.2.3)", "HINST-9"),
    ("LEX-12: payload too wide", "y = bf16[] constant(nan(0x80))", "LEX-12"),
    ("LEX-17: opcode in upper case", P + "y = f32[2] Add(p, p)", "LEX-17"),
    ("LEX-17: type in upper case", "y = F32[2] parameter(0)", "HINST-6"),
]  # fmt: skip


@by_label(REFUSED)
def test_refused(text: str, expected: str) -> None:
    refused(entry(text), expected)


@rule("LEX-7")
@pytest.mark.parametrize(
    "written, content",
    [
        (r'"a\"b\\c\nd\te"', 'a"b\\c\nd\te'),
        (r"'a\'b'", "a'b"),
        (r'"\x41\102\303\251"', "ABé"),
        ('"é\n"', "é\n"),
    ],
)
def test_strings(written: str, content: str) -> None:
    module = parse_hlo(entry(f"p = f32[] parameter(0), backend_config={written}"))
    extra = module.entry.root.extra
    assert extra is not None and extra.backend_config == content
    again = parse_hlo(str(module)).entry.root.extra
    assert again is not None and again.backend_config == content


def test_error_shows_line_column_and_caret() -> None:
    error = refused("HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  y = f32[] nonsense(p)\n}", "HINST-6")
    assert (error.line, error.column) == (4, 13)
    assert str(error).splitlines() == [
        "line 4, column 13: unknown opcode 'nonsense' [HINST-6]",
        "    y = f32[] nonsense(p)",
        "              ^",
    ]


def test_error_of_a_shape_rule_stands_at_the_instruction() -> None:
    error = refused(entry("p = f32[2] parameter(0)\nq = f32[3] parameter(1)\nROOT r = f32[2] add(p, q)"), "BUILDER-15")
    assert error.source_line == "ROOT r = f32[2] add(p, q)"
    assert "f32[3]" in str(error)


def test_error_in_a_long_line_shows_its_part() -> None:
    error = refused(entry(" " * 5000 + "p = f32[] bad()" + " " * 5000), "HINST-6")
    shown, caret = str(error).splitlines()[1:]
    assert len(shown) < 110 and shown[caret.index("^")] == "b"


@pytest.mark.parametrize("data", [b"\xff\xfe", b"HloModule m\n\x80", "HloModule \ud800", b"", "", b"\0", b"HloModule"])
def test_what_is_no_text(data: bytes | str) -> None:
    with pytest.raises(ParseError):
        parse_hlo(data)


def test_bytes_are_read_as_text() -> None:
    text = entry('p = f32[] parameter(0), metadata={op_name="é"}')
    assert str(parse_hlo(text.encode())) == str(parse_hlo(text))
