"""Writing LLVM IR: types, values with operators, functions, modules. LLVM's syntax stands in this package alone."""

from hlokit.cpu.llvm.complex import Complex
from hlokit.cpu.llvm.function import COLD, NOALIAS, SHARED, Function, IfElse, Loop, Repeat, While, unlikely
from hlokit.cpu.llvm.module import SYMBOL, Module
from hlokit.cpu.llvm.records import Field, Record
from hlokit.cpu.llvm.regions import Region
from hlokit.cpu.llvm.symbols import Global, Prototype
from hlokit.cpu.llvm.transpose import transposed
from hlokit.cpu.llvm.types import (
    I1,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    Type,
    float_constant,
    memory_type,
    register_type,
    scalar_type,
    splat,
    stored_type,
    type_of,
    vector,
)
from hlokit.cpu.llvm.values import METADATA, Index, LaneMask, Pointer, Pointers, Poison, Value, joined

__all__ = [
    "COLD",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "METADATA",
    "NOALIAS",
    "POINTER",
    "SHARED",
    "SYMBOL",
    "Complex",
    "Field",
    "Function",
    "Global",
    "IfElse",
    "Index",
    "LaneMask",
    "Loop",
    "Module",
    "Pointer",
    "Pointers",
    "Poison",
    "Prototype",
    "Record",
    "Region",
    "Repeat",
    "Type",
    "Value",
    "While",
    "float_constant",
    "joined",
    "memory_type",
    "register_type",
    "scalar_type",
    "splat",
    "stored_type",
    "transposed",
    "type_of",
    "unlikely",
    "vector",
]
