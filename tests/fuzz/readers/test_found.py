"""What the fuzzers of readers, and a look through the readers, found."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

import hlokit as hk
from hlokit.cpu.jit.cache import Cache, Key
from hlokit.cpu.target import host
from hlokit.errors import ArgumentError, HlokitError, ParseError, UnsupportedError
from hlokit.hlo.names import identifier
from hlokit.interop.pjrt import options
from hlokit.interop.pjrt.options import varint
from hlokit.proto.module import module_from_proto, module_to_proto
from hlokit.proto.schema import message_class
from hlokit.runtime.plan import plan_key
from tests.fuzz.readers import hlo_proto, hlo_text
from tests.golden.check import time_limit

IDENTITY = "func.func public @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"


def reads_back(module: hk.HloModule) -> None:
    hk.verify(module)
    assert str(hk.parse(str(module))) == str(module)


# -- names and strings


def test_errors_hold_no_control_characters() -> None:
    with pytest.raises(ParseError) as caught:
        hk.parse("HloModule m\x1b[2J\x9b\x07\u202e\ud800")
    assert "\u241b" in str(caught.value)
    assert not set(str(caught.value)) & {"\x1b", "\x9b", "\x07", "\u202e", "\ud800"}
    _, shown, caret = str(ParseError("bad", line=1, column=4, source_line="a\x1b\x9bc")).splitlines()
    assert (shown, caret) == ("  a\u241b\ufffdc", "     ^")
    for error in (UnsupportedError, ArgumentError, HlokitError, hk.EvaluationError):
        assert str(error("a\x1b[31m")) == "a\u241b[31m"
    assert str(hk.VerifyError(["a\x1b", "b"])) == "2 findings\n  a\u241b\n  b"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("main", "main"), ("jit(f)", "jit_f_"), ("0th", "_th"), ("f32", "f32_"), ("tuple", "tuple"), ("ROOT", "ROOT_"),
        ("", "_"), ("é", "_"), ("a\n}\nENTRY e {", "a___ENTRY_e__"), ("\x1b[2J", "__2J"), ("a.b-1_2", "a.b-1_2"),
    ],
)  # fmt: skip
def test_identifiers(name: str, expected: str) -> None:
    assert identifier(name) == expected
    reads_back(hk.parse(f"HloModule {expected}\nENTRY %{expected} {{ %{expected} = f32[] parameter(0) }}"))


def test_names_cannot_add_to_the_text() -> None:
    """A name with a line end in it was printed as it is: the text said another program, or none."""
    evil = "x\n}\n\nENTRY y {\n  p = f32[] parameter(0)"
    b = hk.Builder(evil)
    x = b.parameter(0, hk.f32[2], evil)
    module = b.build(hk.abs(x))
    reads_back(module)
    proto = message_class("Module")()
    proto.ParseFromString(module_to_proto(module))
    proto.name = proto.computations[0].name = proto.computations[0].instructions[0].name = evil
    reads_back(module_from_proto(proto.SerializeToString()))
    quoted = evil.replace("\n", "\\0A")
    reads_back(hk.parse(f'module @"{quoted}" {{ {IDENTITY.replace("@main", chr(64) + chr(34) + quoted + chr(34))} }}'))


def test_keys_and_names_of_attributes_cannot_add_to_the_text() -> None:
    module = hk.parse(
        'HloModule m, frontend_attributes={a="1"}\nENTRY e { x = f32[] parameter(0), statistics={visualizing_index=0,s=1} }'
    )
    proto = message_class("Module")()
    proto.ParseFromString(module_to_proto(module))
    proto.frontend_attributes.map.add(key='b/c\n"', value="2")
    proto.frontend_attributes.map.add(key="", value="{}")
    proto.computations[0].instructions[0].statistics_viz.statistics[0].stat_name = "a=1}\n"
    read = module_from_proto(proto.SerializeToString())
    reads_back(read)
    assert hk.parse(str(read)).frontend_attributes == {"a": "1", 'b/c\n"': "2", "": "{}"}


def test_a_name_of_bytes_that_are_no_text_compiles() -> None:
    module = hk.parse(f'module @"a\\FF" {{ {IDENTITY} }}')
    assert plan_key(module, host()).digest


def test_accuracies_of_protos_print_as_those_of_texts() -> None:
    text = "HloModule m\nENTRY e { x = f32[] parameter(0)\n ROOT r = f32[] exponential(x), result_accuracy={tolerance={atol=0,rtol=0.1,ulps=2}} }"
    module = hk.parse(text)
    again = module_from_proto(module_to_proto(module))
    assert "atol=0,rtol=0.1,ulps=2" in str(module) and "atol=0,rtol=0.1,ulps=2" in str(again)
    reads_back(again)


def test_a_channel_that_is_no_number() -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = [], type = 1>}> : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }"""
    with pytest.raises(ParseError, match="channel_handle is not an integer"):
        hk.parse(text)


@pytest.mark.parametrize("number", ["0x7FF0000000000000", "0xFFFFFFFFFFFFFFC0", "0x7FF8000000000000"])
@pytest.mark.parametrize("field", ["atol", "ulps"])
def test_an_accuracy_that_is_no_number(number: str, field: str) -> None:
    text = f"""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
      %0 = "stablehlo.exponential"(%x) <{{result_accuracy = #stablehlo.result_accuracy<{field} = {number} : f64,
        mode = #stablehlo.result_accuracy_mode<TOLERANCE>>}}> : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }}"""
    with pytest.raises(ParseError, match="not numbers"):
        hk.parse(text)


# -- numbers


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


@pytest.mark.parametrize(("replicas", "partitions"), [(1 << 62, 1), (1, 1 << 40), (1 << 31, 1 << 31), (5, 1)])
def test_options_for_more_devices_than_there_are(replicas: int, partitions: int) -> None:
    with time_limit(5), pytest.raises(ArgumentError, match="there are 4") as caught:
        options.parse(field(3, field(4, replicas) + field(5, partitions)), 4)
    assert len(str(caught.value)) < 200


SHARDED = """module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @main(%x: tensor<4xf32> {mhlo.sharding = "S"}) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "S"} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<2xf32>
    %2 = stablehlo.custom_call @SPMDShardToFullShape(%1) {mhlo.sharding = "S"} : (tensor<2xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}"""


@pytest.mark.parametrize(
    "sharding",
    [
        "{devices=[2]5,7}", "{devices=[2]0,99999999999}", "{devices=[1,2]0,5 last_tile_dims={manual}}",
        "{devices=[1073741824]<=[1073741824]}", "{devices=[2]<=[1,2]T(0,0)}",
    ],
)  # fmt: skip
def test_shardings_of_devices_that_do_not_exist(sharding: str) -> None:
    """The first are no permutation of the devices; to list those of the fourth takes 8 GB."""
    hk.verify(hk.parse(SHARDED.replace('"S"', '"{devices=[2]1,0}"')))
    with pytest.raises(ParseError):
        hk.parse(SHARDED.replace('"S"', f'"{sharding}"'))


def test_shardings_of_protos_are_checked() -> None:
    text = "HloModule m\nENTRY e { ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]} }"
    proto = message_class("Module")()
    proto.ParseFromString(module_to_proto(hk.parse(text)))
    sharding = proto.computations[0].instructions[0].sharding
    for sizes, order in (([2], [3]), ([-1, -2], [1, 0]), ([1, 2], [0, 0])):
        sharding.iota_reshape_dims[:], sharding.iota_transpose_perm[:] = sizes, order
        with pytest.raises(ParseError, match="HSHARD-2"):
            module_from_proto(proto.SerializeToString())
    with pytest.raises(ParseError, match="64 bits"):
        hk.parse(text.replace("[2]<=[2]", f"[{2**62},4]<=[{2**62},4]T(0,1)"))


def test_an_option_whose_double_is_none() -> None:
    entry = field(7, field(1, b"xla_cpu_x") + field(2, field(4, b"abc")))
    with pytest.raises(ParseError, match="double"):
        options.parse(entry, 4)


# -- the cache

KEY = Key.of("program", text="a" * 64)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    tmp_path.chmod(0o700)
    return Cache(tmp_path)


def place(cache: Cache, body: bytes) -> Path:
    assert cache.folder is not None
    path = cache.folder / KEY.file
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    return path


@pytest.mark.parametrize(
    "header",
    [b"", b"{}", b"[]", b"null", b"\xff", b"{", b'{"parts": 1}', b'{"parts": [[1]]}', b'{"parts": null}', b"[" * 10**5],
)
def test_entries_without_a_header_are_none(cache: Cache, header: bytes) -> None:
    place(cache, header + b"\nabc")
    assert cache.lookup(KEY) is None
    assert cache.entries() == []
    assert cache.store(KEY, b"code") == "" and cache.lookup(KEY) == b"code"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="users are POSIX's")
def test_only_own_plain_files_are_entries(cache: Cache, tmp_path: Path) -> None:
    assert cache.folder is not None
    assert cache.store(KEY, b"code") == ""
    path = cache.folder / KEY.file
    path.chmod(0o666)
    assert cache.lookup(KEY) is None
    path.chmod(0o600)
    assert cache.lookup(KEY) == b"code"
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert cache.lookup(KEY) is None
    path.unlink()
    os.mkfifo(path)
    with time_limit(5):  # to open a pipe that nobody writes to would wait for ever
        assert cache.lookup(KEY) is None and cache.entries() == []
    path.unlink()
    elsewhere.rename(path)
    assert cache.lookup(KEY) == b"code"
    cache.folder.chmod(0o770)
    assert cache.lookup(KEY) is None and "other users" in cache.store(KEY, b"x")
    cache.folder.chmod(0o700)
    if os.getuid() == 0:
        os.chown(path, 12345, 12345)
        assert cache.lookup(KEY) is None


def test_folders_and_entries_are_the_users_own(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "a" / "cache")
        assert cache.store(KEY, b"code") == "" and cache.folder is not None
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((cache.folder / KEY.file).stat().st_mode) == 0o600


def test_clearing_takes_what_killed_writers_left(cache: Cache) -> None:
    assert cache.folder is not None
    assert cache.store(KEY, b"code") == ""
    (cache.folder / ".abc.part").write_bytes(b"half")
    assert cache.clear() == 1
    assert list(cache.folder.iterdir()) == []


def test_lists_of_objects_that_are_none(cache: Cache) -> None:
    from hlokit.cpu.jit.cache import stored_objects

    for payload in (b"", b"[1]\nab", b"[-1, 3]\nab", b"{}\n", b'["x"]\nab', b"[[1]]\na", b"null\n"):
        cache.store(KEY, payload)
        assert not stored_objects(KEY, cache=cache)
    cache.store(KEY, json.dumps([1, 2]).encode() + b"\nabc")
    assert [bytes(code) for code in stored_objects(KEY, cache=cache) or ()] == [b"a", b"bc"]


# -- files and terminals


def test_names_of_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name leads out of the folder, or is longer than a file's may be."""
    from hlokit.runtime.dump import Dump, Settings

    for name in ("../../up", "/etc/x", "a" * 5000, "\x1b[2J\n", "é" * 300, "..", ""):
        Dump(Settings(folder=str(tmp_path / "dump")), name).write("txt", "content")
    files = list((tmp_path / "dump").iterdir())
    assert len(files) == 7 and list(tmp_path.iterdir()) == [tmp_path / "dump"]
    assert all(path.name.isascii() and path.read_text() == "content" for path in files)


def test_printing_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hlokit.tools.print import print_module

    path = tmp_path / "m.hlo"
    path.write_text(
        f'/*{" " * 600}*/\nHloModule m\nENTRY e {{ ROOT x = f32[] parameter(0), backend_config={{"a":"\x1b[2J"}} }}'
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_module(path)
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\u241b[2J" in said


# -- text that XLA prints and reads otherwise


def test_what_is_read_otherwise_than_it_is_printed_is_settled_once() -> None:
    """A sharding of one kind of devices that is left (HSHARD-8), and element sizes of constants (HLAY-8)."""
    sharding = "{devices=[1,1,3,1]<=[3] last_tile_dims={unreduced,replicated}}"
    text = f"HloModule m\nENTRY e {{ ROOT p = f32[8,8] parameter(0), sharding={sharding} }}"
    assert hlo_text.check(text.encode()) == "read"
    module = hk.parse("HloModule m\nENTRY e { ROOT c = s4[2] constant({1, 2}) }")
    proto = message_class("Module")()
    proto.ParseFromString(module_to_proto(module))
    for computation in proto.computations:
        computation.instructions[0].shape.layout.element_size_in_bits = 4
    assert hlo_proto.check(proto.SerializeToString(deterministic=True)) == "read"


@pytest.mark.parametrize("value", ["3", "{}", "{3}", "{{1}, {2}}"])
def test_an_array_of_unknown_size_has_no_value(value: str) -> None:
    shape = "f32[2,?]" if value.startswith("{{") else "f32[?]"
    with pytest.raises(ParseError, match="no literal has the shape") as caught:
        hk.parse(f"HloModule m\nENTRY e {{ ROOT c = {shape} constant({value}) }}")
    assert caught.value.label == "HLIT-1"


def test_names_of_a_proto_are_unique() -> None:
    module = hk.parse("HloModule m\nf { p = f32[] parameter(0) }\nENTRY e { q = f32[] parameter(0) }")
    proto = message_class("Module")()
    proto.ParseFromString(module_to_proto(module))
    for computation in proto.computations:
        computation.name = "f"
        computation.instructions[0].name = "p.1"
    data = proto.SerializeToString(deterministic=True)
    read = module_from_proto(data)
    assert len({i.name for i in read.instructions()}) == 2
    assert len({computation.name for computation in read.all_computations}) == 2
    assert hlo_proto.check(data) == "read"
