"""The micro-kernel of convolutions in AMX, and the same sums in vectors for numbers beyond its range.

Neither knows shapes: tables say where the lines of each step lie, so that one function serves all convolutions.
"""

from __future__ import annotations

from hlokit.cpu.kernels.contraction.amx import LHS, REGISTER, RHS, AmxSums, Walk
from hlokit.cpu.kernels.contraction.amx_convolution_plan import LINE, ROWS
from hlokit.cpu.kernels.contraction.arithmetic import FLOAT, FUSED, AmxFactors
from hlokit.cpu.kernels.contraction.split import joined
from hlokit.cpu.kernels.contraction.tile import Steps, VectorTile
from hlokit.cpu.llvm import I32, I64, Function, Module, Pointer, Value, transposed

SUMS_BYTES = 2 * LINE
"""Bytes of a row of sums."""
_HEIGHT = 8
"""Rows that are summed at once by vectors."""
_SHARED = "matrix_convolution"


def tile(module: Module, factors: AmxFactors, rows: int) -> str:
    """void f(ptr lhs, ptr rhs, ptr out, ptr places, i64 steps, i64 part, i1 first): sums of registers.

    lhs     the first output's lines; `places` has each step's offset to it, `part` is that to the next part (bytes)
    rhs     a packed panel
    out     `rows` registers of sums, SUMS_BYTES a row; they are added to those there unless `first` holds

    One panel at a time, in five registers: see amx.
    """
    name = f"matrix_convolution_{factors.instruction}_{factors.parts}_{rows}"
    if name in module.functions:
        return name
    parameters = [("ptr noalias readonly", n) for n in ("lhs", "rhs", "out", "places")]
    parameters[2] = ("ptr noalias", "out")
    parameters += [("i64", "steps"), ("i64", "part"), ("i1", "first")]
    f = Function(name, parameters, attributes="noinline nounwind", shared=_SHARED)
    outs = [f.pointer("out") + i * ROWS * SUMS_BYTES for i in range(rows)]
    lines = Walk(f.pointer("lhs"), LHS, rows, LINE, REGISTER, f.index_argument("part"), places=f.pointer("places", I64))
    panel = Walk(f.pointer("rhs"), RHS, 1, LINE, part=REGISTER, step=factors.parts * REGISTER)
    sums = AmxSums(factors.instruction, outs, SUMS_BYTES, [[pair for some in factors.products for pair in some]])
    sums.begin(f.argument("first"))
    sums.add(lines, panel, f.index_argument("steps"))
    sums.store()
    f.returns()
    module.add(f)
    return name


def turn(module: Module, source: Pointer, source_bytes: int, target: Pointer, target_bytes: int) -> None:
    """Copies a square of 16 x 16 elements of 32 bits, its rows so far apart, to its columns: one function for all."""
    name, f = "matrix_convolution_turn", source.fn
    if name not in module.functions:
        parameters = [("ptr", "source"), ("i64", "source_bytes"), ("ptr", "target"), ("i64", "target_bytes")]
        g = Function(name, parameters, attributes="noinline nounwind", shared=_SHARED)
        place, to, rows = g.pointer("source", I32), g.pointer("target", I32), list[Value]()
        for _ in range(ROWS):
            rows.append(place.load(ROWS))
            place = place + g.index_argument("source_bytes")
        for row in transposed(rows):
            to.store(row)
            to = to + g.index_argument("target_bytes")
        g.returns()
        module.add(g)
    f.call(name, source, f.index(source_bytes), target, f.index(target_bytes))


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
    f = Function(name, parameters, attributes="noinline nounwind", shared=_SHARED)
    part, steps, places = f.index_argument("part"), f.index_argument("steps"), f.pointer("places", I64)
    is_first, is_raw = f.argument("first"), f.argument("raw")
    weights = f.local(FLOAT, 2 * ROWS * ROWS, 64)
    kernel = VectorTile(FUSED, ROWS, tuple(row * LINE for row in range(_HEIGHT)), 1)
    with f.loop(0, f.index_argument("rows"), _HEIGHT) as block:
        first = f.pointer("lhs", FLOAT) + block.index * LINE
        outs = [f.pointer("out", FLOAT) + (block.index + row) * SUMS_BYTES for row in range(_HEIGHT)]
        zero = f.constant(0, FLOAT.of(ROWS))
        with f.loop(0, steps, 1, [is_first.select(zero, out.load(ROWS)) for out in outs]) as step:
            panel = f.pointer("rhs", I32) + step.index * (3 * REGISTER)
            with f.loop(0, ROWS) as unit:
                packed = [(panel + unit.index * LINE + p * REGISTER).load(ROWS) for p in range(3)]
                for half, value in enumerate(joined(packed, is_raw)):
                    (weights + unit.index * LINE + half * REGISTER).store(value)
            lines = first + f.index(places[step.index].load())
            loops = [Steps(ROWS, 4, LINE), Steps(2, part, REGISTER, 2)]
            step.next = kernel.summed(loops, lines, weights, step.carried)
        for out, value in zip(outs, step.results, strict=True):
            out.store(value)
    f.returns()
    module.add(f)
    return name
