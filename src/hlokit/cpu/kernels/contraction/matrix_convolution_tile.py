"""The innermost part of a convolution in matrix registers, and the same sums by vectors for numbers beyond their range.

Neither knows shapes: tables say where the lines of each step lie, so that one function serves all convolutions.
"""

from __future__ import annotations

from hlokit.cpu.kernels.contraction.convolution_tile import multiplied
from hlokit.cpu.kernels.contraction.elements import broadcast, load, pointer, store
from hlokit.cpu.kernels.contraction.matrix_convolution_plan import LINE, ROWS, Factors
from hlokit.cpu.kernels.contraction.matrix_registers import (
    LHS,
    REGISTER,
    RHS,
    clear,
    load_register,
    multiply,
    store_register,
)
from hlokit.cpu.kernels.contraction.split import joined
from hlokit.cpu.kernels.contraction.squares import transposed
from hlokit.cpu.llvm import Function, Module, vector
from hlokit.types.dtype import f32

SUMS_BYTES = 2 * LINE
"""Of a row of sums."""
_HEIGHT = 8
"""Rows that are summed at once by vectors."""


def tile(module: Module, factors: Factors, rows: int) -> str:
    """void f(ptr lhs, ptr rhs, ptr out, ptr places, i64 steps, i64 part, i1 first): sums of registers.

    lhs     the first output's lines; `places` has each step's offset to it, `part` is that to the next part (bytes)
    rhs     a packed panel
    out     `rows` registers of sums, SUMS_BYTES a row; they are added to those there unless `first` holds

    One panel at a time, in five registers: see parts_tile.
    """
    name = f"matrix_convolution_{factors.multiply}_{factors.parts}_{rows}"
    if name in module.functions:
        return name
    parameters = [("ptr noalias readonly", n) for n in ("lhs", "rhs", "out", "places")]
    parameters[2] = ("ptr noalias", "out")
    parameters += [("i64", "steps"), ("i64", "part"), ("i1", "first")]
    f = Function(name, parameters, attributes="noinline nounwind", shared="matrix_convolution")
    sums = [(i, pointer(f, "%out", str(i * ROWS * SUMS_BYTES), 1)) for i in range(rows)]
    zero, former, begun = (f.new_block(n) for n in ("zero", "former", "begun"))
    f.branch("%first", zero, former)
    f.start(zero)
    for number, _ in sums:
        clear(f, number)
    f.jump(begun)
    f.start(former)
    for number, out in sums:
        load_register(f, number, out, SUMS_BYTES)
    f.jump(begun)
    f.start(begun)
    with f.loop("0", "%steps", carries=[("ptr", "%rhs")]) as loop:
        (rhs,) = loop.carried
        place = f.let(f"load i64, ptr {pointer(f, '%places', loop.index, 8)}")
        lhs = pointer(f, "%lhs", place, 1)
        lines = [lhs]
        for _ in range(factors.parts - 1):
            lines.append(pointer(f, lines[-1], "%part", 1))
        former = (-1, -1)
        for p, q in factors.products:
            if q != former[1]:
                load_register(f, RHS, pointer(f, rhs, str(q * REGISTER), 1), LINE)
            if p != former[0]:
                for i in range(rows):
                    load_register(f, LHS + i, pointer(f, lines[p], str(i * REGISTER), 1), LINE)
            former = p, q
            for i in range(rows):
                multiply(f, factors.multiply, i, LHS + i, RHS)
        loop.next = [pointer(f, rhs, str(factors.parts * REGISTER), 1)]
    for number, out in sums:
        store_register(f, number, out, SUMS_BYTES)
    f.do("ret void")
    module.add(f)
    return name


def turn(f: Function, module: Module, source: str, source_bytes: int, target: str, target_bytes: int) -> None:
    """Copies a square of 16 x 16 elements of 32 bits, its rows so far apart, to its columns: one function for all."""
    name = "matrix_convolution_turn"
    if name not in module.functions:
        parameters = [("ptr", "source"), ("i64", "source_bytes"), ("ptr", "target"), ("i64", "target_bytes")]
        g = Function(name, parameters, attributes="noinline nounwind", shared="matrix_convolution")
        places, rows = ["%source", "%target"], list[str]()
        for _ in range(ROWS):
            rows.append(load(g, "i32", ROWS, places[0]))
            places[0] = pointer(g, places[0], "%source_bytes", 1)
        for row in transposed(g, rows, "i32"):
            store(g, "i32", ROWS, row, places[1])
            places[1] = pointer(g, places[1], "%target_bytes", 1)
        g.do("ret void")
        module.add(g)
    f.do(f"call void @{name}(ptr {source}, i64 {source_bytes}, ptr {target}, i64 {target_bytes})")


def whole(module: Module) -> str:
    """void f(ptr lhs, ptr rhs, ptr out, ptr places, i64 steps, i64 part, i64 rows, i1 raw, i1 first): one panel's sums.

    As `tile`, for any f32: lhs must have the numbers themselves in place of the first two parts, one step's and that
    16 further on; rhs has them if `raw` holds. `rows` is rounded up to a multiple of _HEIGHT.
    """
    name = "matrix_convolution_whole"
    if name in module.functions:
        return name
    parameters = [("ptr", n) for n in ("lhs", "rhs", "out", "places")]
    parameters += [("i64", "steps"), ("i64", "part"), ("i64", "rows"), ("i1", "raw"), ("i1", "first")]
    f = Function(name, parameters, attributes="noinline nounwind", shared="matrix_convolution")
    kind = vector("float", ROWS)
    with f.loop("0", "%rows", _HEIGHT) as block:
        first = pointer(f, "%lhs", block.index, LINE)
        outs = [pointer(f, "%out", f.let(f"add i64 {block.index}, {row}"), SUMS_BYTES) for row in range(_HEIGHT)]
        sums = [load(f, "float", ROWS, out) for out in outs]
        sums = [f.let(f"select i1 %first, {kind} zeroinitializer, {kind} {value}") for value in sums]
        with f.loop("0", "%steps", carries=[(kind, value) for value in sums]) as step:
            place = f.let(f"load i64, ptr {pointer(f, '%places', step.index, 8)}")
            lines = pointer(f, first, place, 1)
            panel = pointer(f, "%rhs", step.index, 3 * REGISTER)
            with f.loop("0", str(ROWS), carries=[(kind, v) for v in step.carried]) as unit:
                line, sums = pointer(f, panel, unit.index, LINE), list(unit.carried)
                packed = [load(f, "i32", ROWS, pointer(f, line, str(p * REGISTER), 1)) for p in range(3)]
                weights = _numbers(f, packed)
                places = [pointer(f, lines, unit.index, 4)]
                places.append(pointer(f, places[0], "%part", 1))
                for row in range(_HEIGHT):
                    for place, weight in zip(places, weights, strict=True):
                        x = load(f, "float", 1, pointer(f, place, str(row * LINE), 1))
                        sums[row] = multiplied(f, f32, broadcast(f, x, "float", ROWS), weight, sums[row], ROWS)
                unit.next = sums
            step.next = unit.results
        for out, value in zip(outs, step.results, strict=True):
            store(f, "float", ROWS, value, out)
    f.do("ret void")
    module.add(f)
    return name


def _numbers(f: Function, packed: list[str]) -> list[str]:
    """The weights of two steps: whole, if %raw holds, or the sums of parts."""
    kind = vector("float", ROWS)
    found: list[str] = []
    for bits, total in zip(packed, joined(f, packed, "false"), strict=False):
        found.append(
            f.let(f"select i1 %raw, {kind} {f.let(f'bitcast <{ROWS} x i32> {bits} to {kind}')}, {kind} {total}")
        )
    return found
