"""HPRINT rules: order, presets, options; and same_module."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from hlokit.hlo.compare import same_module
from hlokit.text.parser import parse_hlo
from hlokit.text.printer import PRESETS, PrintOptions, computation_text, instruction_text, module_text
from tests.rules.labels import rule
from tests.text.texts import EXACT, entry

EXAMPLE = """HloModule m
add { x = f32[] parameter(0)
 y = f32[] parameter(1)
 ROOT r = f32[] add(x, y) }
ENTRY e { a = f32[4,4] parameter(0)
 z = f32[] constant(0)
 w = reduce-window(a, z), window={size=2x2 stride=2x2 pad=0_0x0_0}, to_apply=add
 t = transpose(a), dimensions={1,0}
 ROOT p = pad(w, z), padding=0_1_1x-1_2 }
"""
PRINTED = """HloModule m, entry_computation_layout={(f32[4,4]{1,0})->f32[4,3]{1,0}}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %r = f32[] add(%x, %y)
}

ENTRY %e (a: f32[4,4]) -> f32[4,3] {
  %a = f32[4,4]{1,0} parameter(0)
  %t = f32[4,4]{0,1} transpose(%a), dimensions={1,0}
  %z = f32[] constant(0)
  %w = f32[2,2]{1,0} reduce-window(%a, %z), window={size=2x2 stride=2x2}, to_apply=%add
  ROOT %p = f32[4,3]{1,0} pad(%w, %z), padding=0_1_1x-1_2_0
}

"""
SHORT = """HloModule m, entry_computation_layout={(f32[4,4]{1,0})->f32[4,3]{1,0}}

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}

ENTRY e {
  a = f32[4,4]{1,0} parameter(0)
  t = f32[4,4]{0,1} transpose(a), dimensions={1,0}
  z = f32[] constant(0)
  w = f32[2,2]{1,0} reduce-window(a, z), window={size=2x2 stride=2x2}, to_apply=add
  ROOT p = f32[4,3]{1,0} pad(w, z), padding=0_1_1x-1_2_0
}

"""
CANONICAL = """HloModule m, entry_computation_layout={(f32[4,4]{1,0})->f32[4,3]{1,0}}

add {
  tmp_0 = f32[] parameter(0)
  tmp_1 = f32[] parameter(1)
  ROOT tmp_2 = f32[] add(f32[] tmp_0, f32[] tmp_1)
}

ENTRY e {
  tmp_0 = f32[4,4]{1,0} parameter(0)
  tmp_1 = f32[4,4]{0,1} transpose(f32[4,4]{1,0} tmp_0), dimensions={1,0}
  tmp_2 = f32[] constant(0)
  tmp_3 = f32[2,2]{1,0} reduce-window(f32[4,4]{1,0} tmp_0, f32[] tmp_2), window={size=2x2 stride=2x2}, to_apply=
  {
    tmp_0 = f32[] parameter(0)
    tmp_1 = f32[] parameter(1)
    ROOT tmp_2 = f32[] add(f32[] tmp_0, f32[] tmp_1)
  }
  ROOT tmp_4 = f32[4,3]{1,0} pad(f32[2,2]{1,0} tmp_3, f32[] tmp_2), padding=0_1_1x-1_2_0
}

"""


@rule("HPRINT-1", "HPRINT-3", "HPRINT-9", "HPRINT-10", "HPRINT-11")
def test_worked_example() -> None:
    module = parse_hlo(EXAMPLE)
    assert str(module) == PRINTED
    assert str(parse_hlo(PRINTED)) == PRINTED
    assert same_module(module, parse_hlo(PRINTED)) is None


@rule("HPRINT-5", "HPRINT-6", "HPRINT-7")
def test_presets() -> None:
    module = parse_hlo(EXAMPLE)
    assert module.to_text("short_parsable") == SHORT
    assert module.to_text("canonical") == CANONICAL
    wanted = CANONICAL.replace("HloModule m", "HloModule ").replace("ENTRY e {", "ENTRY {").replace("\nadd {", "\n{")
    assert module.to_text("fingerprint") == wanted
    assert str(parse_hlo(SHORT)) == PRINTED
    assert parse_hlo(CANONICAL).entry.root.shape is module.entry.root.shape
    with pytest.raises(ValueError, match="short_parsable"):
        module.to_text("long")
    assert {name: make() for name, make in PRESETS.items()}["default"] == PrintOptions()


FULL = entry(
    "p = f32[2] parameter(0)\nc = f32[12] constant({1,2,3,4,5,6,7,8,9,10,11,12})\n"
    'q = f32[2] negate(p), metadata={op_name="x"}, backend_config="b", control-predecessors={c}\n'
    "ROOT t = (f32[2], f32[2], f32[2], f32[2], f32[2], f32[2]) tuple(p, q, q, q, q, p)"
)


@rule("HPRINT-8")
@pytest.mark.parametrize(
    "option, value, there, gone",
    [
        ("print_large_constants", True, "constant({1, 2, 3", "{...}"),
        ("print_metadata", False, 'control-predecessors={%c}, backend_config="b"', "metadata"),
        ("print_backend_config", False, 'metadata={op_name="x"}\n', "backend_config"),
        ("print_operand_shape", True, "negate(f32[2]{0} %p)", "negate(%p)"),
        ("print_operand_names", False, "negate()", "negate(%p)"),
        ("print_program_shape", False, "ENTRY %e {", "->(f32[2], f32[2]"),
        ("print_percent", False, "  q = f32[2]{0} negate(p)", "%"),
        ("print_control_dependencies", False, "negate(%p), metadata", "control-predecessors"),
        ("include_layout_in_shapes", False, "%q = f32[2] negate", "%q = f32[2]{0}"),
        ("print_ids", False, "HloModule , ", "HloModule m"),
        ("indent_amount", 1, "\n    %q = ", "\n  %q = "),
        ("compact_operands", True, "tuple(%p, %q, %q, %q, ...(+2))", "%q, %p)"),
        ("canonicalize_instruction_names", True, "tmp_1 = f32[2]{0} parameter(0)", "%q"),
        ("canonicalize_computations", True, "ENTRY (p: f32[2])", "ENTRY %e"),
        ("print_operand_index_annotation", False, "%q, %q, %p)", "/*index=5*/%p"),
    ],
)
def test_options(option: str, value: object, there: str, gone: str) -> None:
    module = parse_hlo(FULL)
    text = module_text(module, replace(PrintOptions(), **{option: value}))
    assert there in text and gone not in text
    assert there not in str(module)
    assert option in {field.name for field in fields(PrintOptions)}


@rule("HPRINT-2")
def test_order_of_instructions() -> None:
    body = """a = f32[2] parameter(0)
b = f32[2] parameter(1)
d1 = f32[2] sine(a)
c = f32[2] add(a, b)
d = f32[2] add(b, a)
x = f32[2] subtract(c, d)
y = f32[2] subtract(d, c), control-predecessors={d1}
ROOT t = (f32[2], f32[2]) tuple(y, x)
late = f32[2] cosine(b)"""
    order = [i.name for i in parse_hlo(entry(body)).entry.post_order()]
    assert order == ["a", "d1", "b", "d", "c", "y", "x", "t", "late"]
    scheduled = parse_hlo(entry(body, ", is_scheduled=true"))
    lines = [line.split(" = ")[0].strip() for line in str(scheduled).splitlines() if " = " in line]
    assert lines == ["%a", "%b", "%d1", "%c", "%d", "%x", "%y", "ROOT %t", "%late"]


@rule("HPRINT-4")
def test_lists() -> None:
    text = str(parse_hlo(FULL))
    assert "tuple(%p, %q, %q, %q, %q, /*index=5*/%p)" in text
    assert "control-predecessors={%c}" in text
    six = "a = f32[] parameter(0)\nROOT t = (f32[], f32[], f32[], f32[], f32[]) tuple(a, a, a, a, a)"
    assert "index" not in str(parse_hlo(entry(six)))


@rule("HPRINT-11")
def test_order_of_computations() -> None:
    leaf = "{ x = f32[] parameter(0) }\n"
    calls = "x = f32[] parameter(0) y = f32[] call(x), to_apply=a z = f32[] call(y), to_apply=b"
    text = f"b {leaf}a {leaf}dead {leaf}ENTRY e {{ {calls} }}"
    module = parse_hlo("HloModule m\n" + text)
    assert [c.name for c in module.computations()] == ["dead", "a", "b", "e"]
    assert str(module).endswith("}\n\n")
    loop = """HloModule m
cond { x = f32[] parameter(0) ROOT c = pred[] constant(false) }
body { x = f32[] parameter(0) }
ENTRY e { x = f32[] parameter(0) w = f32[] while(x), condition=cond, body=body }"""
    assert [c.name for c in parse_hlo(loop).computations()] == ["body", "cond", "e"]


@rule("HPRINT-9", "HPRINT-11")
def test_callees_come_first_where_xla_prints_them_later() -> None:
    """Of branches {b1, b2} where b2 calls b1, XLA prints b2 first and cannot read that back."""
    text = """HloModule m
b1 { x = f32[] parameter(0) }
b2 { x = f32[] parameter(0) i = s32[] constant(0) c = f32[] conditional(i, x, x), branch_computations={b1, b1} }
ENTRY e { x = f32[] parameter(0) i = s32[] constant(0)
c = f32[] conditional(i, x, x, x), branch_computations={b1, b2, b1} }"""
    module = parse_hlo(text)
    assert [c.name for c in module.computations()] == ["b1", "b2", "e"]
    assert same_module(module, parse_hlo(str(module))) is None


def test_parts_print_alone() -> None:
    module = parse_hlo(EXAMPLE)
    assert computation_text(module.entry) + "\n\n" == PRINTED[PRINTED.index("ENTRY") :]
    assert instruction_text(module.entry.root, "short_parsable") == "p = f32[4,3]{1,0} pad(w, z), padding=0_1_1x-1_2_0"
    assert str(module.entry.root).startswith("%p = ")


CHANGES = [
    ("add(x, y)", "add(y, x)", ""),
    ("pad=0_0x0_0", "pad=0_1x0_1", "ReduceWindow"),
    ("dimensions={1,0}", "dimensions={0,1}", "shape"),
    ("constant(0)", "constant(-0)", "Constant"),
    ("transpose(a)", "reverse(a)", "shape"),
    ("ROOT r = f32[] add(x, y)", "r = f32[] add(x, y) ROOT q = f32[] copy(r)", "instructions"),
    ("ROOT r = f32[] add", "ROOT r = f32[] multiply", "Multiply"),
    ("HloModule m", "HloModule n", "module name"),
    ("HloModule m", "HloModule m, replica_count=2", "replica_count"),
    ("dimensions={1,0}", "dimensions={1,0}, metadata={op_name=\"x\"}", "metadata"),
    ("dimensions={1,0}", "dimensions={1,0}, control-predecessors={z}", ""),
    (" t = ", " s = ", "called s"),
    ("ENTRY e", "ENTRY f", "called f"),
]  # fmt: skip


@rule("HPRINT-9")
@pytest.mark.parametrize("old, new, said", CHANGES)
def test_same_module_sees_every_change(old: str, new: str, said: str) -> None:
    assert old in EXAMPLE
    changed = parse_hlo(EXAMPLE.replace(old, new))
    difference = same_module(parse_hlo(EXAMPLE), changed)
    assert difference is not None and said in difference
    assert same_module(changed, parse_hlo(changed.to_text(EXACT))) is None


def test_same_module_without_names() -> None:
    module = parse_hlo(EXAMPLE)
    other = parse_hlo(EXAMPLE.replace(" t = ", " s = ").replace("HloModule m", "HloModule n"))
    assert same_module(module, other) is not None
    assert same_module(module, other, names=False) is None
    assert same_module(module, module.clone()) is None


@rule("HMOD-2", "HPRINT-2")
def test_what_a_fusion_calls_is_not_scheduled():
    text = """HloModule m, is_scheduled=true
fused { p0 = s32[1] parameter(0)
 c0 = s32[] constant(0)
 c1 = s32[1] constant({1})
 ROOT r = s32[1] dynamic-update-slice(p0, c1, c0) }
ENTRY e { c0 = s32[] constant(0)
 p = s32[1] parameter(0)
 ROOT f = s32[1] fusion(p), kind=kLoop, calls=fused }"""
    printed = module_text(parse_hlo(text))
    names = [line.split(" = ")[0].split()[-1] for line in printed.splitlines() if " = " in line]
    assert names == ["%p0", "%c1", "%c0", "%r", "%c0.1", "%p", "%f"]
