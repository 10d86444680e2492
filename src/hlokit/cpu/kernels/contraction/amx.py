"""The registers of Intel's AMX: eight of up to 16 rows of 64 bytes. Tiles use 2 x 2 of sums, two of lhs, two of rhs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
class FactorRegisters:
    """Registers that hold one part of an operand's factors at a time.

    first      number of the first one
    count      of registers: rows of lhs or columns of rhs, 16 each
    row_bytes  from a row to the next
    address    of a part (number) for a register (counted from 0)
    """

    first: int
    count: int
    row_bytes: Index | int
    address: Callable[[int, int], Pointer]

    def load(self, part: int) -> None:
        """Loads a part of the factors."""
        for i in range(self.count):
            load_register(self.first + i, self.address(part, i), self.row_bytes)


def add_products(
    fn: Function,
    instruction: str,
    lhs: FactorRegisters,
    rhs: FactorRegisters,
    sums: int = 0,
    products: Sequence[tuple[int, int]] = ((0, 0),),
) -> None:
    """Adds products of 16 units to the registers of sums from number `sums` on, row by row.

    `products`: parts of lhs and rhs, one pair after the other; a part that stays is not loaded again.
    """
    former: tuple[int, int] | None = None
    for p, q in products:
        if former is None or q != former[1]:
            rhs.load(q)
        if former is None or p != former[0]:
            lhs.load(p)
        former = p, q
        for i in range(lhs.count):
            for j in range(rhs.count):
                registers = sums + i * rhs.count + j, lhs.first + i, rhs.first + j
                fn.call(f"llvm.x86.{instruction}", *(_number(fn, register) for register in registers))


def begin_sums(sums: list[tuple[int, Pointer]], first: Value, row_bytes: Index | int) -> None:
    """Sets registers of sums to zeros if the i1 holds, else to what lies at their addresses."""
    fn = first.fn
    choice = IfElse(fn, first)
    for register, _ in sums:
        clear(fn, register)
    choice.otherwise()
    for register, address in sums:
        load_register(register, address, row_bytes)
    choice.end()


def _number(fn: Function, register: int) -> Value:
    return fn.constant(register, I8)
