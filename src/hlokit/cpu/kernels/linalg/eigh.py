"""Eigenvectors of symmetric matrices (LAPACK's syevd): reduced (tridiagonal.py), solved (divide.py), and
multiplied by the reflectors of the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.flow import table_pointer
from hlokit.cpu.kernels.linalg import divide, tridiagonal
from hlokit.cpu.kernels.linalg.divide import LEAF, Eigen
from hlokit.cpu.kernels.linalg.panels import Items, everywhere, load, offset, plus, store, times
from hlokit.cpu.kernels.linalg.stripes import Matrix
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module, float_constant
from hlokit.cpu.target import Target

VECTORS, VALUES, INFO, SCRATCH = 1, 2, 3, 4
"""The table's places, after the operand."""
LARGEST = 1024
"""Rows of the largest matrix: beyond it the reduction waits for memory, which OpenBLAS's threads do together."""
_MATRICES_AT_ONCE = 4
"""Batches of as many matrices are a chunk each matrix, or several."""
_MOST_CHUNKS, _MOST_SCRATCH = 64, 2**27
"""Of whole matrices, and their bytes if four take no more: each has scratch of its own, ten times a matrix."""

Piece = tuple[str, int, int]
"""A part by name, how many pieces of a matrix it does, and its step."""


def routine(m: Matrix, lower: bool, module: Module, target: Target) -> Routine | None:
    """The table: operand, vectors, values, info, scratch. None: sizes for which LAPACK is as fast."""
    if not LEAF < m.rows <= LARGEST or not m.batch:
        return None
    s = Eigen("eigh", m, target, VECTORS, m.rows - 1, lower)
    pieces = list(_pieces(s, module))
    if m.batch < _MATRICES_AT_ONCE:
        phases = [_phase(s, module, number, piece) for number, piece in enumerate(pieces)]
        return Routine(tuple(phases), m.batch * s.memory)
    most = max(4, min(_MOST_CHUNKS, _MOST_SCRATCH // s.memory))
    chunks = Items(m.batch, 9 * m.rows**3 // s.p.lanes, -(-m.batch // most))
    return Routine((Phase(_whole(s, module, pieces, chunks), chunks.chunks),), chunks.chunks * s.memory)


def _pieces(s: Eigen, module: Module) -> list[Piece]:
    """What is done to a matrix, in its order."""
    pieces = [(tridiagonal.pack(s, module), s.count, 0), (tridiagonal.begin(s, module), 1, 0)]
    panel, update = tridiagonal.panel(s, module), tridiagonal.update(s, module)
    for step in range(s.count):
        pieces += [(panel, 1, step), (update, s.count - 1 - step, step)]
    pieces += [(divide.cut(s, module), 1, 0), (divide.leaf(s, module), s.blocks, 0)]
    joining = [part(s, module) for part in (divide.deflate, divide.roots, divide.weights, divide.vectors)]
    for level in range(s.levels):
        pairs = s.pairs(level)
        stripes = pairs * s.stripes_of_pair(level)
        pieces += [(part, count, level) for part, count in zip(joining, (pairs, stripes) * 2, strict=True)]
    pieces += [(tridiagonal.reflector_block(s, module), s.factored, 0), (_finish(s, module), s.count, 0)]
    return [piece for piece in pieces if piece[1]]


def _finish(s: Eigen, module: Module) -> str:
    """The part that makes a stripe of the result; the first makes the eigenvalues and info too."""
    p, n = s.p, s.m.rows
    f = s.part("finish", is_cold=True)
    stripe = offset(f, s.area(f, "vectors"), ("%number", s.stripe_bytes))
    tridiagonal.back(s, module, f, stripe)
    flags = s.area(f, "failed")
    spoilt = f.let(f"icmp ne i32 {f.let(f'load i32, ptr {offset(f, flags, 4)}, align 4')}, 0")
    nan = float_constant(float("nan"), p.scalar)
    with f.when(spoilt), f.loop("0", str(s.rows * p.width), p.lanes) as row:
        store(f, p, everywhere(p, float("nan")), offset(f, stripe, (row.index, p.bytes)), p.lanes)
    s.write(f, module, stripe, "%number")
    with f.when(f.let("icmp eq i64 %number, 0")):
        values = s.values(f, str(s.levels))
        goal = offset(f, table_pointer(f, VALUES), ("%matrix", n * p.bytes))
        scales = [load(f, p, offset(f, s.area(f, "scales"), i * p.bytes)) for i in (1, 0)]
        with f.loop("0", str(n)) as row:
            value = load(f, p, offset(f, values, (row.index, p.bytes)))
            for scale in scales:
                value = f.let(f"fmul {p.scalar} {value}, {scale}")
            value = f.let(f"select i1 {spoilt}, {p.scalar} {nan}, {p.scalar} {value}")
            store(f, p, value, offset(f, goal, (row.index, p.bytes)))
        failed = f.let(f"load i32, ptr {flags}, align 4")
        f.do(f"store i32 {failed}, ptr {offset(f, table_pointer(f, INFO), ('%matrix', 4))}, align 4")
    return s.end(f, module)


# -- phases


def _call(f: Function, part: str, memory: str, matrix: str, number: str, step: int) -> None:
    f.do(f"call void @{part}(ptr %table, ptr {memory}, i64 {matrix}, i64 {number}, i64 {step})")


def _phase(s: Eigen, module: Module, number: int, piece: Piece) -> Phase:
    """The phase that does a part of each matrix."""
    part, count, step = piece
    f = Function(f"{s.name}_phase{number}", PHASE, is_cold=True)
    scratch = table_pointer(f, SCRATCH)
    with f.loop("%begin", "%end") as chunk:
        matrix, at = f.let(f"udiv i64 {chunk.index}, {count}"), f.let(f"urem i64 {chunk.index}, {count}")
        _call(f, part, offset(f, scratch, (matrix, s.memory)), matrix, at, step)
    f.do("ret void")
    module.add(f, exported=True)
    return Phase(f.name, s.m.batch * count)


def _whole(s: Eigen, module: Module, pieces: Sequence[Piece], chunks: Items) -> str:
    """The phase that does everything to whole matrices."""
    f = Function(f"{s.name}_whole", PHASE, is_cold=True)
    scratch = table_pointer(f, SCRATCH)
    with f.loop("%begin", "%end") as chunk:
        memory = offset(f, scratch, (chunk.index, s.memory))
        start = times(f, chunk.index, chunks.a_chunk)
        end = f.let(f"call i64 @llvm.smin.i64(i64 {plus(f, start, chunks.a_chunk)}, i64 {s.m.batch})")
        with f.loop(start, end) as matrix:
            for part, count, step in pieces:
                with f.loop("0", str(count)) as number:
                    _call(f, part, memory, matrix.index, number.index, step)
    f.do("ret void")
    module.add(f, exported=True)
    return f.name
