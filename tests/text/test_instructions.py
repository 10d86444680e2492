"""HINST, HSHAPE, HLAY, HCATTR, HGRP and HSHARD rules."""

# tables: a case a row

from __future__ import annotations

import pytest

from hlokit.text.groups import parse_replica_groups, parse_sharding
from hlokit.text.parser import parse_hlo
from hlokit.text.shapes import parse_program_shape, parse_shape
from tests.rules.labels import rejects, rule
from tests.text.texts import by_label, entry, printed, refused

P = "p = f32[2] parameter(0)\n"
X = "x = f32[] parameter(0)\n"

ACCEPTED = [
    ("HINST-1: inferred shape", P + "y = add(p, p)", "%y = f32[2]{0} add(%p, %p)"),
    ("HINST-2: other layout", "p = f32[2,3] parameter(0)\ny = f32[2,3]{0,1} add(p, p)", "%y = f32[2,3]{0,1} add(%p, %p)"),
    ("HINST-3: operand with shape", P + "y = f32[2] add(f32[2]{0} p, f32[2] %p)", "%y = f32[2]{0} add(%p, %p)"),
    ("HINST-4: nested", P + "y = f32[2] add(multiply(p, p), f32[2] negate(p))", "%y = f32[2]{0} add(%multiply.anon, %negate.anon)"),
    ("HINST-4: nested parameter and constant", "y = f32[2] add(negate(f32[2] parameter(0)), f32[2] constant({1,2}))",
     "%y = f32[2]{0} add(%negate.anon, %constant.anon)"),
    ("HINST-7: parameter", "y = f32[2] parameter( 0 )", "%y = f32[2]{0} parameter(0)"),
    ("HINST-7: constant", "y = f32[] constant( 1.5 )", "%y = f32[] constant(1.5)"),
    ("HINST-9: white space", P + "y=f32[2]  reverse ( p ) , dimensions= {\n0 }", "%y = f32[2]{0} reverse(%p), dimensions={0}"),
    ("HSHAPE-1: sizes", "y = (f32[], f32[2,3], f32[0,3]) parameter(0)", "%y = (f32[], f32[2,3]{1,0}, f32[0,3]{1,0}) parameter(0)"),
    ("HSHAPE-3: dynamic", "y = (f32[<=5,2], f32[?,2]) parameter(0)", "%y = (f32[<=5,2]{1,0}, f32[?,2]{1,0}) parameter(0)"),
    ("HSHAPE-4: tuples", "y = (f32[2], (s32[], pred[]), (), (f32[])) parameter(0)",
     "%y = (f32[2]{0}, (s32[], pred[]), (), (f32[])) parameter(0)"),
    ("HSHAPE-5: token, opaque, buffer", "y = (token[], opaque[], b(f32[4])) parameter(0)",
     "%y = (token[], opaque[], b(f32[4]{0})) parameter(0)"),
    ("HSHAPE-6: index comments", "y = (" + "f32[], " * 10 + "s32[]) parameter(0)",
     "%y = (f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[], f32[], f32[], f32[], f32[], /*index=10*/s32[]) parameter(0)"),
    ("HLAY-1: layout", "y = f32[2,3]{0,1} parameter(0)", "%y = f32[2,3]{0,1} parameter(0)"),
    ("HLAY-1: apart", "y = f32[2,3] /**/ { 0 , 1 } parameter(0)", "%y = f32[2,3]{0,1} parameter(0)"),
    ("HLAY-3: default", "y = f32[2,3,4] parameter(0)", "%y = f32[2,3,4]{2,1,0} parameter(0)"),
    ("HLAY-4: all fields", "y = f32[2,2]{1,0:T(2,2)(2,*)L(4)#(u32)*(u64)E(4)S(5)SC(0:1,2)(1:2)M(12)} parameter(0)",
     "%y = f32[2,2]{1,0:T(2,2)(2,*)L(4)#(u32)*(u64)E(4)S(5)SC(0:1,2)(1:2)M(12)} parameter(0)"),
    ("HLAY-5: level types are dropped", "y = f32[2,2]{1,0:D(D,C+~)S(1)} parameter(0)", "%y = f32[2,2]{1,0:S(1)} parameter(0)"),
    ("HLAY-5: zeros are not printed", "y = f32[2,2]{1,0:L(1)E(0)S(0)M(0)} parameter(0)", "%y = f32[2,2]{1,0} parameter(0)"),
    ("HLAY-6: scalar", "y = f32[]{:S(1)} parameter(0)", "%y = f32[]{:S(1)} parameter(0)"),
    ("HLAY-8: of a constant", "y = s4[2]{0:E(4)S(1)} constant({1, 2})", "%y = s4[2]{0:S(1)} constant({1, 2})"),
    ("HLAY-8: of another type", "p = s4[2]{0:E(4)} parameter(0)\ny = compare(p, p), direction=EQ",
     "%y = pred[2]{0} compare(%p, %p), direction=EQ"),
    ("HLAY-7: transpose", "p = f32[4,4] parameter(0)\ny = transpose(p), dimensions={1,0}",
     "%y = f32[4,4]{0,1} transpose(%p), dimensions={1,0}"),
    ("HCATTR-1: sharding", "y = f32[2] parameter(0), sharding={replicated}", "%y = f32[2]{0} parameter(0), sharding={replicated}"),
    ("HCATTR-1: of a tuple, one for each leaf", "y = (f32[], (f32[], s32[])) parameter(0), sharding={maximal device=1}",
     "%y = (f32[], (f32[], s32[])) parameter(0), sharding={{maximal device=1}, {maximal device=1}, {maximal device=1}}"),
    ("HCATTR-2: frontend attributes", 'y = f32[] parameter(0), frontend_attributes={b.c="v" , a={"j":{}},d="{\\"x\\":1}"}',
     '%y = f32[] parameter(0), frontend_attributes={a={"j":{}},b.c="v",d={"x":1}}'),
    ("HCATTR-3: replication", "y = (f32[], s32[]) parameter(0), parameter_replication={true,false}",
     "%y = (f32[], s32[]) parameter(0), parameter_replication={true,false}"),
    ("HCATTR-4: predecessors", X + "w = sine(x)\ny = f32[] negate(x), control-predecessors={w, %x}",
     "%y = f32[] negate(%x), control-predecessors={%w, %x}"),
    ("HCATTR-6: all fields",
     'y = f32[] parameter(0), metadata={stack_frame_id=1, metadata_payload="p" scheduling_name="s" deduplicated_name="d"'
     ' profile_type={1,2} source_end_column=4 source_column=3 source_end_line=2 source_line=1 source_file="f" op_name="n"'
     ' op_type="t"}',
     '%y = f32[] parameter(0), metadata={op_type="t" op_name="n" source_file="f" source_line=1 source_end_line=2'
     ' source_column=3 source_end_column=4 profile_type={1,2} deduplicated_name="d" scheduling_name="s"'
     ' metadata_payload="p"}'),
    ("HCATTR-6: fields of older files", "y = f32[] parameter(0), metadata={preserve_layout=true size_of_generated_code_in_bytes=1"
     ' size_of_memory_working_set_in_bytes=2 op_name="x"}', '%y = f32[] parameter(0), metadata={op_name="x"}'),
    ("HCATTR-7: string", r'y = f32[] parameter(0), backend_config="a\"\\\n"', r'%y = f32[] parameter(0), backend_config="a\"\\\n"'),
    ("HCATTR-7: JSON", 'y = f32[] parameter(0), backend_config={"a": {"}":[1]}}', '%y = f32[] parameter(0), backend_config={"a": {"}":[1]}}'),
    ("HCATTR-8: statistics", "y = f32[] parameter(0), statistics={visualizing_index=1,a=1.5,b=3}",
     "%y = f32[] parameter(0), statistics={visualizing_index=1,a=1.5,b=3}"),
    ("HCATTR-9: origin", 'y = f32[] parameter(0), origin={({"a" {1}}, {"b"})}', '%y = f32[] parameter(0), origin={({"a" {1}}, {"b"})}'),
    ("HCATTR-9: synthetic call", "y = f32[] parameter(0), origin={[synthetic_call]}", "%y = f32[] parameter(0), origin={[synthetic_call]}"),
    ("HATTR-11: order",
     X + 'y = f32[] reduce(x, x), backend_config="b", metadata={op_name="m"}, origin={{"o"}}, statistics={visualizing_index=0},'
     ' control-predecessors={x}, frontend_attributes={f="f"}, sharding={manual}, to_apply=add, dimensions={}',
     '%y = f32[] reduce(%x, %x), dimensions={}, to_apply=%add, sharding={manual}, frontend_attributes={f="f"},'
     ' control-predecessors={%x}, statistics={visualizing_index=0}, origin={{"o"}}, metadata={op_name="m"}, backend_config="b"'),
]  # fmt: skip
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] add(a, b) }"


@by_label(ACCEPTED)
def test_accepted(text: str, expected: str) -> None:
    assert printed(text, before=ADD) == expected


REFUSED = [
    ("HINST-1: reshape", P + "y = reshape(p)", "HINST-1"),
    ("HINST-1: constant", "y = constant(1)", "HINST-1"),
    ("HINST-1: iota", "y = iota(), iota_dimension=0", "HINST-1"),
    ("HINST-1: convert", P + "y = convert(p)", "HINST-1"),
    ("HINST-1: custom-call", P + 'y = custom-call(p), custom_call_target="x"', "HINST-1"),
    ("HINST-2: contradiction", P + "y = f32[5] add(p, p)", "HINST-2"),
    ("HINST-3: operand's shape", P + "y = f32[2] add(f32[3] p, p)", "HINST-3"),
    ("HINST-4: a number taken twice", "y = add(f32[2] parameter(0), f32[2] parameter(0))", "HCOMP-8"),
    ("HINST-4: a constant without shape", P + "y = add(p, constant({1,2}))", "HINST-1"),
    ("HINST-4: attributes", P + "y = add(p, f32[2] reverse(p), dimensions={0})", "HINST-6"),
    ("HINST-5: too few", P + "y = f32[2] add(p)", "HINST-5"),
    ("HINST-5: too many", P + "y = f32[2] negate(p, p)", "HINST-5"),
    ("HINST-6: opcode", P + "y = f32[2] nonsense(p)", "HINST-6"),
    ("HINST-6: attribute", P + "y = f32[2] add(p, p), dimensions={0}", "HINST-6"),
    ("HINST-6: twice", P + "y = f32[2] reverse(p), dimensions={0}, dimensions={0}", "HINST-6"),
    ("HINST-6: missing", P + "y = f32[2] reverse(p)", "HINST-6"),
    ("HINST-6: computation missing", P + "y = f32[2] call(p)", "HINST-6"),
    ("HINST-7: no number", "y = f32[2] parameter()", "HINST-7"),
    ("HSHAPE-1: negative", "y = f32[-1] parameter(0)", "HSHAPE-1"),
    ("HSHAPE-1: too large", "y = f32[9223372036854775808] parameter(0)", "HSHAPE-1"),
    ("HSHAPE-1: no integer", "y = f32[1e3] parameter(0)", "HSHAPE-1"),
    ("HSHAPE-5: token with sizes", "y = token[2] parameter(0)", "HSHAPE-5"),
    ("HLAY-1: empty braces", "y = f32[]{} parameter(0)", "HINST-6"),
    ("HLAY-2: entries", "y = f32[2]{1,0} parameter(0)", "HLAY-2"),
    ("HLAY-2: permutation", "y = f32[4]{1} parameter(0)", "HLAY-2"),
    ("HLAY-4: order of fields", "y = f32[2]{0:S(1)T(2)} parameter(0)", "HLAY-1"),
    ("HLAY-4: physical shape", "y = f32[2]{0:P(s32[2])} parameter(0)", "HLAY-1"),
    ("HCATTR-3: leaves", "y = (f32[], s32[]) parameter(0), parameter_replication={true}", "HCATTR-3"),
    ("HCATTR-5: not above", X + "y = f32[] negate(x), control-predecessors={z}", "HCATTR-5"),
    ("HCATTR-5: itself", X + "y = f32[] negate(x), control-predecessors={y}", "HCATTR-5"),
    ("HCATTR-6: unknown", 'y = f32[] parameter(0), metadata={nonsense="x"}', "HCATTR-6"),
    ("HCATTR-6: twice", 'y = f32[] parameter(0), metadata={op_name="x" op_name="x"}', "HCATTR-6"),
    ("HCATTR-7: braces", "y = f32[] parameter(0), backend_config={{", "HCATTR-7"),
]


@by_label(REFUSED)
def test_refused(text: str, expected: str) -> None:
    refused(entry(text), expected)


@rule("HINST-6")
def test_messages_help() -> None:
    error = refused(entry(P + "y = f32[2] reverse(p), dims={0}"), "HINST-6")
    assert "dimensions" in str(error) and "metadata" in str(error)
    assert "q" in str(refused(entry(P + "y = f32[2] negate(q)"), "HCOMP-7"))


@rule("HSHAPE-2")
def test_every_type() -> None:
    names = [
        "pred",
        "s1",
        "s2",
        "s4",
        "s8",
        "s16",
        "s32",
        "s64",
        "u1",
        "u2",
        "u4",
        "u8",
        "u16",
        "u32",
        "u64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "f8e5m2",
        "f8e4m3",
        "f8e4m3fn",
        "f8e4m3b11fnuz",
        "f8e3m4",
        "f8e5m2fnuz",
        "f8e4m3fnuz",
        "f8e8m0fnu",
        "f4e2m1fn",
        "c64",
        "c128",
        "token",
        "opaque",
    ]
    for name in names:
        assert str(parse_shape(f"{name}[]")) == f"{name}[]"
    for wrong in ("f31[]", "tuple[]", "buffer[]", "int[]", "f32"):
        with rejects("HSHAPE-1", "HSHAPE-2"):
            parse_shape(wrong)


@rule("HSHAPE-1", "HSHAPE-3", "HLAY-1")
@pytest.mark.parametrize(
    "text",
    [
        "f32[2,3]{0,1}",
        "(f32[2]{0}, s32[<=4,?]{1,0})",
        "()",
        "b(f32[2]{0})",
        "f32[1000000000000000000]{0}",
        "f32[]{:S(1)}",
    ],
)
def test_shapes_print_back(text: str) -> None:
    assert parse_shape(text).to_text() == text
    assert parse_shape(f" /**/ {text} ").to_text() == text


def test_program_shapes() -> None:
    shape = parse_program_shape("(x: f32[2], s32[]) -> (f32[2])")
    assert str(shape) == "(x: f32[2], p1: s32[]) -> (f32[2])"


# -- groups

GROUPS = [
    ("HGRP-1: explicit", "{{0,1},{2,3}}", "{{0,1},{2,3}}"),
    ("HGRP-1: one group of all", "{}", "{}"),
    ("HGRP-2: iota", "[2,4]<=[8]", "[2,4]<=[8]"),
    ("HGRP-5: transposed iota", "[2,4]<=[4,2]T(1,0)", "[2,4]<=[4,2]T(1,0)"),
    ("HGRP-5: as short as it can be", "[2,4]<=[2,1,4]T(0,1,2)", "[2,4]<=[8]"),
    ("HGRP-5: neighbours joined", "[2,4]<=[2,2,2]T(2,0,1)", "[2,4]<=[4,2]T(1,0)"),
]


@by_label(GROUPS)
def test_groups(text: str, expected: str) -> None:
    groups = parse_replica_groups(text)
    assert str(groups) == expected
    assert parse_replica_groups(expected).expand(8) == groups.expand(8)


@rule("HGRP-2", "HGRP-4")
def test_iota_groups_stand_for() -> None:
    assert parse_replica_groups("[2,4]<=[8]").expand(8) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert parse_replica_groups("[2,4]<=[4,2]T(1,0)").expand(8) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert parse_replica_groups("[2,4]<=[2,2,2]T(2,0,1)").expand(8) == ((0, 2, 4, 6), (1, 3, 5, 7))


@pytest.mark.parametrize(
    "text",
    ["[2,2]<=[5]", "[2]<=[2]", "[2,1,2]<=[4]", "[2,2]<=[2,2]", "[2,2]<=[2,2]T(0)", "[2,2]<=[2,2]T(0,0)", "[0,2]<=[0]"],
    ids=lambda text: f"HGRP-3: {text}",
)
def test_refused_iota_groups(text: str) -> None:
    with rejects("HGRP-3"):
        parse_replica_groups(text)


@rule("HGRP-1", "HGRP-7")
def test_groups_of_instructions() -> None:
    body = "p = f32[2] parameter(0)\n"
    assert printed(body + "y = f32[2] all-gather(p), dimensions={0}").endswith("replica_groups={}, dimensions={0}")
    pairs = "source_target_pairs={{0,1},{1,0}}"
    assert printed(body + f"y = f32[2] collective-permute(p), {pairs}").endswith(pairs)


# -- shardings

SHARDINGS = [
    ("HSHARD-4: the elements of a tuple are counted by fives", "{{manual},{manual},{manual},{manual},{manual},{replicated}}",
     "{{manual}, {manual}, {manual}, {manual}, {manual}, /*index=5*/{replicated}}"),
    ("HSHARD-1: replicated", "{replicated}", "{replicated}"),
    ("HSHARD-1: manual", "{manual}", "{manual}"),
    ("HSHARD-1: unknown", "{unknown}", "{unknown}"),
    ("HSHARD-1: unreduced", "{unreduced}", "{unreduced}"),
    ("HSHARD-1: maximal", "{maximal device=3}", "{maximal device=3}"),
    ("HSHARD-2: listed", "{devices=[2,1]1,0}", "{devices=[2,1]1,0}"),
    ("HSHARD-2: iota", "{devices=[2,2]<=[4]}", "{devices=[2,2]<=[4]}"),
    ("HSHARD-2: transposed", "{devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}", "{devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}"),
    ("HSHARD-2: replicated last", "{devices=[2,2]<=[2,2]T(0,1) last_tile_dims={replicated}}", "{devices=[2,2]<=[4] last_tile_dim_replicate}"),
    ("HSHARD-2: last dimensions", "{devices=[1,2,2]0,1,2,3 last_tile_dims={manual,replicated}}",
     "{devices=[1,2,2]0,1,2,3 last_tile_dims={manual, replicated}}"),
    ("HSHARD-8: copies in order", "{devices=[2,1,2]3,2,1,0 last_tile_dim_replicate}",
     "{devices=[2,1,2]2,3,0,1 last_tile_dim_replicate}"),
    ("HSHARD-8: copies of an iota in order", "{devices=[1,2,4]<=[2,4]T(1,0) last_tile_dim_replicate}",
     "{devices=[1,2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}"),
    ("HSHARD-8: kinds in order", "{devices=[2,1,2,2]<=[8] last_tile_dims={replicated,manual}}",
     "{devices=[2,1,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={manual, replicated}}"),
    ("HSHARD-8: what cannot be an iota", "{devices=[2,3,2,2,1]<=[3,2,2,2]T(0,2,3,1) last_tile_dims={replicated,manual,manual}}",
     "{devices=[2,3,2,2]0,1,4,5,2,3,6,7,8,9,12,13,10,11,14,15,16,17,20,21,18,19,22,23 last_tile_dims={manual, replicated}}"),
    ("HSHARD-8: of one kind", "{devices=[1,1,2,2]<=[4] last_tile_dims={manual,manual}}", "{manual}"),
    ("HSHARD-8: joined", "{devices=[2,1,2,2]<=[8] last_tile_dims={replicated,replicated}}",
     "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
    ("HSHARD-8: of size 1", "{devices=[2,2,1,1]<=[4] last_tile_dims={replicated,manual}}", "{devices=[2,2]<=[4]}"),
    ("HSHARD-3: group", "{replicated shard_like 3}", "{replicated shard_like 3}"),
    ("HSHARD-3: metadata", '{devices=[2]0,1 shard_as 1 metadata={op_name="x"}}', '{devices=[2]0,1 shard_as 1 metadata={op_name="x"}}'),
    ("HSHARD-3: more of it", '{manual metadata={{op_name="x"},{source_line=1}}}', '{manual metadata={{op_name="x"}, {source_line=1}}}'),
    ("HSHARD-4: tuple", "{{replicated},{devices=[2]0,1}}", "{{replicated}, {devices=[2]0,1}}"),
]  # fmt: skip


@by_label(SHARDINGS)
def test_shardings(text: str, expected: str) -> None:
    assert str(parse_sharding(text)) == expected
    assert parse_sharding(expected) == parse_sharding(text)


REFUSED_SHARDINGS = [
    ("HSHARD-1: nothing known", "{somewhere}", "HSHARD-1"),
    ("HSHARD-2: iota of several dimensions", "{devices=[2,2]<=[2,2]}", "HSHARD-2"),
    ("HSHARD-2: permutation", "{devices=[2,2]<=[2,2]T(0,0)}", "HSHARD-2"),
    ("HSHARD-2: more kinds than dimensions", "{devices=[2]<=[2] last_tile_dims={manual,replicated}}", "HSHARD-2"),
    ("HSHARD-2: a kind of no devices", "{devices=[1,2]<=[2] last_tile_dims={unknown}}", "HSHARD-2"),
    ("HSHARD-5: one device", "{devices=[1]0}", "HSHARD-5"),
    ("HSHARD-5: too few", "{devices=[2,2]0,1,2}", "HSHARD-5"),
    ("HSHARD-5: iota of another size", "{devices=[2,2]<=[5]}", "HSHARD-5"),
    ("HSHARD-5: a device twice", "{devices=[2]1,1}", "HSHARD-5"),
    ("HSHARD-5: in a tuple", "{{replicated}, {devices=[2]1,1}}", "HSHARD-5"),
]


@by_label(REFUSED_SHARDINGS)
def test_refused_shardings(text: str, expected: str) -> None:
    with rejects(expected):
        parse_sharding(text)
    refused(entry(f"p = f32[4] parameter(0), sharding={text}"), expected)


def test_iota_sharding_of_many_devices_takes_no_memory() -> None:
    module = parse_hlo(entry("p = f32[4] parameter(0), sharding={devices=[1000000000000]<=[1000000000000]}"))
    assert "<=[1000000000000]" in str(module)


@rule("HSHARD-7")
def test_what_is_partitioned_is_not_run() -> None:
    import hlokit as hk
    from hlokit.errors import HlokitError

    text = "ROOT p = f32[4] parameter(0), sharding="
    refused_ = parse_hlo(entry(text + "{devices=[2]0,1}", ", num_partitions=2"))
    with pytest.raises(HlokitError, match="HSHARD-7"):
        hk.evaluate(refused_, [1.0, 2.0, 3.0, 4.0])
