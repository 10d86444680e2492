"""Propagation of shardings: against what Shardy gave, and case by case."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.passes.partitioner import prepared
from hlokit.passes.partitioner.placement import Grid, leaves_of, mesh_of_text
from hlokit.passes.partitioner.propagation import propagate, stated
from hlokit.passes.partitioner.splitting import split
from hlokit.stablehlo.manual import PRIORITIES
from hlokit.tools.main import main
from hlokit.types.mesh import Mesh
from tests.partition.propagation_witness import Case, difference, is_left_out, ours, random_cases

RECORDED = Path(__file__).parent / "data" / "propagation.jsonl"
"""Programs, and their arrays' placements by jaxlib 0.10.2's sdy-propagation-pipeline."""


def test_as_shardy() -> None:
    """Every array of the recorded programs lies where Shardy puts it."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 40
    for line in lines:
        found = json.loads(line)
        mesh = Mesh(tuple((name, size) for name, size in found["mesh"]))
        case = Case("recorded", hk.parse(found["text"]), mesh)
        mine = {name: arrays for name, arrays in ours(case)[0].items() if not is_left_out(case, name, arrays)}
        assert difference(mine, found["placed"]) == {}, found["text"]


def shown(text: str, mesh: str = "a=2,b=2,c=2", priorities: dict[str, str] | None = None) -> dict[str, str]:
    """The placement of each instruction, as the language says it. `<a|b, ?>` stands for a stated sharding."""
    names = ",".join(f"'{axis.replace('=', chr(39) + '=')}" for axis in mesh.split(","))

    def sharding(match: re.Match[str]) -> str:
        dimensions = [re.sub(r"(\w+)", r"'\1'", d) for d in match[1].split("|")]
        dimensions = [re.sub(r"'(\w+)':\('(\d+)'\)'(\d+)'", r"'\1':(\2)\3", d) for d in dimensions]
        return f"sharding={{mesh[{names}], [{', '.join('{' + d.strip() + '}' for d in dimensions)}]{match[2]}}}"

    module = hk.parse("HloModule m\n" + re.sub(r"<([^<>]*?)>(?!=)(?:\+(\S+))?", lambda m: sharding(_with(m)), text))
    for name, given in (priorities or {}).items():
        (instruction,) = (i for i in module.instructions() if i.name == name)
        instruction.ensure_extra().frontend_attributes[PRIORITIES] = given
    module, _ = split(prepared(module))
    said = [leaf for i in module.instructions() for s in [stated(i)] if s is not None for leaf in leaves_of(s)]
    found = propagate(module, Grid(mesh_of_text(mesh), said))
    return {
        i.name: " ".join(str(found.grid.sharding(p)).split(", ", 1)[-1].replace("'", "") for p in placements)
        for i, placements in found.placements.items()
    }


def _with(match: re.Match[str]) -> Any:
    return {1: match[1], 2: f", {match[2]}" if match[2] else ""}


def test_forward_and_back() -> None:
    found = shown("""ENTRY e {
      x = f32[8,6] parameter(0), <a|>
      y = f32[8,6] parameter(1)
      s = f32[8,6] add(x, y)
      t = f32[6,8] transpose(s), dimensions={1,0}
      ROOT r = f32[48] reshape(t) }""")
    assert found == {"x": "[{a}, {}]", "y": "[{a}, {}]", "s": "[{a}, {}]", "t": "[{}, {a}]", "r": "[{}]"}


@pytest.mark.parametrize(
    ("x", "y", "s"),
    [
        ("a|", "b|", "[{}, {}]"),  # they agree on nothing
        ("a, b|", "a, c|", "[{a}, {}]"),  # on the first axis
        ("a|", "a, b|", "[{a, b}, {}]"),  # the longer one is what both want
        ("a|", "|a", "[{a}, {}]"),  # one axis for two dimensions: the first operand has it
        ("|", "|a", "[{}, {a}]"),  # closed and whole is no wish
        ("a:(1)2|", "a|", "[{a}, {}]"),
    ],
)
def test_conflicts(x: str, y: str, s: str) -> None:
    text = f"""ENTRY e {{
      x = f32[8,8] parameter(0), <{x}>
      y = f32[8,8] parameter(1), <{y}>
      ROOT s = f32[8,8] add(x, y) }}"""
    mesh = "a=4,b=2,c=2" if ":" in x else "a=2,b=2,c=2"
    assert shown(text, mesh)["s"] == s


def test_larger_operands_win() -> None:
    """The batch of the large operand has the axis, not the columns of the small one."""
    found = shown("""ENTRY e {
      x = f32[64,32] parameter(0), <a|>
      w = f32[32,16] parameter(1), <|a>
      ROOT d = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }""")
    assert found["d"] == "[{a}, {}]"


def test_elementwise_ops_come_before_products() -> None:
    """A wish that comes through ops element by element is there before that of a product."""
    found = shown("""ENTRY e {
      x = f32[16,16] parameter(0), <a|>
      w = f32[16,16] parameter(1)
      y = f32[16,16] parameter(2), <|a>
      d = f32[16,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT s = f32[16,16] add(d, y) }""")
    assert found["d"] == "[{}, {a}]" and found["w"] == "[{}, {a}]"


def test_open_and_closed_dimensions() -> None:
    found = shown("""ENTRY e {
      x = f32[8,8] parameter(0), <a|b>
      t = f32[8,8] tanh(x), <?|>
      u = f32[8,8] tanh(x), <a, ?|c>
      ROOT r = (f32[8,8], f32[8,8]) tuple(t, u) }""")
    assert found["t"] == "[{a}, {}]" and found["u"] == "[{a}, {c}]"


def test_replicated_axes_divide_nothing() -> None:
    text = """ENTRY e {
      x = f32[8,8] parameter(0), <a|b>
      ROOT t = f32[8,8] tanh(x), sharding={mesh['a'=2,'b'=2,'c'=2], [{?}, {?}], replicated={'a'}} }"""
    assert shown(text)["t"] == "[{}, {b}]"


def test_priorities() -> None:
    """What is stated first goes first; what comes later takes what is left."""
    text = """ENTRY e {
      x = f32[8,8] parameter(0), <a|>
      y = f32[8,8] parameter(1), <|a>
      ROOT s = f32[8,8] add(x, y) }"""
    assert shown(text)["s"] == "[{a}, {}]"
    assert shown(text, priorities={"x": "1,0"})["s"] == "[{}, {a}]"


def test_priorities_of_stablehlo() -> None:
    """The priorities in Shardy's attributes are read."""
    text = """
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}p1, {}]>},
      %y: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>}) -> tensor<8x8xf32> {
    %0 = stablehlo.add %x, %y : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}"""
    (made,) = hk.partition(hk.parse(text)).out_shardings
    assert [len(d.axes) for d in made.dimensions] == [0, 1]
    (made,) = hk.partition(hk.parse(text.replace("p1", ""))).out_shardings
    assert [len(d.axes) for d in made.dimensions] == [1, 0]


def test_sizes_that_do_not_divide() -> None:
    """Only the last factor of a dimension is divided into parts of several sizes."""
    found = shown("""ENTRY e {
      x = f32[6,4] parameter(0), <a, b|>
      ROOT r = f32[24] reshape(x) }""")
    assert found["r"] == "[{a}]"
    assert shown("ENTRY e { x = f32[7] parameter(0), <a> ROOT t = f32[7] tanh(x) }")["t"] == "[{a}]"


def test_parts_of_axes() -> None:
    found = shown("ENTRY e { x = f32[2,8] parameter(0) ROOT r = f32[16] reshape(x), <a> }", "a=4")
    assert found["x"] == "[{a:(1)2}, {a:(2)2}]"


LOOP = """
body {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8,8] tanh(x)
  ROOT t = (s32[], f32[8,8]) tuple(j, y)
}
condition {
  q = (s32[], f32[8,8]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(k, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  a = f32[8,8] parameter(0)
  init = (s32[], f32[8,8]) tuple(zero, a)
  w = (s32[], f32[8,8]) while(init), condition=condition, body=body
  g = f32[8,8] get-tuple-element(w), index=1
  ROOT r = f32[8,8] negate(g), <b|>
}"""


def test_loops() -> None:
    """The state of a loop lies alike before, between and after its steps."""
    found = shown(LOOP)
    assert {found[name] for name in ("a", "x", "y", "g", "r")} == {"[{b}, {}]"}
    assert found["w"].endswith("[{b}, {}]")


def test_branches_and_barriers() -> None:
    found = shown("""
one { p = f32[8] parameter(0) ROOT t = f32[8] tanh(p) }
two { q = f32[8] parameter(0) ROOT s = f32[8] sine(q) }
ENTRY e {
  i = pred[] parameter(0)
  x = f32[8] parameter(1), <a>
  y = f32[8] parameter(2)
  c = f32[8] conditional(i, x, y), true_computation=one, false_computation=two
  ROOT b = f32[8] opt-barrier(c) }""")
    assert {found[name] for name in "xptcbqsy"} == {"[{a}]"}


@pytest.mark.parametrize("said, wanted", [("<|a>", "[{}, {}]"), ("<a|>", "[{a}, {}]")])
def test_topk_passes_on_the_dimensions_that_it_keeps(said: str, wanted: str) -> None:
    found = shown(f"""
    ENTRY e {{
      x = f32[6,8] parameter(0), {said}
      t = (f32[6,8], s32[6,8]) topk(x), k=8, largest=true
      v = f32[6,8] get-tuple-element(t), index=0
      i = s32[6,8] get-tuple-element(t), index=1
      n = f32[6,8] negate(v)
      m = s32[6,8] negate(i)
      ROOT r = (f32[6,8], s32[6,8]) tuple(n, m) }}""")
    assert found["n"] == found["m"] == wanted


def test_no_axes_propagate_through_what_nobody_needs() -> None:
    """The normalized batch is not a result: its scale says nothing of where the mean lies."""
    module = hk.parse("""
HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  scale = f32[16] parameter(1), sharding={mesh['a'=2], [{'a'}]}
  n = (f32[8,16], f32[16], f32[16]) batch-norm-training(x, scale, scale), epsilon=0.1, feature_index=1
  ROOT mean = f32[16] get-tuple-element(n), index=1
}""")
    found = hk.partition(module)
    assert [s.dimensions[0].axes for s in found.out_shardings] == [()]


def test_a_group_of_values_that_are_stated_to_lie_differently() -> None:
    """Copies of them lie alike; the values stay where they are."""
    module = hk.parse("""
HloModule m
ENTRY e {
  x = f32[8] parameter(0), sharding={mesh['a'=2], [{'a'}]}, frontend_attributes={hlokit.sharding_groups="1"}
  y = f32[8] parameter(1), sharding={mesh['a'=2], [{}]}, frontend_attributes={hlokit.sharding_groups="1"}
  p = f32[8] tanh(x)
  q = f32[8] tanh(y)
  ROOT r = (f32[8], f32[8]) tuple(p, q)
}""")
    found = hk.partition(module)
    assert [str(s) for s in found.in_shardings] == ["mesh['a'=2], [{'a'}]", "mesh['a'=2], [{}]"]
    assert [str(s) for s in found.out_shardings] == ["mesh['a'=2], [{'a'}]"] * 2


def test_groups() -> None:
    """What lies alike lies alike, though nothing flows between."""
    module = hk.parse("""HloModule m
      ENTRY e {
        x = f32[8] parameter(0), sharding={mesh['a'=2], [{'a'}]}, frontend_attributes={hlokit.sharding_groups="1"}
        y = f32[8] parameter(1), frontend_attributes={hlokit.sharding_groups="1"}
        t = f32[8] tanh(y)
        ROOT r = (f32[8], f32[8]) tuple(x, t) }""")
    found = hk.partition(module)
    assert [str(s).split(", ", 1)[1] for s in found.in_shardings] == ["[{'a'}]", "[{'a'}]"]
    assert not found.reasons


def test_constants_are_split_by_use() -> None:
    """One constant is whole for one use and in parts for another."""
    found = shown("""ENTRY e {
      x = f32[8] parameter(0), <a>
      y = f32[8] parameter(1), <b>
      k = f32[] constant(2)
      two = f32[8] broadcast(k), dimensions={}
      s = f32[8] add(x, two)
      t = f32[8] add(y, two)
      ROOT r = (f32[8], f32[8]) tuple(s, t) }""")
    copies = [placement for name, placement in found.items() if name.startswith("two") or "broadcast" in name]
    assert sorted(copies) == ["[{a}]", "[{b}]"]


def test_split_modules_are_the_same_programs() -> None:
    for case in random_cases(20, 7):
        module, sources = split(case.module)
        hk.verify(module)
        assert module.entry.root.shape is case.module.entry.root.shape
        assert all(copy.op is source.op for copy, source in sources.items())


def test_annotated_modules_propagate_to_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`hlokit partition --propagated` prints a program whose values lie as they did."""
    file, again = tmp_path / "loop.hlo", tmp_path / "again.hlo"
    file.write_text("HloModule m\n" + LOOP.replace("<b|>", "sharding={mesh['b'=2], [{'b'}, {}]}"), encoding="utf-8")

    def printed(*words: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main(["partition", *words, "--propagated"])
        return capsys.readouterr().out

    printed(str(file), "--output", str(again))
    assert printed(str(again)) == again.read_text(encoding="utf-8")
    assert "parameter a [{'b'}, {}]: 'b' from an edge of while w" in printed(str(file), "--explain")


@pytest.mark.parametrize(("target", "goes_on", "goes_back"), [("From", False, True), ("To", True, False)])
def test_barriers(target: str, goes_on: bool, goes_back: bool) -> None:
    text = f"""ENTRY e {{
  x = f32[8,4] parameter(0), <a|>
  b = f32[8,4] custom-call(x), custom_call_target="ShardBarrier{target}", custom_call_has_side_effect=true
  r = f32[8,4] negate(b)
  y = f32[8,4] parameter(1)
  c = f32[8,4] custom-call(y), custom_call_target="ShardBarrier{target}", custom_call_has_side_effect=true
  s = f32[8,4] negate(c), <a|>
  ROOT t = (f32[8,4], f32[8,4]) tuple(r, s)
}}"""
    found = shown(text)
    assert (found["r"], found["y"]) == tuple("[{a}, {}]" if goes else "[{}, {}]" for goes in (goes_on, goes_back))


@pytest.mark.parametrize("direction", ["NONE", "FORWARD", "BACKWARD", "BOTH"])
def test_barriers_of_stablehlo(direction: str) -> None:
    says = '{sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}'
    for x, y, goes in ((says, "", "FORWARD"), ("", says, "BACKWARD")):
        text = f"""sdy.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<8xf32> {x}) -> (tensor<8xf32> {y}) {{
  %0 = sdy.propagation_barrier %x allowed_direction={direction} : tensor<8xf32>
  %1 = stablehlo.negate %0 : tensor<8xf32>
  return %1 : tensor<8xf32>
}}"""
        found = hk.partition(hk.parse(text, keeps_regions=True), "a=2")
        other = found.out_shardings[0] if x else found.in_shardings[0]
        assert bool(other.dimensions[0].axes) == (direction in (goes, "BOTH"))


def test_collectives_of_shardy_say_where_values_lie() -> None:
    """A program whose reshards are written as operations on shardings; sub-axes and named computations among them."""
    module = hk.parse(
        """sdy.mesh @mesh = <["a"=4]>
func.func @main(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}) -> tensor<8x4xf32> {
  %0 = sdy.all_to_all [{"a"}: 0->1] %x out_sharding=<@mesh, [{}, {"a"}]> : tensor<8x4xf32>
  %1 = sdy.all_reduce {"a":(1)2} %0 out_sharding=<@mesh, [{}, {"a":(2)2}]> : tensor<8x4xf32>
  %2 = sdy.named_computation<"f">(%1) in_shardings=[<@mesh, [{}, {}]>] out_shardings=[<@mesh, [{}, {}]>]
      (%y: tensor<8x4xf32>) {
    %3 = stablehlo.negate %y : tensor<8x4xf32>
    sdy.return %3 : tensor<8x4xf32>
  } : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}""",
        keeps_regions=True,
    )
    stated_of = [str(sharding) for i in module.instructions() if (sharding := stated(i)) is not None]
    assert [text for text in stated_of if "{'a'}]" in text] and [text for text in stated_of if "'a':(2)2" in text]
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    found = hk.partition(module)
    assert np.array_equal(found.join(hk.evaluate(found.module, *found.split(x))), -x)
