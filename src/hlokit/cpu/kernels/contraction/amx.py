"""Intel's AMX: eight registers of up to 16 rows of 64 bytes, and the micro-kernel of all products in them (AmxSums).

Tiles use 2 x 2 registers of sums, two of lhs, two of rhs. They differ in where their factors lie (Walk): lhs in memory
as it is and rhs in panels (amx_tile), both in panels of parts (parts_tile), lhs in lines (amx_convolution_tile).

Where the core's other thread is at work, the number of registers in use is what counts: products with five take 12
nanoseconds, with all eight 21; 6 to 7 where it is idle. To be in use is to have been written since `configure`. So
tiles multiply one register of lhs or of rhs with two, which stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.llvm import I8, Function, Global, IfElse, Index, Module, Pointer, Value

ROWS = 16
"""Rows of a register. One of factors holds this many units of the inner axis; one of sums as many columns."""
ROW_BYTES = 64
REGISTER = ROWS * ROW_BYTES
"""Bytes."""
LHS, RHS = 4, 6
"""Numbers of the first registers that hold factors; sums begin at 0: that of halves i and j of a tile is 2 i + j."""
INSTRUCTIONS = {"bf16": "tdpbf16ps", "s8": "tdpbssd", "u8": "tdpbuud"}
"""Names of multiplications, by the factors' type."""


def configure(fn: Function, module: Module, rows: int = 2 * ROWS, columns: int = 2 * ROWS) -> None:
    """Makes the registers fit tiles of so many rows and columns. They stay so until the next time, or `release`."""
    fn.call("llvm.x86.ldtilecfg", fn.address(configuration(module, rows, columns)))


def configuration(module: Module, rows: int, columns: int) -> Global:
    """The table for `ldtilecfg`: palette 1; at 16 the bytes of each register's rows, at 48 their number. None is 0."""
    size = [(0, 0)] * 8
    for i in range(2):
        height = min(ROWS, max(1, rows - i * ROWS))
        size[LHS + i] = (height, ROW_BYTES)
        for j in range(2):
            width = min(ROWS, max(1, columns - j * ROWS))
            size[RHS + j] = (ROWS, 4 * width)
            size[2 * i + j] = (height, 4 * width)
    row_bytes = b"".join(n.to_bytes(2, "little") for _, n in size)
    table = b"\1".ljust(16, b"\0") + row_bytes.ljust(32, b"\0") + bytes(n for n, _ in size).ljust(16, b"\0")
    return module.table(f"matrix_registers_{rows}x{columns}", I8, table)


def release(fn: Function) -> None:
    """Gives the registers back: with them in use a switch of threads saves 8 KB more."""
    fn.call("llvm.x86.tilerelease")


def clear(fn: Function, register: int) -> None:
    """Sets a register to zeros."""
    fn.call("llvm.x86.tilezero", _number(fn, register))


def load_register(register: int, address: Pointer, row_bytes: Index | int) -> None:
    """Loads a register's rows, so many bytes apart."""
    address.fn.call("llvm.x86.tileloadd64", _number(address.fn, register), address, address.fn.index(row_bytes))


def store_register(register: int, address: Pointer, row_bytes: Index | int) -> None:
    """Stores a register's rows, so many bytes apart."""
    address.fn.call("llvm.x86.tilestored64", _number(address.fn, register), address, address.fn.index(row_bytes))


@dataclass(frozen=True)
class Walk:
    """An operand's factors in memory, and the registers that hold one part of those of 16 units at a time.

    start     address of the first register's factors, of the first step of 16 units
    first     number of the first register
    count     of registers: rows of lhs or columns of rhs, 16 each
    row       bytes from one row of a register to the next
    register, part, step   bytes from one register to the next, one part of the factors, one step
    places    a table of the steps' offsets in bytes; None: they are `step` apart
    """

    start: Pointer
    first: int
    count: int
    row: Index | int
    register: Index | int = 0
    part: Index | int = 0
    step: Index | int = 0
    places: Pointer | None = None

    def at(self, step: Index) -> Pointer:
        """Where a step's factors begin."""
        fn = step.fn
        return self.start + (step * self.step if self.places is None else fn.index(self.places[step].load()))

    def load(self, step: Pointer, part: int) -> None:
        """Loads a part of a step's factors."""
        for i in range(self.count):
            place = step + step.fn.index(self.part) * part + step.fn.index(self.register) * i
            load_register(self.first + i, place, self.row)


def add_products(
    instruction: str, lhs: Walk, rhs: Walk, step: Index, sums: int = 0, products: Sequence[tuple[int, int]] = ((0, 0),)
) -> None:
    """Adds the products of a step to the registers of sums from number `sums` on, row by row.

    `products`: parts of lhs and rhs, one pair after the other; a part that stays is not loaded again.
    """
    left, right = lhs.at(step), rhs.at(step)
    former: tuple[int, int] | None = None
    for p, q in products:
        if former is None or q != former[1]:
            rhs.load(right, q)
        if former is None or p != former[0]:
            lhs.load(left, p)
        former = p, q
        for i in range(lhs.count):
            for j in range(rhs.count):
                registers = sums + i * rhs.count + j, lhs.first + i, rhs.first + j
                step.fn.call(f"llvm.x86.{instruction}", *(_number(step.fn, register) for register in registers))


@dataclass(frozen=True)
class AmxSums:
    """The micro-kernel: registers of sums, from their first step to their last.

    instruction   multiplies, see INSTRUCTIONS
    passes        parts that are multiplied in each step, and again in each, so that small products come first
    registers     number of the first register of sums
    outs          where each register of sums goes
    row           bytes from one row of sums to the next
    """

    instruction: str
    outs: Sequence[Pointer]
    row: Index | int
    passes: Sequence[Sequence[tuple[int, int]]] = (((0, 0),),)
    registers: int = 0

    def begin(self, first: Value | None = None) -> None:
        """Sets the registers to zeros; unless the i1 holds, if there is one, to what lies where they go."""
        numbers, fn = range(self.registers, self.registers + len(self.outs)), self.outs[0].fn
        choice = None if first is None else IfElse(fn, first)
        for number in numbers:
            clear(fn, number)
        if choice is None:
            return
        choice.otherwise()
        for number, out in zip(numbers, self.outs, strict=True):
            load_register(number, out, self.row)
        choice.end()

    def add(self, lhs: Walk, rhs: Walk, steps: Index) -> None:
        """Adds the products of so many steps."""
        for products in self.passes:
            with steps.fn.loop(0, steps) as loop:
                add_products(self.instruction, lhs, rhs, loop.index, self.registers, products)

    def store(self) -> None:
        """Stores the sums."""
        for number, out in enumerate(self.outs, self.registers):
            store_register(number, out, self.row)


def _number(fn: Function, register: int) -> Value:
    return fn.constant(register, I8)
