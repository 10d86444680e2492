"""HloModuleProto in and out: round trips, what jaxlib reads, and what broken bytes give."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.op import OPS
from hlokit.proto.attributes import _KINDS, _is_choice  # pyright: ignore[reportPrivateUsage]
from hlokit.proto.module import module_from_proto, module_to_proto
from hlokit.proto.schema import message_class
from tests.golden.cases import read_cases

DATA = Path(__file__).parent / "data"
CASES = [case for case in read_cases(DATA / "golden_sample.jsonl.gz") if case.hlo is not None]
PROGRAMS = sorted((DATA / "programs").glob("*.hlo.txt.gz"))


def texts() -> list[tuple[str, str]]:
    programs = [(p.name.split(".")[0], gzip.decompress(p.read_bytes()).decode()) for p in PROGRAMS]
    return [(case.id, case.hlo) for case in CASES if case.hlo is not None] + programs + [("handmade", HANDMADE)]


HANDMADE = """HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias) }, buffer_donor={ (1, {}) }, frontend_attributes={a="b"}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %r = f32[] add(%x, %y)
}

ENTRY %e {
  %a = f32[4]{0} parameter(0), sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
  %b = f32[4]{0} parameter(1), parameter_replication={true}, frontend_attributes={k="v"}
  %i4 = s4[5]{0} constant({1, -2, 3, 4, -8})
  %j2 = u2[3]{0} constant({0, 1, 3})
  %f4 = f4e2m1fn[3]{0} constant({1, -2, 0.5})
  %c = c64[2]{0} constant({(1, -2), (inf, nan)})
  %l = f32[2,3]{0,1} constant({ { 1, 2, 3 }, { 4, 5, 6 } })
  %ar = f32[4]{0} all-reduce(%a), channel_id=3, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=%add
  %exp = f32[4]{0} exponential(%ar), result_accuracy={mode=highest}
  ROOT %t = (f32[4]{0}, f32[4]{0}, s4[5]{0}, u2[3]{0}, f4e2m1fn[3]{0}, /*index=5*/c64[2]{0}, f32[2,3]{0,1}) tuple(%exp, %b, %i4, %j2, %f4, /*index=5*/%c, %l), metadata={op_name="x" source_line=3}, backend_config={"x":1}
}
"""


@pytest.mark.parametrize(("text",), [(t,) for _, t in texts()], ids=[name for name, _ in texts()])
def test_proto_keeps_the_module(text: str) -> None:
    module = hk.parse(text)
    data = module_to_proto(module)
    again = module_from_proto(data)
    again.replica_count, again.num_partitions = module.replica_count, module.num_partitions
    assert again.to_text() == module.to_text()
    assert module_to_proto(again) == data


DOMAIN = """HloModule m

ENTRY %e (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %d = f32[2]{0} domain(%p), domain={kind="sharding", entry={replicated}, exit={maximal device=1}}
}

"""
START = """HloModule m

ENTRY %e {
  %p = f32[2]{0} parameter(0)
  %s = ((f32[2]{0}), f32[2]{0}, u32[]) negate-start(%p)
  ROOT %d = f32[2]{0} negate-done(%s)
}
"""
TWO_CALLS = """HloModule m

%first {
  %p = f32[2]{0} parameter(0)
  ROOT %n = f32[2]{0} negate(%p)
}

%second {
  %p = f32[2]{0} parameter(0)
  ROOT %n = f32[2]{0} negate(%p)
}

ENTRY %e {
  %p = f32[2]{0} parameter(0)
  %a = f32[2]{0} call(%p), to_apply=%first
  %b = f32[2]{0} call(%p), to_apply=%second
  ROOT %t = (f32[2]{0}, f32[2]{0}) tuple(%b, %a)
}
"""


def message(text: str) -> Any:
    found = message_class("Module")()
    found.ParseFromString(module_to_proto(hk.parse(text)))
    return found


def test_every_kind_of_attribute_has_a_place_in_protos() -> None:
    kinds = {(name, a.text): a.kind for name, op in OPS.items() for a in op.attributes if not _is_choice(a)}
    assert kinds and not [found for found, kind in kinds.items() if kind not in _KINDS]


def test_a_domain_is_kept_as_jaxlib_writes_it() -> None:
    found = message(DOMAIN)
    instruction = found.computations[0].instructions[1]
    # XLA names the sides by the way of the operand: what the text calls exit comes first
    assert list(instruction.domain_entry_sharding.tile_assignment_devices) == [1]
    assert not instruction.domain_exit_sharding.type
    assert str(module_from_proto(found.SerializeToString())) == str(hk.parse(DOMAIN))


def test_debug_attributes_that_say_nothing_are_left_out() -> None:
    found = message(START)
    found.debug_attributes.add()
    module = module_from_proto(found.SerializeToString())
    assert module.debug_attributes == [] and str(module) == str(hk.parse(str(module)))


def test_an_execution_thread_that_is_not_said_is_main() -> None:
    found = message(START)
    for computation in found.computations:
        for instruction in computation.instructions:
            instruction.async_execution_thread = ""
    module = module_from_proto(found.SerializeToString())
    assert str(module) == str(hk.parse(START)) and "thread" not in str(module)


def test_instructions_and_computations_are_in_the_order_of_their_ids() -> None:
    found = message(TWO_CALLS)
    entry = found.computations[-1]
    p, a, b, t = sorted(entry.instructions, key=lambda i: i.id)
    assert [i.name for i in (a, b, t)] == ["a", "b", "t"]
    assert list(entry.instructions) == [p, b, a, t]  # operands of the root, left to right
    assert str(module_from_proto(found.SerializeToString())) == str(hk.parse(TWO_CALLS))


@pytest.mark.outside
def test_jaxlib_reads_the_proto_and_prints_the_same() -> None:
    from jaxlib import _hlo as hlo

    different: list[str] = []
    for name, text in texts():
        try:
            hlo.hlo_module_from_text(text)
        except Exception:
            continue  # jaxlib does not know this text
        module = hk.parse(text)
        module.replica_count = module.num_partitions = 1
        theirs = hlo.HloModule.from_serialized_hlo_module_proto(module_to_proto(module))
        if theirs.to_string() != module.to_text():
            different.append(name)
    assert not different


@pytest.mark.outside
def test_we_read_jaxlibs_proto() -> None:
    from jaxlib import _hlo as hlo

    different: list[str] = []
    for name, text in texts():
        try:
            theirs = hlo.hlo_module_from_text(text)
        except Exception:
            continue
        module = hk.parse(text)
        again = module_from_proto(theirs.as_serialized_hlo_module_proto())
        again.replica_count, again.num_partitions = module.replica_count, module.num_partitions
        if again.to_text() != theirs.to_string():
            different.append(name)
    assert not different


def test_load_tells_proto_from_text(tmp_path: Path) -> None:
    module = hk.parse(HANDMADE)
    (tmp_path / "m.pb").write_bytes(module_to_proto(module))
    (tmp_path / "m.txt").write_text(HANDMADE)
    assert hk.load(tmp_path / "m.pb").to_text() == hk.load(tmp_path / "m.txt").to_text()


@pytest.mark.filterwarnings("ignore::hlokit.UnreadFieldsWarning")
def test_broken_bytes_end_in_parse_errors() -> None:
    data = module_to_proto(hk.parse(HANDMADE))
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(1500):
        broken = bytearray(data)
        for position in generator.integers(0, len(data), generator.integers(1, 4)):
            broken[position] = generator.integers(0, 256)
        cut = int(generator.integers(0, len(data)))
        for candidate in (bytes(broken), data[:cut]):
            try:
                module_from_proto(candidate)
            except hk.ParseError:
                refused += 1
    assert refused > 1500
    for nothing in (b"", b"\x00", b"hello"):
        with pytest.raises(hk.ParseError):
            module_from_proto(nothing)


def _with_unread(module: hk.HloModule, name: str) -> tuple[bytes, str]:
    """The module's proto with a field that is not read, and what the warning says of it."""
    count = sum(1 for _ in module.instructions())
    proto = message_class("Module").FromString(module_to_proto(module))
    for computation in proto.computations:
        for instruction in computation.instructions:
            if name == "is_cross_program_prefetch":
                instruction.MergeFromString(b"\xc8\x04\x01")  # field 73
            elif name == "tile_shape" and instruction.HasField("sharding"):
                instruction.sharding.MergeFromString(b"\x12\x02\x08\x01")
    if name == "device_assignment":
        proto.MergeFromString(b"\x7a\x02\x08\x01")
    if name == "an empty message":
        proto.MergeFromString(b"\xfa\x3f\x00")
    said = {
        "is_cross_program_prefetch": f"HloInstructionProto.is_cross_program_prefetch (in {count} messages)",
        "tile_shape": "OpSharding.tile_shape",
    }
    return proto.SerializeToString(), said.get(name, "")


@pytest.mark.parametrize(
    "name", ["is_cross_program_prefetch", "tile_shape", "device_assignment", "an empty message", ""]
)
def test_fields_that_are_not_read_are_named(name: str) -> None:
    """But those that say nothing of the program."""
    module = hk.parse(HANDMADE)
    data, said = _with_unread(module, name)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert str(hk.parse(data)) == str(module)
    assert [str(warning.message) for warning in found] == ([f"proto: m: not read: {said}"] if said else [])


_SOURCES = [
    ("f32[2]", 'origin={({"a"}, {"b"})}', ""),
    ("f32[2]", "origin={}", "origin={()}"),
    ("f32[2]", "origin={{}}", ""),
    ("f32[2]", 'origin={{"a" {}}}', 'origin={{"a"}}'),
    ("f32[2]", 'origin={{"a" {1,0}}}', ""),
    ("f32[2]", "origin={[synthetic_call]}", ""),
    ("((), f32[2])", 'origin={(({"x"},{"y" {3}}),{"b"})}', 'origin={(({"x"}, {"y" {3}}), {"b"})}'),
    ("((), f32[2])", 'origin={((), {"b"})}', ""),
    ("f32[2]", 'sharding={replicated metadata={{op_name="x"}}}', 'sharding={replicated metadata={op_name="x"}}'),
    ("f32[2]", 'sharding={devices=[2]0,1 metadata={{op_name="x"}, {op_name="y" source_line=3}}}', ""),
    ("f32[2]", "sharding={replicated metadata={}}", ""),
    ("f32[2]", """sharding={mesh['a'=2], [{'a'}], metadata={{op_name="x"}}}""", ""),
    ("(f32[2], f32[2])", 'sharding={{replicated metadata={op_name="x"}}, {maximal device=0}}', ""),
]


@pytest.mark.parametrize(("shape", "written", "printed"), _SOURCES)
def test_origins_and_the_metadata_of_shardings_are_kept(shape: str, written: str, printed: str) -> None:
    text = f"HloModule m\nENTRY e {{ ROOT p = {shape} parameter(0), {written} }}"
    module = hk.parse(text)
    again = module_from_proto(module_to_proto(module))
    assert (printed or written) in str(module)
    assert str(again) == str(module)
    hlo = pytest.importorskip("jaxlib._hlo")
    theirs = hlo.hlo_module_from_text(text)
    assert str(module_from_proto(theirs.as_serialized_hlo_module_proto())) == str(module)
    read_back = hlo.HloModule.from_serialized_hlo_module_proto(module_to_proto(module))
    assert (printed or written) in read_back.to_string()


def _with_origin(places: list[tuple[int, ...]], array: bytes = b"\n\x01a") -> bytes:
    text = "HloModule m\nENTRY e { ROOT p = f32[2] parameter(0) }"
    proto = message_class("Module").FromString(module_to_proto(hk.parse(text)))
    for place in places:
        proto.computations[0].instructions[0].original_value.elements.add(shape_index=place, original_array=array)
    return proto.SerializeToString()


@pytest.mark.parametrize(
    "places",
    [[(), ()], [(0,), ()], [(), (0,)], [(0,), (0, 1)], [(0, 1), (0,)], [(-1,)], [(2**62,)], [(0,) * 100],
     [(i, 60_000) for i in range(100)]],
)  # fmt: skip
def test_origins_that_no_text_can_say_are_errors(places: list[tuple[int, ...]]) -> None:
    with pytest.raises(hk.ParseError, match="origin: "):
        hk.parse(_with_origin(places))


def test_origins_of_older_files() -> None:
    """There the instruction's name stands where newer files have a message."""
    assert 'origin={({"dot.1"})}' in str(hk.parse(_with_origin([(0,)], b"dot.1")))


@pytest.mark.parametrize("origin", ["{(}", "{[synthetic]}", "{a}", '{"a"}', '{{"a" 1}}', '{{"a"} {"b"}}', "{({)}}"])
def test_origins_that_are_none(origin: str) -> None:
    with pytest.raises(hk.ParseError, match="HCATTR-9"):
        hk.parse(f"HloModule m\nENTRY e {{ ROOT p = f32[2] parameter(0), origin={origin} }}")


def test_a_choice_that_is_none_is_an_error() -> None:
    text = "HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT c = pred[2] compare(x, x), direction=EQ }"
    proto = message_class("Module").FromString(module_to_proto(hk.parse(text)))
    compare = next(i for i in proto.computations[0].instructions if i.opcode == "compare")
    compare.comparison_type = "FLOATS"
    with pytest.raises(hk.ParseError, match="c: proto: type is 'FLOATS'; expected one of"):
        hk.parse(proto.SerializeToString())
