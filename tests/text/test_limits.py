"""Untrusted text: whatever it is, an answer in bounded time, stack and memory; and how fast ordinary text is."""

from __future__ import annotations

import pytest

import hlokit as hk
from hlokit.errors import ParseError
from hlokit.hlo.compare import same_module
from hlokit.text.parser import parse_hlo
from tests.counting import function_calls
from tests.fuzz.readers.hlo_text import large_text
from tests.golden.check import time_limit
from tests.text.texts import EXACT, entry
from tests.text.witness import compare, read_bundle

N = 100_000
SECONDS = 10

HOSTILE = {
    "braces": "{" * N,
    "parentheses": "(" * N,
    "shape": entry("x = " + "(" * N + "f32[]" + ")" * N + " parameter(0)"),
    "buffers": entry("x = " + "b(" * N + "f32[]" + ")" * N + " parameter(0)"),
    "nested operands": entry("x = f32[] parameter(0)\ny = " + "add(" * N + "x" + ")" * N),
    "literal": entry("x = f32[2] constant(" + "{" * N + "1" + "}" * N + ")"),
    "tuple literal": entry("x = " + "(" * 50 + ")" * 50 + " constant(" + "(" * N + ")" * N + ")"),
    "bodies in place": entry("x = f32[] call(), to_apply=" + "{a = f32[] call(), to_apply=" * N),
    "open braces": entry("x = f32[] parameter(0), backend_config=" + "{" * N),
    "sharding": entry("x = f32[] parameter(0), sharding=" + "{" * N),
    "comment": "/*" * N,
    "string": 'HloModule m, frontend_attributes={a="' + "\\\\" * N,
    "digits": entry("x = f32[] constant(" + "1" * 10 * N + ")"),
    "digits in an array": entry("x = s64[2] constant({" + "1" * 10 * N + ", 2})"),
    "exponent": entry("x = f64[2] constant({1e" + "9" * 10 * N + ", 2})"),
    "commas": entry("x = f32[2] constant({" + "," * 10 * N + "})"),
    "literal of a huge shape": entry("x = f32[1000000000,1000000000] constant({{1,2},{3,4}})"),
    "nothing in a huge shape": entry("x = f32[0,4611686018427387904,4611686018427387904] constant({})"),
    "rank": entry("x = f32[" + "1," * N + "1] parameter(0)"),
    "rank of a literal": entry("x = f32[" + "1," * 99 + "1] constant(" + "{" * 100 + "1" + "}" * 100 + ")"),
    "tuples doubled": entry(
        "t0 = f32[] parameter(0)\n" + "\n".join(f"t{i + 1} = tuple(t{i},t{i})" for i in range(100))
    ),
    "tuples nested": entry("t0 = f32[] parameter(0)\n" + "\n".join(f"t{i + 1} = tuple(t{i})" for i in range(5000))),
    "window": entry("x = f32[] parameter(0)\ny = f32[] reduce-window(x, x), window={size=" + "9" * 5000 + "}"),
    "iota groups": entry(
        f"x = f32[4] parameter(0)\ny = all-reduce(x), replica_groups=[2,2]<=[{'2,' * N}2]T({'0,' * N}0)"
    ),
    "not text": "\0" * N,
    "one word": entry("y = f32[] " + "a" * N + "(x)"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused(name: str) -> None:
    with time_limit(SECONDS), pytest.raises(ParseError) as caught:
        parse_hlo(HOSTILE[name])
    assert len(str(caught.value)) < 5000


def test_large_but_legal() -> None:
    with time_limit(SECONDS):
        body = "x = f32[1000000000,1000000000] parameter(0)\ny = add(x, x)\n"
        huge = parse_hlo(entry(body + "z = f32[1000000000000000000] iota(), iota_dimension=0"))
        assert "f32[1000000000,1000000000]{1,0} add(%x, %x)" in str(huge)
        calls = [f'x{i} = f32[] custom-call(), custom_call_target="a", called_computations={{c}}' for i in range(2000)]
        many = "c {\n" + "\n".join(f"p{i} = f32[] parameter({i})" for i in range(5000)) + "\n}"
        parse_hlo(entry("\n".join(calls), before=many))
        chain = "\n".join(f"x{i + 1} = ((f32[]), f32[]) negate-update(x{i})" for i in range(5000))
        text = str(parse_hlo(entry(f"p = f32[] parameter(0)\nx0 = ((f32[]), f32[]) negate-start(p)\n{chain}")))
        assert text.count("negate-update") == 5000
        literals = ",".join(["{1}"] * 5000)
        parse_hlo(entry(f"c = ({','.join(['f32[1]'] * 5000)}) constant(({literals}))"))
        parse_hlo(entry("x = f32[] parameter(0), backend_config=" + "{" * N + "}" * N))


def _large_program(count: int) -> str:
    lines = ["x0 = f32[128,256]{1,0} parameter(0)"]
    for i in range(count):
        shape = "f32[128,256]{1,0}"
        if i % 3 == 0:
            lines.append(f"  %x{i + 1} = {shape} add({shape} %x{i}, {shape} %x{max(0, i - 3)})")
        elif i % 3 == 1:
            where = f'metadata={{op_name="jit(f)/mul" source_file="/a/b.py" source_line={i}}}'
            lines.append(f"  %x{i + 1} = {shape} multiply(%x{i}, %x{i}), {where}")
        else:
            lines.append(f"  %x{i + 1} = {shape} transpose(%x{i}), dimensions={{0,1}}")
    return entry("\n".join(lines))


def test_a_large_program_comes_back() -> None:
    module = parse_hlo(_large_program(20_000))
    assert same_module(module, parse_hlo(module.to_text())) is None


def test_work_grows_with_the_text() -> None:
    """Four times the text takes about four times the calls."""
    texts = [_large_program(count) for count in (1_000, 4_000)]
    small, large = (function_calls(lambda text=text: parse_hlo(text).to_text(EXACT)) for text in texts)
    assert large < 5 * small


# -- against jaxlib's printer, as recorded


def test_prints_as_jaxlib() -> None:
    rows = read_bundle()
    found, counts = compare([(name, text) for name, text, _ in rows], {name: answer for name, _, answer in rows})
    assert not found
    assert counts["equal"] > 500


# -- fuzzing


def test_large_fuzz_source_is_a_module() -> None:
    text = large_text([text.encode() for _, text, _ in read_bundle()])
    assert len(text) > 1 << 20
    assert len(parse_hlo(text).all_computations) > 500


def calls(count: int, each: int) -> str:
    """`count` computations, each of which calls the one before it `each` times."""
    text = "HloModule m\nf0 { ROOT x = f32[] parameter(0) }\n"
    for i in range(1, count):
        chain = "".join(f" y{j} = f32[] call({f'y{j - 1}' if j else 'x'}), to_apply=f{i - 1}\n" for j in range(each))
        text += f"f{i} {{ x = f32[] parameter(0)\n{chain} }}\n"
    return text


@pytest.mark.parametrize("each", [1, 2])
def test_canonical_text_does_not_explode(each: int) -> None:
    module = hk.parse(calls(3000, each))
    assert len(module.to_text()) < 10**6
    with pytest.raises(hk.UnsupportedError, match="in place"):
        module.to_text("canonical")
    if each == 1:
        assert hk.evaluate(module, 1.5) == 1.5
