"""Random call frames: what the handler Describe says of each is compared with what the program says.

python -m tests.ffi.fuzz [seconds] [seed]
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.types.dtype import DTYPES, DType
from tests.ffi import build

KINDS = [dtype for dtype in DTYPES.values() if dtype.bits]
_MLIR = {
    "pred": "i1", "f8e3m4": "f8E3M4", "f8e4m3": "f8E4M3", "f8e4m3b11fnuz": "f8E4M3B11FNUZ", "f8e4m3fn": "f8E4M3FN",
    "f8e4m3fnuz": "f8E4M3FNUZ", "f8e5m2": "f8E5M2", "f8e5m2fnuz": "f8E5M2FNUZ", "f8e8m0fnu": "f8E8M0FNU",
    "f4e2m1fn": "f4E2M1FN", "c64": "complex<f32>", "c128": "complex<f64>",
}  # fmt: skip


def differences(seed: int, count: int = 10**9, seconds: float = 10**9) -> list[str]:
    """What differs in so many random frames, or in those of so many seconds."""
    hk.register_ffi_target("fuzzed", build.load("handlers.c").Describe, replace=True)
    found: list[str] = []
    end = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > end:
            break
        difference = _one(random.Random(f"{seed} {number}"))
        found += [f"seed {seed}, frame {number}: {difference}"] if difference else []
    hk.unregister_custom_call("fuzzed")
    return found


def _one(rng: random.Random) -> str:
    shapes = [_shape(rng) for _ in range(rng.randrange(5))]
    values = [_value(rng, shape) for shape in shapes]
    results = [_shape(rng) for _ in range(rng.randrange(3))] + [s.with_layout(None) for s in shapes[: rng.randrange(3)]]
    config, expected_attributes = _dictionary(rng, 0)
    b = hk.Builder("fuzz")
    parameters = [b.parameter(i, shape.with_layout(None)) for i, shape in enumerate(shapes)]
    shape = hk.Shape.tuple([hk.u8[200_000], *results])
    call = hk.custom_call_with_layout(
        b, "fuzzed", parameters, shape, shapes, config, api_version="API_VERSION_TYPED_FFI"
    )
    module = b.build(call)
    runs = [hk.evaluate] if rng.random() < 0.8 else [hk.evaluate, lambda m, *a: hk.compile(m)(*a)]
    memories = [_memory(value, shape) for value, shape in zip(values, shapes, strict=True)]
    expected = [_line("arg", s, data.hex()) for s, data in zip(shapes, memories, strict=True)]
    expected += [_line("ret", s, "") for s in results] + expected_attributes
    for run in runs:
        text, *copies = run(module, *values)
        said = bytes(text).rstrip(b"\0").decode().splitlines()
        if said != expected:
            wrong = next(((a, b) for a, b in zip(said, expected) if a != b), (len(said), len(expected)))
            return f"{config}: found {wrong[0]!r:.200}, expected {wrong[1]!r:.200}"
        for copy, result in zip(copies, results, strict=True):
            wanted = _copied(result, shapes, memories)
            if _memory(copy, result) != wanted:
                return f"{result}: found {_memory(copy, result).hex():.200}, expected {wanted.hex():.200}"
    return ""


def _copied(result: hk.Shape, shapes: list[hk.Shape], memories: list[bytes]) -> bytes:
    """Describe copies the first operand of the type and with as many bytes."""
    size = _counted(result)
    for shape, memory in zip(shapes, memories, strict=True):
        if shape.dtype is result.dtype and _counted(shape) == size:
            return memory
    return bytes(size)


def _counted(shape: hk.Shape) -> int:
    return shape.size * max(1, shape.dtype.bits // 8)


def _line(kind: str, shape: hk.Shape, data: str) -> str:
    return f"{kind} {shape.dtype.number} [{','.join(map(str, shape.dimensions))}] {data}"


def _shape(rng: random.Random) -> hk.Shape:
    rank = rng.choice([0, 0, 1, 1, 2, 3, 4, 6])
    sizes = [rng.choice([0, 1, 1, 2, 3] if rank > 3 else [0, 1, 1, 2, 3, 5, 7]) for _ in range(rank)]
    order = list(range(len(sizes)))
    if rng.random() < 0.5:
        rng.shuffle(order)
    else:
        order.reverse()
    return rng.choice(KINDS)[tuple(sizes)].with_layout(hk.Layout(tuple(order)))


def _value(rng: random.Random, shape: hk.Shape) -> Any:
    return _elements(rng, shape.dtype, shape.size).reshape(shape.dimensions)


def _elements(rng: random.Random, dtype: DType, count: int) -> Any:
    """Any bits: NaNs, infinities and denormals too."""
    data = np.frombuffer(rng.randbytes(count * dtype.numpy.itemsize), np.uint8)
    if dtype.name == "pred":
        data = data & 1
    if dtype.bits < 8:
        data = data & (1 << dtype.bits) - 1
    return data.view(dtype.numpy).copy()


def _memory(value: Any, shape: hk.Shape) -> bytes:
    """As the header counts it: elements below a byte share bytes, zeros follow."""
    order = shape.layout_or_default.minor_to_major[::-1]
    flat = np.ascontiguousarray(value.transpose(order)).reshape(-1)
    if shape.dtype.bits >= 8:
        return flat.tobytes()
    width, bits = 8 // (8 // shape.dtype.bits), 0  # as many as go into a byte: six bits have one of their own
    for element in reversed(flat.view(np.uint8).tolist()):
        bits = bits << width | element & (1 << shape.dtype.bits) - 1
    return bits.to_bytes(flat.size, "little")


def _dictionary(rng: random.Random, depth: int) -> tuple[str, list[str]]:
    """A dictionary as MLIR writes it, and the lines that describe it."""
    names = {_name(rng) for _ in range(rng.randrange(5))}
    rows: list[tuple[bytes, str, list[str]]] = []
    for name in sorted(names, key=lambda _: rng.random()):
        written, lines = _attribute(rng, depth)
        rows.append((name.encode(), f"{_quoted(name.encode())} = {written}", lines))
    text = "{" + ", ".join(row for _, row, _ in rows) + "}"
    described: list[str] = []
    for name, _, lines in sorted(rows):
        described += [f"attr {name.hex()} {lines[0]}", *lines[1:]]
    return text, described


def _name(rng: random.Random) -> str:
    return "".join(rng.choice('abcXYZ_09.$- é"\\\n') for _ in range(rng.randrange(1, 9)))


def _quoted(data: bytes) -> str:
    safe = b" !#$%&'()*+,-./:;<=>?@[]^_`{|}~"
    return '"' + "".join(chr(c) if (chr(c).isalnum() and c < 128) or c in safe else f"\\{c:02X}" for c in data) + '"'


def _attribute(rng: random.Random, depth: int) -> tuple[str, list[str]]:
    kind = rng.choice(
        ["scalar", "scalar", "string", "array", "dense", "dense", "dictionary" if depth < 3 else "string"]
    )
    if kind == "dictionary":
        text, lines = _dictionary(rng, depth + 1)
        return text, ["{", *lines, "}"]
    if kind == "string":
        data = rng.randbytes(rng.randrange(20))
        return _quoted(data), [f"string {data.hex()}"]
    kinds = [dtype for dtype in KINDS if dtype.name != "s1"]  # MLIR's i1 is pred
    dtype = rng.choice([dtype for dtype in kinds if not (dtype.is_complex and kind in ("scalar", "array"))])
    if kind == "scalar":
        one = _elements(rng, dtype, 1)
        text = _number(one[:1], dtype)
        return (text if dtype.name == "pred" else f"{text} : {_type(dtype)}"), [f"scalar {dtype.number} {_hex(one)}"]
    sizes = [rng.randrange(4) for _ in range(1 if kind == "array" else rng.randrange(4))]
    count = int(np.prod(sizes, dtype=int))
    values = _elements(rng, dtype, count)
    line = f"array {dtype.number} {count} {_hex(values)}"
    words = [_number(values[i : i + 1], dtype) for i in range(count)]
    if kind == "array":
        return f"array<{_type(dtype)}{': ' if words else ''}{', '.join(words)}>", [line]
    if dtype.bits >= 8 and dtype.name != "pred" and rng.random() < 0.3 and count:
        body = f'"0x{values.tobytes().hex().upper()}"'
    else:
        body = _nested(words, sizes) if count else ""
    return f"dense<{body}> : tensor<{''.join(f'{n}x' for n in sizes)}{_type(dtype)}>", [line]


def _nested(words: list[str], sizes: list[int]) -> str:
    for size in reversed(sizes):
        words = [f"[{', '.join(words[i : i + size])}]" for i in range(0, len(words), size)]
    return words[0]


def _hex(values: Any) -> str:
    """The bytes of an attribute: one for an element below a byte."""
    return values.tobytes().hex()


def _type(dtype: DType) -> str:
    if dtype.name in _MLIR:
        return _MLIR[dtype.name]
    return dtype.name.replace("u", "ui") if dtype.name.startswith("u") else dtype.name.replace("s", "i")


def _number(one: Any, dtype: DType) -> str:
    if dtype.is_complex:
        parts = one.view(dtype.real.numpy)
        return f"({_number(parts[:1], dtype.real)}, {_number(parts[1:], dtype.real)})"
    if dtype.name == "pred":
        return "true" if one[0] else "false"
    if not dtype.is_floating:
        return str(int(one[0]))
    return f"0x{int.from_bytes(one.tobytes(), 'little'):0{2 * dtype.numpy.itemsize}X}"


def main() -> None:
    seconds, seed = float((sys.argv[1:] or ["60"])[0]), int((sys.argv[2:] or ["0"])[0])
    found = differences(seed, seconds=seconds)
    print("\n".join(found) or "no differences")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
