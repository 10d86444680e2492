"""HOP-1 .. HOP-5: elementwise ops as text."""

from __future__ import annotations

from tests.rules.elementwise_programs import parse, root_text
from tests.rules.labels import rejects, rule

# -- text


HOP1 = {
    "f32": "abs negate sign floor ceil round-nearest-afz round-nearest-even real imag convert bitcast-convert copy",
    "u32": "not popcnt count-leading-zeros",
}
HOP2 = """exponential exponential-minus-one log log-plus-one logistic rsqrt sqrt cbrt sine cosine tan tanh erf acos
    acosh asin asinh atanh cosh sinh atan"""
HOP3 = {
    "f32": "add subtract multiply divide remainder maximum minimum power atan2",
    "u32": "and or xor shift-left shift-right-arithmetic shift-right-logical mulhi",
}


@rule("HOP-1", "HOP-2", "HOP-3")
def test_text_of_unary_and_binary() -> None:
    for element_type, opcodes in HOP1.items():
        for opcode in opcodes.split():
            want = f"{element_type}[2]{{0}} {opcode}(%p0)"
            assert root_text(f"{element_type}[2] {opcode}(p0)", f"{element_type}[2]") == want
    assert root_text("pred[2] is-finite(p0)", "f32[2]") == "pred[2]{0} is-finite(%p0)"
    for opcode in HOP2.split():
        assert root_text(f"f32[2] {opcode}(p0)", "f32[2]") == f"f32[2]{{0}} {opcode}(%p0)"
        accuracy = "result_accuracy={tolerance={atol=0.5,rtol=0.25,ulps=2}}"
        assert root_text(f"f32[2] {opcode}(p0), {accuracy}", "f32[2]") == f"f32[2]{{0}} {opcode}(%p0), {accuracy}"
        assert root_text(f"f32[2] {opcode}(p0), result_accuracy={{mode=highest}}", "f32[2]").endswith("{mode=highest}")
    for element_type, opcodes in HOP3.items():
        for opcode in opcodes.split():
            shape = f"{element_type}[2]"
            assert root_text(f"{shape} {opcode}(p0, p1)", shape, shape) == f"{shape}{{0}} {opcode}(%p0, %p1)"
    assert root_text("c64[2] complex(p0, p1)", "f32[2]", "f32[2]") == "c64[2]{0} complex(%p0, %p1)"
    stochastic = root_text("s32[2] stochastic-convert(p0, p1)", "f32[2]", "u32[2]")
    assert stochastic == "s32[2]{0} stochastic-convert(%p0, %p1)"
    assert root_text("f32[2] add-dependency(p0, p1)", "f32[2]", "token[]") == "f32[2]{0} add-dependency(%p0, %p1)"


@rule("HOP-4", "HOP-5")
def test_text_of_ternary_and_compare() -> None:
    got = root_text("f32[2] select(p0, p1, p1)", "pred[2]", "f32[2]")
    assert got == "f32[2]{0} select(%p0, %p1, %p1)"
    assert root_text("f32[2] clamp(p0, p1, p0)", "f32[]", "f32[2]") == "f32[2]{0} clamp(%p0, %p1, %p0)"
    for element_type, default in [("f32", "FLOAT"), ("s32", "SIGNED"), ("u32", "UNSIGNED"), ("pred", "UNSIGNED")]:
        plain = "pred[2]{0} compare(%p0, %p0), direction=GE"
        for given in ("", f", type={default}"):
            assert root_text(f"pred[2] compare(p0, p0), direction=GE{given}", f"{element_type}[2]") == plain
    total = root_text("pred[2] compare(p0, p0), direction=EQ, type=TOTALORDER", "f32[2]")
    assert total == "pred[2]{0} compare(%p0, %p0), direction=EQ, type=TOTALORDER"
    with rejects("HINST-6"):
        parse("pred[2] compare(p0, p0)", "f32[2]")
