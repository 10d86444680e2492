"""Squares of vectors transposed in registers: of every size that machines have, and others."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.llvm import Function, Module, transposed, type_of
from hlokit.cpu.target import host

KINDS = {"float": np.float32, "i32": np.int32, "double": np.float64, "half": np.float16}


@pytest.mark.parametrize(
    ("scalar", "rows", "unit"),
    [
        *(("float", rows, unit) for rows in (2, 4, 8, 16) for unit in (1, 2)),
        *(("double", rows, unit) for rows in (2, 4, 8) for unit in (1, 2)),
        ("i32", 16, 1),
        ("half", 32, 1),
    ],
)
def test_rows_become_columns(scalar: str, rows: int, unit: int) -> None:
    f, element = Function("turn", [("ptr", "source"), ("ptr", "target")]), type_of(scalar)
    source_rows, target_rows = (f.pointer(name, element) for name in ("source", "target"))
    lanes = rows * unit
    given = [source_rows[i * lanes].load(lanes) for i in range(rows)]
    for i, value in enumerate(transposed(given, unit)):
        target_rows[i * lanes].store(value)
    f.returns()
    module = Module()
    module.add(f, exported=True)
    library = Library([compile_object(module, host())], {})
    source = np.arange(rows * rows * unit).reshape(rows, rows, unit).astype(KINDS[scalar])
    target = np.zeros_like(source)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("turn"))(
        source.ctypes.data, target.ctypes.data
    )
    np.testing.assert_array_equal(target, source.swapaxes(0, 1))
