"""HMESH rules, and groups and shardings by the axes of a mesh (HGRP-6, HSHARD-6, HSHARD-9)."""

from __future__ import annotations

import math
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.proto.module import module_from_proto, module_to_proto
from hlokit.text.groups import parse_replica_groups, parse_sharding
from hlokit.text.parser import parse_hlo
from hlokit.types.groups import ReplicaGroups
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import DimensionSharding, NamedSharding
from tests.rules.labels import rejects, rule
from tests.text.texts import by_label, entry, refused

M = "mesh['a'=2,'b'=4]"

SHARDINGS = [
    ("HSHARD-6: closed", f"{{{M}, [{{'a'}}, {{'b'}}]}}", ""),
    ("HSHARD-6: open", f"{{{M}, [{{'a', ?}}, {{?}}]}}", ""),
    ("HSHARD-6: two axes of a dimension", f"{{{M}, [{{'a','b'}}, {{}}]}}", f"{{{M}, [{{'a', 'b'}}, {{}}]}}"),
    ("HSHARD-6: what is the same", f"{{{M}, [{{'a'}}, {{}}], replicated={{'b'}}}}", ""),
    ("HSHARD-6: all kinds", f"{{{M}, [{{}}], manual={{'b':(2)2}}, unreduced={{'b':(1)2}}, replicated={{'a'}}}}",
     f"{{{M}, [{{}}], replicated={{'a'}}, unreduced={{'b':(1)2}}, manual={{'b':(2)2}}}}"),
    ("HSHARD-6: a maximum", f"{{{M}, [{{'a'}}], unreduced=max{{'b'}}}}", ""),
    ("HSHARD-6: the sum", f"{{{M}, [{{'a'}}], unreduced=sum{{'b'}}}}", f"{{{M}, [{{'a'}}], unreduced={{'b'}}}}"),
    ("HSHARD-6: nothing named", f"{{{M}, [{{'a'}}], unreduced={{}}}}", f"{{{M}, [{{'a'}}]}}"),
    ("HSHARD-6: the maximum of nothing", f"{{{M}, [{{'a'}}], unreduced=max{{}}}}", f"{{{M}, [{{'a'}}]}}"),
    ("HSHARD-6: replicated", f"{{{M}, replicated}}", ""),
    ("HSHARD-6: no dimensions", f"{{{M}, []}}", f"{{{M}, replicated}}"),
    ("HSHARD-6: no axes", "{mesh[], replicated}", ""),
    ("HSHARD-6: unreduced", f"{{{M}, unreduced}}", ""),
    ("HSHARD-6: manual", f"{{{M}, [], manual={{'a', 'b'}}}}", f"{{{M}, manual}}"),
    ("HSHARD-6: manual dimensions", f"{{{M}, [{{}}], manual={{'a', 'b'}}}}", ""),
    ("HSHARD-6: metadata", f'{{{M}, manual, metadata={{op_name="x"}}}}', f'{{{M}, manual, metadata={{{{op_name="x"}}}}}}'),
    ("HSHARD-6: metadata of one device", '{maximal_mesh[device_id=3], metadata={{op_name="x"}, {op_name="y"}}}', ""),
    ("HSHARD-6: of newer jaxlibs", "{single_device[device_id=3]}", "{maximal_mesh[device_id=3]}"),
    ("HSHARD-6: in a tuple", f"{{{{{M}, [{{'a'}}]}}, {{replicated}}}}", ""),
    ("HMESH-1: double quotes", "{mesh[\"a'\"=2], [{\"a'\"}]}", "{mesh['a\\'=2], [{'a\\'}]}".replace("\\'", "\\''")),
    ("HMESH-2: listed", f"{{{M}, device_ids=(7,6,5,4,3,2,1,0), [{{'a'}}]}}", ""),
    ("HMESH-2: in order", f"{{{M}, device_ids=(0,1,2,3,4,5,6,7), [{{'a'}}]}}", f"{{{M}, [{{'a'}}]}}"),
    ("HMESH-2: iota", f"{{{M}, device_ids=([4,2]T(1,0)), [{{'a'}}]}}", ""),
    ("HMESH-2: shortest iota", f"{{{M}, device_ids=([4,1,2]T(1,2,0)), [{{'a'}}]}}",
     f"{{{M}, device_ids=([4,2]T(1,0)), [{{'a'}}]}}"),
    ("HMESH-2: iota in order", f"{{{M}, device_ids=([8]), [{{'a'}}]}}", f"{{{M}, [{{'a'}}]}}"),
    ("HMESH-3: by number", f"{{{M}, [{{'1'}}, {{'0'}}]}}", f"{{{M}, [{{'b'}}, {{'a'}}]}}"),
    ("HMESH-3: called like a number", "{mesh['1'=2,'x'=2], [{'1'}]}", ""),
    ("HMESH-3: parts", f"{{{M}, [{{'b':(2)2}}, {{'b':(1)2}}]}}", ""),
]  # fmt: skip


@by_label(SHARDINGS)
def test_shardings(text: str, expected: str) -> None:
    sharding = parse_sharding(text)
    assert str(sharding) == (expected or text)
    assert parse_sharding(str(sharding)) == sharding


REFUSED = [
    ("HMESH-1: no quotes", "{mesh[a=2], [{'a'}]}", "HMESH-1"),
    ("HMESH-1: a name twice", "{mesh['a'=2,'a'=2], [{'a'}]}", "HMESH-1"),
    ("HMESH-1: no devices", "{mesh['a'=0], [{'a'}]}", "HMESH-1"),
    ("HMESH-1: too many devices", "{mesh['a'=9223372036854775807,'b'=2], [{'a'}]}", "HMESH-1"),
    ("HMESH-2: too few", f"{{{M}, device_ids=(0,1), [{{'a'}}]}}", "HMESH-2"),
    ("HMESH-2: a device twice", f"{{{M}, device_ids=(0,1,2,3,4,5,6,6), [{{'a'}}]}}", "HMESH-2"),
    ("HMESH-2: others", f"{{{M}, device_ids=(8,1,2,3,4,5,6,7), [{{'a'}}]}}", "HMESH-2"),
    ("HMESH-2: iota of another size", f"{{{M}, device_ids=([4,4]T(1,0)), [{{'a'}}]}}", "HMESH-2"),
    ("HMESH-2: no permutation", f"{{{M}, device_ids=([4,2]T(1,1)), [{{'a'}}]}}", "HMESH-2"),
    ("HMESH-2: no device", "{maximal_mesh[3]}", "HMESH-2"),
    ("HMESH-3: no such axis", f"{{{M}, [{{'c'}}]}}", "HMESH-3"),
    ("HMESH-3: no such number", f"{{{M}, [{{'2'}}]}}", "HMESH-3"),
    ("HMESH-3: all of it", f"{{{M}, [{{'b':(1)4}}]}}", "HMESH-3"),
    ("HMESH-3: does not divide", f"{{{M}, [{{'b':(3)2}}]}}", "HMESH-3"),
    ("HMESH-3: size 1", f"{{{M}, [{{'b':(2)1}}]}}", "HMESH-3"),
    ("HMESH-3: nothing outside", f"{{{M}, [{{'b':(0)2}}]}}", "HMESH-3"),
    ("HMESH-4: twice", f"{{{M}, [{{'a'}}, {{'a'}}]}}", "HMESH-4"),
    ("HMESH-4: a part of what is there", f"{{{M}, [{{'b'}}], manual={{'b':(1)2}}}}", "HMESH-4"),
    ("HMESH-4: parts that cannot be", "{mesh['a'=12], [{'a':(1)2}, {'a':(3)2}]}", "HMESH-4"),
    ("HMESH-4: one part together", f"{{{M}, [{{'b':(1)2,'b':(2)2}}]}}", "HMESH-4"),
    ("HSHARD-6: nothing said", f"{{{M}}}", "HSHARD-6"),
    ("HSHARD-6: unknown field", f"{{{M}, [{{'a'}}], reduced={{'b'}}}}", "HSHARD-6"),
    ("HSHARD-6: a field twice", f"{{{M}, [{{}}], manual={{'b'}}, manual={{'a'}}}}", "HSHARD-6"),
    ("HSHARD-6: open manual axes", f"{{{M}, [{{'a'}}], manual={{?}}}}", "HSHARD-6"),
    ("HSHARD-6: after open", f"{{{M}, [{{?, 'a'}}]}}", "HSHARD-6"),
    ("HSHARD-6: group", f"{{{M}, [{{'a'}}] shard_as 1}}", "HSHARD-6"),
    ("HSHARD-6: other reduction", f"{{{M}, [{{'a'}}], unreduced=mul{{'b'}}}}", "HSHARD-6"),
]


@by_label(REFUSED)
def test_refused(text: str, expected: str) -> None:
    with rejects(expected):
        parse_sharding(text)
    refused(entry(f"p = f32[4] parameter(0), sharding={text}"), expected)


GROUPS = [
    ("HGRP-6: the slow axis", f"{M} {{'a'}}", "[4,2]<=[2,4]T(1,0)", "{{0,4},{1,5},{2,6},{3,7}}"),
    ("HGRP-6: the fast axis", f"{M} {{'b'}}", "[2,4]<=[8]", "{{0,1,2,3},{4,5,6,7}}"),
    ("HGRP-6: in order", f"{M} {{'a','b'}}", "[1,8]<=[8]", "{{0,1,2,3,4,5,6,7}}"),
    ("HGRP-6: in another order", f"{M} {{'b','a'}}", "[1,8]<=[2,4]T(1,0)", "{{0,4,1,5,2,6,3,7}}"),
    ("HGRP-6: alone", f"{M} {{}}", "[8,1]<=[8]", "{{0},{1},{2},{3},{4},{5},{6},{7}}"),
    ("HGRP-6: a part", f"{M} {{'b':(1)2}}", "[4,2]<=[2,2,2]T(0,2,1)", "{{0,2},{1,3},{4,6},{5,7}}"),
    ("HGRP-6: parts", f"{M} {{'b':(2)2,'b':(1)2}}", "[2,4]<=[2,2,2]T(0,2,1)", "{{0,2,1,3},{4,6,5,7}}"),
    ("HGRP-6: listed", f"{M}, device_ids=(7,6,5,4,3,2,1,0) {{'a'}}", "None", "{{7,3},{6,2},{5,1},{4,0}}"),
    ("HGRP-6: iota", f"{M}, device_ids=([4,2]T(1,0)) {{'a'}}", "[4,2]<=[8]", "{{0,1},{2,3},{4,5},{6,7}}"),
    ("HGRP-6: iota that does not go with it", "mesh['a'=2,'b'=6], device_ids=([4,3]T(1,0)) {'a'}", "None",
     "{{0,7},{3,10},{6,2},{9,5},{1,8},{4,11}}"),
]  # fmt: skip


@by_label(GROUPS)
def test_groups(text: str, expected: str, more: str) -> None:
    iota, lists = expected, more
    groups = parse_replica_groups(text)
    assert str(groups) == text
    assert str(groups.as_iota()) == iota
    assert str(groups.as_lists()) == lists
    assert groups.expand(0) == parse_replica_groups(lists).groups
    assert groups.group_size == len(groups.expand(0)[0])
    if iota != "None":
        assert parse_replica_groups(iota).expand(0) == groups.expand(0)


@rule("HGRP-6")
def test_groups_that_are_none() -> None:
    for text, label in ((M, "HGRP-6"), (f"{M}, {{'a'}}", "HGRP-6"), (f"{M} {{?}}", "HGRP-6"), ("mesh {'a'}", "HMESH-1")):
        with rejects(label):
            parse_replica_groups(text)
    everyone = ReplicaGroups()
    assert everyone.is_everyone
    assert everyone.as_iota() is None
    assert everyone.as_lists() == everyone


@rule("HMESH-2")
def test_many_devices_take_no_memory() -> None:
    module = parse_hlo(entry("p = f32[4] parameter(0), sharding={mesh['a'=1000000000000], [{'a'}]}"))
    sharding = module.entry.root.extra.sharding
    assert str(sharding.placed()) == "{devices=[1000000000000]<=[1000000000000]}"
    with rejects("GRP-2"):
        parse_replica_groups("mesh['a'=1000000000000] {'a'}").expand(0)


TILED = [  # what XLA's own tests expect of the conversion
    ("HSHARD-9: in order", [("a", 16)], ["a", ""], {}, "{devices=[16,1]<=[16]}"),
    ("HSHARD-9: the rest is the same", [("a", 2), ("b", 4), ("c", 4)], ["", "a"], {"replicated": "c"},
     "{devices=[1,2,16]<=[32] last_tile_dim_replicate}"),
    ("HSHARD-9: transposed", [("a", 2), ("b", 4), ("c", 4)], ["c", "a b"], {}, "{devices=[4,8]<=[8,4]T(1,0)}"),
    ("HSHARD-9: transposed apart", [("a", 2), ("b", 4), ("c", 4)], ["b", "a c"], {}, "{devices=[4,8]<=[2,4,4]T(1,0,2)}"),
    ("HSHARD-9: transposed with copies", [("a", 2), ("b", 4), ("c", 4)], ["", "a c"], {"replicated": "b"},
     "{devices=[1,8,4]<=[2,4,4]T(0,2,1) last_tile_dim_replicate}"),
    ("HSHARD-9: unreduced", [("a", 2), ("b", 2)], ["a", ""], {"unreduced": "b"},
     "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}"),
    ("HSHARD-9: manual", [("a", 2), ("b", 2)], ["a", ""], {"manual": "b"}, "{devices=[2,1,2]<=[4] last_tile_dims={manual}}"),
    ("HSHARD-9: all kinds", [("a", 2), ("b", 3), ("c", 4), ("d", 5)], ["a"],
     {"replicated": "d", "unreduced": "c", "manual": "b"},
     "{devices=[2,3,4,5]<=[120] last_tile_dims={manual, unreduced, replicated}}"),
    ("HSHARD-9: a part", [("a", 16), ("b", 4)], ["b a:1:2"], {}, "{devices=[8,8]<=[16,4]T(1,0) last_tile_dim_replicate}"),
    ("HSHARD-9: a part within", [("a", 16), ("b", 4)], ["b a:2:4"], {},
     "{devices=[16,4]<=[2,4,2,4]T(3,1,0,2) last_tile_dim_replicate}"),
    ("HSHARD-9: parts", [("a", 16), ("b", 4)], ["a:1:2 a:8:2", "a:2:4 b"], {}, "{devices=[4,16]<=[2,4,2,4]T(0,2,1,3)}"),
    ("HSHARD-9: nothing", [("a", 2), ("b", 4)], ["", ""], {}, "{replicated}"),
    ("HSHARD-9: all manual", [("a", 2), ("b", 4)], ["", ""], {"manual": "b a"}, "{manual}"),
    ("HSHARD-9: axes of size 1", [("a", 1)], ["a"], {}, "{replicated}"),
]  # fmt: skip


def axes_of(text: str) -> tuple[Axis, ...]:
    parts = [word.split(":") for word in text.split()]
    return tuple(Axis(name, *map(int, part)) for name, *part in parts)


@pytest.mark.parametrize(("axes", "dimensions", "others", "expected"), [row[1:] for row in TILED], ids=[r[0] for r in TILED])
def test_tiles(axes: Any, dimensions: list[str], others: dict[str, str], expected: str) -> None:
    named = NamedSharding(
        Mesh.make(axes),
        tuple(DimensionSharding(axes_of(d)) for d in dimensions),
        **{name: axes_of(text) for name, text in others.items()},
    )
    named.check()
    assert str(named.tiled()) == expected


@rule("HSHARD-9")
def test_tiles_of_a_mesh_in_another_order() -> None:
    assert str(parse_sharding(f"{{{M}, device_ids=([4,2]T(1,0)), [{{'b'}}, {{'a'}}]}}").placed()) == "{devices=[4,2]<=[8]}"
    listed = "mesh['a'=2,'b'=2,'c'=2], device_ids=(0,2,4,6,1,3,5,7)"
    assert str(parse_sharding(f"{{{listed}, [{{'c'}}, {{'a', 'b'}}]}}").placed()) == "{devices=[2,4]0,4,1,5,2,6,3,7}"
    assert str(parse_sharding("{maximal_mesh[device_id=3]}").placed()) == "{maximal device=3}"
    assert str(parse_sharding(f"{{{{{M}, [{{'a', ?}}]}}, {{manual}}}}").placed()) == (
        "{{devices=[2,4]<=[8] last_tile_dim_replicate}, {manual}}"
    )


@rule("HSHARD-9")
@pytest.mark.parametrize("text", ["[{'a', ?}]", "[{'a'}], unreduced=max{'b'}"])
def test_what_tiles_cannot_say(text: str) -> None:
    named = parse_sharding(f"{{{M}, {text}}}").named
    assert named is not None
    with rejects("HSHARD-9"):
        named.tiled()


@rule("HSHARD-9", "HGRP-6", "HMESH-4")
def test_every_device_has_the_tile_of_its_place() -> None:
    """Against the definition: a device's place along each axis, for all parts of a small mesh in three orders."""
    parts = [Axis("x"), Axis("y", 1, 2), Axis("y", 2, 3), Axis("y", 6, 2)]
    sizes = (3, 2, 3, 2)
    orders = [(), tuple(map(int, np.random.default_rng(5).permutation(36)))]
    meshes = [Mesh.make([("x", 3), ("y", 12)], order) for order in orders]
    meshes.append(Mesh.make([("x", 3), ("y", 12)], (), (6, 6), (1, 0)))
    for mesh, (one, two) in product(meshes, permutations(range(4), 2)):
        devices = np.array(mesh.device_ids()).reshape(sizes)
        place = {int(devices[index]): index for index in np.ndindex(*sizes)}
        tiled = NamedSharding(mesh, (DimensionSharding((parts[one],)), DimensionSharding((parts[two],)))).tiled()
        tiles = np.array(tiled.device_ids()).reshape(tiled.tile)
        for index in np.ndindex(*tiles.shape):
            assert place[int(tiles[index])][one] == index[0]
            assert place[int(tiles[index])][two] == index[1]
        groups = ReplicaGroups(mesh=mesh, axes=(parts[two], parts[one])).expand(0)
        assert len(groups) == math.prod(sizes) // sizes[one] // sizes[two]
        for group in groups:
            own = [place[device] for device in group]
            assert [(p[two], p[one]) for p in own] == list(product(range(sizes[two]), range(sizes[one])))
            assert len({tuple(n for d, n in enumerate(p) if d not in (one, two)) for p in own}) == 1


@rule("HGRP-6")
@pytest.mark.parametrize("groups", [f"{M} {{'a'}}", f"{M}, device_ids=(7,6,5,4,3,2,1,0) {{'b':(2)2}}"])
def test_collectives_run_over_axes(groups: str) -> None:
    def module(written: str) -> hk.HloModule:
        return hk.parse(f"""
HloModule m, replica_count=8
add {{ x = s32[] parameter(0)
 y = s32[] parameter(1)
 ROOT r = s32[] add(x, y) }}
ENTRY e {{ a = s32[2] parameter(0)
 b = s32[2] all-reduce(a), replica_groups={written}, to_apply=add
 ROOT c = s32[4] all-gather(b), replica_groups={written}, dimensions={{0}} }}
""")

    values = [[np.int32([i, 1 << i])] for i in range(8)]
    text = str(module(groups))
    assert text.count(f"replica_groups={groups}") == 2
    expected = hk.evaluate(module(str(parse_replica_groups(groups).as_lists())), *values)
    for result in (hk.evaluate(hk.parse(text), *values), hk.compile(hk.parse(text))(*values)):
        np.testing.assert_array_equal(np.array(result), np.array(expected))


@rule("HSHARD-6", "HGRP-6")
def test_protos() -> None:
    shardings = [text for _, text, _ in SHARDINGS if "metadata" not in text]
    lines = [f"p{i} = f32[4,4] parameter({i}), sharding={text}" for i, text in enumerate(shardings) if "}, {repl" not in text]
    lines = [line.replace(f"p{line.split()[0][1:]} ", f"p{i} ", 1) for i, line in enumerate(lines)]
    lines = [f"{line.split('parameter(')[0]}parameter({i}){line.split(')', 1)[1]}" for i, line in enumerate(lines)]
    lines += [f"b{i} = f32[4,4] collective-broadcast(p0), replica_groups={text}" for i, (_, text, *_) in enumerate(GROUPS[:9])]
    module = parse_hlo(entry("\n".join(lines)))
    assert str(module_from_proto(module_to_proto(module))) == str(module)


@rule("HSHARD-7")
def test_what_is_divided_takes_a_partitioner() -> None:
    for text, divided in (
        (f"{M}, [{{'a'}}]", True), (f"{M}, unreduced", True), (f"{M}, [{{}}], unreduced=max{{'a'}}", True),
        (f"{M}, replicated", False), (f"{M}, [{{?}}]", False), (f"{M}, manual", False), ("maximal_mesh[device_id=1]", False),
    ):  # fmt: skip
        assert parse_sharding(f"{{{text}}}").needs_partitioner == divided, text
