"""Writing LLVM IR as text: modules, functions, blocks. Text is 40 times faster to make than llvmlite's objects."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from hlokit.types.dtype import DType

SYMBOL = re.compile(r"@([\w.$]+)")
"""The name of a function or a global."""
COLD = '"hlokit-cold"'
"""The attribute of functions whose own instructions take next to no time of a program's: they call what does."""
SHARED = '"hlokit-shared"'
"""The attribute of functions that are the same in many programs; its value names those that are made together."""
_ALIGN = "align 64"
"""Of the others: it is worth 5 % where a short loop lies in the cache's lines, whatever functions come before."""
_SCALARS = {"pred": "i1", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}


def scalar_type(dtype: DType) -> str:
    """The LLVM type of one element in a register.

    pred is i1; integers below a byte are i8, kept sign- or zero-extended; bf16 is its bits as i16, the types of 8 bits
    and less their bits as i8. Complex numbers have no register type: they are pairs of their components.
    """
    if dtype.is_complex:
        raise TypeError(f"{dtype} is a pair of {dtype.real}")
    return _SCALARS.get(dtype.name) or f"i{max(8, dtype.bits)}"


def memory_type(dtype: DType) -> str:
    """The LLVM type of one element in memory, laid out as in NumPy and ml_dtypes: pred takes a byte, 0 or 1."""
    return "i8" if dtype.name == "pred" else scalar_type(dtype)


def vector(scalar: str, lanes: int) -> str:
    """`<lanes x scalar>`; the scalar type itself for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def float_constant(value: float, scalar: str) -> str:
    """A number as LLVM spells it exactly, for `float`, `double` and `half`."""
    if scalar == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if scalar == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def splat(constant: str, scalar: str, lanes: int) -> str:
    """A constant in every lane."""
    return constant if lanes == 1 else f"splat ({scalar} {constant})"


class Function:
    """A function in the writing: instructions go to the end of it. Values are their SSA names, as text."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str = "void",
        attributes: str = "",
        is_cold: bool = False,
        shared: str = "",
    ) -> None:
        """`parameters`: (type with its attributes, name without %). `is_cold`: see COLD; `shared`: SHARED's value."""
        self.name = name
        self.parameters = list(parameters)
        self.result = result
        self.attributes = attributes
        self.is_cold = is_cold
        self.shared = shared
        self.lines: list[str] = ["entry:"]
        self.block = "entry"
        self._count = 0
        self._entry: list[str] = []
        self._once: dict[str, str] = {}

    def fresh(self, prefix: str = "v") -> str:
        """A new name, with % before it."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def let(self, instruction: str, prefix: str = "v") -> str:
        """Appends `name = instruction`; gives the name."""
        name = self.fresh(prefix)
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Appends an instruction without result."""
        self.lines.append(f"  {instruction}")

    def alloca(self, type: str, count: int = 1, align: int = 64, name: str = "") -> str:
        """Stack memory, taken once at the function's entry wherever this is called."""
        name = name or self.fresh("stack")
        self._entry.append(f"  {name} = alloca {type}, i64 {count}, align {align}")
        return name

    def once(self, instruction: str) -> str:
        """The name of what is computed at the function's entry, the first time that it is asked for."""
        name = self._once.get(instruction)
        if name is None:
            name = self._once[instruction] = self.fresh("e")
            self._entry.append(f"  {name} = {instruction}")
        return name

    def table_pointer(self, number: int) -> str:
        """The pointer at this place of the function's first parameter, %table; read once, at the function's entry."""
        slot = self.once(f"getelementptr ptr, ptr %table, i64 {number}")
        return self.once(f"load ptr, ptr {slot}, align 8")

    def new_block(self, prefix: str = "b") -> str:
        """A label for a block that `start` begins later."""
        return self.fresh(prefix)[1:]

    def start(self, label: str) -> None:
        """Begins the block; the one before must have ended in a jump."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    @contextmanager
    def when(self, condition: str) -> Generator[None]:
        """What is written inside runs only if the i1 holds."""
        then, after = self.new_block("then"), self.new_block("after")
        self.branch(condition, then, after)
        self.start(then)
        yield
        self.jump(after)
        self.start(after)

    @contextmanager
    def loop(
        self, low: str, high: str, step: int = 1, carries: Sequence[tuple[str, str]] = (), hint: str = ""
    ) -> Generator[Loop]:
        """for (i64 i = low; i < high; i += step), with carried values: (type, initial value) each.

        The body reads `loop.index` and `loop.carried`, and sets `loop.next`; after it `loop.results` are the last
        values (the initial ones, if the body never ran).
        """
        before, head = self.block, self.new_block("loop")
        body, after = self.new_block("body"), self.new_block("end")
        self.jump(head)
        self.start(head)
        index = self.fresh("i")
        names = [self.fresh("c") for _ in carries]
        place = len(self.lines)
        more = self.let(f"icmp slt i64 {index}, {high}")
        self.branch(more, body, after)
        self.start(body)
        loop = Loop(index, names)
        yield loop
        latch = self.block
        following = self.let(f"add nsw i64 {index}, {step}", "i")
        self.do(f"br label %{head}{hint}")
        phis = [f"  {index} = phi i64 [ {low}, %{before} ], [ {following}, %{latch} ]"]
        for name, (type, initial), value in zip(names, carries, loop.next, strict=True):
            phis.append(f"  {name} = phi {type} [ {initial}, %{before} ], [ {value}, %{latch} ]")
        self.lines[place:place] = phis
        self.start(after)
        loop.results = names

    def text(self) -> str:
        parameters = ", ".join(f"{type} %{name}" for type, name in self.parameters)
        attributes = f"{self.attributes} {COLD if self.is_cold else _ALIGN}"
        if self.shared:
            attributes += f' {SHARED}="{self.shared}"'
        head = f"define internal {self.result} @{self.name}({parameters}) {attributes} {{"
        return "\n".join([head, self.lines[0], *self._entry, *self.lines[1:], "}"])


class Loop:
    """See Function.loop."""

    def __init__(self, index: str, carried: list[str]) -> None:
        self.index = index
        self.carried = carried
        self.next: list[str] = []
        self.results: list[str] = []


class Module:
    """An LLVM module in the writing. Intrinsics need no declaration."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.exported: dict[str, None] = {}
        self.declared: dict[str, str] = {}

    def add(self, function: Function, *, exported: bool = False) -> None:
        """Takes a finished function. Equal names must mean equal functions; an exported one can be looked up."""
        self.add_text(function.name, function.text(), exported=exported)

    def add_text(self, name: str, text: str, *, exported: bool = False) -> None:
        if self.functions.setdefault(name, text) != text:
            raise AssertionError(f"two functions named {name}")
        if exported:
            self.exported[name] = None

    def declare(self, name: str, parameters: Sequence[str]) -> None:
        """A function of C that whoever loads the code must know, of no result."""
        self.declared[name] = f"declare void @{name}({', '.join(parameters)})"

    def table(self, name: str, scalar: str, values: Iterable[Any]) -> str:
        """A constant array; gives its name with @."""
        shown = [float_constant(v, scalar) if scalar in ("float", "double", "half") else str(int(v)) for v in values]
        rows = ", ".join(f"{scalar} {v}" for v in shown)
        text = f"@{name} = internal unnamed_addr constant [{len(shown)} x {scalar}] [{rows}], align 64"
        if self.globals.setdefault(name, text) != text:
            raise AssertionError(f"two tables named {name}")
        return f"@{name}"

    def text(self) -> str:
        functions = [
            text.replace("define internal", "define", 1) if name in self.exported else text
            for name, text in self.functions.items()
        ]
        return "\n\n".join([*self.globals.values(), *self.declared.values(), *functions]) + "\n"
