"""Complex numbers that are only moved go as whole elements of 64 bits (hlokit/cpu/loops/moved.py)."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.target import baseline, host

TARGETS = {"host": host, "avx2": lambda: baseline("x86-64-avx2"), "sse2": lambda: baseline("x86-64")}
MOVES = {
    "transposed": "ROOT r = c64[40,33] transpose(x), dimensions={1,0}",
    "reversed": "ROOT r = c64[33,40] reverse(x), dimensions={0,1}",
    "every third": "ROOT r = c64[17,13] slice(x), slice={[0:33:2], [1:40:3]}",
    "padded": "z = c64[] constant((1, -2))\n ROOT r = c64[35,86] pad(x, z), padding=1_1_0x3_4_1",
    "chosen": "ROOT r = c64[33,40] select(p, x, y)",
    "concatenated": "ROOT r = c64[33,80] concatenate(x, y), dimensions={1}",
    "repeated": "b = c64[33,40,3] broadcast(x), dimensions={0,1}\n ROOT r = c64[33,120] reshape(b)",
    "both": "a = c64[40,33] transpose(x), dimensions={1,0}\n b = c64[40,33] transpose(y), dimensions={1,0}\n"
    " ROOT r = (c64[40,33], c64[40,33]) tuple(a, b)",
}
CHANGES = {
    "conjugated": "i = f32[33,40] imag(x)\n n = f32[33,40] negate(i)\n q = f32[33,40] real(x)\n"
    " ROOT r = c64[33,40] complex(q, n)",
    "swapped": "i = f32[33,40] imag(x)\n q = f32[33,40] real(x)\n ROOT r = c64[33,40] complex(i, q)",
}


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 1 << 32, (2, 33, 80), np.uint32).view(np.complex64)  # NaNs with payloads among them
    return [x, y, rng.random((33, 40)) < 0.5]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", [*MOVES.values(), *CHANGES.values()], ids=[*MOVES, *CHANGES])
def test_complex_numbers_are_moved_as_they_are(body: str, target: str) -> None:
    module = hk.parse(
        "HloModule m\nENTRY e {\n x = c64[33,40] parameter(0)\n y = c64[33,40] parameter(1)\n"
        f" p = pred[33,40] parameter(2)\n {body}\n}}"
    )
    executable = hk.compile(module, target=TARGETS[target]())
    found, expected = executable(*arguments()), hk.evaluate(module, *arguments())
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
    assert ("float" in executable.as_text("llvm")) is (body in CHANGES.values())
