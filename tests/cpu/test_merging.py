"""Functions that differ by constants alone are one: what they compute stays."""

import ctypes

import pytest

from hlokit.cpu.jit.merging import merged
from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.target import host

FILL = """define internal void @NAME(ptr %to, i64 %count) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ {start}, %entry ], [ %next, %loop ]
  %scaled = mul nsw i64 %i, {factor}
  %rest = urem i64 %scaled, {divisor}
  %narrow = trunc i64 %rest to i32
  %shifted = add i32 %narrow, {narrow}
  %place = getelementptr i32, ptr %to, i64 %i
  store i32 %shifted, ptr %place
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}"""
PLAIN = {"start": 0, "factor": 3, "divisor": 1000, "narrow": 5}
ENTRY = """define void @entry(ptr %a, ptr %b) {
  call void @one(ptr %a, i64 8)
  call void @two(ptr %b, i64 8)
  ret void
}"""


def functions(more: str = "", **changes: int) -> dict[str, str]:
    one, two = (FILL.format(**values).replace("@NAME", f"@{name}") for name, values in
                (("one", PLAIN), ("two", PLAIN | changes)))  # fmt: skip
    return {"one": one, "two": two, "entry": ENTRY.replace("  ret void", f"{more}  ret void")}


def run(texts: dict[str, str]) -> list[list[int]]:
    text = "\n".join(texts.values())
    library = Library([compile_object(text, host())])
    arrays = [(ctypes.c_int32 * 8)() for _ in range(2)]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("entry"))(*map(ctypes.addressof, arrays))
    return [list(array) for array in arrays]


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({"factor": 7}, True),
        ({"start": 2}, True),
        ({"start": 1, "factor": -4}, True),
        ({"divisor": 10}, False),  # dividing by a variable is slow
        ({"narrow": 6}, False),  # i32: parameters are i64
    ],
)
def test_constants_become_parameters(changes: dict[str, int], is_one: bool) -> None:
    before = functions(**changes)
    after = merged(before, ["entry"])
    assert ("two" not in after) == is_one
    assert run(after) == run(before)


def test_functions_whose_address_is_taken_stay() -> None:
    before = functions("  %same = icmp eq ptr @two, %a\n", factor=7)
    assert merged(before, ["entry"]) == before


def test_functions_that_others_know_stay() -> None:
    before = functions(factor=7)
    assert merged(before, ["entry", "one"]) == before


def test_many_constants_stay() -> None:
    def rows(name: str, stride: int) -> str:
        lines = [f"  %p{k} = getelementptr i8, ptr %to, i64 {k * stride}\n  store i8 {k}, ptr %p{k}" for k in range(8)]
        return (
            f"define internal void @{name}(ptr %to, i64 %n) noinline {{\nentry:\n"
            + "\n".join(lines)
            + "\n  ret void\n}"
        )

    before = {"one": rows("one", 1), "two": rows("two", 3), "entry": ENTRY}
    assert merged(before, ["entry"]) == before
    alike = {"one": rows("one", 1), "two": rows("two", 1), "entry": ENTRY}
    assert list(merged(alike, ["entry"])) == ["one", "entry"]
