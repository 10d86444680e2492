"""StableHLO text that hlokit writes: what it says, and that it reads back to the same results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.stablehlo.printer.mapping import RULES
from hlokit.tools.main import main
from tests.fuzz import devices
from tests.golden.cases import read_cases
from tests.golden.player import flatten
from tests.golden.programs import BUNDLED
from tests.golden.sample import SAMPLE
from tests.stablehlo import roundtrip
from tests.stablehlo.roundtrip import FAILED, PASSED, UNSUPPORTED, Subject, bits_differ, evaluated

EVERYTHING = """
HloModule all, num_partitions=2, frontend_attributes={note="a \\"b\\""}, input_output_alias={ {0}: (0, {}, may-alias) },
  buffer_donor={ (1, {1}) },
  entry_computation_layout={(f32[2,3]{0,1}, (s32[], u8[3]{0}))->(f32[2,3]{1,0}, s32[], f32[<=3]{0})}

less {
  i = (f32[2,3], s32[]) parameter(0)
  n = s32[] get-tuple-element(i), index=1
  limit = s32[] constant(3)
  ROOT r = pred[] compare(n, limit), direction=LT
}

step {
  s = (f32[2,3], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=1
  x = f32[2,3] get-tuple-element(s), index=0
  y = f32[2,3] tan(x), result_accuracy={mode=highest}
  one = s32[] constant(1)
  m = s32[] add(n, one)
  ROOT t = (f32[2,3], s32[]) tuple(y, m)
}

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

both {
  p = f32[2,3] parameter(0)
  q = f32[2,3] erf(p), metadata={op_name="jit(f)/erf" source_file="f.py" source_line=7}
  ROOT t = (f32[2,3], (f32[2,3])) custom-call(p, q), custom_call_target="two-of", api_version=API_VERSION_TYPED_FFI, backend_config="{k = 3 : i32}"
}

ENTRY main {
  data = f32[2,3]{0,1} parameter(0), sharding={devices=[2,1]<=[2]}
  rest = (s32[], u8[3]) parameter(1)
  n = s32[] get-tuple-element(rest), index=0
  init = (f32[2,3], s32[]) tuple(data, n)
  w = (f32[2,3], s32[]) while(init), condition=less, body=step
  y = f32[2,3] get-tuple-element(w), index=0
  m = s32[] get-tuple-element(w), index=1
  zero = f32[] constant(0)
  total = f32[3] reduce(y, zero), dimensions={0}, to_apply=sum
  size = f32[<=3] set-dimension-size(total, m), dimensions={0}
  pair = (f32[2,3], (f32[2,3])) call(y), to_apply=both
  z = (f32[2,3]) get-tuple-element(pair), index=1
  v = f32[2,3] get-tuple-element(z), index=0, frontend_attributes={f="g"}
  u = f32[2,3] negate(v), frontend_attributes={f="g"}
  k = f32[2] constant({nan, 0.1})
  unused = f32[2] abs(k)
  no = f32[2] constant({1, 2})
  ROOT out = (f32[2,3], s32[], f32[<=3]) tuple(u, m, size)
}
"""

WRITTEN = r"""
module @all attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32, mhlo.frontend_attributes = {note = "a \22b\22"}} {
  func.func public @main(%data: tensor<2x3xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}", tf.aliasing_output = 0 : i32, mhlo.layout_mode = "{0,1}"}, %rest.0: tensor<i32>, %rest.1: tensor<3xui8> {jax.buffer_donor = true}) -> (tensor<2x3xf32>, tensor<i32>, tensor<?xf32, #stablehlo.bounds<3>>) {
    %cst = stablehlo.constant dense<[0x7FC00000, 1.000000e-01]> : tensor<2xf32>
    %0 = stablehlo.abs %cst : tensor<2xf32>
    %1:2 = stablehlo.while(%iterArg = %data, %iterArg_0 = %rest.0) : tensor<2x3xf32>, tensor<i32>
    cond {
      %c = stablehlo.constant dense<3> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg_0, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %3 = stablehlo.tan %iterArg {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<2x3xf32>
      %c_0 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.add %iterArg_0, %c_0 : tensor<i32>
      stablehlo.return %3, %4 : tensor<2x3xf32>, tensor<i32>
    }
    %5:2 = func.call @both(%1#0) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
    %6 = stablehlo.negate %5#1 {mhlo.frontend_attributes = {f = "g"}} : tensor<2x3xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%1#0 init: %cst_0) applies stablehlo.add across dimensions = [0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>
    %8 = stablehlo.set_dimension_size %7, %1#1, dim = 0 : (tensor<3xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<3>>
    return %6, %1#1, %8 : tensor<2x3xf32>, tensor<i32>, tensor<?xf32, #stablehlo.bounds<3>>
  }
  func.func private @both(%arg: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
    %0 = chlo.erf %arg : tensor<2x3xf32> -> tensor<2x3xf32> loc("jit(f)/erf"("f.py":7:0))
    %1 = stablehlo.custom_call @"two-of"(%arg, %0) {api_version = 4 : i32, backend_config = {k = 3 : i32}} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tuple<tensor<2x3xf32>, tuple<tensor<2x3xf32>>>
    %2 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<2x3xf32>, tuple<tensor<2x3xf32>>>) -> tensor<2x3xf32>
    %3 = stablehlo.get_tuple_element %1[1] : (tuple<tensor<2x3xf32>, tuple<tensor<2x3xf32>>>) -> tuple<tensor<2x3xf32>>
    %4 = stablehlo.get_tuple_element %3[0] : (tuple<tensor<2x3xf32>>) -> tensor<2x3xf32>
    return %2, %4 : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
"""


def test_what_is_written() -> None:
    assert hk.to_stablehlo(hk.parse(EVERYTHING)) == WRITTEN[1:]


def test_attributes_of_barriers() -> None:
    """StableHLO's form has the attributes before the operands."""
    text = 'ENTRY e { x = f32[2] parameter(0) ROOT b = f32[2] opt-barrier(x), frontend_attributes={f="g"} }'
    written = hk.to_stablehlo(hk.parse(text))
    assert 'stablehlo.optimization_barrier {mhlo.frontend_attributes = {f = "g"}} %x : tensor<2xf32>' in written
    extra = hk.parse(written).entry.root.extra
    assert extra is not None and extra.frontend_attributes == {"f": "g"}


def test_written_text_reads_back_with_what_goes_along() -> None:
    again = hk.parse(hk.to_stablehlo(hk.parse(EVERYTHING)))
    assert [p.name for p in again.entry.parameters] == ["data", "rest.0", "rest.1"]
    assert str(again.input_output_alias[0].output_index) == "(0,)" and again.buffer_donor == [(2, ())]
    data = again.entry.parameters[0]
    assert data.extra is not None and str(data.extra.sharding) == "{devices=[2,1]<=[2]}"
    assert again.num_partitions == 2 and again.frontend_attributes["note"] == 'a "b"'
    erf = next(i for i in again.instructions() if i.opcode == "erf")
    assert erf.extra is not None and erf.extra.metadata is not None
    assert (erf.extra.metadata.op_name, erf.extra.metadata.source_line) == ("jit(f)/erf", 7)
    call = next(i for i in again.instructions() if i.opcode == "custom-call")
    assert call.extra is not None and call.extra.backend_config == "{k = 3 : i32}"
    assert hk.to_stablehlo(again).count("\n") == WRITTEN[1:].count("\n")


def test_every_op_is_written_or_expands() -> None:
    assert not set(RULES) - set(hk.OPS)
    assert all(hk.OPS[opcode].form == "expand" for opcode in set(hk.OPS) - set(RULES))


# -- round trips


def sample() -> list[Subject]:
    return [subject for case in read_cases(SAMPLE) if case.kind != "reject" for subject in roundtrip.golden_case(case)]


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_golden_sample_round_trips_bit_for_bit(step: int) -> None:
    outcomes = [roundtrip.through_hlokit(subject) for subject in sample()[::step]]
    assert len(outcomes) > 250 // step
    assert not [o for o in outcomes if o.status == FAILED]
    assert sum(o.status == PASSED for o in outcomes) > 0.98 * len(outcomes)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_jax_programs_round_trip_bit_for_bit(step: int) -> None:
    subjects = list(roundtrip.program_subjects(BUNDLED))
    outcomes = [roundtrip.through_hlokit(subject) for subject in subjects[::step]]
    assert len(subjects) == 84 and {o.status for o in outcomes} == {PASSED}


def test_random_programs_round_trip_bit_for_bit() -> None:
    outcomes = [roundtrip.through_hlokit(s) for s in roundtrip.fuzz_subjects(range(80), outside=False)]
    assert not [o for o in outcomes if o.status == FAILED]
    refused = [o for o in outcomes if o.status == UNSUPPORTED]
    assert all("elements of s1" in o.what or "elements of u1" in o.what for o in refused) and len(refused) < 40


def test_programs_of_several_devices_round_trip() -> None:
    compared = 0
    for seed in range(60):
        program = devices.random_program(seed)
        module = devices.module_of(program)
        try:
            again = hk.parse(hk.to_stablehlo(module))
        except hk.UnsupportedError as error:
            assert str(error).endswith("collective-broadcast(...): groups of different sizes")
            continue
        assert (again.replica_count, again.num_partitions) == (module.replica_count, module.num_partitions)
        found, wanted = (flatten(hk.evaluate(m, *_given(program))) for m in (again, module))
        assert bits_differ(found, wanted) is None, seed
        compared += 1
    assert compared > 50


def _given(program: devices.Program) -> list[Any]:
    return list(program.inputs) if len(program.inputs) == 1 else program.arguments


def test_ragged_all_to_all_is_a_custom_call() -> None:
    tables = "\n".join(f"t{i} = s32[2] parameter({i})" for i in range(2, 6))
    module = hk.parse(
        f"HloModule m, replica_count=2\nENTRY e {{\na = f32[4] parameter(0)\no = f32[4] parameter(1)\n{tables}\n"
        "ROOT x = f32[4] ragged-all-to-all(a, o, t2, t3, t4, t5), replica_groups={{0,1}} }"
    )
    text = hk.to_stablehlo(module)
    assert "backend_config = {channel_id = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}" in text
    assert hk.parse(text).entry.root.op is module.entry.root.op


def test_a_wrong_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "maximum", RULES["minimum"])
    b = hk.Builder("m")
    x, y = b.parameter(0, hk.f32[2]), b.parameter(1, hk.f32[2])
    subject = Subject("m", b.build(hk.max(x, y)), ((np.float32([1, 2]), np.float32([2, 1])),))
    assert roundtrip.through_hlokit(subject).status == FAILED


def test_the_same_text_whatever_the_hash_seed(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(EVERYTHING)
    code = "import sys, hlokit as hk; sys.stdout.write(hk.to_stablehlo(hk.load(sys.argv[1])))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "m.hlo")],
            env={"PYTHONPATH": "src", "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {hk.to_stablehlo(hk.parse(EVERYTHING)).encode()}


# -- constants

_ARRAYS = [t for t in hk.DTYPES.values() if t.is_array and t.bits > 1]


@pytest.mark.parametrize("dtype", _ARRAYS, ids=str)
@pytest.mark.parametrize("count", [0, 1, 7, 300])
def test_constants_keep_every_bit(dtype: hk.DType, count: int) -> None:
    rng = np.random.default_rng(count)
    if dtype.kind == "pred":
        array = rng.integers(0, 2, count).astype(np.bool_)
    elif dtype.is_integral:
        low = -(2 ** (dtype.bits - 1)) if dtype.kind == "signed" else 0
        array = rng.integers(low, low + 2**dtype.bits, count, np.int64 if low else np.uint64).astype(dtype.numpy)
    else:
        width = dtype.numpy.itemsize
        raw = rng.integers(0, 256 if dtype.bits >= 8 else 2**dtype.bits, count * width, np.uint8)
        array = raw.view(dtype.numpy)
    shape = dtype[count] if count != 1 else dtype[2, 3]  # one value for all elements
    b = hk.Builder("c")
    module = b.build(b.constant(array if count != 1 else np.broadcast_to(array, (2, 3)).copy()))
    again = hk.parse(hk.to_stablehlo(module))
    (got,), (want,) = evaluated(again, ((),)), evaluated(module, ((),))
    assert again.entry.root.shape is shape and bits_differ(got, want) is None


# -- what StableHLO cannot say


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("ROOT p = u1[2] parameter(0)", "p = parameter(...): StableHLO has no type for elements of u1"),
        (
            "p = f32[4] parameter(0)\n z = f32[] constant(0)\n"
            "ROOT r = f32[3] reduce-window(p, z), window={size=2 rhs_reversal=1}, to_apply=add",
            "r = reduce-window(...): a reversed window",
        ),
        (
            'p = f32[4] parameter(0)\nROOT c = f32[4] custom-call(p), custom_call_target="x", window={size=2}',
            "c = custom-call(...): the attribute window",
        ),
        (
            "p = f32[4] parameter(0)\n"
            'ROOT c = f32[4] custom-call(p), custom_call_target="x", api_version=API_VERSION_TYPED_FFI, '
            'backend_config="{} : oops"',
            "c = custom-call(...): '{} : oops' is not a dictionary attribute",
        ),
        ("ROOT k = f32[1000] constant({...})", "k = constant(...): a constant whose elements are left out"),
        (
            "t = token[] after-all()\n p = f32[] parameter(0)\n"
            "r = (f32[], u32[], token[]) recv(t), channel_id=1\n"
            "s = (f32[], u32[], token[]) send(p, t), channel_id=1, control-predecessors={r}\n sd = token[] send-done(s), channel_id=1\n"
            "ROOT rd = (f32[], token[]) recv-done(r), channel_id=1, control-predecessors={sd}",
            "rd = recv-done(...): a transfer between the recv and its recv-done",
        ),
    ],
)
def test_what_cannot_be_written_is_named(body: str, what: str) -> None:
    add = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT ab = f32[] add(a, b)\n}\n"
    module = hk.parse(f"HloModule m\n{add}ENTRY main {{\n {body}\n}}\n")
    with pytest.raises(hk.UnsupportedError) as error:
        hk.to_stablehlo(module)
    assert str(error.value) == what


def test_text_stays_small_where_computations_are_shared() -> None:
    """Each level calls the level below twice: 2^20 bodies if regions held them all."""
    lines = ["HloModule m", "c0 {", " x = f32[] parameter(0)", " ROOT y = f32[] sine(x)", "}"]
    for i in range(1, 21):
        lines += [
            f"c{i} {{", " x = f32[] parameter(0)", " p = pred[] constant(true)",
            f" ROOT y = f32[] conditional(p, x, x), true_computation=c{i - 1}, false_computation=c{i - 1}", "}",
        ]  # fmt: skip
    lines += ["ENTRY main {", " x = f32[] parameter(0)", " ROOT y = f32[] call(x), to_apply=c20", "}"]
    module = hk.parse("\n".join(lines))
    text = hk.to_stablehlo(module)
    assert len(text) < 20_000
    assert hk.evaluate(hk.parse(text), np.float32(0.5)) == hk.evaluate(module, np.float32(0.5))


def test_names_that_mlir_cannot_have() -> None:
    b = hk.Builder('a "module"')
    x = b.parameter(0, hk.f32[2], "a b")
    b.parameter(1, hk.Shape.tuple([hk.f32[2], hk.f32[2]]), "a_b")
    inner = hk.Builder("f-1 é")
    called = inner.build_computation(hk.sin(inner.parameter(0, hk.f32[2])))
    module = b.build(hk.call(b, called, [x]))
    text = hk.to_stablehlo(module)
    assert "@main(%a_b.1: " in text and "%a_b.0: " in text and 'func.call @"f-1__"(%a_b.1)' in text
    again = hk.parse(text)
    assert again.name == "a__module_" and [p.name for p in again.entry.parameters] == ["a_b.1", "a_b.0", "a_b.2"]


def test_convert_writes_and_reads_stablehlo(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    hlo, mlir, proto, again = (tmp_path / name for name in ("m.hlo", "m.mlir", "m.pb", "n.mlir"))
    hlo.write_text(EVERYTHING)
    for arguments in (["convert", hlo, mlir], ["convert", mlir, proto], ["convert", proto, again]):
        with pytest.raises(SystemExit) as exit:
            main([*map(str, arguments)])
        assert not exit.value.code
    assert mlir.read_text() == hk.to_stablehlo(hk.parse(EVERYTHING))
    assert "func.func public @main(%data: tensor<2x3xf32>" in again.read_text()
    with pytest.raises(SystemExit):
        main(["print", str(hlo), "--form", "stablehlo"])
    assert capsysbinary.readouterr().out == mlir.read_bytes()
