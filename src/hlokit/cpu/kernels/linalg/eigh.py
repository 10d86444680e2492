"""Eigenvectors of symmetric matrices (LAPACK's syevd): reduced (tridiagonal.py), solved (divide.py), and
multiplied by the reflectors of the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from hlokit.cpu import costs
from hlokit.cpu.kernels.linalg import divide, tridiagonal
from hlokit.cpu.kernels.linalg.divide import LEAF, Eigen
from hlokit.cpu.kernels.linalg.panels import Items
from hlokit.cpu.kernels.linalg.stepped import call_part
from hlokit.cpu.kernels.linalg.stripes import Matrix
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import I32, Function, Module
from hlokit.cpu.target import Target

VECTORS, VALUES, INFO, SCRATCH = 1, 2, 3, 4
"""The table's places, after the operand."""
_MATRICES_AT_ONCE = 4
"""Batches of as many matrices are a chunk each matrix, or several."""
_MOST_CHUNKS, _MOST_SCRATCH = 64, 2**27
"""The most chunks of whole matrices, and their bytes if four take no more: each has scratch of ten times a matrix."""

Piece = tuple[str, int, int]
"""A part by name, how many pieces of a matrix it does, and its step."""


def plan_of(m: Matrix, lower: bool, target: Target) -> EighPlan | None:
    """The plan for a batch; None for sizes for which LAPACK is as fast.

    The table: operand, vectors, values, info, scratch.
    """
    if not LEAF < m.rows <= costs.EIGH_ROWS or not m.batch:
        return None
    return EighPlan(Eigen("eigh", m, target, VECTORS, m.rows - 1, lower))


@dataclass(frozen=True)
class EighPlan:
    """Each part of the work on few matrices is a phase; of many, chunks are whole matrices."""

    s: Eigen

    def write(self, module: Module) -> Routine:
        s, m = self.s, self.s.m
        pieces = list(_pieces(s, module))
        if m.batch < _MATRICES_AT_ONCE:
            phases = [_phase(s, module, number, piece) for number, piece in enumerate(pieces)]
            return Routine(tuple(phases), m.batch * s.memory)
        most = max(4, min(_MOST_CHUNKS, _MOST_SCRATCH // s.memory))
        chunks = Items(m.batch, 9 * m.rows**3 // s.p.lanes, -(-m.batch // most))
        return Routine((Phase(_whole(s, module, pieces, chunks), chunks.chunks),), chunks.chunks * s.memory)


def _pieces(s: Eigen, module: Module) -> list[Piece]:
    """The pieces of work on a matrix, in their order."""
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
    stripe = s.area(f, "vectors") + f.number * s.stripe_bytes
    tridiagonal.back_transform(s, module, f, stripe)
    failed, is_spoilt = s.flags(f)
    spoilt = is_spoilt.load().ne(0)
    with f.when(spoilt), f.loop(0, s.rows * p.width, p.lanes) as row:
        stripe[row.index].store(f.constant(nan, p.vector))
    s.write(f, module, stripe, f.number)
    with f.when(f.number.eq(0)):
        values, goal = s.values(f, f.index(s.levels)), f.array(VALUES, n * p.bytes)
        scales = [s.area(f, "scales")[i].load() for i in (1, 0)]
        with f.loop(0, n) as row:
            value = values[row.index].load()
            for scale in scales:
                value = value * scale
            goal[row.index].store(spoilt.select(value.value(nan), value))
        f.array(INFO, 4, I32).store(failed.load())
    return module.end(f)


# -- phases


def _phase(s: Eigen, module: Module, number: int, piece: Piece) -> Phase:
    """The phase that does a part of each matrix."""
    part, count, step = piece
    f = Function(f"{s.name}_phase{number}", PHASE, is_cold=True)
    scratch = f.table(SCRATCH)
    with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
        matrix, at = chunk.index // count, chunk.index % count
        call_part(f, part, scratch + matrix * s.memory, matrix, at, step)
    return Phase(module.end(f, exported=True), s.m.batch * count)


def _whole(s: Eigen, module: Module, pieces: Sequence[Piece], chunks: Items) -> str:
    """The phase that does everything to whole matrices."""
    f = Function(f"{s.name}_whole", PHASE, is_cold=True)
    scratch = f.table(SCRATCH)
    with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
        memory, start = scratch + chunk.index * s.memory, chunk.index * chunks.a_chunk
        with f.loop(start, (start + chunks.a_chunk).smin(s.m.batch)) as matrix:
            for part, count, step in pieces:
                with f.loop(0, count) as number:
                    call_part(f, part, memory, matrix.index, number.index, step)
    return module.end(f, exported=True)
