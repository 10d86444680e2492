"""Runs LLVM modules and text on NumPy arrays, before and below the runtime: for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from hlokit.cpu import target as machine
from hlokit.cpu.jit.legal import legal
from hlokit.cpu.llvm import Function, Module, Pointer, Value, stored_type
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType


@cache
def host() -> Target:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return machine.host()


@cache
def avx2() -> Target:
    """The host without AVX-512."""
    features = [f if "avx512" not in f and "avx10" not in f else "-" + f[1:] for f in host().features.split(",")]
    return Target(host().triple, "x86-64", ",".join(features), 32)


class Native:
    """The compiled functions of a module, or of LLVM text."""

    def __init__(self, code: Module | str, target: Target | None = None, level: int = 1) -> None:
        import llvmlite.binding as llvm

        target = target or host()
        self._machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=level
        )
        self._text = text = code if isinstance(code, str) else legal(code, target).text()
        module = llvm.parse_assembly(text)
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, self._machine)
        self._engine.finalize_object()

    @property
    def assembly(self) -> str:
        import llvmlite.binding as llvm

        return self._machine.emit_assembly(llvm.parse_assembly(self._text))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Calls void @name with arrays as pointers and Python integers as i64."""
        address = self._engine.get_function_address(name)
        kinds = [ctypes.c_void_p if isinstance(a, np.ndarray) else ctypes.c_int64 for a in arguments]
        values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
        ctypes.CFUNCTYPE(None, *kinds)(address)(*values)


def run(text: str, name: str, *arguments: Any, target: Target | None = None) -> None:
    """Compiles a module's text and calls its void @name once."""
    Native(text, target)(name, *arguments)


Body = Callable[[list[Value]], Value]


def map_function(
    name: str, body: Body, inputs: Sequence[DType], output: DType, lanes: int, target: Target | None = None
) -> Function:
    """void @name(inputs..., output, i64 count): output[i] = body([inputs[i]...]), `lanes` elements at a time."""
    parameters = [("ptr", f"in{k}") for k in range(len(inputs))] + [("ptr", "out"), ("i64", "count")]
    fn = Function(name, parameters, target=target or host())
    with fn.loop(0, fn.argument("count"), lanes) as loop:
        places = [fn.pointer(f"in{k}", stored_type(d), 1)[loop.index] for k, d in enumerate(inputs)]
        value = body([_load(place, d, lanes) for place, d in zip(places, inputs, strict=True)])
        place = fn.pointer("out", stored_type(output), 1)[loop.index]
        place.store(value.zext(8) if output.name == "pred" else value)
    fn.returns()
    return fn


def map_module(body: Body, inputs: Sequence[DType], output: DType, lanes: int, target: Target | None = None) -> Module:
    """A module with map_function's @main."""
    module = Module()
    module.add(map_function("main", body, inputs, output, lanes, target), exported=True)
    return module


def map_arrays(
    body: Body,
    arrays: Sequence[np.ndarray[Any, Any]],
    inputs: Sequence[DType],
    output: DType,
    lanes: int,
    target: Target | None = None,
) -> np.ndarray[Any, Any]:
    """body mapped over arrays of one length; the result's storage is the output type's."""
    return apply(Native(map_module(body, inputs, output, lanes, target), target), "main", arrays, output, lanes)


def apply(
    native: Native, name: str, arrays: Sequence[np.ndarray[Any, Any]], output: DType, lanes: int
) -> np.ndarray[Any, Any]:
    """Calls a function that map_function made."""
    count = -(-len(arrays[0]) // lanes) * lanes
    padded = [np.ascontiguousarray(np.concatenate([a, np.ones(count - len(a), a.dtype)])) for a in arrays]
    out = np.zeros(count, output.numpy)
    native(name, *padded, out, count)
    return out[: len(arrays[0])]


def _load(place: Pointer, dtype: DType, lanes: int) -> Value:
    value = place.load(lanes)
    if dtype.name == "pred":
        return value.trunc(1)
    if dtype.bits < 8 and dtype.is_signed:  # NumPy's bytes may hold anything above the element's bits
        return (value << (8 - dtype.bits)).sar(8 - dtype.bits)
    return value
