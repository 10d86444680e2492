"""What jaxlib 0.12 knows and 0.10.2 does not: BEY-63, BEY-81 .. BEY-83, HOP-5, HOP-21, HOP-36, HOP-44, HMOD-20, HMOD-19."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.proto.module import module_from_proto, module_to_proto
from tests.rules.grid import same
from tests.rules.labels import rejects, rule

X = np.float32([3, 1, 4, 1, 5, 9])


def module(body: str, header: str = "") -> hk.HloModule:
    """A module whose entry has a: f32[6] and what `body` says; its text and its proto are read back."""
    found = hk.parse(f"""
HloModule m{header}
add {{ x = f32[] parameter(0)
 y = f32[] parameter(1)
 ROOT r = f32[] add(x, y) }}
ENTRY e {{ a = f32[6] parameter(0)
 {body} }}
""")
    text = str(found)
    assert str(hk.parse(text)) == text
    assert str(module_from_proto(module_to_proto(found))).splitlines()[1:] == text.splitlines()[1:]
    return found


def runs(found: hk.HloModule, *args: Any, **options: Any) -> list[Any]:
    """What the reference, the reference after the passes, and machine code give."""
    return [
        hk.evaluate(found, *args, **options),
        hk.evaluate(hk.optimize(found), *args, **options),
        hk.compile(found, **options)(*args),
    ]


def root_of(found: hk.HloModule) -> str:
    return next(line.strip() for line in reversed(str(found).splitlines()) if "ROOT" in line)


# -- collectives with roots

DEVICES = [[X * k, np.int32([1, 2])] for k in (1, 10, 100)]
ROOTS = "i = s32[2] parameter(1)\n "
ROOTED = [
    ("BEY-82: the first has it", "collective-reduce(a), replica_groups={}", [X * 111, 0 * X, 0 * X]),
    ("BEY-82: the first of each group", "collective-reduce(a), replica_groups={{2,0},{1}}", [0 * X, X * 10, X * 101]),
    ("BEY-63: the first sends", "collective-broadcast(a), replica_groups={{2,0},{1}}", [X * 100, X * 10, X * 100]),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in ROOTED], ids=[row[0] for row in ROOTED])
def test_fixed_roots(text: str, expected: list[Any]) -> None:
    apply = ", to_apply=add" if "reduce" in text else ""
    for result in runs(module(f"ROOT r = f32[6] {text}{apply}", ", replica_count=3"), *([d[0]] for d in DEVICES)):
        same(result, expected)


@rule("BEY-63", "BEY-82", "HOP-36", "HOP-44")
def test_roots_chosen_at_run_time() -> None:
    """The second and the third of the group, for the two operands."""
    pair = "(f32[6], f32[6])"
    reduced = module(
        f"{ROOTS}b = f32[6] negate(a)\n ROOT r = {pair} collective-reduce(a, b, i), "
        "replica_groups={{1,2,0}}, has_dynamic_root=true, to_apply=add", ", replica_count=3",
    )  # fmt: skip
    assert root_of(reduced).endswith("replica_groups={{1,2,0}}, has_dynamic_root=true, to_apply=%add")
    for result in runs(reduced, *DEVICES):
        np.testing.assert_array_equal(result, [(0 * X, -111 * X), (0 * X, 0 * X), (111 * X, 0 * X)])
    sent = module(
        f"{ROOTS}b = f32[6] negate(a)\n ROOT r = {pair} collective-broadcast(a, b, i), "
        "replica_groups={{1,2,0}}, has_dynamic_root=true", ", replica_count=3",
    )  # fmt: skip
    for result in runs(sent, *DEVICES):
        np.testing.assert_array_equal(result, [(100 * X, -X)] * 3)


@rule("BEY-63", "BEY-82")
@pytest.mark.parametrize("opcode", ["collective-reduce", "collective-broadcast"])
def test_roots_that_are_none(opcode: str) -> None:
    apply = ", to_apply=add" if opcode == "collective-reduce" else ""
    label = "BEY-82" if apply else "BEY-63"
    for operands in ("a", "i", "a, a", "a, a, i"):
        body = f"i = s32[1] parameter(1)\n ROOT r = f32[6] {opcode}({operands}), has_dynamic_root=true{apply}"
        with rejects(label):
            module(body)
    good = f"i = s32[1] parameter(1)\n ROOT r = f32[6] {opcode}(a, i), has_dynamic_root=true{apply}"
    for roots in ([2, 2], [-1, -1], [0, 1]):
        with pytest.raises(hk.EvaluationError, match=label):
            hk.evaluate(module(good, ", replica_count=2"), *([X, np.int32([root])] for root in roots))


@rule("BEY-82", "HOP-44")
def test_collective_reduce_is_built_and_printed() -> None:
    b = hk.Builder("b")
    x, roots = b.parameter(0, hk.f32[2], "x"), b.parameter(1, hk.s32[1], "roots")
    built = b.build(hk.collective_reduce([x, roots], hk.add, [[0, 1]], 3, True, has_dynamic_root=True))
    assert (
        "collective-reduce(%x, %roots), channel_id=3, replica_groups={{0,1}}, use_global_device_ids=true, "
        "has_dynamic_root=true, to_apply=" in str(built)
    )
    assert "replica_groups={}, has_dynamic_root=false, to_apply=%add" in root_of(
        module("ROOT r = f32[6] collective-reduce(a), to_apply=add")
    )
    started = "s = ((f32[6]), f32[6], u32[]) collective-reduce-start(a), to_apply=add\n"
    for result in runs(module(f"{started} ROOT r = f32[6] collective-reduce-done(s)"), X):
        same(result, X)


@rule("BEY-63", "BEY-82")
def test_collectives_with_roots_go_to_stablehlo_and_back() -> None:
    for body in (
        "ROOT r = f32[6] collective-reduce(a), replica_groups={{1,0,2}}, to_apply=add",
        "i = s32[1] parameter(1)\n ROOT r = f32[6] collective-reduce(a, i), replica_groups={{1,0,2}}, "
        "has_dynamic_root=true, to_apply=add",
        "i = s32[1] parameter(1)\n ROOT r = f32[6] collective-broadcast(a, i), replica_groups={{1,0,2}}, "
        "has_dynamic_root=true",
    ):
        found = module(body, ", replica_count=3")
        args = [[X * k, np.int32([2])][: len(found.entry.parameters)] for k in (1, 10, 100)]
        again = hk.parse(hk.to_stablehlo(found))
        same(hk.evaluate(again, *args, replicas=3), hk.evaluate(found, *args))


# -- elementwise, movement


@rule("HOP-44", "BEY-81")
def test_powers_and_logarithms() -> None:
    found = module("b = exp2(a), result_accuracy={mode=highest}\n ROOT r = log2(b)")
    assert "exp2(%a), result_accuracy={mode=highest}" in str(found)
    for result in runs(found, X):
        np.testing.assert_array_equal(result, X)
    values = np.linspace(-20, 20, 997).astype(np.float32)
    for element, tolerance in (("f64", 1e-14), ("f32", 4e-7), ("bf16", 1e-2), ("f8e5m2", 0.3)):
        for opcode, function in (("exp2", np.exp2), ("log2", np.log2)):
            typed = hk.parse(f"HloModule m\nENTRY e {{ x = {element}[997] parameter(0)\n ROOT r = {opcode}(x) }}")
            given = np.abs(values).astype(hk.dtype(element).numpy)
            given = given[(given > 0)][:900]
            padded = np.resize(given, 997)
            for result in runs(typed, padded):
                expected = function(padded.astype(np.float64)).astype(padded.dtype)
                np.testing.assert_allclose(result.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance)
    for bad in ("s32", "c64", "pred"):
        with rejects("UN-6"):
            hk.parse(f"HloModule m\nENTRY e {{ x = {bad}[2] parameter(0)\n ROOT r = exp2(x) }}")


SHUFFLED = [
    ("{0}", "{2}", (2,)),
    ("{0}", "{-8}", (-8,)),
    ("{0}", "{0}", (0,)),
    ("{0}", "{9223372036854775807}", (2**63 - 1,)),
]


@rule("BEY-83", "HOP-44")
@pytest.mark.parametrize(("dimensions", "shifts", "by"), SHUFFLED)
def test_shuffle(dimensions: str, shifts: str, by: tuple[int, ...]) -> None:
    found = module(f"ROOT r = f32[6] shuffle(a), dimensions={dimensions}, mode=rotate, shifts={shifts}")
    assert root_of(found).endswith(f"shuffle(%a), dimensions={dimensions}, mode=rotate, shifts={shifts}")
    for result in runs(found, X):
        np.testing.assert_array_equal(result, np.roll(X, by[0] % 6))


@rule("BEY-83")
def test_shuffle_of_several_dimensions() -> None:
    found = module(
        "b = f32[2,3] reshape(a)\n c = shuffle(b), dimensions={1,0}, mode=rotate, shifts={1,-1}\n"
        "ROOT r = f32[2,3] add(c, b)"
    )
    for result in runs(found, X):
        np.testing.assert_array_equal(result, np.roll(X.reshape(2, 3), (1, -1), (1, 0)) + X.reshape(2, 3))
    empty = hk.parse(
        "HloModule m\nENTRY e { a = f32[0,2] parameter(0)\n"
        "ROOT r = shuffle(a), dimensions={0}, mode=rotate, shifts={1} }"
    )
    assert all(result.shape == (0, 2) for result in runs(empty, np.zeros((0, 2), np.float32)))


@rule("BEY-83")
@pytest.mark.parametrize("attributes", ["{}, S={}", "{1}, S={2}", "{0,0}, S={1,1}", "{0}, S={}", "{0}, S={1,2}", "{-1}, S={1}"])
def test_refused_shuffles(attributes: str) -> None:
    with rejects("BEY-83"):
        module(f"ROOT r = f32[6] shuffle(a), dimensions={attributes.replace('S=', 'mode=rotate, shifts=')}")


@rule("HOP-44")
def test_shuffles_need_a_mode() -> None:
    for attributes in ("", ", mode=turn, shifts={1}"):
        with rejects("HINST-6"):
            module(f"ROOT r = f32[6] shuffle(a), dimensions={{0}}{attributes}")


@rule("BEY-81", "BEY-83")
def test_newer_ops_go_to_stablehlo() -> None:
    found = module(
        "b = f32[2,3] reshape(a)\n c = shuffle(b), dimensions={1,0}, mode=rotate, shifts={-1,3}\n d = exp2(c)\n"
        "ROOT r = log2(d)"
    )
    again = hk.parse(hk.to_stablehlo(found))
    np.testing.assert_array_equal(hk.evaluate(again, X), hk.evaluate(found, X))
    empty = hk.parse("HloModule m\nENTRY e { a = f32[0] parameter(0)\n ROOT r = shuffle(a), dimensions={0}, mode=rotate, shifts={1} }")
    assert hk.evaluate(hk.parse(hk.to_stablehlo(empty)), np.zeros(0, np.float32)).shape == (0,)


# -- attributes


@rule("HOP-21")
def test_whether_topk_is_stable() -> None:
    for given, printed in (("", ""), (", is_stable=true", ""), (", is_stable=false", ", is_stable=false")):
        found = hk.parse(f"HloModule m\nENTRY e {{ a = f32[6] parameter(0)\n ROOT r = topk(a), k=2{given} }}")
        assert root_of(found).endswith(f"k=2, largest=true{printed}")
        for values, places in runs(found, np.float32([1, 2, 2, 2, 1, 0])):
            np.testing.assert_array_equal(values, [2, 2])
            np.testing.assert_array_equal(places, [1, 2])


@rule("HOP-5")
def test_order_of_comparisons() -> None:
    for given, printed in (("order=TOTAL", ", type=TOTALORDER"), ("order=PARTIAL", "")):
        assert root_of(module(f"ROOT r = compare(a, a), direction=LT, {given}")).endswith(f"direction=LT{printed}")
    integers = "b = s32[6] convert(a)\n ROOT r = compare(b, b), direction=LT, order=TOTAL"
    assert root_of(module(integers)).endswith("direction=LT")


@rule("HOP-36")
def test_attributes_that_are_ignored() -> None:
    scattered = "ROOT r = f32[6] reduce-scatter(a), replica_groups={{0}}, dimensions={0}, mode=flattened_id, to_apply=add"
    assert "mode" not in str(module(scattered))
    body = "i = s32[1] parameter(1)\n ROOT r = f32[6] ragged-all-to-all(a, a, i, i, i, i), dimensions={0}"
    assert "dimensions" not in str(module(body))


@rule("HATTR-9")
def test_algorithms() -> None:
    found = module(
        "b = f32[1,2,3,1] reshape(a)\n k = f32[1,1,1,1] constant({{{{2}}}})\n"
        "c = f32[1,2,3,1] convolution(b, k), window={size=1x1}, dim_labels=b01f_01io->b01f, algorithm=dot_bf16_bf16_fp8x4\n"
        "d = f32[6] reshape(c)\n"
        "ROOT r = f32[] dot(d, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_fp8x3"
    )
    assert "dim_labels=b01f_01io->b01f, algorithm=dot_bf16_bf16_fp8x4\n" in str(found)
    assert root_of(found).endswith("algorithm=dot_bf16_bf16_fp8x3")
    for result in runs(found, X):
        assert result == (4 * X * X).sum()


def test_result_tilings_of_custom_calls() -> None:
    """StableHLO's result_tilings are the tiles of the result's layout in HLO."""
    text = """
func.func @main(%x: tensor<16x128xbf16>) -> tensor<16x128xbf16> {
  %0 = stablehlo.custom_call @foo(%x) {api_version = 1 : i32, operand_layouts = [dense<[1, 0]> : tensor<2xindex>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>],
    result_tilings = [[dense<[8, -9223372036854775808]> : tensor<2xindex>, dense<[2, 1]> : tensor<2xindex>]]} :
    (tensor<16x128xbf16>) -> tensor<16x128xbf16>
  return %0 : tensor<16x128xbf16>
}"""
    found = hk.parse(text)
    assert "bf16[16,128]{0,1:T(8,*)(2,1)} custom-call(" in str(found)
    printed = hk.to_stablehlo(found)
    assert "result_tilings = [[dense<[8, -9223372036854775808]> : tensor<2xindex>, dense<[2, 1]>" in printed
    assert "bf16[16,128]{0,1:T(8,*)(2,1)} custom-call(" in str(hk.parse(printed))
    for bad in ("[]", "[[], []]", "[[dense<[-2, 1]> : tensor<2xindex>]]", "[dense<[8, 1]> : tensor<2xindex>]"):
        changed = text.replace(text[text.index("[[dense") : text.index("]]}") + 2], bad)
        if bad == "[]":
            assert "T(" not in str(hk.parse(changed))
            continue
        with pytest.raises(hk.ParseError, match=r"tiles|result_tilings"):
            hk.parse(changed)


# -- headers


@rule("HMOD-20", "HCOMP-12")
def test_backend_config_of_modules_and_computations() -> None:
    found = hk.parse("""
HloModule m, backend_config={"a": 1}, frontend_attributes={k="v"}
f { ROOT a = f32[] parameter(0) }, backend_config="x", execution_thread="t"
g { ROOT a = f32[] parameter(0) }, backend_config={"b":{}}
ENTRY e { a = f32[] parameter(0)
 b = f32[] call(a), to_apply=g
 ROOT r = f32[] call(b), to_apply=f }
""")
    text = str(found)
    assert text.splitlines()[0].endswith('frontend_attributes={k="v"}, backend_config={"a": 1}')
    assert '}, execution_thread="t", backend_config="x"\n' in text and '}, backend_config={"b":{}}\n' in text
    assert str(hk.parse(text)) == text == str(module_from_proto(module_to_proto(found))) == str(found.clone())
    assert hk.evaluate(found, 2.0) == 2


@rule("HMOD-19")
def test_debug_attributes() -> None:
    header = (
        ', debug_attributes={{"a" {0,1}}: ({op_id=2, callback_id=-1},{op_id=3}), {"b"} : {partitioned=true, log_mode=default},'
        ' {"c"}:()}'
    )
    found = module("ROOT r = f32[6] negate(a)", header)
    assert str(found).startswith(
        "HloModule m, entry_computation_layout={(f32[6]{0})->f32[6]{0}},\ndebug_attributes={\n"
        '  {"a" {0,1}}:({callback_id=-1,op_id=2},{op_id=3}),\n  {"b"}:({log_mode=default,partitioned=true})\n}\n\n'
    )
    assert "debug" not in str(module("ROOT r = f32[6] negate(a)", ", debug_attributes={}"))
    for bad in ('{"a":{op_id=1}}', '{{"a"}:{}}', '{{"a"}:{x=1}}', '{{"a"}:{op_id=1,op_id=1}}', '{{"a"}:{log_mode=loud}}'):
        with rejects("HMOD-19"):
            module("ROOT r = f32[6] negate(a)", f", debug_attributes={bad}")
