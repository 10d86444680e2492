"""Collectives between threads: every member reads the others' operands and writes the results in place.

The members meet and give their pointers; then each does its share of the group's movements in machine code, without
Python's lock; and nobody goes on before all have done theirs, since operands may be overwritten then. Who shares in
what is a matter of positions in the result alone. Reductions fold in group order, by code compiled from the
collective's computation as strict code is: the bytes are the reference's.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hlokit import memory
from hlokit.cpu.target import host
from hlokit.errors import EvaluationError
from hlokit.forks import lock
from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import Block, Contributions, Transfer
from hlokit.interpreter.process import Process
from hlokit.interpreter.transport import Cancelled, rendezvous_key
from hlokit.ops.collectives import combines_elements
from hlokit.ops.control_flow import Map
from hlokit.ops.structure import Parameter
from hlokit.runtime.code import Code
from hlokit.runtime.compilation import Compilation
from hlokit.runtime.meetings import Meetings
from hlokit.runtime.meetings import Site as MeetingSite
from hlokit.runtime.share import BLOCK, FOLD_WORDS, native_share
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction

SHARED = 1 << 17
"""Bytes of results from which all members take part: waking them takes as long as to move so many."""
SHARED_WITHOUT_PYTHON = 1 << 15
"""The same where no thread has to be woken."""
STREAMED = 1 << 22
"""Bytes of results from which they are stored past the caches."""


@dataclass(frozen=True)
class _End:
    """A block of a member's array: `inner` bytes at `offset`, and again every `stride` bytes, `total` bytes in all."""

    member: int
    slot: int
    offset: int
    inner: int
    stride: int
    total: int


@dataclass(frozen=True)
class _Job:
    """Movements that give the same: the bytes of one source, or the fold of several, or zeros, to all targets."""

    sources: tuple[_End, ...]
    targets: tuple[_End, ...]

    @property
    def total(self) -> int:
        return self.targets[0].total


class _Given:
    """The data that a member brings; `table`: of the pointers of its operands, then of the results it makes."""

    __slots__ = ("instruction", "table")

    def __init__(self, instruction: Instruction, table: int) -> None:
        self.instruction = instruction
        self.table = table


class _Latch:
    """Opens when all members have done their share."""

    def __init__(self, count: int) -> None:
        self.failed = False
        self._left = count
        self._lock = lock()
        self._open = lock()
        self._open.acquire()

    def done(self, failed: bool) -> None:
        with self._lock:
            self.failed |= failed
            self._left -= 1
            if not self._left:
                self._open.release()

    def wait(self) -> None:
        with self._open:
            pass


class _Site(NamedTuple):
    """An instruction on a device: who meets there, at which position this device; how they run it together."""

    members: list[int]
    position: int
    plan: _Plan


class Collectives:
    """The collectives of a program, which all its devices run."""

    def __init__(self) -> None:
        self._sites: dict[tuple[Instruction, int], _Site | None] = {}
        self._plans: dict[Hashable, _Plan] = {}
        self._folds: dict[Computation, _Fold | None] = {}
        self._lock = lock()

    def meetings(
        self, processes: Sequence[Process], instructions: Sequence[Instruction], alike: bool = False
    ) -> Meetings:
        """Where those of these steps that move little meet without Python.

        alike   all devices come to the same steps, so that each step meets itself alone; those that move more are
                shared out
        """
        keys = Counter(rendezvous_key(instruction) for instruction in instructions)
        groups: dict[tuple[int, ...], int] = {}

        def met(process: Process, instruction: Instruction) -> MeetingSite | None:
            if instruction.op.asks_device:
                return MeetingSite(0, int(instruction.op.reference(process=process)), 0, 0, 0)
            is_alone = alike or keys[rendezvous_key(instruction)] == 1
            site = self._known(process, instruction) if is_alone else None
            if site is None or site.plan.is_slow:
                return None
            work, members = (site.plan.address, len(site.plan.jobs)), len(site.members)
            if not alike and (site.plan.bytes >= SHARED or members < 2):
                return None
            group = groups.setdefault(tuple(site.members), len(groups))
            is_shared = alike and members > 1 and site.plan.bytes >= SHARED_WITHOUT_PYTHON
            return MeetingSite(group, site.position, members, *work, is_shared)

        return Meetings([[met(process, instruction) for instruction in instructions] for process in processes])

    def run(self, process: Process, instruction: Instruction, table: int, over: Callable[[], object]) -> bool:
        """Runs the instruction on the pointers in the table; False if only the reference can.

        over   called by one of the members, before any of them goes on, where they need no latch
        """
        site = self._known(process, instruction)
        if site is None:
            return False
        values = _met(process, site.members, _Given(instruction, table))
        plan = site.plan
        if any(given.instruction is not instruction for given in values):  # of one channel
            plan = self._mixed(process, [given.instruction for given in values])
        if plan.bytes < SHARED or plan.is_slow:
            _made(values, lambda: (plan.run(process, values), over()))
            return True
        latch: _Latch = _made(values, lambda: _Latch(len(values)))
        failed = True
        try:
            plan.share(values, site.position)
            failed = False
        finally:
            latch.done(failed)
            latch.wait()
        if latch.failed:
            raise Cancelled
        return True

    def _known(self, process: Process, instruction: Instruction) -> _Site | None:
        key = instruction, process.device
        if key not in self._sites:
            self._add_sites(process, instruction)
        return self._sites[key]

    def _add_sites(self, process: Process, instruction: Instruction) -> None:
        """The site of this device, and of all members of its group. None for what is no movement of whole blocks."""
        transfer = _transfer(process, instruction)
        if transfer is None:
            self._sites[instruction, process.device] = None
            return
        members = [replica * process.partition_count + partition for replica, partition in transfer.members]
        count = len(members)
        key = instruction, tuple(map(tuple, transfer.takes))
        plan = self._plan(key, [instruction] * count, [transfer] * count)
        for position, member in enumerate(members):
            self._sites.setdefault((instruction, member), _Site(members, position, plan))

    def _mixed(self, process: Process, instructions: Sequence[Instruction]) -> _Plan:
        """The plan of instructions that differ, as they may: in whether they are -start ops, say."""
        key = tuple(instructions)
        if key in self._plans:
            return self._plans[key]
        transfers = [_transfer(process, instruction) for instruction in instructions]
        return self._plan(key, instructions, [t for t in transfers if t is not None])

    def _plan(self, key: Hashable, instructions: Sequence[Instruction], transfers: Sequence[Transfer]) -> _Plan:
        """The plan of members with these instructions, by position."""
        with self._lock:
            if key not in self._plans:
                jobs = _jobs(instructions, transfers)
                folds = any(len(job.sources) > 1 for job in jobs)
                fold = self._fold(instructions[0].called[0]) if folds else None
                self._plans[key] = _Plan(instructions, jobs, fold)
            return self._plans[key]

    def _fold(self, computation: Computation) -> _Fold | None:
        if computation not in self._folds:
            self._folds[computation] = _Fold.of(computation)
        return self._folds[computation]


def _transfer(process: Process, instruction: Instruction) -> Transfer | None:
    operands, results = _arrays(instruction)
    if any(shape.is_dynamic for shape in (*operands, *results)) or not combines_elements(instruction):
        return None
    return instruction.op.transfer(operands, results, process)


def _met(process: Process, members: Sequence[int], given: _Given) -> Sequence[_Given]:
    """Waits for all members; returns what each gave. EvaluationError names the instruction, as the reference does."""
    try:
        values = process.transport.meet(process.device, given.instruction, members, given)
    except EvaluationError as error:
        if not error.located:
            error.args = (f"{given.instruction.name}: {error}",)
            error.located = True
        raise
    if not all(isinstance(value, _Given) for value in values):
        raise EvaluationError(f"{given.instruction.name}: its members disagree about the result's shape [GRP-6]")
    return values


def _jobs(instructions: Sequence[Instruction], transfers: Sequence[Transfer]) -> list[_Job]:
    """The members' moves, those from the same sources together."""
    targets: dict[tuple[_End, ...], list[_End]] = {}
    zeros: list[_End] = []
    arrays = [_arrays(instruction) for instruction in instructions]
    for own, (transfer, (operands, results)) in enumerate(zip(transfers, arrays, strict=True)):
        for move in transfer.moves(own):
            target = _end(own, len(operands) + move.result - transfer.kept, results[move.result], move.block)
            sources = tuple(_end(p.member, p.operand, arrays[p.member][0][p.operand], p.block) for p in move.sources)
            (targets.setdefault(sources, []) if sources else zeros).append(target)
    jobs = [_Job(sources, tuple(ends)) for sources, ends in targets.items()]
    jobs += [_Job((), (end,)) for end in zeros]
    return [job for job in jobs if job.total]


class _Plan:
    """The way in which a group's members run their instructions together; those are mostly one and the same."""

    def __init__(self, instructions: Sequence[Instruction], jobs: Sequence[_Job], fold: _Fold | None) -> None:
        self.instructions = instructions
        self.jobs = jobs
        self.fold = fold
        self.bytes = sum(job.total * len(job.targets) for job in jobs)
        self.is_slow = fold is None and any(len(job.sources) > 1 for job in jobs)
        words = [word for job in jobs for word in self._words(job)]
        self._words_of_jobs = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self._words_of_jobs)
        self._pack = struct.Struct(f"{len(instructions)}P").pack
        self._call = native_share().share

    def _words(self, job: _Job) -> list[int]:
        fold = self.fold.address if self.fold is not None and len(job.sources) > 1 else 0
        head = [len(job.sources), len(job.targets), job.total, fold, int(self.bytes >= STREAMED)]
        ends = (*job.sources, *job.targets)
        return head + [word for end in ends for word in (end.member, 8 * end.slot, end.offset, end.inner, end.stride)]

    def share(self, values: Sequence[_Given], part: int, parts: int | None = None) -> None:
        """Does one of so many parts of the work, by default one for each member."""
        tables = self._pack(*(given.table for given in values))
        self._call(self.address, len(self.jobs), tables, part, parts or len(values))

    def run(self, process: Process, values: Sequence[_Given]) -> None:
        """Does all of the work."""
        if not self.is_slow:
            self.share(values, 0, 1)
            return
        function = process.callee(self.instructions[0].called[0])
        for job in self.jobs:
            parts = [_rows(values[end.member], end).reshape(-1) for end in job.sources]
            result = parts[0] if parts else np.zeros((), np.uint8)
            with np.errstate(all="ignore"):
                for part in parts[1:]:
                    result = function.batched(result, part)
            for end in job.targets:
                rows = _rows(values[end.member], end)
                rows[...] = result.reshape(rows.shape) if parts else result


def _rows(given: _Given, end: _End) -> Any:
    """The elements there, a row for each run of bytes."""
    operands, results = _arrays(given.instruction)
    kept = given.instruction.op.kept(given.instruction.shape)
    dtype = (*operands, *results[kept:])[end.slot].dtype.numpy
    address = ctypes.c_uint64.from_address(given.table + 8 * end.slot).value + end.offset
    rows, size = end.total // end.inner, dtype.itemsize
    memory = (ctypes.c_char * ((rows - 1) * end.stride + end.inner)).from_address(address)
    return np.ndarray((rows, end.inner // size), dtype, memoryview(memory), strides=(end.stride, size))


def _end(member: int, slot: int, shape: Shape, block: Block | None) -> _End:
    size = shape.dtype.numpy.itemsize
    total = shape.size * size
    if block is None:
        return _End(member, slot, 0, total, total, total)
    stride = math.prod(shape.dimensions[block.dimension :]) * size
    inner = stride // block.parts
    return _End(member, slot, block.number * inner, inner, stride, total // block.parts)


def _arrays(instruction: Instruction) -> tuple[list[Shape], list[Shape]]:
    """The arrays of the operands and of the result."""
    operands = [leaf for o in instruction.operands for leaf in o.shape.leaves() if leaf.is_array]
    return operands, [leaf for leaf in instruction.shape.leaves() if leaf.is_array]


def _made(values: Any, make: Callable[[], Any]) -> Any:
    """The result of `make` for all members: the one that is here first calls it."""
    return values.once(make) if isinstance(values, Contributions) else make()


# -- the fold of two blocks


class _Fold:
    """Machine code that combines the elements of two arrays of BLOCK bytes by a computation of two scalars.

    address   of its words: the entry, how many words its table has, the table; the pointers of the two operands and
              of the result come first
    """

    def __init__(self, code: Code, words: Sequence[int]) -> None:
        self._keep = code
        self._words = (ctypes.c_int64 * (2 + len(words)))(code.entry, len(words), *words)
        self.address = ctypes.addressof(self._words)

    @staticmethod
    def of(computation: Computation) -> _Fold | None:
        """The fold, with the interpreter's bits; None where there is no code for it that needs nothing else."""
        shape = computation.root.shape
        block = shape.dtype[BLOCK // shape.dtype.numpy.itemsize]
        module = HloModule("fold")
        main = Computation("main", module)
        operands = [main.add(Parameter(number, block)) for number in range(2)]
        called: dict[Computation, Computation] = {}
        main.set_root(main.add(Map((0,)), operands, [_cloned(computation, module, called)]))
        for each in called.values():
            module.add_computation(each)
        module.add_computation(main, entry=True)
        module.settle()
        plan, steps = Compilation(module, host(), strict=True).plan(memory.most())
        if steps or plan.peak.temporaries:
            return None
        code = Code(plan, threads=1)
        words = 0, 0, 0, *code.constants, 0, code.workers, 0, 0  # neither temporaries nor steps of the reference
        return _Fold(code, words) if len(words) <= FOLD_WORDS else None


def _cloned(computation: Computation, module: HloModule, done: dict[Computation, Computation]) -> Computation:
    found = done.get(computation)
    if found is None:
        found = computation.clone(computation.name, module)
        for instruction in found.instructions:
            instruction.called = tuple(_cloned(c, module, done) for c in instruction.called)
        done[computation] = found
    return found
