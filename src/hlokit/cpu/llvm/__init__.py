"""Writing LLVM IR: types, values with operators, functions, modules. LLVM's syntax stands in this package alone."""

from hlokit.cpu.llvm.complex import Complex
from hlokit.cpu.llvm.definition import COLD, SHARED, Definition
from hlokit.cpu.llvm.function import NOALIAS, Function, IfElse, Loop, Repeat, While, unlikely
from hlokit.cpu.llvm.indices import Index
from hlokit.cpu.llvm.module import Module
from hlokit.cpu.llvm.pointers import Pointer, Pointers
from hlokit.cpu.llvm.records import Field, Record
from hlokit.cpu.llvm.references import Operation
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
from hlokit.cpu.llvm.values import LaneMask, Poison, Value, is_one_lane, joined

__all__ = [
    "COLD",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "NOALIAS",
    "POINTER",
    "SHARED",
    "Complex",
    "Definition",
    "Field",
    "Function",
    "Global",
    "IfElse",
    "Index",
    "LaneMask",
    "Loop",
    "Module",
    "Operation",
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
    "is_one_lane",
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
