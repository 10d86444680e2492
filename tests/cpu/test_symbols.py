"""What machine code needs of its surroundings: C's memory functions, whatever the op, the type and the target."""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.target import BASELINES, Target, baseline, parse
from hlokit.errors import HlokitError, UnsupportedError
from hlokit.hlo.module import HloModule
from hlokit.judge.fuzz.graph import RECIPES, Options
from hlokit.judge.fuzz.programs import random_draw

MEMORY = {"memcpy", "memmove", "memset"}
TYPES = ("f16", "f32", "f64", "bf16", "c64", "c128", "s8", "s32", "s64", "u64", "f8e4m3fn", "f8e5m2", "pred", "s4")
AVX = "x86-64,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx"
"""As processors before F16C, FMA and AVX2."""
TARGETS = [*BASELINES, AVX]


def allowed(target: Target) -> set[str]:
    """What docs/machine_code.md names."""
    has_fma = target.arch == "aarch64" or target.has("fma")
    return MEMORY if has_fma else MEMORY | {"fma"}


def elf_target(name: str) -> Target:
    target = parse(name)
    return replace(target, triple=f"{target.arch}-unknown-linux-gnu")


def undefined(data: bytes) -> set[str]:
    """The names of symbols that an ELF object of 64 bits does not define."""
    assert data[:5] == b"\x7fELF\x02"
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + k * size) for k in range(count)]
    found: set[str] = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if name and section == 0:
                found.add(data[names + name : data.index(b"\0", names + name)].decode())
    return found


def programs(types: tuple[str, ...]) -> Iterator[tuple[str, HloModule]]:
    """One program of each op that can be drawn, of one type."""
    for number, opcode in enumerate(RECIPES):
        element = types[number % len(types)]
        options = Options(2, frozenset([opcode]), types=(element,), dynamic=False)
        for seed in range(number, number + 3):
            try:
                module = random_draw(seed, options).module
            except (HlokitError, IndexError):  # the op does not take the type
                continue
            if any(i.opcode == opcode for i in module.instructions()):
                yield f"{opcode} of {element}", module
                break


def check(types: tuple[str, ...], target: Target, folder: Path) -> int:
    wrong, count = dict[str, set[str]](), 0
    for name, module in programs(types):
        try:
            object, _ = hk.export_object(module, target, folder / "m.o")
        except UnsupportedError:  # it needs Python
            continue
        count += 1
        if beyond := undefined(object.read_bytes()) - allowed(target):
            wrong[name] = beyond
    assert not wrong
    return count


@pytest.mark.parametrize("target", TARGETS)
def test_objects_need_what_is_documented(target: str, tmp_path: Path) -> None:
    assert check(("f32", "f16", "f64", "bf16", "s32", "c64", "u64"), elf_target(target), tmp_path) > 50


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type", TYPES)
def test_objects_of_every_type(type: str, target: str, tmp_path: Path) -> None:
    assert check((type,), elf_target(target), tmp_path) > 20


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("result", ["f16", "f32", "f64"])
@pytest.mark.parametrize("operand", ["f16", "f32", "f64"])
def test_objects_of_products_of_mixed_types(operand: str, result: str, target: str, tmp_path: Path) -> None:
    module = hk.parse(f"""HloModule m
        ENTRY e {{ x = {operand}[5,9] parameter(0)
          y = {operand}[9,7] parameter(1)
          s = f16[1,3] parameter(2)
          z = {operand}[7,9] parameter(3)
          d = {result}[5,7] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
          c = {result}[5,7] scaled-dot(x, z, s, s), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
          v = {result}[5,9] convert(x)
          ROOT t = ({result}[5,7], {result}[5,7], {result}[5,9]) tuple(d, c, v) }}""")
    object, _ = hk.export_object(module, elf_target(target), tmp_path / "m.o")
    assert undefined(object.read_bytes()) <= MEMORY


needs_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 processor")


def converted(x: np.ndarray, source: str, result: str) -> np.ndarray:
    text = f"HloModule m\nENTRY e {{ x = {source}[{x.size}] parameter(0)\n ROOT r = {result}[{x.size}] convert(x) }}"
    return hk.compile(hk.parse(text), target=baseline("x86-64"))(x)


@needs_x86
@pytest.mark.parametrize("count", [1, 7, 65536])
def test_f16_without_instructions_for_it(count: int) -> None:
    """All numbers of f16, numbers half way between two, and their neighbours: scalars, short and long vectors."""
    half = np.arange(65536, dtype=np.uint16).view(np.float16)
    for x in (half[-count:], half[:count], half[0x7C00 - count // 2 :][:count]):
        wide = converted(x, "f16", "f32")
        np.testing.assert_array_equal(wide, x.astype(np.float32))
        np.testing.assert_array_equal(np.signbit(wide), np.signbit(x))
    finite = np.sort(half[np.isfinite(half)].astype(np.float32))
    middle = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    last = np.float32([65519.99, 65520, 1e30, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 2**-25, 2**-24, -(2**-26)])
    x = np.concatenate([finite, middle, *beside, last])[-count - len(last) :]
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    narrow = converted(x, "f32", "f16")
    np.testing.assert_array_equal(narrow, expected)
    np.testing.assert_array_equal(np.signbit(narrow), np.signbit(expected))


@needs_x86
@pytest.mark.parametrize("opcode", ["floor", "ceil", "round-nearest-even", "round-nearest-afz"])
@pytest.mark.parametrize("type", ["f32", "f64"])
def test_rounding_without_instructions_for_it(type: str, opcode: str) -> None:
    whole = 2.0 ** {"f32": 23, "f64": 52}[type]
    x = np.array([0, 0.3, 0.5, 0.7, 1, 1.5, 2.5, 0.49999997, whole / 2 - 0.5, whole - 0.5, whole, 3 * whole, np.inf])
    x = np.concatenate([x, -x, [np.nan]]).astype({"f32": np.float32, "f64": np.float64}[type])
    text = f"HloModule m\nENTRY e {{ x = {type}[{x.size}] parameter(0)\n ROOT r = {type}[{x.size}] {opcode}(x) }}"
    module = hk.parse(text)
    got, expected = hk.compile(module, target=baseline("x86-64"))(x), hk.evaluate(module, x)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
