"""AMX in software, for machines without it: a plugin of pytest, with which all tests that need AMX run.

pytest -p tests.cpu.amx_emulator tests/cpu/test_parts.py tests/cpu/test_matrix_registers.py ...

The machine must have AVX-512. It claims to have AMX; in the text that becomes an object each of LLVM's intrinsics for AMX
is a call of a function that does what the instruction does on registers in memory. There is one set of registers, so
programs run on one thread. Assembly, and objects for other machines, are made from the text as it was.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from functools import cache
from typing import Any

from hlokit.cpu import target as targets
from hlokit.cpu.jit import objects
from hlokit.cpu.llvm import I8, I16, I32, Function, Index, Module, Pointer, type_of
from hlokit.cpu.target import Target, parse

_CONFIGURATION, _REGISTER = 64, 1024
_FEATURES = "host,+amx-tile,+amx-int8,+amx-bf16"
_FLOAT = type_of("float")
_ROW = ("ptr", "address"), ("i64", "stride")
_OPERANDS = ("i8", "sums"), ("i8", "left"), ("i8", "right")


def install() -> None:
    """From now on this process has AMX."""
    os.environ["HLOKIT_THREADS"] = "1"
    os.environ["HLOKIT_CACHE_DIR"] = tempfile.mkdtemp(prefix="hlokit-amx-")
    machine = parse(_FEATURES)
    targets._host.cache_clear()  # type: ignore[attr-defined]
    targets.this_machine = lambda: machine  # type: ignore[assignment]
    emit = objects._emit

    def emulated(text: str, target: Target, opt: int, as_object: bool) -> bytes:
        return emit(_replaced(text) if as_object and target.cpu == machine.cpu else text, target, opt, as_object)

    objects._emit = emulated


def _replaced(text: str) -> str:
    """The text with calls of the functions."""
    state, addresses = _library()
    text = re.sub(r"(?m)^declare [^\n]*@llvm\.x86\.(?:ldtilecfg|tile\w+|tdp\w+)\([^\n]*\n", "", text)

    def called(match: re.Match[str]) -> str:
        return f"inttoptr (i64 {addresses[match[1]]} to ptr)(ptr inttoptr (i64 {state} to ptr){match[2]}"

    text = re.sub(r"@llvm\.x86\.(ldtilecfg|tile\w+|tdp\w+)(\()(?=\))", lambda m: called(m)[:-1], text)
    return re.sub(r"@llvm\.x86\.(ldtilecfg|tile\w+|tdp\w+)\(()", lambda m: f"{called(m)}, ", text)


_kept: list[Any] = []


@cache
def _library() -> tuple[int, dict[str, int]]:
    """Where the registers are, and the functions."""
    room = ctypes.create_string_buffer(_CONFIGURATION + 8 * _REGISTER + 64)
    module = Module()
    for f in (*_moves(), *(_products(name) for name in ("tdpbf16ps", "tdpbssd", "tdpbuud"))):
        f.returns()
        module.add(f, exported=True)
    library = objects.Library([objects.compile_object(module.text(), parse("x86-64-avx512"))])
    _kept.extend((room, library))
    return -(-ctypes.addressof(room) // 64) * 64, {name: library.address(name) for name in module.functions}


def _function(name: str, *parameters: tuple[str, str]) -> tuple[Function, Pointer]:
    f = Function(name, [("ptr", "state"), *parameters], attributes="nounwind")
    return f, f.pointer("state")


def _register(state: Pointer, number: str) -> Pointer:
    return state + (state.fn.index(state.fn.argument(number).zext(64)) * _REGISTER + _CONFIGURATION)


def _size(state: Pointer, number: str) -> tuple[Index, Index]:
    """(rows, bytes of a row) of a register."""
    f, k = state.fn, state.fn.index(state.fn.argument(number).zext(64))
    return f.index((state + 48)[k].load().zext(64)), f.index((state + 16).to(I16)[k].load().zext(64))


def _moves() -> list[Function]:
    """Configuration, zeros, loads and stores."""
    configure, state = _function("ldtilecfg", ("ptr", "table"))
    configure.memcpy(state, configure.pointer("table"), _CONFIGURATION)
    configure.memset(state + _CONFIGURATION, 0, 8 * _REGISTER)
    release, state = _function("tilerelease")
    release.memset(state, 0, _CONFIGURATION + 8 * _REGISTER)
    zero, state = _function("tilezero", ("i8", "register"))
    zero.memset(_register(state, "register"), 0, _REGISTER)
    load, state = _function("tileloadd64", ("i8", "register"), *_ROW)
    load.memset(_register(state, "register"), 0, _REGISTER)
    store, other = _function("tilestored64", ("i8", "register"), *_ROW)
    for f, registers in ((load, state), (store, other)):
        rows, count = _size(registers, "register")
        with f.loop(0, rows) as row:
            place = f.pointer("address") + row.index * f.index_argument("stride")
            own = _register(registers, "register") + row.index * 64
            f.memcpy(*((own, place) if f is load else (place, own)), count)
    return [configure, release, zero, load, store]


def _products(name: str) -> Function:
    """Sums of products of pairs of bf16, each half of the pairs by itself, or of fours of bytes."""
    f, state = _function(name, *_OPERANDS)
    (rows, _), (_, deep), (_, wide) = (_size(state, number) for number in ("sums", "left", "right"))
    total = _FLOAT if name == "tdpbf16ps" else I32
    sums, left, right = (_register(state, number).to(total) for number in ("sums", "left", "right"))
    with f.loop(0, rows) as m, f.loop(0, wide // 4) as n:
        place = sums[m.index * 16 + n.index]
        zero = f.constant(0, total)
        with f.loop(0, deep // 4, 1, [zero, zero] if total is _FLOAT else [zero]) as k:
            places = left[m.index * 16 + k.index], right[k.index * 16 + n.index]
            if total is _FLOAT:
                x, y = (p.to(I32).load() for p in places)
                low, high = ((a.as_float(), b.as_float()) for a, b in ((x << 16, y << 16), (x & _UPPER, y & _UPPER)))
                k.next = [low[0].fma(low[1], k.carried[0]), high[0].fma(high[1], k.carried[1])]
            else:
                (value,) = k.carried
                for j in range(4):
                    x, y = ((p.to(I8) + j).load() for p in places)
                    x, y = (v.cast("sext", "i32") if name == "tdpbssd" else v.zext(32) for v in (x, y))
                    value = value + x * y
                k.next = [value]
        found = k.results[0] if total is I32 else k.results[0] + k.results[1]
        place.store(place.load() + found)
    return f


_UPPER = -1 << 16

install()
