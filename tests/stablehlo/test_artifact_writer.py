"""Portable artifacts that hlokit writes: read back as what was written, by hlokit and by jaxlib, for every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.compare import same_module
from hlokit.stablehlo.artifact.container import read_container
from hlokit.stablehlo.artifact.cursor import Cursor
from hlokit.stablehlo.artifact.entries import Positions
from hlokit.stablehlo.artifact.reader import read_program as read_program_of
from hlokit.stablehlo.artifact.tables import signed, varint
from hlokit.stablehlo.tree import OtherType
from hlokit.tools.main import main
from tests.golden.programs import BUNDLED, program_names, read_program
from tests.stablehlo.make_artifacts import NEWER_ARTIFACTS, recorded
from tests.stablehlo.test_ops import FORMS, without_metadata

VERSIONS = (
    *(f"0.{minor}.0" for minor in (9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)),
    *(f"1.{minor}.0" for minor in range(23)),
)
FEW = ("0.9.0", "0.12.0", "0.14.0", "1.0.0", "1.11.0", "1.17.0", "1.20.0")
"""One of each version of the bytecode, and what the versions of operations make different."""
TEXTS = [record["text"] for record in recorded()]


def written(text: str, version: str) -> bytes | None:
    """The artifact; None for what the version lacks, of which the error must say so."""
    try:
        return hk.to_stablehlo_artifact(text, version)
    except hk.UnsupportedError as error:
        assert f"and later, the target is {version}" in str(error)
        assert version not in ("1.17.0", "1.20.0", "1.22.0")
        return None


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_what_is_written_is_read(text: str) -> None:
    """In the generic form; with the names and lines of locations."""
    expected = str(hk.parse(text))
    for version in ("0.9.0", "1.0.0", "1.22.0"):
        data = written(text, version)
        if data is not None:
            assert str(hk.parse(data)) == expected or same_module(
                without_metadata(text), without_metadata(data), names=False
            ) is None  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=range(len(FORMS)))
def test_forms(form: dict[str, Any]) -> None:
    """The pretty form gives the artifact of the generic one."""
    for version in ("0.12.0", "1.17.0"):
        found = [
            without_metadata(data) for kind in ("pretty", "generic") if (data := written(form[kind], version))
        ]  # fmt: skip
        assert len(found) in (0, 2)
        if found:
            assert same_module(*found, names=False) is None


def test_every_version_is_one_of_its_bytecode() -> None:
    text = 'module @m { func.func @main(%x: tensor<2xf32> loc("x")) -> tensor<2xf32> { return %x : tensor<2xf32> } }'
    formats: dict[int, list[str]] = {}
    for version in VERSIONS:
        container = read_container(hk.to_stablehlo_artifact(text, version))
        assert container.producer == f"StableHLO_v{version}"
        formats.setdefault(container.version, []).append(version)
    assert {number: found[0] for number, found in formats.items()} == {
        0: "0.9.0", 1: "0.10.0", 3: "0.12.0", 4: "0.14.0", 6: "0.15.0",
    }  # fmt: skip


@pytest.mark.parametrize("record", recorded(NEWER_ARTIFACTS), ids=range(len(recorded(NEWER_ARTIFACTS))))
def test_newer_versions(record: dict[str, Any]) -> None:
    """What a jaxlib of 2026 wrote, and what is written here, are the text's module."""
    expected = without_metadata(record["text"])
    assert record["artifacts"]
    for version, data in record["artifacts"].items():
        assert same_module(without_metadata(data), expected, names=False) is None
        if version == "plain":
            continue
        ours = hk.to_stablehlo_artifact(record["text"], version)
        assert same_module(without_metadata(ours), expected, names=False) is None
        assert {*read_container(ours).names} == {*read_container(data).names}


@pytest.mark.parametrize(
    "operation",
    [
        "stablehlo.transpose %x, dims = tensor<f32> : (tensor<2xf32>) -> tensor<2xf32>",
        "stablehlo.convolution(%x, %x) dim_numbers = [f]x[o]->[b] : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        "stablehlo.add %x, %y : tensor<2xf32>",
        "stablehlo.add %x, %x",
    ],
)
def test_what_is_not_an_operation_is_refused(operation: str) -> None:
    with pytest.raises((hk.ParseError, hk.UnsupportedError), match="line 2"):
        hk.to_stablehlo_artifact(f"func.func @main(%x: tensor<2xf32>) {{\n  %0 = {operation}\n  return\n}}")


LACKING = [
    ("tan", "stablehlo.tan %x : tensor<2xf32>", "1.3.0", "1.4.0", "the operation"),
    ("f4", "stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf4E2M1FN>", "1.7.0", "1.8.0", "the type f4e2m1fn"),
    ("i2", "stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xi2>", "1.1.0", "1.2.0", "the type i2"),
    (
        "accuracy",
        "stablehlo.exponential %x {result_accuracy = #stablehlo.result_accuracy<ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<2xf32>",
        "1.8.0",
        "1.9.0",
        "the attribute result_accuracy",
    ),
    (
        "configuration",
        "stablehlo.custom_call @f(%x) {api_version = 4 : i32, backend_config = {a = 1 : i32}} : (tensor<2xf32>) -> tensor<2xf32>",
        "1.2.0",
        "1.3.0",
        "a backend_config that is a dictionary",
    ),
    ("chlo", "chlo.erf %x : tensor<2xf32> -> tensor<2xf32>", "1.10.0", "1.11.0", "an operation of another dialect"),
]


@pytest.mark.parametrize(("name", "operation", "old", "first", "what"), LACKING, ids=[case[0] for case in LACKING])
def test_what_a_version_lacks(name: str, operation: str, old: str, first: str, what: str) -> None:
    text = f"func.func @main(%x: tensor<2xf32>) {{\n  %0 = {operation}\n  return\n}}"
    with pytest.raises(
        hk.UnsupportedError, match=rf"line 2: .*: {what} is of StableHLO {first} and later, the target is {old}"
    ):
        hk.to_stablehlo_artifact(text, old)
    assert same_module(hk.parse(hk.to_stablehlo_artifact(text, first)), hk.parse(text), names=False) is None


def test_several_operands_of_a_collective() -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0:2 = "stablehlo.all_gather"(%x, %x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}"""
    with pytest.raises(hk.UnsupportedError, match=r"the form with 2 operands is of StableHLO 1\.5\.0"):
        hk.to_stablehlo_artifact(text, "1.4.0")


def test_regions_of_a_composite() -> None:
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.composite"(%x) <{name = "a.b", decomposition = @d}> ({
  ^bb0(%y: tensor<f32>): stablehlo.return %y : tensor<f32> }) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @d(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"""
    with pytest.raises(hk.UnsupportedError, match=r"the form with regions is of StableHLO 1\.14\.0"):
        hk.to_stablehlo_artifact(text, "1.13.0")
    program = read_program_of(hk.to_stablehlo_artifact(text, "1.14.0"), Positions())
    (composite, _) = program.functions["main"].body.operations  # type: ignore[union-attr]
    assert composite.name == "stablehlo.composite" and len(composite.regions) == 1


def test_buffers() -> None:
    text = """func.func @main(%x: memref<2xf32>) -> memref<2xf32> {
  %0 = stablehlo.custom_call @f(%x) : (memref<2xf32>) -> memref<2xf32>
  return %0 : memref<2xf32>
}"""
    with pytest.raises(hk.UnsupportedError, match=r"memref<2xf32> is of StableHLO 1\.13\.0"):
        hk.to_stablehlo_artifact(text, "1.12.0")
    program = read_program_of(hk.to_stablehlo_artifact(text, "1.13.0"), Positions())
    assert program.functions["main"].results == [OtherType("memref<2xf32>")]


@pytest.mark.parametrize("version", ["1.23.0", "2.0.0", "0.8.0", "1.17", "", "newest"])
def test_versions_that_are_none(version: str) -> None:
    with pytest.raises(hk.ArgumentError, match="version"):
        hk.to_stablehlo_artifact(TEXTS[0], version)


def test_integers() -> None:
    for value in (0, 1, 127, 128, 2**14 - 1, 2**14, 2**56 - 1, 2**56, 2**64 - 1):
        assert Cursor(varint(value)).varint() == value
    for value in (0, -1, 1, 63, 64, -64, -65, 2**62, -(2**63), 2**63 - 1):
        assert Cursor(signed(value)).signed() == value


def test_a_module_that_was_built() -> None:
    b = hk.Builder("softmax")
    x = b.parameter(0, hk.f32[2, 4], "x")
    e = hk.exp(hk.sub(x, hk.reduce(x, b.constant(-np.inf, hk.f32), hk.max, [1]), [0]))
    module = b.build(hk.div(e, hk.reduce(e, b.constant(0.0), hk.add, [1]), [0]))
    data = hk.to_stablehlo_artifact(module)
    assert data == hk.to_stablehlo_artifact(module)
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.array_equal(hk.evaluate(hk.parse(data), values), hk.evaluate(module, values))


def test_sizes_may_be_open() -> None:
    text = "func.func @main(%x: tensor<?x3xf32>) -> tensor<?x3xf32> { %0 = stablehlo.add %x, %x : tensor<?x3xf32> return %0 : tensor<?x3xf32> }"
    read = hk.parse(hk.to_stablehlo_artifact(text), arguments=[hk.f32[2, 3]])
    assert hk.evaluate(read, np.ones((2, 3), np.float32)).tolist() == [[2.0] * 3] * 2


def command(*arguments: object) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code in (0, None)


def test_the_command(tmp_path: Path) -> None:
    source, target, back = tmp_path / "x.mlir", tmp_path / "x.mlirbc", tmp_path / "x.hlo"
    source.write_text(TEXTS[0])
    command("convert", source, target, "--version", "1.0.0")
    assert read_container(target.read_bytes()).producer == "StableHLO_v1.0.0"
    command("convert", target, back)
    assert same_module(hk.load(back), hk.parse(TEXTS[0]), names=False) is None
    command("convert", back, target)
    assert same_module(hk.load(target), hk.parse(TEXTS[0]), names=False) is None


def read_by_jaxlib(text: str, version: str) -> tuple[str, str]:
    """The module as jaxlib prints it: of the text, and of hlokit's artifact; of jaxlib's own artifact, if it makes one."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with make_ir_context() as context, ir.Location.unknown():
        module = ir.Module.parse(text)
        expected = str(module)
        try:
            theirs = stablehlo.serialize_portable_artifact(module, version, True)
            expected = str(stablehlo.deserialize_portable_artifact(context, theirs))
        except ValueError:
            pass
        return expected, str(stablehlo.deserialize_portable_artifact(context, hk.to_stablehlo_artifact(text, version)))


def test_jaxlib_reads_it() -> None:
    pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = next(text for text in TEXTS if "stablehlo.convolution" in text)
    for version in ("0.9.0", "0.14.0", "1.17.0"):
        expected, found = read_by_jaxlib(text, version)
        assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", program_names(BUNDLED))
def test_jaxlib_reads_programs(name: str) -> None:
    """For each version that has the program's operations."""
    pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = read_program(BUNDLED, name, stablehlo=True).hlo
    count = 0
    for version in FEW[:-1]:
        if written(text, version) is not None:
            expected, found = read_by_jaxlib(text, version)
            assert found == expected
            count += 1
    assert count
