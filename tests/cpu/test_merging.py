"""Functions that differ by constants alone are one: what they compute stays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from hlokit.cpu.jit.merging import merged
from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.llvm import I8, I32, I64, POINTER, Function, Module, Pointer, Repeat
from hlokit.cpu.target import host

PLAIN = {"start": 0, "factor": 3, "divisor": 1000, "narrow": 5}


def fill(name: str, start: int, factor: int, divisor: int, narrow: int) -> Function:
    f = Function(name, [(POINTER, "to"), (I64, "count")], attributes="noinline")
    loop = Repeat(f, [f.index(start)])
    (i,) = loop.values
    f.pointer("to", I32)[i].store((i * factor % divisor).wrapping().trunc(32) + narrow)
    loop.while_(i + 1 < f.index_argument("count"), i + 1)
    f.returns()
    return f


def written(one: Function, two: Function, more: Callable[[Function], None] = lambda _: None) -> Module:
    module = Module()
    module.add(one)
    module.add(two)
    f = Function("entry", [(POINTER, "a"), (POINTER, "b")])
    f.call("one", f.pointer("a"), 8)
    f.call("two", f.pointer("b"), f.index(8))
    more(f)
    f.returns()
    module.add(f, exported=True)
    return module


def functions(more: Callable[[Function], None] = lambda _: None, **changes: int) -> Module:
    return written(fill("one", **PLAIN), fill("two", **PLAIN | changes), more)


def merge(module: Module, exported: tuple[str, ...] = ("entry",)) -> list[str]:
    """Merges the module's functions; gives the names of those that there are then."""
    module.functions = merged(module.functions, exported)
    return list(module.functions)


def run(module: Module) -> list[list[int]]:
    library = Library([compile_object(module, host())])
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
    module = functions(**changes)
    before = run(module)
    assert ("two" not in merge(module)) == is_one
    assert run(module) == before


def test_functions_whose_address_is_taken_stay() -> None:
    module = functions(lambda f: f.pointer("a", POINTER).store(f.function("two")), factor=7)
    before = module.text()
    assert merge(module) == ["one", "two", "entry"] and module.text() == before


def test_functions_that_others_know_stay() -> None:
    module = functions(factor=7)
    assert merge(module, ("entry", "one")) == ["one", "two", "entry"]


def test_functions_that_programs_share_and_inlined_ones_stay() -> None:
    for attributes, shared in (("noinline", "some"), ("alwaysinline", ""), ("", "")):
        one, two = fill("one", **PLAIN), fill("two", **PLAIN)
        for function in (one, two):
            function.attributes, function.shared = attributes, shared
        assert merge(written(one, two)) == ["one", "two", "entry"]


def test_many_constants_stay() -> None:
    def rows(name: str, stride: int) -> Function:
        f = Function(name, [(POINTER, "to"), (I64, "n")], attributes="noinline")
        places: list[Pointer] = [f.pointer("to", I8) + k * stride for k in range(1, 9)]
        for k, place in enumerate(places):
            place.store(k)
        f.returns()
        return f

    assert merge(written(rows("one", 1), rows("two", 3))) == ["one", "two", "entry"]
    assert merge(written(rows("one", 1), rows("two", 1))) == ["one", "entry"]
