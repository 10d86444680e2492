"""Writing LLVM IR: types, values with operators, functions, modules. LLVM's syntax stands in this package alone."""

from hlokit.cpu.llvm.function import COLD, SHARED, Function, IfElse, Loop, Repeat, While, unlikely
from hlokit.cpu.llvm.module import SYMBOL, Module
from hlokit.cpu.llvm.types import Type, float_constant, memory_type, scalar_type, splat, type_of, vector
from hlokit.cpu.llvm.values import I1, I8, I16, I32, I64, POINTER, Index, LaneMask, Pointer, Pointers, Value, joined

__all__ = [
    "COLD",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "POINTER",
    "SHARED",
    "SYMBOL",
    "Function",
    "IfElse",
    "Index",
    "LaneMask",
    "Loop",
    "Module",
    "Pointer",
    "Pointers",
    "Repeat",
    "Type",
    "Value",
    "While",
    "float_constant",
    "joined",
    "memory_type",
    "scalar_type",
    "splat",
    "type_of",
    "unlikely",
    "vector",
]
