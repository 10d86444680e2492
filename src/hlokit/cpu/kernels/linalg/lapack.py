"""LAPACK custom-calls in machine code: SciPy's routines called as C functions, without Python.

The calls are those of ops/custom_targets/lapack_routines.py, each matrix copied to and from the routine's column-major
order. potrf, trsm, and of real matrices getrf, geqrf, orgqr and most of syevd are hlokit's own kernels. The text names
a routine `hlokit_lapack_dsyevd`; whoever loads the code gets the addresses from `lapack_symbols`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.linalg import cholesky, eigh, lu, qr, qr_product, triangular_solve
from hlokit.cpu.kernels.linalg.factored import Factored
from hlokit.cpu.kernels.linalg.panels import Items, clear, offset, plus, times, up
from hlokit.cpu.kernels.linalg.stripes import Matrix
from hlokit.cpu.kernels.linalg.system import system_of
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, Phase, Routine
from hlokit.cpu.llvm import Function, Module, float_constant, scalar_type
from hlokit.errors import HlokitError
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.ffi_attributes import ffi_attributes
from hlokit.ops.custom_targets.lapack import lapack as handler
from hlokit.ops.custom_targets.lapack import routine_address, with_workspace
from hlokit.ops.custom_targets.lapack_routines import (
    TARGETS,
    Argument,
    Block,
    Character,
    Job,
    Null,
    Number,
    Scalar,
    Work,
    WorkSize,
    job_of,
    split_target,
)
from hlokit.ops.custom_targets.registry import find_target
from hlokit.ops.linalg import is_long
from hlokit.types.dtype import dtype

_PREFIX = "hlokit_lapack_"
_NAMES = re.compile(rf"^declare void @{_PREFIX}(\w+)\(", re.MULTILINE)
_TILE = 16
_SMALL = 64 * 64
"""Elements of matrices that OpenBLAS's threads leave alone."""
_CALL = 5000
"""The least work of a routine, in vector operations."""
_MOST_CHUNKS = 64
"""Each has scratch of its own."""


def lapack_address(name: str) -> int:
    """The C function of a routine of LAPACK by its name: "dsyevd". EvaluationError: SciPy has none."""
    return routine_address(name)


def lapack_names(text: str) -> list[str]:
    """The routines of LAPACK that LLVM text declares."""
    return _NAMES.findall(text)


def lapack_addresses(names: Sequence[str]) -> dict[str, int]:
    """Addresses of routines of LAPACK by the symbols that the code has for them."""
    return {_PREFIX + name: lapack_address(name) for name in names}


def lapack_symbols(text: str) -> dict[str, int]:
    """Addresses of what LLVM text declares of LAPACK, by symbol."""
    return lapack_addresses(lapack_names(text))


def lapack(call: Call, module: Module) -> Routine | None:
    """The routine of a `lapack_?NAME_ffi` custom-call. The table: operands, results, scratch.

    None for shapes or attributes that do not fit the routine (the handler in Python says what is wrong), for geev,
    whose results are no copies, for a target that the user replaced, in strict mode, and for large matrices, whose
    handler in Python hears signals.
    """
    op = call.op
    assert isinstance(op, CustomCall)
    if call.strict or call.store is not None or find_target(op.custom_call_target) is not handler:
        return None
    try:
        attributes = ffi_attributes(call.backend_config)
        job = job_of(op.custom_call_target, attributes, call.operands, call.results)
    except HlokitError:
        return None
    name = split_target(op.custom_call_target)[1]
    a = call.operands[0]
    if name == "potrf":
        lower = attributes["uplo"] == ord("L")
        s = Factored(a.dtype, prod(job.batch), a.dimensions[-1], lower, info=True)
        return cholesky.routine(s, module, call.target)
    if name == "trsm":
        left, lower, unit, transpose = (chr(attributes[n]) for n in ("side", "uplo", "diag", "trans_x"))
        ways = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
        system = system_of(call.operands[1], a.dimensions[-1], left == "L", lower == "L", unit == "U", ways[transpose])
        return triangular_solve.routine(system, module, call.target)
    if name in ("getrf", "geqrf", "orgqr") and not a.dtype.is_complex:
        matrix = Matrix(a.dtype, prod(job.batch), *a.dimensions[-2:])
        if name == "getrf":
            return lu.routine(matrix, module, call.target)
        if name == "geqrf":
            return qr.routine(matrix, module, call.target)
        return qr_product.routine(matrix, call.operands[1].dimensions[-1], module, call.target)
    if name == "syevd" and attributes["mode"] == ord("V"):
        matrix = Matrix(a.dtype, prod(job.batch), *a.dimensions[-2:])
        own = eigh.routine(matrix, attributes["uplo"] == ord("L"), module, call.target)
        if own is not None:
            return own
    if job.finite_only or job.pairs or is_long(a.dimensions[-2:]):
        return None
    return _routine(_Plan(job, with_workspace(job), len(call.operands), len(call.results)), module)


KERNELS.update({f"custom-call:{target}": lapack for target in TARGETS})


@dataclass(frozen=True)
class _Plan:
    job: Job
    arguments: tuple[Argument, ...]
    operands: int
    results: int

    def bytes(self, argument: Argument) -> int:
        """Of an argument's memory in scratch."""
        match argument:
            case Block(name, sizes):
                return up(max(1, prod(sizes)) * (dtype(name).bits // 8), 64)
            case Work(name, size):
                return up(max(1, size or 0) * (dtype(name).bits // 8), 64)
            case _:
                return 0

    @property
    def name(self) -> str:
        """Equal for equal jobs alone."""
        parts = [self.job.symbol, "x".join(map(str, self.job.batch)), f"{self.operands}_{self.results}"]
        for a in self.arguments:
            if isinstance(a, Block):
                parts.append("x".join(map(str, a.sizes)) + f"_{a.source}_{a.result}")
            elif isinstance(a, (Number, Character)):
                parts.append(str(a.value))
        return "lapack_" + "_".join(parts).replace("None", "")

    @property
    def memory(self) -> int:
        """Bytes of a chunk's scratch."""
        return self.place(len(self.arguments))

    @property
    def matrices(self) -> Items:
        """Small ones by chunks; larger ones in one: OpenBLAS has threads for them, and lets no other thread in."""
        count = prod(self.job.batch)
        elements = max(prod(a.sizes) for a in self.arguments if isinstance(a, Block))
        fewest = -(-count // _MOST_CHUNKS) if elements <= _SMALL else count
        return Items(count, _CALL + 10 * round(elements**1.5), max(1, fewest))

    def place(self, number: int) -> int:
        """Where an argument's memory is in the scratch of a chunk."""
        return sum(self.bytes(argument) for argument in self.arguments[:number])


def _routine(plan: _Plan, module: Module) -> Routine:
    job = plan.job
    symbol = _PREFIX + job.symbol
    module.declare(symbol, ["ptr"] * len(plan.arguments))
    f = Function(plan.name, PHASE)
    matrices = plan.matrices
    scratch = table_pointer(f, plan.operands + plan.results)
    with f.loop("%begin", "%end") as chunk:
        memory = offset(f, scratch, (chunk.index, plan.memory))
        places = [_pointer(f, plan, number, memory) for number in range(len(plan.arguments))]
        first = times(f, chunk.index, matrices.a_chunk)
        with f.loop(first, least(f, plus(f, first, matrices.a_chunk), str(matrices.count))) as matrix:
            for number, argument in enumerate(plan.arguments):
                if isinstance(argument, Block):
                    _fill(f, plan, argument, offset(f, memory, plan.place(number)), matrix.index)
            f.do(f"call void @{symbol}({', '.join(f'ptr {place}' for place in places)})")
            for number, argument in enumerate(plan.arguments):
                if isinstance(argument, Block) and argument.result is not None:
                    result = table_pointer(f, plan.operands + argument.result)
                    array = offset(f, result, (matrix.index, _size(argument)))
                    _transposed(f, argument, offset(f, memory, plan.place(number)), array, into=False)
    f.do("ret void")
    module.add(f, exported=True)
    chunks = max(1, matrices.chunks)
    return Routine((Phase(f.name, chunks),), chunks * plan.memory)


def _pointer(f: Function, plan: _Plan, number: int, scratch: str) -> str:
    """What the routine gets for an argument."""
    argument = plan.arguments[number]
    match argument:
        case Null():
            return "null"
        case Character(value):
            return _on_stack(f, "i8", str(ord(value)))
        case Number(value):
            return _on_stack(f, "i32", str(value))
        case WorkSize():
            work = plan.arguments[number - 1]
            assert isinstance(work, Work)
            return _on_stack(f, "i32", str(max(1, work.size or 0)))
        case Scalar(name, value):
            real = scalar_type(dtype(name).real)
            place = f.alloca(real, 2)
            for i, part in enumerate((value, 0.0)):
                f.do(
                    f"store {real} {float_constant(part, real)}, ptr {offset(f, place, i * dtype(name).real.bits // 8)}"
                )
            return place
        case Block(name, _, _, _, first):
            skipped = first if first < prod(argument.sizes) else 0
            return offset(f, scratch, plan.place(number), skipped * (dtype(name).bits // 8))
        case Work():
            return offset(f, scratch, plan.place(number))


def _on_stack(f: Function, type: str, value: str) -> str:
    place = f.alloca(type)
    f.do(f"store {type} {value}, ptr {place}, align 4")
    return place


def _size(block: Block) -> int:
    """Bytes of one matrix's array."""
    return prod(block.sizes) * (dtype(block.dtype).bits // 8)


def _fill(f: Function, plan: _Plan, block: Block, memory: str, matrix: str) -> None:
    if block.source is None:
        clear(f, memory, str(plan.bytes(block)))
    else:
        _transposed(f, block, memory, offset(f, table_pointer(f, block.source), (matrix, _size(block))), into=True)


def _transposed(f: Function, block: Block, memory: str, array: str, into: bool) -> None:
    """Between an array's matrix and the routine's, by square tiles; vectors as they are."""
    if len(block.sizes) < 2:
        source, target = (array, memory) if into else (memory, array)
        f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {_size(block)}, i1 false)")
        return
    rows, columns = block.sizes
    size = dtype(block.dtype).bits // 8
    moved = f"i{8 * size}" if size <= 8 else "<2 x i64>"
    align = dtype(block.dtype).real.bits // 8
    with f.loop("0", str(rows), _TILE) as row_tile, f.loop("0", str(columns), _TILE) as column_tile:
        rows_end = least(f, plus(f, row_tile.index, _TILE), str(rows))
        columns_end = least(f, plus(f, column_tile.index, _TILE), str(columns))
        with f.loop(row_tile.index, rows_end) as row, f.loop(column_tile.index, columns_end) as column:
            here = offset(f, memory, (row.index, size), (column.index, size * rows))
            there = offset(f, array, (row.index, size * columns), (column.index, size))
            source, target = (there, here) if into else (here, there)
            value = f.let(f"load {moved}, ptr {source}, align {align}")
            f.do(f"store {moved} {value}, ptr {target}, align {align}")
