"""Kinds of files: what loads, and what is said of what does not. tests/data/files has files that jaxlib 0.10.2 wrote."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import HlokitError, ParseError, UnsupportedError
from hlokit.files import reading
from hlokit.files.exported import artifact_of
from hlokit.proto.container import container_of
from hlokit.proto.module import hlo_proto, module_from_proto, module_to_proto
from hlokit.proto.schema import message_class
from hlokit.proto.shapes import shape_to_proto
from hlokit.proto.snapshot import value_of_serialized
from hlokit.proto.text_format import text_of_message
from hlokit.tools import convert
from hlokit.types.dtype import DType

DATA = Path(__file__).parent / "data/files"
SNAPSHOT, UNOPTIMIZED, EXPORTED = DATA / "snapshot.pb", DATA / "hlo_unoptimized_snapshot.pb", DATA / "exported.jax"
TEXT = """HloModule m, replica_count=2

ENTRY %e (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  ROOT %r = f32[2]{0} negate(%x)
}

"""
ARGUMENTS = [
    np.array([True, False, True, True, False, True, False, False, True]),
    np.arange(-4, 5).astype(ml_dtypes.int4),
    np.array([0, 1, 2, 3, 0]).astype(ml_dtypes.uint2),
    np.complex64([1 + 2j, 3 - 4j]),
    np.arange(6, dtype=np.float32).reshape(2, 3),  # of the layout {0,1}
    np.arange(3).astype(ml_dtypes.bfloat16),
    np.array([0.5, -1, 6]).astype(ml_dtypes.float4_e2m1fn),
]
"""Of the recorded snapshots: what the program was called with when they were made."""


# -- what loads


def test_an_hlo_proto_loads(tmp_path: Path) -> None:
    module = hk.load(DATA / "cpu_after_optimizations.hlo.pb")
    assert module.name == "jit__lambda" and len(module.entry.parameters) == 7
    for name, data in (("m.hlo.pb", hlo_proto(module)), ("m.pb", module_to_proto(module))):
        (tmp_path / name).write_bytes(data)
        assert str(hk.load(tmp_path / name)) == str(module)
    assert container_of(hlo_proto(module)).kind == "HloProto"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pb")), ids=lambda path: path.name)
def test_programs_of_dumps_print_what_reads_back(path: Path) -> None:
    """The debug tables: fields that are zero are not in the proto; parents count from 1 in the text, from 0 there."""
    module = hk.load(path)
    assert "\n1 {file_location_id=1 parent_frame_id=1}\n" in str(module)
    assert "\n1 {file_name_id=1 function_name_id=1 line=6 end_line=6 column=6 end_column=14}\n" in str(module)
    assert str(hk.parse(str(module))) == str(module)
    assert str(module_from_proto(module_to_proto(module))) == str(module)


def test_a_buffer_assignment_beside_the_module_is_no_computation() -> None:
    """Read as an HloModuleProto, a HloProto's field 3 would be its computations."""
    data = hlo_proto(hk.parse(TEXT)) + b"\x1a\x04\x0a\x02\x08\x01"
    assert module_from_proto(data).entry.root.opcode == "negate"


@pytest.mark.parametrize("path", [SNAPSHOT, UNOPTIMIZED], ids=["HloSnapshot", "HloUnoptimizedSnapshot"])
def test_snapshots_hold_a_module_and_its_arguments(path: Path) -> None:
    snapshot = hk.load_snapshot(path)
    assert str(snapshot.module) == str(hk.load(path))
    (arguments,) = snapshot.arguments
    for found, expected in zip(arguments, ARGUMENTS, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    result = hk.evaluate(snapshot.module, *arguments)
    assert result == 19 - 2j
    assert snapshot.result is None if path == UNOPTIMIZED else snapshot.result == result


def _unoptimized(*devices: list[float]) -> bytes:
    """A HloUnoptimizedSnapshot whose arguments are literals in the message."""
    module = message_class("Module").FromString(module_to_proto(hk.parse(TEXT)))
    message = message_class("HloUnoptimizedSnapshot")(hlo_module=module)
    for values in devices:
        literal = message.partitions.add().arguments.add(f32s=values)
        literal.shape.element_type = hk.f32.number
        literal.shape.dimensions.append(len(values))
    return message.SerializeToString()


def test_snapshots_of_several_devices(tmp_path: Path) -> None:
    (tmp_path / "s.pb").write_bytes(_unoptimized([1, 2], [3, 4]))
    snapshot = hk.load_snapshot(tmp_path / "s.pb")
    assert [[a.tolist() for a in device] for device in snapshot.arguments] == [[[1, 2]], [[3, 4]]]
    results = hk.evaluate(snapshot.module, *snapshot.arguments, replicas=2)
    assert [result.tolist() for result in results] == [[-1, -2], [-3, -4]]


def test_a_snapshot_without_arguments(tmp_path: Path) -> None:
    """Its length stands before it, and nothing behind it: it is not an HloProto after a byte or two."""
    message = message_class("HloUnoptimizedSnapshot").FromString(_unoptimized())
    data = message.SerializeToString()
    (tmp_path / "s.pb").write_bytes(bytes([len(data) & 127 | 128, len(data) >> 7]) + data)
    assert hk.load_snapshot(tmp_path / "s.pb").arguments == []


def test_a_program_without_arguments_is_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(TEXT)
    with pytest.raises(ParseError, match="a program without arguments, expected a HloSnapshot"):
        hk.load_snapshot(tmp_path / "m.hlo")
    (tmp_path / "m.dot").write_text("digraph G {}")
    with pytest.raises(ParseError, match="a Graphviz graph"):
        hk.load_snapshot(tmp_path / "m.dot")


# -- protobuf's text format

LEAVES = """computations {
  name: "e"
  instructions {
    name: "a.b"  # a comment
    opcode: "parameter"
    shape { element_type: F32 dimensions: 2 layout { minor_to_major: 0 tail_padding_alignment_in_elements: 1 } }
    id: 1
  }
  instructions < name: "r" opcode: 'negate' shape: { element_type: 11, dimensions: [2] } id: 2 operand_ids: [1] >
  id: 7
  root_id: 2
}
entry_computation_id: 7
name: "m"
"""


def test_a_module_in_text_format_is_read() -> None:
    expected = hk.parse("HloModule m\nENTRY e { a.b = f32[2] parameter(0) ROOT r = f32[2] negate(a.b) }")
    inside = "".join(f"  {line}\n" for line in LEAVES.splitlines())
    assert str(hk.parse(LEAVES)) == str(expected)
    for text in (f"# first\nhlo_module {{\n{inside}}}", f"hlo {{ hlo_module {{\n{inside}}} }}"):
        assert str(hk.parse(text)) == str(hk.parse(LEAVES))


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pb")), ids=lambda path: path.name)
def test_text_format_says_what_the_bytes_say(path: Path, tmp_path: Path) -> None:
    container = container_of(path.read_bytes())
    assert container is not None
    text = text_of_message(container.message.tobytes(), container.kind)
    (tmp_path / "x.pbtxt").write_text(text, encoding="utf-8")
    assert str(hk.load(tmp_path / "x.pbtxt")) == str(hk.load(path))
    if container.has_arguments and container.behind is None:
        read, expected = hk.load_snapshot(tmp_path / "x.pbtxt"), hk.load_snapshot(path)
        assert str(read.arguments) == str(expected.arguments) and str(read.result) == str(expected.result)
    if container.kind == "HloProto":
        assert convert.rendered(path, "proto_text").decode() == text_of_message(hlo_proto(hk.load(path)), "HloProto")


def test_text_format_has_xlas_names_of_values() -> None:
    text = """HloModule m
ENTRY e {
  x = bf16[4,4]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}, origin={{"y" {0}}}
  y = pred[4,4]{0,1} compare(x, x), direction=LT
  d = f32[4,4]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={high,highest}, algorithm=dot_bf16_bf16_f32
  c = c64[4,3]{1,0} fft(d), fft_type=RFFT, fft_length={4}
  ROOT t = (pred[4,4]{0,1}, c64[4,3]{1,0}) tuple(y, c)
}"""
    module = hk.parse(text)
    written = text_of_message(hlo_proto(module), "HloProto")
    for line in (
        "element_type: BF16", "element_type: C64", "type: OTHER", "operand_precision: HIGH\n", "fft_type: RFFT",
        "algorithm: ALG_DOT_BF16_BF16_F32", 'original_array {\n            instruction_name: "y"',
    ):  # fmt: skip
        assert line in written
    assert str(hk.parse(written)) == str(hk.parse(hlo_proto(module)))


def test_faults_in_text_format_have_their_place() -> None:
    with pytest.raises(ParseError, match=r"line 5, column 13.*text format: expected string"):
        hk.parse(LEAVES.replace('opcode: "parameter"', "opcode: {"))
    with pytest.raises(ParseError, match="line 2, column"):
        hk.parse('hlo_module {\n  name: 3 "jit_f"\n')
    with pytest.raises(ParseError, match='enum type "PrimitiveType" has no value named X32'):
        hk.parse(LEAVES.replace("F32", "X32"))
    with pytest.raises(ParseError, match="nested too deeply"):
        hk.parse(LEAVES.replace("shape {", "shape { " + "tuple_shapes {" * 5000))
    with pytest.raises(ParseError, match="r: negate"):  # a rule of the language
        hk.parse(LEAVES.replace("[2] }", "[3] }"))


def test_fields_of_text_format_that_are_not_read_are_told() -> None:
    for more, name in (
        ("pjrt_id: 3", ""),
        ("spmd_output_sharding { type: MANUAL }", "spmd_output_sharding"),
        ("new_one { a: 1 }", "Module.new_one"),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert hk.parse(LEAVES + more).name == "m"
        assert [name in str(each.message) for each in told] == [True] * bool(name), more


def test_snapshots_whose_literals_are_cut_off() -> None:
    data = UNOPTIMIZED.read_bytes()
    for end in (len(data) - 1, len(data) - 30, len(data) - 120):
        with pytest.raises(ParseError, match="bytes, of which the file has"):
            reading.snapshot_of_bytes(data[:end])


def test_a_program_that_jax_exported_loads() -> None:
    module = hk.load(EXPORTED)
    x = np.float32([0, 1, 2])
    np.testing.assert_allclose(hk.evaluate(module, x), np.sin(x) * 2, rtol=1e-6)
    data = EXPORTED.read_bytes()
    assert artifact_of(data).startswith(b"ML\xefR")
    for end in range(0, len(data), 7):
        found = artifact_of(data[:end])
        assert found is None or data.find(found) >= 0


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda path: path.name)
def test_files_compressed_by_gzip_load(path: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert str(hk.load(tmp_path / "m.gz")) == str(hk.load(path))


def test_broken_and_large_data_of_gzip(monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.compress(TEXT.encode())
    for broken, what in ((data[:-9], "ends too early"), (data[:20] + b"\0\0" + data[22:], "compressed by gzip")):
        with pytest.raises(ParseError, match=what):
            hk.parse(broken)
    monkeypatch.setattr(reading, "_MOST", 20)
    with pytest.raises(ParseError, match="more than 20 bytes"):
        hk.parse(data)


def test_parse_takes_the_bytes_of_any_file() -> None:
    for path in DATA.iterdir():
        assert str(hk.parse(path.read_bytes())) == str(hk.load(path))
    assert str(hk.parse(TEXT.encode())) == str(hk.parse(TEXT))


# -- what does not


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        ("", "an empty file"),
        ("dumps/module_0001.before.hlo", "the name of a file, which hk.load reads"),
        ("; ModuleID = 'f'\nsource_filename = \"f\"\n", "LLVM IR"),
        ("\ndigraph G {\nlabel=<f>", "a Graphviz graph"),
        ("\n<!DOCTYPE html>\n<html>", "a web page"),
        ('<svg xmlns="http://www.w3.org/2000/svg">', "SVG"),
        ("Error rendering graph: UNAVAILABLE: Can't render as URL", "URL of a graph"),
        ("BufferAssignment:\nallocation 0: size 16384, output shape is |f32[64,64]|", "an XLA buffer assignment"),
        ("\nTotal bytes used: 57808 (56.5KiB)\n\nUsed values:\n<0 x @0>", "the values of an XLA buffer assignment"),
        ("HloLiveRange (max 18):\n  InstructionSequence:\n    0:w.1", "the live ranges"),
        ("Memory Space: default (color=0)\nTotal bytes: 57808 (56.5KiB)", "memory of a program"),
        ("builtin.module(func.func(xla-simplify-arith{fast_min_max=false}),canonicalize)", "a log of MLIR passes"),
        ("//\n// Generated by LLVM NVPTX Back-End\n//\n\n.version 8.3", "PTX"),
        ("\t.text\n\t.file\t\"f\"", "assembly"),
        ("000: kGemm\tcustom-call.1\n", "a sequence of XLA thunks"),
        ("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }", "a jaxpr"),
        ("import jax\n", "a Python program"),
        ('{"traceEvents": []}', "JSON"),
        ("executable_build_options {\n  device_ordinal: -1\n", "compile options in protobuf's text format"),
        ("platform_id: 179\nplatform_name: \"cpu\"\n", "a topology of devices in protobuf's text format"),
        ("# a comment\nxla_dump_hlo_as_text: true\n", "XLA's debug options in protobuf's text format"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "machine code"),
        (b"BC\xc0\xde\x35\x14\0\0", "LLVM bitcode"),
        (b"\x28\xb5\x2f\xfd\x04\0", "Zstandard"),
        (b"\x93NUMPY\x01\x00", "a NumPy array"),
        (b"\x89PNG\r\n\x1a\n\0", "an image"),
        (b"\x08\x01\x12\x03cpu", "a protobuf message that holds no HLO module"),
        (b"\x00\x01\x02\x03", "binary data of an unknown kind"),
        (b"\x80\x04\x95\x10\0\0\0", "a Python pickle"),
    ],
)  # fmt: skip
def test_what_a_file_is_that_is_no_program(start: str | bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(start.encode() if isinstance(start, str) else start)
    with pytest.raises(ParseError, match=kind) as caught:
        hk.load(path)
    assert str(caught.value).startswith(f"{path}: found ") and "expected HLO or StableHLO text" in str(caught.value)


def test_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(3))
    with zipfile.ZipFile(tmp_path / "x.pyz", "w") as archive:
        archive.writestr("__main__.py", "1")
    for name, kind in (("x.npz", "an archive of NumPy arrays"), ("x.pyz", "a zip archive")):
        with pytest.raises(ParseError, match=kind):
            hk.load(tmp_path / name)


def test_names_tell_messages_apart(tmp_path: Path) -> None:
    for name, kind in (("compile_options.pb", "compile options"), ("m.topology.pb", "a topology"), ("x.pb", "module;")):
        (tmp_path / name).write_bytes(b"\x08\x01\x12\x03cpu")
        with pytest.raises(ParseError, match=kind):
            hk.load(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("module @m {\n  func.func @f() {\n    %0 = arith.constant 1 : index\n    scf.yield %0 : index\n  }\n}", ParseError, "dialect scf,"),
        ("module @m {\n  func.func @f() {\n    %0 = llvm.mlir.zero : i32\n    scf.yield %0 : i32\n  }\n}", ParseError, "dialects llvm, scf,"),
        ("module @m {\n  llvm.func @f() {\n  }\n}", ParseError, "dialect llvm,"),
        ("func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.nope %x : tensor<f32>\n  return %0 : tensor<f32>\n}", UnsupportedError, "nope"),
        ("func.func @main(%x: tensor<f32>) {\n  %0 = stablehlo.add %x\n  return\n}", ParseError, "line 2"),
        ("HloModule m\nENTRY e {\n  x = f32[2] nope(y)\n}", ParseError, "line 3"),
        ("define {\n  x = f32[2] parameter(0), nope=1\n}", ParseError, "line 2"),
        ("graph {\n}", ParseError, "has no instruction"),
    ],
)  # fmt: skip
def test_programs_with_errors_keep_their_errors(text: str, error: type[HlokitError], match: str) -> None:
    with pytest.raises(error, match=match):
        hk.parse(text)


# -- a whole folder of dumps


_PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
def f(w, x):
    y = jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), x)
    return jnp.sum(jax.nn.softmax(y)) + jnp.sort(x[0])[0]
jax.jit(jax.grad(f))(np.ones((4, 4), np.float32), np.ones((2, 4), np.float32)).block_until_ready()
"""
_FLAGS = (
    "--xla_dump_hlo_as_text --xla_dump_hlo_as_proto --xla_dump_hlo_as_html --xla_dump_hlo_as_dot --xla_dump_hlo_snapshots "
    "--xla_dump_hlo_pass_re=.* --xla_dump_hlo_as_long_text --xla_dump_emitter_re=.*"
)


_PROGRAMS = re.compile(r"module\.mlir|module_\d+\..*(\.txt|\.hlo\.pb(\.gz)?|\.snapshot\.-?\d+\.pb)")
_REPORTS = re.compile(r"_optimizations-(buffer-assignment|live-range|memory-usage-report)")


@pytest.mark.outside
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(_FLAGS, marks=pytest.mark.slow),
        "--xla_dump_compress_protos --xla_dump_hlo_as_proto --xla_dump_hlo_snapshots",
    ],
    ids=["all", "gzip"],
)
def test_every_file_of_a_dump_loads_or_says_what_it_is(flags: str, tmp_path: Path) -> None:
    environment = {**os.environ, "XLA_FLAGS": f"--xla_dump_to={tmp_path} {flags}", "JAX_PLATFORMS": "cpu"}
    # jaxlib sometimes aborts as it exits, when everything has been written
    subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, check=False, timeout=300, capture_output=True)
    counts = Counter[str]()
    for path in sorted(p for p in tmp_path.rglob("*") if p.is_file()):
        is_program = _PROGRAMS.fullmatch(path.name) is not None and not _REPORTS.search(path.name)
        try:
            hk.verify(hk.load(path))
            assert is_program, f"{path.name} was read as a program"
            counts["read"] += 1
        except (ParseError, UnsupportedError) as error:
            assert not is_program, f"{path.name}: {error}"
            assert "found " in str(error) and "expected HLO" in str(error), error
            counts["said"] += 1
    assert min(counts["read"], counts["said"]) >= 3


@pytest.mark.rule("HOP-5")
def test_later_spellings_of_the_order_of_a_comparison() -> None:
    """jaxlib 0.12 has `order=TOTAL`, and field 102 of the proto, where 0.10 has `type=TOTALORDER`: it was left out."""
    text = "HloModule m\nENTRY e { x = f32[2] parameter(0)\n y = f32[2] parameter(1)\n ROOT r = pred[2] compare(x, y), direction=LT, ORDER }"
    expected = hk.parse(text.replace("ORDER", "type=TOTALORDER"))
    assert str(hk.parse(text.replace("ORDER", "order=TOTAL"))) == str(expected)
    assert str(hk.parse(text.replace("ORDER", "order=PARTIAL"))) == str(hk.parse(text.replace(", ORDER", "")))
    assert str(hk.parse(text.replace("f32", "s32").replace("ORDER", "order=TOTAL"))) == str(hk.parse(text.replace("f32", "s32").replace(", ORDER", "")))
    proto = message_class("Module").FromString(module_to_proto(expected))
    instruction = proto.computations[0].instructions[2]
    instruction.comparison_type, instruction.comparison_order = "", "TOTAL"
    assert str(module_from_proto(proto.SerializeToString())) == str(expected)


@pytest.mark.rule("HINST-4")
def test_elements_of_tuples_in_the_place_of_operands() -> None:
    """jaxlib 0.12 prints a get-tuple-element without attributes of its own as `%t#0` where it is used."""
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  c = s32[] constant(1)
  t = (f32[2], s32[]) tuple(x, c)
  u = (s32[], (f32[2], s32[])) tuple(t#1, t)
  t_0 = f32[2] negate(f32[2] %t#0)
  ROOT r = f32[2] add(%u#1#0, t #0), metadata={op_name="t_0"}
}
"""
    module = hk.parse(text)
    elements = [(i.name, i.operands[0].name) for i in module.entry.instructions if i.opcode == "get-tuple-element"]
    assert [name for name, _ in elements[:2]] == ["t_1", "t_0"] and [of for _, of in elements] == ["t", "t", "u", "u_1"]
    assert str(hk.parse(str(module))) == str(module) and len(module.entry) == 10
    assert hk.evaluate(module, np.float32([1, 2])).tolist() == [2, 4]
    for operand, label in (("t#5", "GTE-"), ("x#0", "GTE-"), ("t#", "HINST-4"), ("t#-1", "HINST-4"), ("t#99999999999999999999", "HINST-4")):
        with pytest.raises(ParseError, match=rf"line 8.*\n.*\n.*|{label}") as caught:
            hk.parse(text.replace("%u#1#0", operand))
        assert label in str(caught.value)


@pytest.mark.parametrize(("dtype", "content", "codes"), [
    (hk.s4, [0x21, 0x0F], [1, 2, 0xFF]), (hk.u2, [0b11_01_10_00], [0, 2, 1]), (hk.f6e2m3fn, [0x08, 0x0C, 0x3F], [8, 12, 63]),
], ids=["s4", "u2", "f6e2m3fn"])  # fmt: skip
def test_serialized_arguments_of_types_narrower_than_a_byte(dtype: DType, content: list[int], codes: list[int]) -> None:
    """As many whole elements lie in a byte as have place: of six bits one."""
    proto = message_class("Shape")()
    shape_to_proto(dtype[3], proto)
    shape = proto.SerializeToString()
    data = len(shape).to_bytes(8, "little") + shape + bytes(content)
    assert value_of_serialized(memoryview(data)).view(np.uint8).tolist() == codes
    with pytest.raises(ParseError, match="takes"):
        value_of_serialized(memoryview(data + b"\0"))
