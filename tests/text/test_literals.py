"""HLIT rules."""

# tables: a case a row

from __future__ import annotations

import math

import numpy as np
import pytest

from hlokit.errors import HlokitError, ParseError
from hlokit.text.literals import parse_literal
from hlokit.text.numbers import array_text, float_text, literal_text
from hlokit.text.parser import parse_hlo
from hlokit.text.shapes import parse_shape
from hlokit.types import dtype as dtypes
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from tests.rules.labels import rejects, rule
from tests.text.texts import by_label, entry

READ = [
    ("HLIT-1: scalar", "f32[]", "1.5", "1.5"),
    ("HLIT-1: rank 1", "s32[2]", "{1, 2}", "{1, 2}"),
    ("HLIT-1: rank 2", "s32[2,2]", "{ {1, 2}, {3, 4} }", "{ { 1, 2 }, { 3, 4 } }"),
    ("HLIT-1: without commas", "s32[2,2]", "{{1 2}{3 4}}", "{ { 1, 2 }, { 3, 4 } }"),
    ("HLIT-3: no element", "f32[0]", "{}", "{}"),
    ("HLIT-3: no column", "f32[2,0]", "{ {}, {} }", "{ {}, {} }"),
    ("HLIT-3: no row", "f32[0,2]", "{}", "{  }"),
    ("HLIT-4: words and digits", "pred[4]", "{true, false, 1, 0}", "{1, 0, 1, 0}"),
    ("HLIT-5: limits", "s8[2]", "{-128, 127}", "{-128, 127}"),
    ("HLIT-5: narrow", "s4[3]", "{-8, 0, 7}", "{-8, 0, 7}"),
    ("HLIT-5: wide", "u64[1]", "{18446744073709551615}", "{18446744073709551615}"),
    ("HLIT-6: integers for floats", "f32[2]", "{1, -3}", "{1, -3}"),
    ("HLIT-6: ties to even", "f16[3]", "{2049, 2051, 2049.0000001}", "{2048, 2052, 2050}"),
    ("HLIT-6: rounds once", "bf16[2]", "{1.00390625, 1.00390625000001}", "{1, 1.008}"),
    ("HLIT-7: just below", "f16[]", "65519", "65504"),
    ("HLIT-7: underflow", "f32[2]", "{1e-46, 1e-45}", "{0, 1.4013e-45}"),
    ("HLIT-7: no infinity", "f8e4m3fn[2]", "{inf, -inf}", "{nan, -nan}"),
    ("HLIT-8: negative zero", "f32[2]", "{-0, -0.0}", "{-0, -0}"),
    ("HLIT-9: complex", "c64[2]", "{(1, -2), (nan, inf)}", "{(1, -2), (nan, inf)}"),
    ("HLIT-9: NaN parts", "c128[]", "(nan, 0)", "(nan, 0)"),
    ("HLIT-2: one value for an array", "f32[2,2]", "7", "{ { 7, 0 }, { 0, 0 } }"),
    ("HLIT-2: one value for a part of a tuple", "(s32[2], c64[1])", "(3, (1, 2))", "( {3, 0}, {(1, 2)} )"),
    ("HLIT-26: tuple", "(s32[2], (s32[], pred[]))", "({1, 2}, (3, false))", "( {1, 2}, ( 3, false ) )"),
    ("HLIT-10: empty tuple", "()", "()", "(  )"),
    ("HLIT-11: elided", "f32[20]", "{...}", "{...}"),
    ("HLIT-11: elided in a tuple", "(f32[20], s32[])", "({...}, 1)", "( {...}, 1 )"),
    ("HLIT-11: nothing elided", "f32[2,0]", "{...}", "{ {}, {} }"),
    ("HLIT-22: many empty rows", "f32[1048576,65536,0]", "{...}", "{...}"),
    ("HLIT-15: elided tuple", "(f32[2], s32[])", "{...}", "{...}"),
    ("HLIT-12: comments", "s32[2,1]", "{ /*i0=0*/ {1}, /*i0=1*/ {2} }", "{ {1}, {2} }"),
    ("HLIT-13: logical order", "s32[2,2]{0,1}", "{{1,2},{3,4}}", "{ { 1, 2 }, { 3, 4 } }"),
    ("HLIT-20: one element", "s32[1]", "{5}", "{5}"),
    ("HLIT-20: columns of one", "f32[2,1]", "{{1},{2}}", "{ {1}, {2} }"),
    ("HLIT-20: rank 3", "s32[2,1,2]", "{{{1,2}},{{3,4}}}", "{ { { 1, 2 } }, { { 3, 4 } } }"),
    ("HLIT-21: rank 4", "s32[2,1,2,2]", "{{{{1,2},{3,4}}},{{{5,6},{7,8}}}}",
     "{ { /*i0=0*/ { /*i1=0*/ { 1, 2 }, { 3, 4 } } }, { /*i0=1*/ { /*i1=0*/ { 5, 6 }, { 7, 8 } } } }"),
    ("HLIT-21: rank 5", "s32[1,1,1,1,1]", "{{{{{1}}}}}", "{ { /*i0=0*/ { /*i1=0*/ { /*i2=0*/ {1} } } } }"),
    ("HLIT-22: rank 3", "f32[2,0,2]", "{{},{}}", "{ {  }, {  } }"),
    ("HLIT-23: scalar", "pred[]", "1", "true"),
    ("HLIT-24: f32", "f32[3]", "{0.1, 0.333333343, 16777216}", "{0.1, 0.333333343, 16777216}"),
    ("HLIT-24: f64", "f64[3]", "{0.1, 0.33333333333333331, 1e300}", "{0.1, 0.33333333333333331, 1e+300}"),
    ("HLIT-24: f8", "f8e5m2[2]", "{1.25, 57344}", "{1.2, 5.7e+04}"),
    ("HLIT-24: f8 with more digits", "f8e4m3fn[3]", "{1.25, 1.125, 448}", "{1.25, 1.12, 448}"),
    ("HLIT-25: special", "f32[5]", "{inf, -inf, nan, -nan, nan(0x1)}", "{inf, -inf, nan, -nan, nan(0x1)}"),
    ("HLIT-25: f16", "f16[2]", "{nan(0x3), -nan(0x201)}", "{nan(0x3), -nan(0x201)}"),
    ("HLIT-24: f8 of powers of two", "f8e8m0fnu[4]", "{5.9e-39, 1, 3, 1e-50}", "{5.9e-39, 1, 4, 5.9e-39}"),
    ("HLIT-28: f32", "f32[5]", "{0.1, 1e+30, 16777216, -0.0, 1e-45}", "{0.1, 1e+30, 16777216, -0, 1.4013e-45}"),
    ("HLIT-28: bf16", "bf16[3]", "{1.1, 0.333333343, 65536}", "{1.102, 0.334, 6.554e+04}"),
    ("HLIT-28: f16", "f16[2]", "{1e-7, 65504}", "{1.1921e-07, 65504}"),
    ("HLIT-28: c64", "c64[2]", "{(1,-2),(inf,3)}", "{(1, -2), (inf, 3)}"),
]  # fmt: skip


@by_label(READ)
def test_read_and_printed(text: str, expected: str, more: str) -> None:
    shape = parse_shape(text)
    literal = parse_literal(expected, shape)
    assert literal_text(literal) == more
    again = parse_literal(more, shape)
    assert literal_text(again) == more
    constant = parse_hlo(entry(f"c = {text} constant({expected})")).entry.root.op.literal  # type: ignore[attr-defined]
    assert literal_text(constant) == more
    if not literal.is_elided and not shape.is_tuple:
        assert (
            np.asarray(again.value).tobytes()
            == np.asarray(literal.value).tobytes()
            == np.asarray(constant.value).tobytes()
        )


REFUSED = [
    ("HLIT-2: one value for no element", "f32[0]", "1", "HLIT-2"),
    ("HLIT-2: one value for too many", "f32[4097,4097]", "1", "HLIT-2"),
    ("HLIT-2: one value for a row", "f32[2,2]", "{1, 2}", "HLIT-2"),
    ("HLIT-2: too few", "s32[4]", "{1, 2, 3}", "HLIT-2"),
    ("HLIT-2: too many", "s32[2]", "{1, 2, 3}", "HLIT-2"),
    ("HLIT-2: rows", "s32[2,2]", "{{1, 2}}", "HLIT-2"),
    ("HLIT-2: too deep", "s32[2]", "{{1, 2}}", "HLIT-2"),
    ("HLIT-2: too shallow", "s32[2,1]", "{1, 2}", "HLIT-2"),
    ("HLIT-2: braces for a scalar", "f32[]", "{1}", "HLIT-2"),
    ("HLIT-2: closing first", "f32[2]", "}1, 2}", "HLIT-2"),
    ("HLIT-2: at once", "f32[1000000000,1000000000]", "{{1, 2}}", "HLIT-2"),
    ("HLIT-3: braces for nothing", "f32[0,2]", "{{}}", "HLIT-2"),
    ("HLIT-4: other integers", "pred[]", "2", "HLIT-4"),
    ("HLIT-4: in arrays", "pred[2]", "{1, 7}", "HLIT-4"),
    ("HLIT-5: s8", "s8[]", "300", "HLIT-5"),
    ("HLIT-5: u8", "u8[]", "-1", "HLIT-5"),
    ("HLIT-5: s8, one above", "s8[]", "128", "HLIT-5"),
    ("HLIT-5: s8, one below", "s8[2]", "{0, -129}", "HLIT-5"),
    ("HLIT-5: u8, one above", "u8[]", "256", "HLIT-5"),
    ("HLIT-5: u8 array, one above", "u8[2]", "{1, 256}", "HLIT-5"),
    ("HLIT-5: u64", "u64[1]", "{-1}", "HLIT-5"),
    ("HLIT-5: s64", "s64[1]", "{9223372036854775808}", "HLIT-5"),
    ("HLIT-5: decimal", "s32[]", "1.5", "HLIT-5"),
    ("HLIT-5: word", "s32[]", "true", "HLIT-5"),
    ("HLIT-5: word for a float", "f32[]", "true", "HLIT-6"),
    ("HLIT-7: f32", "f32[]", "1e40", "HLIT-7"),
    ("HLIT-7: f32 in an array", "f32[2]", "{1, 1e40}", "HLIT-7"),
    ("HLIT-7: f16", "f16[]", "65520", "HLIT-7"),
    ("HLIT-7: bf16", "bf16[]", "3.4e38", "HLIT-7"),
    ("HLIT-7: f8e4m3fn", "f8e4m3fn[]", "500", "HLIT-7"),
    ("HLIT-7: f8e8m0fnu has no zero", "f8e8m0fnu[1]", "{0}", "HLIT-7"),
    ("HLIT-7: f64", "f64[1]", "{1e999}", "HLIT-7"),
    ("HLIT-9: one part", "c64[]", "(1)", "HLIT-9"),
    ("HLIT-10: braces", "(f32[])", "{1}", "HLIT-10"),
    ("HLIT-10: count", "(f32[], f32[])", "(1)", "HLIT-10"),
    ("HLIT-11: scalar", "f32[]", "{...}", "HLIT-11"),
    ("HLIT-11: deeper", "f32[2,2]", "{{...}, {1, 2}}", "HLIT-11"),
    ("HLIT-11: with values", "f32[2]", "{1, ...}", "HLIT-11"),
]


@by_label(REFUSED)
def test_refused(text: str, expected: str, more: str) -> None:
    with rejects(more):
        parse_literal(expected, parse_shape(text))
    with rejects(more):
        parse_hlo(entry(f"c = {text} constant({expected})"))


@rule("HLIT-2")
def test_message_says_which_element() -> None:
    with pytest.raises(ParseError, match=r"expected 2 elements in element \[0,1\], found 1"):
        parse_literal("{{{1,2},{3}}}", parse_shape("s32[1,2,2]"))


@rule("HLIT-11")
def test_elided_content_is_not_run() -> None:
    import hlokit as hk

    module = parse_hlo(entry("ROOT c = f32[20] constant({...})"))
    assert "constant({...})" in module.to_text("short_parsable")
    with pytest.raises(HlokitError, match="HLIT-11"):
        hk.evaluate(module)


@rule("HLIT-22")
def test_a_constant_of_very_many_empty_rows() -> None:
    import hlokit as hk

    shape = parse_shape("s64[1048576,65536,0]")
    builder = hk.Builder("empty")
    module = builder.build(builder.constant(np.empty(shape.dimensions, np.int64)))
    for text in (str(module), module.to_text("short_parsable")):
        assert "constant({...})" in text
        assert hk.evaluate(hk.parse(text)).shape == shape.dimensions
    assert hk.compile(module)().shape == shape.dimensions


@rule("HLIT-14")
def test_literal_with_its_shape() -> None:
    assert parse_literal("s32[2]{0} {1, 2}").shape is parse_shape("s32[2]")
    call = 'ROOT y = f32[] custom-call(), custom_call_target="x", literal=s32[2]{0} {1,2}'
    assert ", literal=s32[2]{0} {1, 2}" in str(parse_hlo(entry(call)))


@rule("HLIT-27")
def test_large_constants_are_elided_unless_asked_for() -> None:
    ten, eleven = ("{" + ", ".join(map(str, range(n))) + "}" for n in (10, 11))
    module = parse_hlo(
        entry(
            f"a = s32[10] constant({ten})\nb = s32[11] constant({eleven})\nc = (s32[]) constant((1))\nROOT d = () tuple()"
        )
    )
    text = str(module)
    assert f"constant({ten})" in text and "s32[11]{0} constant({...})" in text and "(s32[]) constant({...})" in text
    assert f"constant({eleven})" in module.to_text("short_parsable") and "constant(( 1 ))" in module.to_text(
        "short_parsable"
    )


@rule("HLIT-24")
@pytest.mark.parametrize("name", [name for name, t in dtypes.DTYPES.items() if t.is_floating and t.bits <= 16])
def test_every_value_of_a_narrow_type_reads_back(name: str) -> None:
    element_type = dtypes.DTYPES[name]
    bits = np.arange(1 << element_type.bits, dtype=np.uint8 if element_type.bits <= 8 else np.uint16)
    values = bits.view(element_type.numpy)
    again = parse_literal(array_text(values, element_type), Shape.array(element_type, values.shape)).value
    assert isinstance(again, np.ndarray)
    different = np.flatnonzero(again.view(bits.dtype) != bits)
    assert not [hex(b) for b in different.tolist() if not _is_default_nan(b, element_type)]


def _is_default_nan(bits: int, element_type: dtypes.DType) -> bool:
    """Types whose NaNs have no payload print them all as nan."""
    value = np.array([bits], np.uint8 if element_type.bits <= 8 else np.uint16).view(element_type.numpy)
    return math.isnan(float(value[0])) and element_type.name not in ("f16", "bf16", "f8e5m2", "f8e3m4", "f8e4m3")


@rule("HLIT-20", "HLIT-24")
@pytest.mark.parametrize("name", ["f32", "f64", "c64", "s32", "u8", "pred"])
def test_large_arrays_read_back(name: str) -> None:
    element_type = dtypes.DTYPES[name]
    random = np.random.default_rng(0)
    for sizes in ((1000,), (20, 50), (10, 1, 5, 20)):
        values = (random.standard_normal(sizes) * 100).astype(element_type.numpy)
        literal = Literal(Shape.array(element_type, sizes), values)
        again = parse_hlo(entry(f"c = {literal.shape} constant({literal_text(literal)})")).entry.root.op.literal  # type: ignore[attr-defined]
        assert again == Literal(literal.shape, values.copy()) or np.array_equal(again.value, values)
        assert array_text(again.value, element_type) == literal_text(literal)


def test_float_text() -> None:
    assert float_text(0.1, dtypes.f32) == "0.1"
    assert float_text(1e-5, dtypes.f64) == "1e-05"
