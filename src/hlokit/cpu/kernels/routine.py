"""Calls of the kernel form, plans of routines for them, and the phases of the plans."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from hlokit.cpu.llvm import Function, Index, Module, Value
from hlokit.cpu.target import Target
from hlokit.hlo.op import Op
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation

Store: TypeAlias = Callable[[Function, Sequence[Index], Sequence[Value], "Value | None"], None]
"""store(function, index, parts, mask): what becomes of result elements that are consecutive in the last dimension, from
`index` on (one per result dimension): a vector in the result's register type, of complex numbers one for each part.
`mask` says which lanes exist. The function's first parameter is the table, %table."""


class Loader(Protocol):
    """The elements of an operand that a fused prologue makes as they are read.

    number   the operand's
    nbytes   of the memory that they are made of
    run      so many elements from each multiple of that number on are a row of the prologue: vectors must lie in one
    """

    number: int
    nbytes: int
    run: int

    def read(self, fn: Function, row: Index, column: Index, lanes: int, length: int, mask: Value | None) -> Value:
        """`lanes` elements from number row * length + column on, as memory would have them; `column` is less than
        `length`. The function's first parameter, or one of that name, is the table, %table."""
        ...

    def prefetch(self, fn: Function, row: Index, column: Index, lanes: int, length: int, ahead: int) -> None:
        """Asks for the lines `ahead` bytes behind those that `read` would read."""
        ...


@dataclass(frozen=True)
class Call:
    """One kernel-form instruction to be compiled.

    operands, results   shapes of the array leaves, in order; all arrays are dense and row-major
    functions           LLVM functions of the called computations by role, always inlined: they take scalars in register
                        types (a complex number as two), return one, or a literal struct for tuples and complex numbers
    store               the epilogue that is fused to it; None: elements are written to the result
    loader              the prologue that is fused to it; None: all operands are in memory
    strict              the reference's order of operations, bit for bit; a routine that cannot do so returns None
    computations        the called computations themselves by role, where a routine may know a faster way for some
    backend_config      the instruction's, for custom-calls
    by_batch            of a product: no chunk has several batch indices
    packed              of a product: one operand is there as its PACKERS entry lays it out
    """

    op: Op
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    target: Target
    functions: dict[str, str] = field(default_factory=dict[str, str])
    store: Store | None = None
    loader: Loader | None = None
    strict: bool = False
    computations: dict[str, Computation] = field(default_factory=dict[str, "Computation"])
    backend_config: str = ""
    packed: bool = False
    by_batch: bool = False


def up(size: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-size // unit) * unit


PHASE = (("ptr", "table"), ("i64", "begin"), ("i64", "end"))
"""The parameters of a phase's function."""


def chunk_bounds(f: Function) -> tuple[Index, Index]:
    """The chunks that a phase is called for: from the first to the second."""
    return f.index_argument("begin"), f.index_argument("end")


@contextmanager
def each_chunk(f: Function) -> Generator[Index]:
    """A loop over the chunks that a phase is called for."""
    with f.loop(*chunk_bounds(f)) as chunk:
        yield chunk.index


STACK = 2**21
"""Bytes of stack that a thread which runs kernels should have. Products and convolutions take 1.2 MB of it at most."""


@dataclass(frozen=True)
class Phase:
    """`void @function(ptr %table, i64 %begin, i64 %end)` on the chunks 0..chunks-1, in any order, by several threads.

    Each chunk writes what no other one touches, and what it writes depends on its number alone: results must not
    depend on the number of threads. Of a batched product's chunks equal numbers, one after the other, belong to each of
    `groups` groups of batch indices. A chunk is worth at least some 20 us; with one chunk the caller runs it. It may
    take STACK bytes of its thread's stack.
    """

    function: str
    chunks: int = 1
    groups: int = 0


@dataclass(frozen=True)
class Routine:
    """The phases in their order. The table holds pointers: operands, results, then `scratch` bytes if there are any."""

    phases: tuple[Phase, ...]
    scratch: int = 0


Kernel: TypeAlias = "Callable[[Call, Module], Routine | None]"
"""Writes the functions into the module. None: this case is not for it, the next way is tried."""


class RoutinePlan(Protocol):
    """A routine's way to do a call, chosen before anything is written."""

    def write(self, module: Module) -> Routine:
        """Writes the functions into the module."""
        ...


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel whose routine decides by a plan whether it takes a call: `plan` gives None for one that it does not."""

    plan: Callable[[Call], RoutinePlan | None]

    def __call__(self, call: Call, module: Module) -> Routine | None:
        plan = self.plan(call)
        return None if plan is None else plan.write(module)


@dataclass(frozen=True)
class EmptyPlan:
    """The plan of a call whose results have no elements."""

    def write(self, module: Module) -> Routine:
        return Routine(())


@dataclass(frozen=True)
class Packing:
    """An operand laid out for a product, apart from it: for loops in which it stays the same.

    operand   its number
    nbytes    of the layout
    write     writes the function: its table holds the operand as often as the op has operands, then the layout
    """

    operand: int
    nbytes: int
    write: Callable[[], Phase]


PACKERS: dict[str, Callable[[Call, Module], Packing | None]] = {}
"""By the routine's name. None: the product reads its operands as they are, or has none to pack whole."""

LOADERS: dict[str, Callable[[Call], bool]] = {}
"""By the routine's name: whether it reads the operand of the call's loader by that, each element once."""

_MODULES = {
    "cholesky": "hlokit.cpu.kernels.linalg.cholesky",
    **dict.fromkeys(("convolution", "dot", "ragged-dot", "scaled-dot"), "hlokit.cpu.kernels.contraction.routine"),
    "fft": "hlokit.cpu.kernels.fft.transform",
    "rng-bit-generator": "hlokit.cpu.kernels.random",
    "sort": "hlokit.cpu.kernels.sort.routine",
    "topk": "hlokit.cpu.kernels.sort.topk",
    "triangular-solve": "hlokit.cpu.kernels.linalg.triangular_solve",
}
"""The modules that enter routines into KERNELS; those of custom calls are in hlokit.cpu.kernels.linalg.lapack."""


class Kernels(dict[str, Kernel]):
    """Routines by name. A routine's module is imported when it is first asked for: most programs need none."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._found(name))

    def __missing__(self, name: str) -> Kernel:
        if not self._found(name):
            raise KeyError(name)
        return self[name]

    def _found(self, name: str) -> bool:
        module = "hlokit.cpu.kernels.linalg.lapack" if name.startswith("custom-call:") else _MODULES.get(name)
        if module is not None:
            importlib.import_module(module)
        return super().__contains__(name)


KERNELS = Kernels()
"""By the routine's name, as ops' `kernel` form gives it."""
