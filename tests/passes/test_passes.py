"""The passes: what each does, that meaning stays on real and random programs, that they are deterministic and linear."""

from __future__ import annotations

from typing import Any

import pytest

import hlokit as hk
from hlokit.hlo.module import HloModule
from tests.counting import function_calls
from tests.golden.programs import BUNDLED, program_names, read_program

ADD = "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }\n"


def parse(body: str, computations: str = "") -> HloModule:
    return hk.parse(f"HloModule m\n{computations}ENTRY e {{\n{body}\n}}\n")


def opcodes(module: HloModule) -> list[str]:
    return [i.opcode for i in module.entry.post_order()]


def bits(value: Any) -> Any:
    return [bits(v) for v in value] if isinstance(value, tuple) else (value.dtype, value.shape, value.tobytes())


def test_dce_removes_what_is_dead_and_keeps_effects() -> None:
    module = parse(
        "x = f32[4] parameter(0) y = f32[4] parameter(1) dead = f32[4] negate(y) t = token[] after-all()\n"
        "o = token[] outfeed(x, t), outfeed_shape=f32[4]{0}\nROOT r = f32[4] negate(x)",
        "unused { ROOT p = f32[] parameter(0) }\n",
    )
    after = hk.optimize(module, ["dce"], verify_each=True)
    assert sorted(opcodes(after)) == ["after-all", "negate", "outfeed", "parameter", "parameter"]
    assert len(after.all_computations) == 1 and len(module.all_computations) == 2
    _, outfed = hk.evaluate(after, [1.0] * 4, [2.0] * 4, return_outfeed=True)
    assert len(outfed) == 1


def test_cse_shares_the_same_but_not_random_numbers() -> None:
    module = parse(
        "x = f32[4] parameter(0) a = f32[4] tanh(x) b = f32[4] tanh(x) c = f32[] constant(0) d = f32[] constant(0)\n"
        "u = f32[4] rng(c, d), distribution=rng_uniform v = f32[4] rng(c, d), distribution=rng_uniform\n"
        "s = f32[] reduce(a, c), dimensions={0}, to_apply=add t = f32[] reduce(b, d), dimensions={0}, to_apply=add\n"
        "ROOT r = (f32[], f32[], f32[4], f32[4]) tuple(s, t, u, v)",
        ADD,
    )
    after = hk.optimize(module, ["cse"], verify_each=True)
    assert sorted(opcodes(after)) == ["constant", "parameter", "reduce", "rng", "rng", "tanh", "tuple"]


def test_call_inliner_and_tuple_simplifier() -> None:
    module = parse(
        "x = f32[4] parameter(0) t = (f32[4], f32[4]) call(x), to_apply=pair\n"
        "a = f32[4] get-tuple-element(t), index=1 u = (f32[4], f32[4]) call(a), to_apply=pair\n"
        "ROOT r = f32[4] get-tuple-element(u), index=1",
        "pair { p = f32[4] parameter(0) n = f32[4] negate(p) e = f32[4] exponential(p) ROOT t = (f32[4], f32[4]) tuple(n, e) }\n",
    )
    after = hk.optimize(module, ["call-inliner", "tuple-simplifier", "dce"], verify_each=True)
    assert opcodes(after) == ["parameter", "exponential", "exponential"] and len(after.all_computations) == 1


def test_constant_folding_computes_by_the_reference() -> None:
    module = parse(
        "a = s32[2] constant({1, 2}) b = s32[2] constant({3, 4}) c = s32[2] add(a, b) ROOT d = s32[2] multiply(c, b)"
    )
    after = hk.optimize(module, ["constant-folding"], verify_each=True)
    assert opcodes(after) == ["constant"] and hk.evaluate(after).tolist() == [12, 24]


def test_a_failing_constant_is_left_to_run() -> None:
    module = parse(
        "x = f32[4] parameter(0) n = s32[] constant(9) c = f32[4] constant({1, 2, 3, 4})\nd = f32[<=4] set-dimension-size(c, n), dimensions={0}\nROOT r = f32[4] negate(x)"
    )
    assert opcodes(hk.optimize(module, ["constant-folding", "dce"])) == ["parameter", "negate"]


def test_own_passes_unknown_names_and_broken_passes() -> None:
    module = parse("x = f32[4] parameter(0) ROOT r = f32[4] negate(x)")

    def to_abs(module: HloModule) -> None:
        root = module.entry.root
        module.entry.replace(root, module.entry.add(hk.OPS["abs"](), root.operands))

    assert opcodes(hk.optimize(module, [to_abs, "dce"])) == ["parameter", "abs"] and opcodes(module) == [
        "parameter",
        "negate",
    ]
    with pytest.raises(hk.HlokitError, match="no pass 'nope'"):
        hk.optimize(module, ["nope"])

    def broken(module: HloModule) -> None:
        module.entry.root.shape = hk.f32[5]

    with pytest.raises(hk.VerifyError, match="after broken"):
        hk.optimize(module, [broken], verify_each=True)


@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_programs_keep_their_bits(name: str) -> None:
    program = read_program(BUNDLED, name)
    module = hk.parse(program.hlo)
    after = hk.optimize(module, verify_each=True)
    assert len(after.instructions()) <= sum(len(c) for c in module.all_computations) * 3
    again = hk.optimize(module)
    assert str(again) == str(after), "not deterministic"
    want, got = hk.evaluate(module, *program.inputs), hk.evaluate(after, *program.inputs)
    assert bits(got) == bits(want)


@pytest.mark.parametrize("is_wide", [False, True])
def test_passes_are_linear(is_wide: bool) -> None:
    """Of a long chain, and of a tuple of many values, each of which becomes another and half of which are equal."""

    def module(count: int) -> HloModule:
        b = hk.Builder("t", source_info=False)
        x = b.parameter(0, hk.f32[8])
        y, found = x, []
        for k in range(count // 4):
            y = hk.neg(hk.neg(hk.tanh(hk.add(b.constant(k // 2 + 0.5) if is_wide else y, x))))
            found.append(y)
        return b.build(hk.tuple_(b, found) if is_wide else y)

    programs = [module(count) for count in (1000, 4000)]
    small, large = (function_calls(lambda program=program: hk.optimize(program)) for program in programs)
    assert large < 5 * small


def test_observer_sees_every_pass() -> None:
    module = parse("x = f32[4] parameter(0) y = f32[4] negate(x) ROOT r = f32[4] negate(y)")
    seen: list[tuple[str, int]] = []
    hk.optimize(module, ["algsimp", "dce"], observe=lambda name, now: seen.append((name, len(now.entry))))
    assert seen == [("algsimp", 1), ("dce", 1)]


def test_random_programs_keep_their_bits() -> None:
    from tests.fuzz.programs import random_module
    from tests.fuzz.values import arguments as random_arguments

    different: list[int] = []
    for seed in range(200):
        module = random_module(seed)
        arguments = random_arguments(module, seed)
        try:
            want = hk.evaluate(module, *arguments)
        except hk.HlokitError:
            continue
        got = hk.evaluate(hk.optimize(module, verify_each=True), *arguments)
        if bits(got) != bits(want):
            different.append(seed)
    assert not different


def test_users_know_their_operands_places() -> None:
    """Of what is used once, where; of what is used more than once, that it is."""
    module = parse(
        "x = f32[4] parameter(0) a = f32[4] negate(x) b = f32[4] abs(x) t = (f32[4], f32[4], f32[4], f32[4]) tuple(a, b, a, x)\n"
        "ROOT r = ((f32[4], f32[4], f32[4], f32[4]), f32[4]) tuple(t, a)"
    )
    x, a, b, t, r = module.entry.post_order()
    assert a.users == {t: None, r: 1} and b.users == {t: 1} and x.users == {a: 0, b: 0, t: 3}
    module.entry.replace(b, x)
    assert x.users == {a: 0, b: 0, t: None} and t.operands == (a, x, a, x) and not b.users
    module.entry.replace(x, a)
    assert t.operands == (a, a, a, a) and a.users == {t: None, r: 1, b: 0} and x.users == {a: 0}
    hk.verify(module)


def test_a_module_can_be_copied_after_an_edit() -> None:
    """An edit may put an operand behind its user; a copy must not depend on the order."""
    module = parse("x = f32[4] parameter(0) y = f32[4] negate(x) ROOT r = f32[4] tanh(y)")
    old = module.entry.root.operands[0]
    module.entry.replace(old, module.entry.add(hk.OPS["abs"](), old.operands))
    assert opcodes(module.clone()) == opcodes(module)
    assert opcodes(hk.optimize(module, ["dce"], verify_each=True)) == ["parameter", "abs", "tanh"]


def test_copies_share_nothing_that_can_change() -> None:
    module = parse('x = f32[4] parameter(0) ROOT r = f32[4] negate(x), frontend_attributes={a="b"}')
    copy = module.clone()
    copy.entry.root.ensure_extra().frontend_attributes["a"] = "c"
    assert 'a="b"' in str(module) and 'a="c"' in str(copy)


def test_inlining_one_computation_many_times_is_linear_and_legal() -> None:
    def module(count: int) -> HloModule:
        calls = "".join(f"y{i + 1} = f32[4] call(y{i}), to_apply=f\n" for i in range(count))
        return parse(
            f"y0 = f32[4] parameter(0)\n{calls}ROOT r = f32[4] negate(y{count})",
            "f { p = f32[4] parameter(0) ROOT n = f32[4] tanh(p) }\n",
        )

    calls: list[int] = []
    for count in (250, 1000):
        program = module(count)
        assert len(hk.optimize(program, ["call-inliner"], verify_each=True).entry) == count + 2
        calls.append(function_calls(lambda program=program: hk.optimize(program, ["call-inliner"])))
    assert calls[1] < 5 * calls[0]


def test_effects_of_an_inlined_call_happen_once() -> None:
    module = parse(
        "x = f32[4] parameter(0) ROOT c = f32[4] call(x), to_apply=f",
        "f { p = f32[4] parameter(0) t = token[] after-all() o = token[] outfeed(p, t), outfeed_shape=f32[4]{0}\nROOT n = f32[4] negate(p) }\n",
    )
    after = hk.optimize(module, ["call-inliner"], verify_each=True)
    assert "call" not in opcodes(after) and len(hk.evaluate(after, [1.0] * 4, return_outfeed=True)[1]) == 1


LAYOUTS = [
    (  # a call's argument in another layout than its parameter
        "x = f32[2,3]{0,1} parameter(0) ROOT r = f32[6] call(x), to_apply=f",
        "f { p = f32[2,3]{1,0} parameter(0) ROOT b = f32[6] bitcast(p) }\n",
        "call-inliner",
    ),
    (  # a call's result likewise
        "x = f32[2,3]{0,1} parameter(0) c = f32[2,3]{1,0} call(x), to_apply=f ROOT r = f32[6] bitcast(c)",
        "f { ROOT p = f32[2,3]{1,0} parameter(0) }\n",
        "call-inliner",
    ),
    (  # an expansion in the layout of its operand
        "x = f32[2,3]{0,1} parameter(0) s = f32[3] constant({1, 1, 1}) z = f32[3] constant({0, 0, 0})\n"
        "n = f32[2,3]{1,0} batch-norm-inference(x, s, z, z, s), epsilon=0, feature_index=1 ROOT r = f32[6] bitcast(n)",
        "",
        "op-expander",
    ),
    (
        "x = f32[2,3]{0,1} parameter(0) t = (f32[2,3]{1,0}) tuple(x) e = f32[2,3]{1,0} get-tuple-element(t), index=0\n"
        "ROOT r = f32[6] bitcast(e)",
        "",
        "tuple-simplifier",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "computations", "name"), LAYOUTS, ids=range(len(LAYOUTS)))
def test_bitcasts_read_the_layout_of_what_was_replaced(body: str, computations: str, name: str) -> None:
    module = parse(body, computations)
    x = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    for after in (hk.optimize(module, [name], verify_each=True), hk.optimize(module)):
        assert hk.evaluate(after, x).tolist() == hk.evaluate(module, x).tolist() == [1, 2, 3, 4, 5, 6]
    assert hk.compile(module)(x).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["call-inliner", "conditional-simplifier"])
def test_effects_keep_their_turns(name: str) -> None:
    """Those of a call, of which its result needs the last alone, come before what follows the call."""
    call = "call(x), to_apply=f" if name == "call-inliner" else "conditional(c, x, x), branch_computations={f, f}"
    module = parse(
        f"x = s32[] parameter(0) c = s32[] constant(0) a = s32[] {call}\n"
        "v = u64[2] rng-get-and-update-state(), delta=1 ROOT t = (s32[], u64[2]) tuple(a, v)",
        "g { u = u64[2] rng-get-and-update-state(), delta=8 ROOT p = s32[] parameter(0) }\n"
        "f { p = s32[] parameter(0) u = u64[2] rng-get-and-update-state(), delta=16 q = s32[] call(p), to_apply=g\n"
        "w = u64[2] rng-get-and-update-state(), delta=4 s = u64[1] slice(w), slice={[0:1]} y = s32[1] convert(s)\n"
        "ROOT z = s32[] reshape(y) }\n",
    )
    expected = hk.evaluate(module, 5)
    after = hk.optimize(module, [name, "dce"], verify_each=True)
    assert "call" not in opcodes(after)
    for one in (after, hk.optimize(module)):
        assert bits(hk.evaluate(one, 5)) == bits(expected)
    for strict in (False, True):
        assert bits(hk.compile(module, strict=strict)(5)) == bits(expected)


def test_effects_keep_the_order_of_a_schedule() -> None:
    module = hk.parse(
        "HloModule t, is_scheduled=true\nENTRY e { a = u64[2] rng-get-and-update-state(), delta=1\n"
        "b = u64[2] rng-get-and-update-state(), delta=8\nROOT r = (u64[2], u64[2]) tuple(b, a) }"
    )
    expected = bits(hk.evaluate(module))
    assert bits(hk.evaluate(hk.optimize(module, [], verify_each=True))) == expected
    assert bits(hk.compile(module, strict=True)()) == expected


def test_effects_keep_their_order_when_what_needs_them_goes() -> None:
    text = """HloModule m
    ENTRY e {
      a = u64[2] rng-get-and-update-state(), delta=5
      b = u64[2] rng-get-and-update-state(), delta=3
      s = u64[0] slice(b), slice={[2:2:2]}
      ROOT t = (u64[2], u64[0]) tuple(a, s)
    }"""
    module = hk.parse(text)
    simpler = hk.optimize(module, ["zero-sized-hlo-elimination"])
    assert [i.name for i in simpler.entry.post_order() if i.op.has_side_effect()] == ["a", "b"]
    assert list(hk.evaluate(simpler)[0]) == list(hk.evaluate(module)[0])
