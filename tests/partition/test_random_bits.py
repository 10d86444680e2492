"""Random bits in parts: those of the whole program, drawn in ranges."""

import numpy as np
import pytest

import hlokit as hk

MESH = "mesh['a'=2,'b'=2]"


@pytest.mark.parametrize(
    ("algorithm", "shape", "along", "drawn"),
    [
        ("rng_three_fry", "u32[8,6]", "{'a'}, {'b'}", (4, 6)),
        ("rng_three_fry", "u32[9,4]", "{'a','b'}, {}", (3, 4)),
        ("rng_three_fry", "u32[10,4]", "{'a','b'}, {}", (10, 4)),  # parts of 3 rows, which are not pairs of rows
        ("rng_three_fry", "u64[7]", "{'a'}", (4,)),
        ("rng_three_fry", "u8[1,12]", "{}, {'a'}", (1, 6)),
        ("rng_philox", "u32[8,6]", "{'a'}, {}", (4, 6)),
        ("rng_philox", "u32[6,3]", "{'a'}, {}", (6, 3)),  # parts of 9 elements, which are not blocks of 4
        ("rng_philox", "u64[6,3]", "{'a','b'}, {}", (2, 3)),
        ("rng_default", "s16[16]", "{'b','a'}", (4,)),
        ("rng_philox", "u32[4,8]", "{}, {'a'}", (4, 8)),  # columns are no range of the numbers
    ],
)
@pytest.mark.parametrize("words", [2, 3])
def test_parts_are_ranges_of_the_numbers(
    algorithm: str, shape: str, along: str, drawn: tuple[int, ...], words: int
) -> None:
    words = 2 if algorithm == "rng_three_fry" else words
    module = hk.parse(f"""HloModule m
ENTRY e {{
  s = u64[{words}] parameter(0)
  r = (u64[{words}], {shape}) rng-bit-generator(s), algorithm={algorithm}
  n = u64[{words}] get-tuple-element(r), index=0
  d = {shape} get-tuple-element(r), index=1
  c = {shape} copy(d), sharding={{{MESH}, [{along}]}}
  ROOT t = (u64[{words}], {shape}) tuple(n, c)
}}""")
    found = hk.partition(module)
    (made,) = [i.shape for i in found.module.instructions() if i.opcode == "rng-bit-generator"]
    assert [*made.leaves()][-1].dimensions == drawn
    for state in ([5, 2**64 - 3, 2**64 - 1], [2**64 - 1] * 3, [7, 0, 1]):  # counters that wrap between parts
        given = np.array(state[:words], np.uint64)
        whole = hk.evaluate(module, given, partitions=1)
        for run in (lambda *parts: hk.evaluate(found.module, *parts), hk.compile(found.module)):
            for one, other in zip(found.join(run(*found.split(given))), whole, strict=True):
                np.testing.assert_array_equal(one, other)
