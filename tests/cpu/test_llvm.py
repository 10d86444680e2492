"""Writing LLVM IR: structs, calls of C, atomics, control flow, exceptions. What is written runs."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.llvm import I8, I32, I64, POINTER, Field, Function, Global, IfElse, Module, Prototype, Record, While
from tests.cpu.native import host

EVENT = Record(
    "Event",
    {"kind": I8, "number": I32, "next": POINTER, "words": Field(I64, 3), "lock": Field(I32, align=64), "text": I8},
)


def built(*functions: Function) -> Library:
    module = Module()
    for function in functions:
        module.add(function, exported=True)
    return Library([compile_object(module, host())])


def called(library: Library, name: str, *operands: int) -> int:
    types: Any = [ctypes.c_uint64] * len(operands)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(library.address(name))(*operands)


def test_records_are_laid_out_as_in_c() -> None:
    class Struct(ctypes.Structure):
        _fields_ = [
            ("kind", ctypes.c_uint8),
            ("number", ctypes.c_int32),
            ("next", ctypes.c_void_p),
            ("words", ctypes.c_uint64 * 3),
        ]

    for name, *_ in Struct._fields_:
        assert EVENT.offset(name) == getattr(Struct, name).offset
    assert (EVENT.offset("lock"), EVENT.offset("text"), EVENT.end, EVENT.bytes, EVENT.align) == (64, 68, 69, 128, 64)
    assert [getattr(EVENT.structure, name).offset for name in EVENT.fields] == [f.offset for f in EVENT.fields.values()]
    assert ctypes.sizeof(EVENT.structure) == EVENT.bytes


def test_fields_are_read_and_written_by_name() -> None:
    f = Function("fill", [(POINTER, "event"), (I64, "value")], I64)
    event, value = f.pointer("event", EVENT), f.argument("value")
    event["kind"].store(value.trunc(8))
    event["number"].store(-5)
    event["next"].store(event[1])
    event["words"][value].store(value)
    event["next"].load_pointer(EVENT)["text"].store(7)
    f.returns(event["words"][2].load() + event["next"].load_pointer(EVENT)["text"].load().zext(64))
    events = (EVENT.structure * 2)()
    library = built(f)
    assert called(library, "fill", ctypes.addressof(events), 2) == 9
    first: Any = events[0]
    assert (first.kind, first.number, first.next, list(first.words)) == (
        2,
        -5,
        ctypes.addressof(events) + 128,
        [0, 0, 2],
    )
    with pytest.raises(TypeError, match="has no field 'kind'"):
        Function("other", [(POINTER, "event")]).pointer("event")["kind"]


def test_c_functions_are_declared_by_their_calls() -> None:
    snprintf = Prototype("snprintf", I32, [POINTER, I64, POINTER], variadic=True)
    strlen = Prototype("strlen", I64, [POINTER])
    f = Function("say", [(POINTER, "to"), (I64, "number")], I64)
    to, form = f.pointer("to"), f.address(Global.text("form", 'nr. "%ld"\n'))
    f.call(snprintf, to, 100, form, f.argument("number"))
    f.returns(f.call(strlen, to))
    library, memory = built(f), ctypes.create_string_buffer(100)
    assert called(library, "say", ctypes.addressof(memory), -3) == len(memory.value) == 9
    assert memory.value == b'nr. "-3"\n'
    with pytest.raises(TypeError, match="strlen takes ptr, not i64"):
        f.call(strlen, f.argument("number"))
    with pytest.raises(TypeError, match="strlen takes 1 operands, not 2"):
        f.call(strlen, to, 1)


def test_globals_hold_structs_and_addresses() -> None:
    twice = Prototype("twice", I64, {"x": I64})
    name = Global.text("name", "abc")
    first = Global("first", EVENT, initial={"number": 7, "next": name, "words": [1, 2, 3]}, exported=True)
    second = Global("second", EVENT, initial={"next": twice})
    f = Function.of(twice)
    f.returns(f.argument("x") * 2)
    g = Function("through", [(I64, "x")], I64)
    event = g.address(first)
    doubled = g.address(second)["next"].load_pointer().call(I64, g.argument("x"))
    text = event["next"].load_pointer()[2].load().zext(64)
    g.returns(doubled + event["words"][1].load() + text)
    library = built(f, g)
    assert called(library, "through", 100) == 200 + 2 + ord("c")
    struct: Any = EVENT.structure.from_address(library.address("first"))
    assert struct.number == 7 and struct.lock == 0


def test_atomics() -> None:
    f = Function("add", [(POINTER, "place"), (I64, "value")], I64)
    place, value = f.pointer("place", I64), f.argument("value")
    before = place.atomicrmw("add", value)
    found, stored = place.cmpxchg(before + value, -1, "acq_rel", "acquire")
    again, failed = place.cmpxchg(before, 0)
    f.fence()
    place.store(place.load(ordering="acquire") - 1, ordering="release")
    f.returns((found + again) * (stored.zext(64) - failed.zext(64)))
    memory = ctypes.c_int64(40)
    assert called(built(f), "add", ctypes.addressof(memory), 2) == 42 - 1
    assert memory.value == -2


def test_ways_that_return_join_nothing() -> None:
    f = Function("way", [(I64, "x")], I64)
    x = f.argument("x")
    with f.when(x < 0):
        f.returns(-1)
    labels = [f.new_block() for _ in range(3)]
    f.switch(x, {0: labels[0], 1: labels[1]}, labels[2])
    f.start(labels[0])
    f.returns(10)
    f.start(labels[1])
    one = f.constant(20, I64)
    f.jump(after := f.new_block())
    f.start(labels[2])
    choice = IfElse(f, x > 100)
    f.returns(30)
    choice.otherwise()
    loop = While(f, [x])
    (left,) = loop.values
    loop.test(left > 9)
    loop.again(left - 10)
    (digit,) = loop.values
    choice.end()
    last = f.block
    f.jump(after)
    f.start(after)
    f.returns(f.phi((one, labels[1]), (digit, last)))
    library = built(f)
    assert [called(library, "way", value) for value in (-7, 0, 1, 57, 101)] == [-1, 10, 20, 7, 30]


def test_a_table_of_one_value_is_an_array() -> None:
    module = Module()
    f = Function("first", [("i64", "unused")], "i64")
    f.returns(f.address(module.table("one", I64, [7]))[0].load())
    module.add(f, exported=True)
    assert called(Library([compile_object(module, host())]), "first", 0) == 7
    assert "[1 x i64]" in module.text()
