"""LAPACK custom-calls in machine code: SciPy's routines called as C functions, without Python.

The calls are those of ops/custom_targets/lapack_routines.py, each matrix copied to and from the routine's column-major
order. potrf, trsm, and of real matrices getrf, geqrf, orgqr and most of syevd are hlokit's own kernels. The text names
a routine `hlokit_lapack_dsyevd`; whoever loads the code gets the addresses from `lapack_symbols`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlokit.cpu.kernels.linalg import LAPACK, cholesky, eigh, lu, qr, qr_product, triangular_solve
from hlokit.cpu.kernels.linalg.cholesky_batch import CholeskyBatch
from hlokit.cpu.kernels.linalg.panels import Items
from hlokit.cpu.kernels.linalg.stripes import Matrix
from hlokit.cpu.kernels.linalg.system import system_of
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, Phase, PlannedKernel, Routine, RoutinePlan, up
from hlokit.cpu.llvm import (
    I8,
    I32,
    POINTER,
    Function,
    IfElse,
    Index,
    Module,
    Pointer,
    Prototype,
    Type,
    Value,
    scalar_type,
    type_of,
)
from hlokit.errors import HlokitError
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.ffi_attributes import ffi_attributes
from hlokit.ops.custom_targets.lapack import lapack as handler
from hlokit.ops.custom_targets.lapack import routine_address, with_workspace
from hlokit.ops.custom_targets.lapack_routines import (
    NOT_FINITE,
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


def lapack_names(names: Sequence[str]) -> list[str]:
    """The routines of LAPACK among functions that code calls."""
    return [name.removeprefix(LAPACK) for name in names if name.startswith(LAPACK)]


def lapack_addresses(names: Sequence[str]) -> dict[str, int]:
    """Addresses of routines of LAPACK by the symbols that the code has for them."""
    return {LAPACK + name: lapack_address(name) for name in names}


def lapack_symbols(module: Module) -> dict[str, int]:
    """Addresses of what a module calls of LAPACK, by symbol."""
    return lapack_addresses(lapack_names(module.external))


def plan(call: Call) -> RoutinePlan | None:
    """For a `lapack_?NAME_ffi` custom-call. The table: operands, results, scratch.

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
        batch = CholeskyBatch(a.dtype, prod(job.batch), a.dimensions[-1], lower, info=True)
        return cholesky.plan_of(batch, call.target)
    if name == "trsm":
        left, lower, unit, transpose = (chr(attributes[n]) for n in ("side", "uplo", "diag", "trans_x"))
        ways = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
        system = system_of(call.operands[1], a.dimensions[-1], left == "L", lower == "L", unit == "U", ways[transpose])
        return triangular_solve.plan_of(system, call.target)
    if name in ("getrf", "geqrf", "orgqr") and not a.dtype.is_complex:
        matrix = Matrix(a.dtype, prod(job.batch), *a.dimensions[-2:])
        if name == "getrf":
            return lu.plan_of(matrix, call.target)
        if name == "geqrf":
            return qr.plan_of(matrix, call.target)
        return qr_product.plan_of(matrix, call.operands[1].dimensions[-1], call.target)
    if name == "syevd" and attributes["mode"] == ord("V"):
        matrix = Matrix(a.dtype, prod(job.batch), *a.dimensions[-2:])
        own = eigh.plan_of(matrix, attributes["uplo"] == ord("L"), call.target)
        if own is not None:
            return own
    if name == "geev" or is_long(a.dimensions[-2:]):
        return None
    return LapackPlan(job, with_workspace(job), len(call.operands), len(call.results))


lapack = PlannedKernel(plan)
KERNELS.update({f"custom-call:{target}": lapack for target in TARGETS})


@dataclass(frozen=True)
class LapackPlan:
    """Calls of a routine of LAPACK, one for each matrix of the batch.

    job        the routine, and how its arguments and results are made
    arguments  with the sizes of its workspace
    operands   the number of the custom-call's operands, `results` of its results
    """

    job: Job
    arguments: tuple[Argument, ...]
    operands: int
    results: int

    def write(self, module: Module) -> Routine:
        chunks = max(1, self.matrices.chunks)
        return Routine((Phase(_phase(self, module), chunks),), chunks * self.memory)

    def bytes(self, argument: Argument) -> int:
        """Size of an argument's memory in scratch."""
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
        """The offset of an argument's memory in the scratch of a chunk."""
        return sum(self.bytes(argument) for argument in self.arguments[:number])


def _phase(plan: LapackPlan, module: Module) -> str:
    job = plan.job
    routine = Prototype(LAPACK + job.symbol, None, [POINTER] * len(plan.arguments))
    f = Function(plan.name, PHASE)
    matrices = plan.matrices
    scratch = f.table(plan.operands + plan.results)
    with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
        memory = scratch + chunk.index * plan.memory
        places = [_pointer(plan, number, memory) for number in range(len(plan.arguments))]
        first = chunk.index * matrices.a_chunk
        with f.loop(first, (first + matrices.a_chunk).smin(matrices.count)) as matrix:
            for number, argument in enumerate(plan.arguments):
                if isinstance(argument, Block):
                    _fill(plan, argument, memory + plan.place(number), matrix.index)
            if job.finite_only:
                choice = IfElse(f, _is_finite(plan, memory))
                f.call(routine, *places)
                choice.otherwise()
                places[-1].to(I32).store(NOT_FINITE)
                choice.end()
            else:
                f.call(routine, *places)
            for number, argument in enumerate(plan.arguments):
                if isinstance(argument, Block) and argument.result is not None:
                    array = f.table(plan.operands + argument.result) + matrix.index * _size(argument)
                    _transposed(argument, memory + plan.place(number), array, into=False)
    return module.end(f, exported=True)


def _is_finite(plan: LapackPlan, memory: Pointer) -> Value:
    """Whether all elements of the matrices that were copied to scratch memory are: 0 times each is 0."""
    f = memory.fn
    lost: list[Value] = []
    for number, argument in enumerate(plan.arguments):
        if isinstance(argument, Block) and argument.source is not None:
            part = type_of(scalar_type(dtype(argument.dtype).real))
            elements = (memory + plan.place(number)).to(part)
            with f.loop(0, _size(argument) // part.bytes, carries=[f.constant(0.0, part)]) as k:
                k.next = [k.carried[0] + elements[k.index].load() * 0.0]
            lost += k.results
    return sum(lost[1:], lost[0]).eq(0.0)


def _pointer(plan: LapackPlan, number: int, scratch: Pointer) -> Pointer:
    """The pointer that the routine gets for an argument."""
    f, argument = scratch.fn, plan.arguments[number]
    match argument:
        case Null():
            return f.null()
        case Character(value):
            return _on_stack(f, I8, ord(value))
        case Number(value):
            return _on_stack(f, I32, value)
        case WorkSize():
            work = plan.arguments[number - 1]
            assert isinstance(work, Work)
            return _on_stack(f, I32, max(1, work.size or 0))
        case Scalar(name, value):
            return _on_stack(f, type_of(scalar_type(dtype(name).real)), value, 0.0)
        case Block(name, _, _, _, first):
            skipped = first if first < prod(argument.sizes) else 0
            return scratch + (plan.place(number) + skipped * (dtype(name).bits // 8))
        case Work():
            return scratch + plan.place(number)


def _on_stack(f: Function, type: Type, *values: float) -> Pointer:
    place = f.local(type, len(values), 64)
    for i, value in enumerate(values):
        place[i].store(value)
    return place


def _size(block: Block) -> int:
    """Bytes of one matrix's array."""
    return prod(block.sizes) * (dtype(block.dtype).bits // 8)


def _fill(plan: LapackPlan, block: Block, memory: Pointer, matrix: Index) -> None:
    f = memory.fn
    if block.source is None:
        f.memset(memory, 0, plan.bytes(block))
    else:
        _transposed(block, memory, f.table(block.source) + matrix * _size(block), into=True)


def _transposed(block: Block, memory: Pointer, array: Pointer, into: bool) -> None:
    """Between an array's matrix and the routine's, by square tiles; vectors as they are."""
    f = memory.fn
    if len(block.sizes) < 2:
        source, target = (array, memory) if into else (memory, array)
        f.memcpy(target, source, _size(block))
        return
    rows, columns = block.sizes
    size, align = dtype(block.dtype).bits // 8, dtype(block.dtype).real.bits // 8
    moved = type_of(f"i{8 * min(size, 8)}")
    with f.loop(0, rows, _TILE) as row_tile, f.loop(0, columns, _TILE) as column_tile:
        rows_end, columns_end = (row_tile.index + _TILE).smin(rows), (column_tile.index + _TILE).smin(columns)
        with f.loop(row_tile.index, rows_end) as row, f.loop(column_tile.index, columns_end) as column:
            here = (memory + row.index * size + column.index * (size * rows)).to(moved, align)
            there = (array + row.index * (size * columns) + column.index * size).to(moved, align)
            source, target = (there, here) if into else (here, there)
            target.store(source.load(size // moved.bytes))
