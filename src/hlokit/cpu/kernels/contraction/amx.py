"""The registers of Intel's AMX: eight of up to 16 rows of 64 bytes. Tiles use 2 x 2 of sums, two of lhs, two of rhs."""

from __future__ import annotations

from hlokit.cpu.llvm import I8, Function, Global, IfElse, Index, Module, Pointer, Value

ROWS = 16
"""Of a register. A register of factors holds this many units of the inner axis; one of sums as many columns."""
ROW_BYTES = 64
REGISTER = ROWS * ROW_BYTES
"""Bytes."""
LHS, RHS = 4, 6
"""Numbers of the first registers that hold factors; sums begin at 0: that of halves i and j of a tile is 2 i + j."""


def configure(fn: Function, module: Module, rows: int = 2 * ROWS, columns: int = 2 * ROWS) -> None:
    """Makes the registers fit tiles of so many rows and columns. They stay so until the next time, or `release`."""
    fn.call("llvm.x86.ldtilecfg", fn.address(configuration(module, rows, columns)))


def configuration(module: Module, rows: int, columns: int) -> Global:
    """What `ldtilecfg` reads: palette 1; at 16 the bytes of a row of each register, at 48 its rows. None is empty."""
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


def multiply(fn: Function, instruction: str, sums: int, lhs: int = LHS, rhs: int = RHS) -> None:
    """Adds the product of two registers to a third one."""
    fn.call(f"llvm.x86.{instruction}", *(_number(fn, register) for register in (sums, lhs, rhs)))


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
