"""Portable artifacts: what jaxlib wrote is read as the module that its text is; what is broken is refused."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import ParseError, UnsupportedError
from hlokit.hlo.compare import same_module
from hlokit.stablehlo.artifact import parse_artifact
from hlokit.stablehlo.artifact.cursor import Cursor
from tests.golden.programs import BUNDLED, program_names, read_program
from tests.stablehlo.make_artifacts import recorded
from tests.stablehlo.test_ops import without_metadata

RECORDED = recorded()
CHOLESKY = next(r for r in RECORDED if "lapack_spotrf_ffi" in r["text"])["artifacts"]
SHARDED = next(r for r in RECORDED if "sdy.manual_computation" in r["text"])["artifacts"]


@pytest.mark.parametrize("record", RECORDED, ids=range(len(RECORDED)))
def test_the_module_is_the_text_s(record: dict[str, Any]) -> None:
    for data in record["artifacts"].values():
        if "loc(" in record["text"]:
            assert str(hk.parse(data)) == str(hk.parse(record["text"]))
        else:
            difference = same_module(without_metadata(record["text"]), without_metadata(data), names=False)
            assert difference is None


def test_versions_and_forms() -> None:
    versions = {version for record in RECORDED for version in record["artifacts"]}
    assert {"0.9.0", "1.17.0", "plain"} <= versions
    assert len(RECORDED) > 150


@pytest.mark.slow
@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_programs(name: str) -> None:
    """Written here by jaxlib, for each version that has the program's operations."""
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    text = read_program(BUNDLED, name, stablehlo=True).hlo
    expected = without_metadata(text)
    found = 0
    with make_ir_context(), ir.Location.unknown():
        for version in ("0.9.0", "0.19.0", "1.0.0", "1.8.0", stablehlo.get_current_version()):
            try:
                data = stablehlo.serialize_portable_artifact(ir.Module.parse(text), version, True)
            except ValueError:
                continue
            found += 1
            assert same_module(expected, without_metadata(data), names=False) is None
    assert found


def test_values(tmp_path: Path) -> None:
    """A file is told from others by its content, and runs."""
    (tmp_path / "a").write_bytes(CHOLESKY["plain"])
    module = hk.load(tmp_path / "a")
    assert module.name == hk.parse(CHOLESKY["1.17.0"]).name
    reduction = next(r for r in RECORDED if "stablehlo.einsum" in r["text"])["artifacts"]["1.17.0"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(hk.evaluate(hk.parse(reduction), x), x @ x.T)


@pytest.mark.parametrize(
    "data", [CHOLESKY["0.9.0"], CHOLESKY["1.17.0"], SHARDED["plain"]], ids=["0.9", "1.17", "plain"]
)
def test_every_beginning_is_refused(data: bytes) -> None:
    """With the number of a byte."""
    for end in range(4, len(data)):
        with pytest.raises(ParseError, match=r"byte [0-9]+: "):
            parse_artifact(data[:end])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ((b"ML\xefR\x0d", b"ML\xefR\x11"), UnsupportedError, "MLIR bytecode of version 8"),
        ((b"custom_call_v1\0", b"custom_call_v7\0"), UnsupportedError, "vhlo.custom_call_v7"),
        ((b"custom_call_v1\0", b"custom_cake_v1\0"), UnsupportedError, "vhlo.custom_cake_v1: what its properties are"),
        ((b"builtin\0", b"builtim\0"), UnsupportedError, "dialect builtim"),
    ],
)
def test_named_errors(change: tuple[bytes, bytes], error: type[Exception], message: str) -> None:
    data = CHOLESKY["1.17.0"]
    assert change[0] in data
    with pytest.raises(error, match=re.escape(message)):
        parse_artifact(data.replace(*change, 1))


def test_the_entry_may_have_any_name() -> None:
    assert parse_artifact(CHOLESKY["1.17.0"].replace(b"\0main\0", b"\0mine\0", 1)).entry.name == "mine"


def test_integers() -> None:
    """As many bytes as the zero bits at the low end say."""
    for value in (0, 1, 127, 128, 2**14 - 1, 2**14, 2**35, 2**56 - 1, 2**56, 2**64 - 1):
        length = max(1, -(-value.bit_length() // 7))
        data = (
            b"\0" + value.to_bytes(8, "little")
            if length > 8
            else ((value << length) | (1 << (length - 1))).to_bytes(length, "little")
        )
        assert Cursor(data).varint() == value
        assert Cursor(data * 3).varints(3) == [value] * 3
        with pytest.raises(IndexError):
            Cursor(data[:-1]).varint()
    assert [Cursor(bytes([2 * code + 1])).signed() for code in range(5)] == [0, -1, 1, -2, 2]


# -- what no writer makes


def number(value: int) -> bytes:
    length = max(1, -(-value.bit_length() // 7))
    return ((value << length) | (1 << (length - 1))).to_bytes(length, "little")


def numbers(*values: int) -> bytes:
    return b"".join(map(number, values))


def section(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + number(len(data)) + data


def bytecode(attributes: list[bytes], operations: bytes) -> bytes:
    """Version 1 of the format: a module whose attributes are attribute 0; attribute 1 is an unknown place, 2 "n"."""
    strings = [b"builtin\0", b"module\0", b"n\0"]
    entries = [*attributes[:1], numbers(15), numbers(2, 2), *attributes[1:]]
    return b"".join(
        (
            b"ML\xefR" + number(1) + b"test\0",
            section(0, numbers(len(strings), *map(len, reversed(strings))) + b"".join(strings)),
            section(1, numbers(1, 0) + numbers(0, 1, 1)),
            section(2, b"".join(entries)),
            section(3, numbers(len(entries), 0) + numbers(0, len(entries), *(len(e) << 1 | 1 for e in entries))),
            section(4, operations),
        )
    )


MODULE = number(1 << 1) + number(0) + b"\x11" + numbers(1, 0)  # a block of one operation: attributes, regions
EMPTY = MODULE + numbers(1 << 1 | 1, 0)


def pairs(*indices: int) -> bytes:
    """A dictionary {n = attribute}."""
    return numbers(1, len(indices)) + b"".join(numbers(2, index) for index in indices)


DEEP = [pairs(3), *(numbers(0, 1, i) for i in range(4, 200)), numbers(0, 0)]
CALLS = [pairs(3), *(numbers(10, 1, i) for i in range(4, 10_003)), numbers(15)]  # callee, caller
NAMES = [pairs(3), *(numbers(14, 2, i) for i in range(4, 10_003)), numbers(15)]
FUSED = [pairs(3), *(numbers(12, 2, i, 1) for i in range(4, 10_003)), numbers(15)]
DOUBLED = [pairs(3), *(numbers(0, 2, i, i) for i in range(4, 40)), numbers(0, 0)]


def test_call_stacks_of_many_operations_are_small() -> None:
    """1,000 operations, each at the end of a stack of 5,000 frames: the stack is there once."""
    mlir, stablehlo = pytest.importorskip("jaxlib.mlir.ir"), pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    from jax._src.interpreters.mlir import make_ir_context

    text = "func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }"
    with make_ir_context():
        module = mlir.Module.parse(text)
        block = module.body.operations[0].regions[0].blocks[0]
        stack = mlir.Location.unknown()
        for i in range(5_000):
            stack = mlir.Location.callsite(mlir.Location.name(f"f{i}"), [stack])
        value = block.arguments[0]
        with mlir.InsertionPoint.at_block_begin(block):
            for i in range(1_000):
                frame = mlir.Location.file("a.py", i + 1, 1)
                value = stablehlo.add(value, value, loc=mlir.Location.name(f"n{i}", mlir.Location.callsite(frame, [stack])))
        block.operations[len(block.operations) - 1].operands[0] = value
        file = io.BytesIO()
        module.operation.write_bytecode(file)
    last = parse_artifact(file.getvalue()).entry.root.extra
    assert (last.metadata.op_name, last.metadata.source_file, last.metadata.source_line) == ("n999", "a.py", 1000)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytecode([pairs()], EMPTY), "no function is called main"),
        (bytecode([pairs(0)], EMPTY), "attribute 0 holds itself"),
        (bytecode([pairs(3), numbers(0, 1, 3)], EMPTY), "attribute 3 holds itself"),
        (bytecode([pairs(9)], EMPTY), "attribute 9 of 3"),
        (bytecode(DEEP, EMPTY), "nested more than 64 deep"),
        (bytecode(DOUBLED, EMPTY), "parts in all"),
        (bytecode(CALLS, EMPTY), "no function is called main"),
        (bytecode(NAMES, EMPTY), "no function is called main"),
        (bytecode(FUSED, EMPTY), "no function is called main"),
        (bytecode([pairs(3), numbers(10, 4, 1), numbers(14, 2, 3)], EMPTY), "attribute 3 holds itself"),
        (bytecode([pairs(3), numbers(10, 1, 2)], EMPTY), "a location that is none"),
        (bytecode([pairs(3), numbers(10, 1, 4), numbers(15, 7)], EMPTY), "1 bytes too many"),
        (bytecode([pairs(3), numbers(10, 1, 4), numbers(14, 2)], EMPTY), "ends too early"),
        (bytecode([pairs(3), numbers(10, 1, 99)], EMPTY), "attribute 99 of 4"),
        (bytecode([numbers(2, 2)], EMPTY), "not a dictionary"),
        (bytecode([pairs() + b"\x01"], EMPTY), "1 bytes too many"),
        (bytecode([pairs()], MODULE + numbers(1 << 1 | 1, 1, 1 << 60, 0)), "a region of 0 values"),
        (bytecode([pairs()], MODULE + numbers(1 << 1 | 1, 1, 0, 1 << 60)), "ends too early"),
        (bytecode([pairs()], (MODULE + numbers(1 << 1 | 1, 1, 0)) * 100), "nested more than 64 deep"),
        (bytecode([pairs()], EMPTY + b"\x01"), "1 bytes after the module"),
        (bytecode([numbers(1, 1 << 62)], EMPTY), "ends too early"),
    ],
)
def test_what_no_writer_makes(data: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_artifact(data)
