"""Whole passes that are not rules: conditionals, empty arrays, convolutions as dots, reductions and scans in stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.module import HloModule
from hlokit.passes.conditional_simplifier import ConditionalSimplifier
from hlokit.passes.reduce_window_rewriter import ReduceWindowRewriter
from hlokit.passes.scatter_splitter import ScatterSplitter
from hlokit.passes.tree_reduction_rewriter import TreeReductionRewriter
from hlokit.passes.while_loop_scalarizer import WhileLoopScalarizer
from tests.fuzz.properties import leaves

REDUCERS = "".join(
    f"{name} {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] {name}(p, q) }}\n"
    for name in ("add", "maximum", "multiply")
)


def program(body: str, computations: str = REDUCERS) -> HloModule:
    return hk.parse(f"HloModule m\n{computations}ENTRY e {{\n{body}\n}}\n")


def opcodes(module: HloModule) -> list[str]:
    return [i.opcode for i in module.entry.post_order() if i.opcode not in ("parameter", "constant")]


def after(module: HloModule, *passes: Any) -> HloModule:
    result = hk.optimize(module, passes, verify_each=True)
    assert str(result) == str(hk.optimize(module, passes))
    return result


def close(before: HloModule, now: HloModule, *args: Any, exactly: bool = False) -> None:
    want, got = hk.evaluate(before, *args), hk.evaluate(now, *args)
    for a, b in zip(leaves(want), leaves(got), strict=True):
        if exactly:
            assert a.tobytes() == b.tobytes()
        else:
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-5)


def random(*sizes: int) -> Any:
    return np.random.default_rng(7).normal(size=sizes).astype(np.float32)


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [("bf16", "s8", "bf16"), ("f16", "f32", "f16"), ("u8", "s8", "s32"), ("f8e5m2", "f8e4m3fn", "f32"), ("pred", "f32", "f32"),
     ("s32", "f64", "f64"), ("c64", "f32", "c64")],
)  # fmt: skip
@pytest.mark.parametrize(
    "product", ["dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "convolution(x, y), dim_labels=bf_io->bf"]
)
def test_products_of_two_types_are_those_of_one(lhs: str, rhs: str, result: str, product: str) -> None:
    module = program(f"x = {lhs}[3,40] parameter(0)\ny = {rhs}[40,5] parameter(1)\nROOT r = {result}[3,5] {product}")
    now = after(module, "operand-upcaster")
    (operation,) = [i for i in now.entry.post_order() if len(i.operands) == 2]
    assert len({o.shape.dtype for o in operation.operands}) == 1 and str(hk.parse(str(module))) == str(module)
    drawn = [np.random.default_rng(k).integers(0, 9, p.shape.dimensions) for k, p in enumerate(module.entry.parameters)]
    args = [a.astype(p.shape.dtype.numpy) for a, p in zip(drawn, module.entry.parameters)]
    close(module, now, *args, exactly=True)
    assert hk.evaluate(module, *args).tobytes() == hk.compile(module, strict=True)(*args).tobytes()
    assert hk.evaluate(module, *args).tobytes() == hk.compile(module)(*args).tobytes(), "integers: all sums are exact"


@pytest.mark.parametrize("op", ["add", "maximum", "multiply"])
@pytest.mark.parametrize(
    ("sizes", "dimensions"), [((70, 5), (0,)), ((64, 5), (0, 1)), ((1, 64, 3, 2), (1, 3)), ((100,), (0,))]
)
def test_reductions_in_two_stages(op: str, sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    kept = [n for d, n in enumerate(sizes) if d not in dimensions]
    listed = ",".join(map(str, dimensions))
    module = program(
        f"x = f32[{','.join(map(str, sizes))}] parameter(0) i = f32[] parameter(1) ROOT r = f32[{','.join(map(str, kept))}] reduce(x, i), dimensions={{{listed}}}, to_apply={op}"
    )
    result = after(module, TreeReductionRewriter(parts=16, least=64))
    assert opcodes(result).count("reduce") == 2 and opcodes(after(result, TreeReductionRewriter(16, 64))) == opcodes(
        result
    )
    x = random(*sizes) if op != "multiply" else 1 + random(*sizes) / 16
    close(module, result, x, np.float32(0.75), exactly=op == "maximum")


def loop_of(state: str, elements: str, body: str, called: str = "") -> HloModule:
    """A counted loop over (s32[], state): `body` makes `next` of `x`, `y` and `i`; the result is all the state but i."""
    taken = "\n".join(
        f"{name} = {type} get-tuple-element(s), index={k + 1}"
        for k, (name, type) in enumerate(zip("xy", elements.split()))
    )
    names = ["x", "y"][: len(elements.split())]
    following, given = (", ".join(f"{mark}{name}" for name in names) for mark in ("new_", ""))
    parameters = "\n".join(
        f"{name} = {type} parameter({k})" for k, (name, type) in enumerate(zip(names, elements.split()))
    )
    return hk.parse(f"""HloModule m
{called}
body {{ s = (s32[], {state}) parameter(0)
i = s32[] get-tuple-element(s), index=0
{taken}
one = s32[] constant(1)
n = s32[] add(i, one)
{body}
ROOT r = (s32[], {state}) tuple(n, {following}) }}
more {{ s = (s32[], {state}) parameter(0) i = s32[] get-tuple-element(s), index=0 k = s32[] constant(5) ROOT r = pred[] compare(i, k), direction=LT }}
ENTRY e {{
{parameters}
z = s32[] constant(0)
s = (s32[], {state}) tuple(z, {given})
ROOT w = (s32[], {state}) while(s), condition=more, body=body }}""")


CHOICES = """a { s = (f32[3], s32[]) parameter(0) x = f32[3] get-tuple-element(s), index=0 n = s32[] get-tuple-element(s), index=1
y = f32[3] add(x, x) ROOT r = (f32[3], s32[]) tuple(y, n) }
b { s = (f32[3], s32[]) parameter(0) x = f32[3] get-tuple-element(s), index=0 n = s32[] get-tuple-element(s), index=1
y = f32[3] negate(x) m = s32[] add(n, n) ROOT r = (f32[3], s32[]) tuple(y, m) }
c { x = f32[3] parameter(0) ROOT y = f32[3] reverse(x), dimensions={0} }
d { x = f32[3] parameter(0) ROOT y = f32[3] exponential(x) }
"""


@pytest.mark.parametrize(
    "selector",
    [
        "two = s32[] constant(2) at = s32[] subtract(i, two)",
        "two = s32[] constant(2) at = pred[] compare(i, two), direction=LT",
    ],
)
def test_cheap_branches_in_loops(selector: str) -> None:
    """All are computed; a number outside selects the last."""
    branches, operands = (
        ("branch_computations={a, b, a}", "at, both, both, both")
        if "subtract" in selector
        else ("true_computation=a, false_computation=b", "at, both, both")
    )
    body = f"{selector} both = (f32[3], s32[]) tuple(x, i) t = (f32[3], s32[]) conditional({operands}), {branches} new_x = f32[3] get-tuple-element(t), index=0"
    module = loop_of("f32[3]", "f32[3]", body, CHOICES)
    result = after(module, ConditionalSimplifier(work=24), "dce")
    assert "conditional" not in str(result) and "conditional" in str(after(module, "conditional-simplifier"))
    x = random(3)
    close(module, result, x, exactly=True)
    for strict in (False, True):  # with and without the pass
        np.testing.assert_array_equal(hk.compile(module, strict=strict)(x)[1], hk.evaluate(module, x)[1])


def test_branches_that_are_chosen() -> None:
    """Outside of loops, and those that take long."""
    body = "two = s32[] constant(2) at = pred[] compare(i, two), direction=LT new_x = f32[3] conditional(at, x, x), true_computation=c, false_computation=d"
    module = loop_of("f32[3]", "f32[3]", body, CHOICES)
    assert "conditional" in str(after(module, ConditionalSimplifier(work=24)))
    outside = program(
        "x = f32[3] parameter(0) p = pred[] parameter(1)\nROOT r = f32[3] conditional(p, x, x), true_computation=c, false_computation=c2",
        CHOICES + "c2 { x = f32[3] parameter(0) ROOT y = f32[3] negate(x) }\n",
    )
    assert opcodes(after(outside, ConditionalSimplifier(work=24))) == ["conditional"]


TURNED = """a = f32[1] slice(x), slice={[5:6]}
b = f32[5] slice(x), slice={[0:5]}
t = f32[6] concatenate(a, b), dimensions={0}
new_x = f32[6] add(x, t)"""
SWAPPED = """t = f32[3,2] transpose(x), dimensions={1,0}
u = f32[2,3] reshape(t)
v = f32[2,3] broadcast(y), dimensions={}
w = f32[2,3] multiply(u, v)
new_x = f32[2,3] sine(w)
new_y = f32[] negate(y)"""
SQUARED = """d = f32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
h = f32[] constant(0.25)
g = f32[2,2] broadcast(h), dimensions={}
e = f32[2,2] multiply(d, g)
f = f32[2] dot(e, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
new_x = f32[2,2] add(e, x)
new_y = f32[2] negate(f)"""
BATCHED = """d = f32[2,3,3] dot(x, x), lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={0}, rhs_contracting_dims={0}
e = f32[2,3,2] dot(d, y), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={0}
f = f32[2,2,3] transpose(e), dimensions={0,2,1}
h = f32[] constant(0.125)
g = f32[2,2,3] broadcast(h), dimensions={}
new_x = f32[2,2,3] multiply(f, g)
new_y = f32[3,2,2] transpose(new_x), dimensions={2,0,1}"""


@pytest.mark.parametrize(
    ("state", "elements", "body"),
    [
        ("f32[2,2,3], f32[3,2,2]", "f32[2,2,3] f32[3,2,2]", BATCHED),
        ("f32[6]", "f32[6]", TURNED),
        ("f32[2,3], f32[]", "f32[2,3] f32[]", SWAPPED),
        ("f32[2,2], f32[2]", "f32[2,2] f32[2]", SQUARED),
    ],
)
def test_loops_over_scalars(state: str, elements: str, body: str) -> None:
    module = loop_of(state, elements, body)
    result = after(module, WhileLoopScalarizer(elements=24, work=200))
    (loop,) = [i for i in result.entry.instructions if i.opcode == "while"]
    assert all(element.rank == 0 for element in loop.shape.elements) and opcodes(
        after(result, WhileLoopScalarizer())
    ) == opcodes(result)
    args = [random(*p.shape.dimensions) for p in module.entry.parameters]
    close(module, result, *args)
    compiled = hk.compile(module)
    for a, b in zip(leaves(compiled(*args)), leaves(hk.evaluate(module, *args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert (
        " until " not in compiled.as_text("loops") or "dot" in body
    )  # the loop is inside of the kernel of each result


@pytest.mark.parametrize(
    ("state", "body"),
    [
        ("f32[6]", "new_x = f32[6] multiply(x, x)"),  # nothing moves
        ("f32[60]", "new_x = f32[60] reverse(x), dimensions={0}"),  # too many
        (
            "f32[6]",
            "a = f32[1] dynamic-slice(x, i), dynamic_slice_sizes={1} b = f32[] reshape(a) new_x = f32[6] broadcast(b), dimensions={}",
        ),
        ("f32[16]", "a = f32[16] sine(x) new_x = f32[16] reverse(a), dimensions={0}"),  # much work
        ("bf16[2,2]", "new_x = bf16[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ],
)
def test_loops_that_stay(state: str, body: str) -> None:
    module = loop_of(state, state, body)
    assert str(after(module, WhileLoopScalarizer())) == str(after(module))


@pytest.mark.parametrize("op", ["add", "maximum", "multiply"])
@pytest.mark.parametrize(
    ("table", "counts", "window"), [((5,), (800,), ()), ((3, 4), (40, 20), (4,)), ((6,), (641,), ()), ((), (700,), ())]
)
def test_scatters_into_copies(
    op: str, table: tuple[int, ...], counts: tuple[int, ...], window: tuple[int, ...]
) -> None:
    taken = len(table) - len(window)
    sizes, updates, indices = (",".join(map(str, n)) for n in (table, counts + window, (*counts, taken)))
    places, moved = ",".join(map(str, range(taken))), ",".join(map(str, range(len(counts), len(counts) + len(window))))
    module = program(
        f"x = f32[{sizes}] parameter(0) i = s32[{indices}] parameter(1) u = f32[{updates}] parameter(2) ROOT r = f32[{sizes}] scatter(x, i, u), update_window_dims={{{moved}}}, inserted_window_dims={{{places}}}, scatter_dims_to_operand_dims={{{places}}}, index_vector_dim={len(counts)}, to_apply={op}"
    )
    result = after(module, ScatterSplitter(parts=8, least=600))
    assert opcodes(result)[-2:] == ["reduce", "map"] and opcodes(result).count("scatter") == 1
    u = random(*counts, *window) if op != "multiply" else 1 + random(*counts, *window) / 100
    close(
        module,
        result,
        random(*table),
        np.random.default_rng(1).integers(-2, 8, (*counts, taken)).astype(np.int32),
        u,
        exactly=op == "maximum",
    )


def test_scatters_that_stay_whole() -> None:
    """Of few updates for an element, of a combiner without a neutral value, of unsigned numbers that share out unevenly."""
    line = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
    subtract = "subtract { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] subtract(p, q) }\n"
    for type, count, table, op in (("s32", 800, 500, "add"), ("s32", 800, 5, "subtract"), ("u32", 641, 5, "add")):
        body = f"x = f32[{table}] parameter(0) i = {type}[{count},1] parameter(1) u = f32[{count}] parameter(2) ROOT r = f32[{table}] scatter(x, i, u), {line}, to_apply={op}"
        assert opcodes(after(program(body, REDUCERS + subtract), ScatterSplitter(parts=8, least=600))) == ["scatter"]


def test_reductions_that_stay_in_one_stage() -> None:
    small = program(
        "x = f32[20,9] parameter(0) i = f32[] constant(0) ROOT r = f32[9] reduce(x, i), dimensions={0}, to_apply=add"
    )
    rows = program(
        "x = f32[90,9] parameter(0) i = f32[] constant(0) ROOT r = f32[90] reduce(x, i), dimensions={1}, to_apply=add"
    )
    for module in (small, rows):
        assert opcodes(after(module, TreeReductionRewriter(16, 64))) == ["reduce"]


@pytest.mark.parametrize("op", ["add", "maximum", "multiply"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("sizes", "axis"), [((96,), 0), ((2, 100), 1), ((90, 3), 0)])
def test_scans_in_two_stages(op: str, backward: bool, sizes: tuple[int, ...], axis: int) -> None:
    n, shape = sizes[axis], ",".join(map(str, sizes))
    pads = "x".join((f"0_{n - 1}" if backward else f"{n - 1}_0") if d == axis else "0_0" for d in range(len(sizes)))
    window = "x".join(str(n) if d == axis else "1" for d in range(len(sizes)))
    module = program(
        f"x = f32[{shape}] parameter(0) i = f32[] parameter(1) ROOT r = f32[{shape}] reduce-window(x, i), window={{size={window} pad={pads}}}, to_apply={op}"
    )
    result = after(module, ReduceWindowRewriter(row=16, least=64))
    assert opcodes(result).count("reduce-window") == 2
    x = random(*sizes) if op != "multiply" else 1 + random(*sizes) / 16
    close(module, result, x, np.float32(0.75), exactly=op == "maximum")


LOG_OF_SUM = """most { p = f32[] parameter(0) q = f32[] parameter(1)
  d = f32[] subtract(p, q) m = f32[] maximum(p, q) s = f32[] add(p, q) other = pred[] compare(d, d), direction=NE
  a = f32[] abs(d) n = f32[] negate(a) e = f32[] exponential(n) l = f32[] log-plus-one(e) t = f32[] add(m, l)
  ROOT r = f32[] select(other, s, t) }
"""


@pytest.mark.parametrize("pads", ["99_0", "0_99"])
def test_long_scans_by_associative_reducers_have_two_stages(pads: str) -> None:
    body = """x = f32[2,100] parameter(0) i = f32[] constant({start})
    ROOT r = f32[2,100] reduce-window(x, i), window={{size=1x100 pad=0_0x{pads}}}, to_apply=most"""
    module = program(body.format(start="-inf", pads=pads), LOG_OF_SUM)
    result = after(module, ReduceWindowRewriter(few=64))
    assert opcodes(result).count("reduce-window") == 2 and opcodes(result).count("map") == 1
    x = random(2, 100)
    x[0, 3] = -np.inf
    close(module, result, x)
    wide = body.replace("2,100", "8,100").format(start="-inf", pads=pads)  # eight lines fill a vector
    others = [(body.format(start="0", pads=pads), LOG_OF_SUM), (body.format(start="-inf", pads=pads), NOT_ONE), (wide, LOG_OF_SUM)]
    for other in [program(*each) for each in others]:
        assert opcodes(after(other, ReduceWindowRewriter(few=64))) == ["reduce-window"]


NOT_ONE = """most { p = f32[] parameter(0) q = f32[] parameter(1) n = f32[] negate(q) ROOT r = f32[] maximum(p, n) }
"""


def test_windows_that_are_no_long_scans_stay() -> None:
    for window in ("size=3 pad=1_1", "size=96 pad=95_0 stride=2", "size=90 pad=89_0"):
        size = {"3": 96, "9": 48 if "stride" in window else 96}[window[5]]
        module = program(
            f"x = f32[96] parameter(0) i = f32[] parameter(1) ROOT r = f32[{size}] reduce-window(x, i), window={{{window}}}, to_apply=add"
        )
        assert opcodes(after(module, ReduceWindowRewriter(row=16, least=64))) == ["reduce-window"]


