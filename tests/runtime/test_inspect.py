"""What an executable says about itself: texts of its stages, costs, memory, reasons."""

import numpy as np
import pytest

import hlokit as hk
from hlokit import ConvolutionDimensionNumbers
from hlokit.analysis.cost import cost_of_module
from hlokit.errors import HlokitError

SOFTMAX = """HloModule softmax
max { x = f32[] parameter(0)
      y = f32[] parameter(1)
      ROOT r = f32[] maximum(x, y) }
add { x = f32[] parameter(0)
      y = f32[] parameter(1)
      ROOT r = f32[] add(x, y) }
ENTRY e {
  x = f32[8,64] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[8] reduce(x, low), dimensions={1}, to_apply=max
  b = f32[8,64] broadcast(m), dimensions={0}
  d = f32[8,64] subtract(x, b)
  e = f32[8,64] exponential(d)
  s = f32[8] reduce(e, zero), dimensions={1}, to_apply=add
  t = f32[8,64] broadcast(s), dimensions={0}
  ROOT r = f32[8,64] divide(e, t)
}
"""
STEPS = """HloModule steps
add { x = f32[] parameter(0)
      y = f32[] parameter(1)
      ROOT r = f32[] add(x, y) }
ENTRY e {
  in = f32[256,256] parameter(0)
  first = f32[256,256] sine(in)
  second = f32[256,256] dot(first, first), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  third = f32[256,256] transpose(second), dimensions={1,0}
  ROOT last = f32[256,256] add(third, first)
}
"""


@pytest.fixture(scope="module")
def softmax():
    return hk.compile(hk.parse(SOFTMAX))


def test_hlo_is_that_after_the_passes(softmax) -> None:
    assert hk.parse(softmax.as_text("hlo")).name == "softmax"
    assert softmax.as_text() == softmax.as_text("hlo")


def test_llvm_and_assembly(softmax) -> None:
    assert "define i32 @hlokit_entry(ptr %bases)" in softmax.as_text("llvm")
    assert "hlokit_entry:" in softmax.as_text("asm") and "define" in softmax.as_text("llvm-opt")
    with pytest.raises(HlokitError, match="'machine'"):
        softmax.as_text("machine")


def test_costs_have_jax_names(softmax) -> None:
    cost = softmax.cost_analysis()
    assert set(cost) == {"flops", "transcendentals", "bytes accessed"}
    assert cost["transcendentals"] == 512 and cost["flops"] >= 2 * 512


def test_memory_has_jax_names_and_its_holder() -> None:
    found = hk.compile(hk.parse(STEPS)).memory_analysis()
    size = 256 * 256 * 4
    assert found.argument_size_in_bytes == found.output_size_in_bytes == size
    assert found.alias_size_in_bytes == 0 and found.generated_code_size_in_bytes > 0
    assert found.peak_memory_in_bytes == 2 * size + found.temp_size_in_bytes
    assert found.peak_held == size
    ranges = {name: one for one in found.live_ranges for name in one.buffers}
    assert ranges["in"].kind == "argument" and ranges["in"].first == "the call"
    assert ranges["first"].first == "first"
    assert ranges["last"].kind == "result" and ranges["last"].last == "the return"
    assert ranges["first"].begin < ranges["first"].end


def test_donated_memory_is_an_alias() -> None:
    text = "ENTRY e {\n x = f32[64] parameter(0)\n ROOT r = f32[64] negate(x)\n}"
    assert hk.compile(hk.parse(text), donate=(0,)).memory_analysis().alias_size_in_bytes == 256


def test_reasons() -> None:
    reasons = hk.compile(hk.parse(STEPS)).reasons
    assert ("last", "not fused", "a result") in reasons
    assert any(name == "first" and what == "not fused" and "from memory" in why for name, what, why in reasons)
    assert any(name == "first" and what == "vector axis" for name, what, _ in reasons)
    assert any(name == "first" and what == "loop order" for name, what, _ in reasons)


def test_copies_have_a_reason() -> None:
    text = """ENTRY e { x = f32[100] parameter(0)
     i = s32[] parameter(1)
     u = f32[1] constant({7})
     ROOT r = f32[100] dynamic-update-slice(x, u, i) }"""
    assert [(name, why) for name, what, why in hk.compile(hk.parse(text)).reasons if what == "copied"] == [
        ("r", "400 bytes: an array that is updated in place")
    ]


def test_what_the_reference_does_has_a_reason() -> None:
    text = "ENTRY e {\n x = f32[] parameter(0)\n o = f32[] constant(9)\n ROOT r = f32[4] rng(x, o), distribution=rng_uniform\n}"
    executable = hk.compile(hk.parse(text))
    assert ("r", "not compiled", "rng is evaluated by the reference") in executable.reasons
    assert "reference %r" in executable.as_text("loops")


def test_why_it_was_compiled_anew(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path / "cache"))
    module = hk.parse(SOFTMAX)
    first = hk.compile(module)
    assert any(what == "recompiled" and "no entry" in why for _, what, why in first.reasons)
    assert not any(what == "recompiled" for _, what, _ in hk.compile(module).reasons)
    strict = hk.compile(module, strict=True)
    assert any("strict was False, is True" in why for _, what, why in strict.reasons if what == "recompiled")
    assert np.isfinite(strict(np.zeros((8, 64), np.float32))).all()


def test_tokens_need_no_code() -> None:
    text = """ENTRY e {
      x = f32[4] parameter(0)
      t = token[] after-all()
      u = token[] after-all(t)
      y = f32[4] add-dependency(x, u)
      ROOT r = f32[4] negate(y)
    }"""
    executable = hk.compile(hk.parse(text))
    assert not any(what == "not compiled" for _, what, _ in executable.reasons)
    np.testing.assert_array_equal(executable(np.ones(4, np.float32)), -np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("root", "flops"),
    [
        (
            "f32[6,5] ragged-dot(l, r, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
            "rhs_group_dims={0}",
            2 * 6 * 4 * 5,
        ),
        ("f32[6,5] scaled-dot(l, m, s, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 2 * 6 * 4 * 5),
        ("(f32[6,4], f32[6]) scan(l, c), dimensions={1}, num_carries=1, to_apply=step", 4 * 2 * 6),
    ],
    ids=["ragged-dot", "scaled-dot", "scan"],
)
def test_products_and_steps_are_counted(root: str, flops: int) -> None:
    text = f"""
        HloModule m
        step {{
          x = f32[6] parameter(0)
          y = f32[6] parameter(1)
          sum = f32[6] add(x, y)
          next = f32[6] multiply(sum, y)
          ROOT both = (f32[6], f32[6]) tuple(sum, next)
        }}
        ENTRY e {{
          l = f32[6,4] parameter(0)
          r = f32[3,4,5] parameter(1)
          g = s32[3] parameter(2)
          m = f32[4,5] parameter(3)
          s = f32[] parameter(4)
          c = f32[6] parameter(5)
          ROOT root = {root}
        }}
    """
    module = hk.parse(text)
    assert cost_of_module(module).flops == flops


@pytest.mark.parametrize(
    "window",
    [
        hk.WindowDimension(3),
        hk.WindowDimension(4, 3, 5, 2),
        hk.WindowDimension(3, 2, -1, -2, 1, 2),
        hk.WindowDimension(5, 1, 3, 4, 3, 2),
        hk.WindowDimension(4, 2, 2, 3, 4, 3),
        hk.WindowDimension(4, 6, 9, 12, 4, 6),
    ],
    ids=str,
)
def test_products_of_a_convolution_are_counted(window: hk.WindowDimension) -> None:
    """With ones everywhere the sum of the results is the number of products."""
    b = hk.Builder()
    x, w = b.constant(np.ones((1, 1, 13), np.float32)), b.constant(np.ones((1, 1, window.size), np.float32))
    padding = [(window.padding_low, window.padding_high)]
    result = hk.conv_general_dilated(
        x, w, [window.stride], padding, [window.base_dilation], [window.window_dilation], ConvolutionDimensionNumbers.default(1)
    )
    module = b.build(result)
    assert cost_of_module(module).flops == 2 * hk.evaluate(module).sum()


def test_products_of_long_convolutions_are_counted_without_going_over_them() -> None:
    text = """HloModule long
ENTRY e {
  x = f32[1,1,1048576] parameter(0)
  w = f32[1,1,1048576] parameter(1)
  ROOT c = f32[1,1,2097151] convolution(x, w), window={size=1048576 pad=1048575_1048575}, dim_labels=bf0_oi0->bf0
}"""
    assert cost_of_module(hk.parse(text)).flops == 2 * 1048576**2


def test_the_listing_of_a_routine_shows_its_instruction() -> None:
    text = """ENTRY e {
     x = f32[8,16] parameter(0)
     y = f32[16,24] parameter(1)
     ROOT r = f32[8,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    shown = "  %r = f32[8,24] dot(f32[8,16] %x, f32[16,24] %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    assert f"routine dot %r: reads x, y; writes r\n{shown}" in hk.compile(hk.parse(text)).as_text("loops")


def test_a_tree_of_arguments_is_named() -> None:
    module = hk.parse("ENTRY e { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y) }")
    for run in (lambda *a: hk.evaluate(module, *a), hk.compile(module)):
        with pytest.raises(hk.ArgumentError, match=r"takes 2 arguments, got 1; .* jax\.tree\.leaves\(args\) lists .* \[EXEC-3\]"):
            run({"x": 1.0, "y": 2.0})
