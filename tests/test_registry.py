"""Every op of the registry has all its facts."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.op import OPS, Op
from hlokit.types import dtype as dtypes

FORMS = {"expand", "map", "index", "fold", "scatter", "kernel", "contraction", "control", "communicate"}


@pytest.mark.parametrize("opcode", sorted(OPS))
def test_op_has_all_its_facts(opcode: str) -> None:
    op = OPS[opcode]
    assert op.opcode == opcode
    assert op.form in FORMS
    assert op.rules, "no rule label"
    assert (inspect.getdoc(op) or "") != (inspect.getdoc(Op) or ""), "no contract"
    assert op.infer is not Op.infer, "no shape rule"
    assert op.reference is not Op.reference or opcode == "parameter", "no reference"
    assert len({a.text for a in op.attributes if not a.hidden and a is not op.result_shape}) == len(
        [a for a in op.attributes if not a.hidden and a is not op.result_shape]
    ), "two attributes with one text name"


def test_the_inventory_of_the_reference_is_there() -> None:
    wanted = set(INVENTORY.split())
    assert not wanted - set(OPS), f"missing: {' '.join(sorted(wanted - set(OPS)))}"


# spec/README.md, beyond_seed.md and hlo_text.md's opcode lists
INVENTORY = """
abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce all-reduce-done
all-reduce-start all-to-all and asin asinh async-done async-start async-update atan2 atanh batch-norm-grad
batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast call cbrt ceil cholesky clamp
collective-broadcast collective-reduce exp2 log2 shuffle collective-permute collective-permute-done collective-permute-start compare complex concatenate
conditional constant convert convolution copy copy-done copy-start cosh cosine count-leading-zeros custom-call divide
domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential exponential-minus-one fft floor fusion
gather get-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one logistic map maximum minimum
mulhi multiply negate not opt-barrier or outfeed pad parameter partition-id popcnt power ragged-all-to-all ragged-dot
real recv recv-done reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape reverse rng
rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan scatter select
select-and-scatter send send-done set-dimension-size shift-left shift-right-arithmetic shift-right-logical sign sine
sinh slice sort sqrt stochastic-convert subtract tan tanh topk transpose triangular-solve tuple while xor
"""


def test_ops_are_interned_frozen_and_hash_by_identity() -> None:
    from hlokit.ops.movement import Transpose

    op = Transpose((1, 0))
    assert op is Transpose(dimensions=[1, 0]) and op is not Transpose((0, 1))
    with pytest.raises(AttributeError, match="frozen"):
        op.dimensions = (0, 1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="needs the attribute dimensions"):
        Transpose()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no attribute nope"):
        Transpose((1, 0), nope=1)  # type: ignore[call-arg]
    assert op.replace(dimensions=(0, 1)) is Transpose((0, 1))
    with pytest.raises(TypeError, match="takes 0 attributes"):
        OPS["add"](5)


def test_an_opcode_and_a_pass_of_hlokits_are_not_defined_again() -> None:
    from hlokit.hlo.op import Op
    from hlokit.passes.pipeline import PASSES, Pass

    with pytest.raises(TypeError, match=r"the opcode log2 is that of hlokit.ops.transcendental.Log2"):

        class _Log2(Op, name="log2"):
            pass

    with pytest.raises(TypeError, match=r"the pass dce is that of hlokit.passes\.\w+\.\w+"):

        class _Dce(Pass):
            name = "dce"

    assert OPS["log2"].__name__ == "Log2" and PASSES["dce"].__name__ != "_Dce"
    for _ in range(2):  # a cell of a notebook, run again

        class _Own(Op, name="own-of-this-test"):
            pass

    del OPS["own-of-this-test"]


def output_of(code: str) -> str:
    """What the code prints in a process of its own."""
    import subprocess
    import sys

    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_costs_numpy_alone() -> None:
    heavy = ("scipy", "ml_dtypes", "google", "rich", "cyclopts", "llvmlite", "jax")
    assert output_of(f"import sys, hlokit; print(*(m for m in {heavy} if m in sys.modules))") == ""


def test_a_first_program_imports_no_more_than_it_needs() -> None:
    parts = (
        "builder.functions", "ops.custom_targets.built_in", "passes.dynamic_padder.padder", "runtime.collectives",
        "files.kinds", "proto", "stablehlo",
    )  # fmt: skip
    program = "HloModule m\nENTRY e { x = f32[] parameter(0)\n ROOT y = f32[] add(x, x) }"
    code = f"""
import sys, hlokit as hk
print(hk.compile(hk.parse({program!r}))(2.0), *(m for m in {parts} if "hlokit." + m in sys.modules))
"""
    assert output_of(code) == "4.0"


def test_op_functions_are_there_when_asked_for() -> None:
    code = """
import hlokit
print({"add", "while_", "Builder"} <= {*dir(hlokit)}, hasattr(hlokit, "nonsense"))
"""
    assert output_of(code) == "True False"
    assert output_of("from hlokit import *; print(add.__name__, Builder.__name__)") == "add Builder"


def test_what_is_not_there_says_so_by_name() -> None:
    module = hk.Builder("t")
    module.parameter(0, hk.f32[2])
    built = module.build()
    unknown = 'func.func @main() {\n  "stablehlo.tracks"() : () -> ()\n  return\n}'
    for attempt in (lambda: hk.compile(built, backend="gpu"), lambda: hk.parse(unknown)):
        with pytest.raises(hk.UnsupportedError):
            attempt()


def test_stages_are_as_the_names_say() -> None:
    """send and recv begin what their dones wait for, too; no other op is half of an operation."""
    begin, wait = (
        {name for name in OPS if name.endswith(end)} | set(more) for end, more in (("-start", ("send", "recv")), ("-done", ()))
    )
    stages = dict.fromkeys(begin, "start") | dict.fromkeys(wait, "done") | {"async-update": "update"}
    assert {name: op.communication.stage for name, op in OPS.items() if op.communication.stage} == stages
    begun = {name: (name.removesuffix("-done") + ("" if OPS[name].communication.peer else "-start"),) for name in wait}
    begun |= dict.fromkeys(("async-update", "async-done"), ("async-start", "async-update"))
    assert {name: op.communication.waits_for for name, op in OPS.items() if op.communication.waits_for} == begun
    assert {name: op.communication.peer for name, op in OPS.items() if op.communication.peer} == {name: name[:4] for name in ("send", "send-done", "recv", "recv-done")}


@pytest.mark.parametrize(
    ("opcode", "types"),
    [*((name, ("s8", "u16", "pred")) for name in ("and", "or", "xor")), *((name, ("s8", "u16", "pred", "f32", "f64")) for name in ("add", "multiply", "maximum", "minimum"))],
)
@np.errstate(all="ignore")
def test_what_cards_say_of_folds(opcode: str, types: tuple[str, ...]) -> None:
    """The neutral value changes no value, -0 and infinity among them; what associates gives the same in either grouping."""
    op = OPS[opcode]()
    for name in types:
        dtype = getattr(dtypes, name)
        numbers = [0, 1, 2, 3, 100, 127] if dtype.is_integral else [-0.0, 0.0, 1.5, -3.25, np.inf, -np.inf, 1e30]
        x, y, z = (a.reshape(-1) for a in np.meshgrid(*[np.asarray(numbers).astype(dtype.numpy)] * 3))
        assert op.reference(x, np.full_like(x, op.neutral(dtype))).tobytes() == x.tobytes()
        assert op.associates(dtype) == (dtype.is_integral or name == "pred" or opcode in ("maximum", "minimum"))
        if op.associates(dtype):
            assert op.reference(op.reference(x, y), z).tobytes() == op.reference(x, op.reference(y, z)).tobytes()


def test_what_has_no_neutral_value() -> None:
    assert all(OPS[opcode]().neutral(dtypes.f32) is None for opcode in ("subtract", "divide", "power", "atan2"))
