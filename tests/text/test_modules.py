"""HMOD and HCOMP rules."""

from __future__ import annotations

import re

import pytest

from hlokit.hlo.compare import same_module
from hlokit.hlo.module import Alias, HloModule
from hlokit.proto.module import module_from_proto, module_to_proto
from hlokit.text.parser import parse_hlo
from tests.rules.labels import rule
from tests.text.texts import EXACT, by_label, entry, refused

TWO = "a = f32[2] parameter(0)\nb = f32[2] parameter(1)\nROOT t = (f32[2], f32[2]) tuple(a, b)"
LAYOUT = "entry_computation_layout={(f32[2]{0}, f32[2]{0})->(f32[2]{0}, f32[2]{0})}"

HEADERS = [
    ("HMOD-2: scheduled", "is_scheduled=true", "is_scheduled=true, " + LAYOUT),
    ("HMOD-2: false is not printed", "is_scheduled=false", LAYOUT),
    ("HMOD-3: counts", "num_partitions=3, replica_count=2", LAYOUT + ", replica_count=2, num_partitions=3"),
    ("HMOD-3: 1 is not printed", "num_partitions=1, replica_count=1", LAYOUT),
    ("HMOD-4: given layout", LAYOUT, LAYOUT),
    ("HMOD-6: alias", "input_output_alias={ {0}: (1, {}), {1}: (0, {}, must-alias) }",
     "input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, must-alias) }, " + LAYOUT),
    ("HMOD-8: donor", "buffer_donor={ (0, {}), (1, {}) }", "buffer_donor={ (0, {}), (1, {}) }, " + LAYOUT),
    ("HMOD-9: passthrough", "alias_passthrough_params=true", "alias_passthrough_params=true, " + LAYOUT),
    ("HMOD-10: frontend attributes", 'frontend_attributes={b="v",a={"k":[1,{}]}}',
     LAYOUT + ', frontend_attributes={a={"k":[1,{}]},b="v"}'),
    ("HMOD-11: propagation", "allow_spmd_sharding_propagation_to_output=true",
     LAYOUT + ", allow_spmd_sharding_propagation_to_output={true}"),
    ("HMOD-11: in braces", "allow_spmd_sharding_propagation_to_parameters={true,false}",
     LAYOUT + ", allow_spmd_sharding_propagation_to_parameters={true,false}"),
    ("HMOD-12: recovery table is kept", 'origin_recovery_table={ {"a" {0}} : {"b"} }',
     LAYOUT + ', origin_recovery_table={ {"a" {0}} : {"b"} }'),
    ("HMOD-13: order",
     'frontend_attributes={a="b"}, num_partitions=2, replica_count=2, '
     'allow_spmd_sharding_propagation_to_output={true}, '
     "allow_spmd_sharding_propagation_to_parameters={true}, alias_passthrough_params=true, "
     "buffer_donor={ (0, {}) }, input_output_alias={ {1}: (1, {}) }, is_scheduled=true",
     "is_scheduled=true, input_output_alias={ {1}: (1, {}, may-alias) }, buffer_donor={ (0, {}) }, "
     f"alias_passthrough_params=true, {LAYOUT}, allow_spmd_sharding_propagation_to_parameters={{true}}, "
     "allow_spmd_sharding_propagation_to_output={true}, replica_count=2, num_partitions=2, "
     'frontend_attributes={a="b"}'),
]  # fmt: skip


@by_label(HEADERS)
def test_header(text: str, expected: str) -> None:
    module = parse_hlo(entry(TWO, f", {text}"))
    assert str(module).splitlines()[0] == f"HloModule m, {expected}"
    assert same_module(module, parse_hlo(str(module))) is None


REFUSED_HEADERS = [
    ("HMOD-1: unknown", "nonsense=1", "HMOD-1"),
    ("HMOD-1: twice", "replica_count=2, replica_count=2", "HMOD-1"),
    ("HMOD-3: zero", "replica_count=0", "HMOD-3"),
    ("HMOD-5: number of parameters", "entry_computation_layout={(f32[2])->(f32[2], f32[2])}", "HMOD-5"),
    ("HMOD-5: type", "entry_computation_layout={(f32[2], s32[2])->(f32[2], f32[2])}", "HMOD-5"),
    ("HMOD-5: result", "entry_computation_layout={(f32[2], f32[2])->(f32[2], f32[3])}", "HMOD-5"),
    ("HMOD-7: no such output", "input_output_alias={ {2}: (0, {}) }", "HMOD-7"),
    ("HMOD-7: no such parameter", "input_output_alias={ {0}: (2, {}) }", "HMOD-7"),
    ("HMOD-7: no such index", "input_output_alias={ {0}: (0, {0}) }", "HMOD-7"),
    ("HMOD-7: output twice", "input_output_alias={ {0}: (0, {}), {0}: (1, {}) }", "HMOD-7"),
    ("HMOD-7: sizes", "input_output_alias={ {}: (0, {}, must-alias) }", "HMOD-7"),
]


@by_label(REFUSED_HEADERS)
def test_refused_header(text: str, expected: str) -> None:
    refused(entry(TWO, f", {text}"), expected)


def test_header_is_read_into_the_module() -> None:
    header = ", input_output_alias={ {1}: (0, {}, must-alias) }, buffer_donor={ (1, {}) }, num_partitions=2"
    module = parse_hlo(entry(TWO, header))
    assert module.input_output_alias == [Alias((1,), 0, (), "must-alias")]
    assert module.buffer_donor == [(1, ())]
    assert module.num_partitions == 2


@rule("HMOD-4")
def test_layouts_of_the_entry_may_differ_from_the_header() -> None:
    said = "entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{0,1}}"
    module = parse_hlo(entry("a = f32[2,3]{1,0} parameter(0)\nROOT b = f32[2,3]{1,0} copy(a)", ", " + said))
    assert said in str(module) and "%a = f32[2,3]{1,0} parameter(0)" in str(module)
    taken = parse_hlo(entry("a = f32[2,3]{0,1} parameter(0)\nROOT b = f32[2,3]{1,0} copy(a)"))
    assert "entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{1,0}}" in str(taken)


TABLES = """FileNames
1 "b\\"c.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=4 column=5 end_column=6}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
"""


@rule("HMOD-14")
def test_debug_tables() -> None:
    module = parse_hlo(
        f"HloModule m\n\n{TABLES}\n\nENTRY e {{\n p = f32[] parameter(0), metadata={{stack_frame_id=1}}\n}}"
    )
    assert module.stack_tables.file_names == ['b"c.py']
    assert module.stack_tables.stack_frames == [{"file_location_id": 1, "parent_frame_id": 1}]
    assert f"\n\n{TABLES}\n\nENTRY" in str(module)
    assert "FileNames" not in module.to_text("short_parsable")


OUT_OF_ORDER = """HloModule m

FileNames
1 "a.py"
2 "b.py"
3 "b.py"
4 "unused.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=3 function_name_id=1 line=1 end_line=1 column=1 end_column=1}
2 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=1 end_column=1}
3 {file_name_id=2 function_name_id=1 line=1 end_line=1 column=1 end_column=1}
4 {file_name_id=4 function_name_id=2 line=1 end_line=1 column=1 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=1 parent_frame_id=3}
4 {file_location_id=3 parent_frame_id=3}
5 {file_location_id=1 parent_frame_id=6}
6 {file_location_id=4 parent_frame_id=1}
7 {file_location_id=9 parent_frame_id=1}
8 {file_location_id=1 parent_frame_id=0}

last {
  p = f32[] parameter(0)
  ROOT a = f32[] negate(p), metadata={op_name="a" stack_frame_id=4}
}

first {
  p = f32[] parameter(0)
  b = f32[] negate(p), metadata={op_name="b" stack_frame_id=1}
  c = f32[] negate(b), metadata={op_name="c" stack_frame_id=3}
  d = f32[] negate(c), metadata={op_name="d" stack_frame_id=5}
  e = f32[] negate(d), metadata={op_name="e" stack_frame_id=6}
  f = f32[] negate(e), metadata={op_name="f" stack_frame_id=7}
  g = f32[] negate(f), metadata={op_name="g" stack_frame_id=8}
  ROOT h = f32[] negate(g), metadata={stack_frame_id=9}
}

ENTRY entry {
  p = f32[] parameter(0)
  x = f32[] call(p), to_apply=first
  ROOT y = f32[] call(x), to_apply=last
}
"""
AS_USED = """FileNames
1 "a.py"
2 "b.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=1 end_column=1}
2 {file_name_id=2 function_name_id=1 line=1 end_line=1 column=1 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=2 parent_frame_id=1}
"""


@rule("HMOD-14")
def test_debug_tables_are_numbered_as_they_are_used() -> None:
    module = parse_hlo(OUT_OF_ORDER)
    text = str(module)
    assert AS_USED in text
    assert _frames(module) == {"a": "2", "b": "3", "c": "2", "d": "", "e": "", "f": "", "g": ""}
    assert "ROOT %h = f32[] negate(%g)\n" in text  # metadata that says nothing any more
    again = parse_hlo(text)  # in which `first` stands before `last`
    assert _frames(again) == {"a": "3", "b": "1", "c": "3", "d": "", "e": "", "f": "", "g": ""}
    assert again.stack_tables.file_names == ["b.py", "a.py"]
    assert str(module_from_proto(module_to_proto(module))) == str(again) == str(parse_hlo(str(again)))


def _frames(module: HloModule) -> dict[str, str]:
    """The stack_frame_id, by op_name, as printed."""
    return dict(re.findall(r'metadata=\{op_name="(\w)"(?: stack_frame_id=(\d))?\}', str(module)))


@rule("HMOD-14")
@pytest.mark.parametrize(
    "tables",
    ['FileNames\n2 "a"', 'FileNames\n1 "a"\nFileNames\n1 "a"', 'FunctionNames\n1 "f"\nFileNames\n1 "a"',
     "StackFrames\n1 {file_location_id=1}", "StackFrames\n1 {file_location_id=1 parent_frame_id=1 x=1}"],
)  # fmt: skip
def test_refused_debug_tables(tables: str) -> None:
    refused(f"HloModule m\n{tables}\nENTRY e {{ p = f32[] parameter(0) }}", "HMOD-14", "HCOMP-1", "LEX-8")


@rule("HMOD-15", "HMOD-18")
def test_computations_without_header() -> None:
    module = parse_hlo("a { x = f32[] parameter(0) }\nb { x = f32[] parameter(0) }")
    assert (module.name, module.entry.name) == ("module_b", "b")
    module = parse_hlo("ENTRY a { x = f32[] parameter(0) }\nb { x = f32[] parameter(0) }")
    assert (module.name, module.entry.name) == ("module_a", "a")


BARE = [
    ("HMOD-16: with names", "f32[4] add(f32[4] a, f32[4] b)", "(a: f32[4], b: f32[4])", "%_ = f32[4]{0} add(%a, %b)"),
    ("HMOD-16: without", "r = f32[4] add(f32[4], f32[4])", "(_0: f32[4], _1: f32[4])", "%r = f32[4]{0} add(%_0, %_1)"),
    ("HMOD-16: repeated name", "r = f32[4] add(f32[4] %a, f32[4] %a)", "(a: f32[4])", "%r = f32[4]{0} add(%a, %a)"),
    ("HMOD-16: attribute", "ROOT r = f32[4] reverse(f32[4] a), dimensions={0}", "(a: f32[4])",
     "%r = f32[4]{0} reverse(%a), dimensions={0}"),
]  # fmt: skip


@by_label(BARE)
def test_one_instruction(text: str, expected: str, more: str) -> None:
    printed = str(parse_hlo(text))
    assert printed.startswith("HloModule _, is_scheduled=true, entry_computation_layout={(")
    assert f"ENTRY %_ {expected} -> f32[4] {{" in printed
    assert f"  ROOT {more}\n" in printed


NESTED = """f32[2,3]{0,1:T(2,2)} map(f32[2,3]{0,1:T(2,2)} x), to_apply={
  p = f32[] parameter(0)
  ROOT x = f32[] call(p), to_apply={ ROOT q = f32[] parameter(0) }
}"""


@rule("HMOD-16")
def test_the_entry_of_one_instruction_is_named_first_and_its_arguments_have_default_orders() -> None:
    text = str(parse_hlo(NESTED))
    for signature in ("ENTRY %_ (x: f32[2,3])", "%_.1 (q: f32[])", "%_.2 (p: f32[])"):
        assert f"\n{signature} -> " in text
    assert "entry_computation_layout={(f32[2,3]{1,0:T(2,2)})->f32[2,3]{1,0:T(2,2)}}" in text
    assert "%x = f32[2,3]{0,1:T(2,2)} parameter(0)" in text


@rule("HCOMP-6")
def test_second_definition_names_the_first() -> None:
    error = refused(entry("x = f32[] parameter(0)\ny = f32[] negate(x)\nx = f32[] negate(y)"), "HCOMP-6")
    assert "line 4" in str(error)


@rule("HCOMP-1")
def test_signature_is_optional_and_its_parameters_are_not_checked() -> None:
    module = parse_hlo("ENTRY e (q: s32[9], /*index=1*/r: pred[]) -> f32[2] { p = f32[2] parameter(0) }")
    assert str(module.entry.program_shape) == "(p: f32[2]) -> f32[2]"


@rule("HCOMP-3")
@pytest.mark.parametrize("signature", ["", "(a: f32[], b: f32[]) -> f32[] "])
def test_body_in_place(signature: str) -> None:
    body = f"{signature}{{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}"
    reduce = f"reduce(p, z), dimensions={{0}}, to_apply={body}"
    module = parse_hlo(entry(f"p = f32[2] parameter(0)\nz = f32[] constant(0)\nq = f32[] {reduce}\nr = f32[] {reduce}"))
    assert [c.name for c in module.computations()] == ["_", "_.1", "e"]
    assert "to_apply=%_.1" in str(module)


@rule("HCOMP-4")
def test_root() -> None:
    assert parse_hlo(entry("x = f32[] parameter(0)\ny = f32[] negate(x)")).entry.root.name == "y"
    assert parse_hlo(entry("ROOT x = f32[] parameter(0)\ny = f32[] negate(x)")).entry.root.name == "x"


@rule("HCOMP-8")
def test_parameters_in_any_order() -> None:
    module = parse_hlo(entry("b = s32[] parameter(1)\na = f32[] parameter(0)"))
    assert [p.name for p in module.entry.parameters] == ["a", "b"]


@rule("HCOMP-9")
def test_execution_thread() -> None:
    text = 'c { x = f32[] parameter(0) }, execution_thread="other"\n'
    module = parse_hlo(entry("x = f32[] parameter(0)\ny = f32[] call(x), to_apply=c", before=text))
    assert module.all_computations[0].execution_thread == "other"
    assert '\n}, execution_thread="other"\n' in str(module)
    assert str(module).count("execution_thread") == 1


@rule("HCOMP-10")
def test_names_become_unique_in_the_module() -> None:
    text = """HloModule m
c { p = f32[] parameter(0) ROOT x = f32[] add(p, p) }
d { p = f32[] parameter(0) x.1 = f32[] add(p, p) ROOT x = f32[] add(x.1, p) }
ENTRY e { p = f32[] parameter(0) x.01 = f32[] call(p), to_apply=c x = f32[] call(x.01), to_apply=d
ROOT c = f32[] add(x, x) }"""
    module = parse_hlo(text)
    names = [[i.name for i in c.instructions] for c in module.all_computations]
    assert names == [["p", "x"], ["p.1", "x.1", "x.2"], ["p.2", "x.3", "x.4", "c"]]


@rule("HCOMP-11")
def test_dead_instructions_are_kept() -> None:
    module = parse_hlo(entry("x = f32[] parameter(0)\nd = f32[] negate(x)\nROOT y = f32[] sine(x)"))
    assert "%d = f32[] negate(%x)" in module.to_text(EXACT)
