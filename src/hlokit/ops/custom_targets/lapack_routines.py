"""The custom-calls `lapack_{s,d,c,z}NAME_ffi` of JAX's CPU lowering, as data.

A `Job` lists the Fortran arguments of one routine for one matrix of the batch, so that the interpreter and machine code
make the same call. All checks of shapes are here: a job's arguments never reach beyond their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hlokit.errors import EvaluationError, UnsupportedError
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class Character:
    """A pointer to one character."""

    value: str


@dataclass(frozen=True)
class Number:
    """A pointer to a 32-bit integer."""

    value: int


@dataclass(frozen=True)
class Scalar:
    """A pointer to a number of the element type."""

    dtype: str
    value: float


@dataclass(frozen=True)
class Null:
    """No pointer: an argument that is not referenced."""


@dataclass(frozen=True)
class Block:
    """A pointer to a scalar, a vector or a column-major matrix of these sizes, element `first` of it.

    source   the operand that it is filled with; None: zeros
    result   the result that it is copied to
    """

    dtype: str
    sizes: tuple[int, ...]
    source: int | None = None
    result: int | None = None
    first: int = 0


@dataclass(frozen=True)
class Work:
    """Scratch memory of `size` elements; None: as many as the routine asks for when the sizes that follow are -1."""

    dtype: str
    size: int | None = None


@dataclass(frozen=True)
class WorkSize:
    """A pointer to the size of the Work before it."""


Argument: TypeAlias = "Character | Number | Scalar | Null | Block | Work | WorkSize"


@dataclass(frozen=True)
class Job:
    """One routine's call for each matrix of the batch.

    finite_only  a matrix with a NaN or an infinity is not handed over: its info is NOT_FINITE
    pairs        results that take eigenvectors, from a real Block whose complex columns are (real, imaginary) pairs:
                 (result, argument, argument of the eigenvalues' imaginary parts) each
    """

    symbol: str
    arguments: tuple[Argument, ...]
    batch: tuple[int, ...]
    finite_only: bool = False
    pairs: tuple[tuple[int, int, int], ...] = ()

    @property
    def blas(self) -> bool:
        """Whether BLAS has the routine, not LAPACK."""
        return self.symbol[1:] == "trsm"


def job_of(target: str, attributes: Mapping[str, Any], operands: Sequence[Shape], results: Sequence[Shape]) -> Job:
    """The job of a target named lapack_?NAME_ffi. EvaluationError: shapes or attributes that are not the routine's."""
    prefix, name = split_target(target)
    job = _Maker(target, prefix, attributes, operands, results)
    arguments = FAMILIES[name](job)
    made = Job(prefix + name, tuple(arguments), job.batch, name in _FINITE_ONLY, tuple(job.pairs))
    blocks = [block for block in made.arguments if isinstance(block, Block)]
    for block in blocks:
        job.check(block)
    written = {block.result for block in blocks if block.result is not None} | {result for result, _, _ in made.pairs}
    if len(written) != len(results):
        raise job.misfit("results", [str(r) for r in results])
    return made


NOT_FINITE = -4
"""The info that LAPACK gives for a NaN: the number of the argument that it does not take."""
_FINITE_ONLY = ("geev", "gees", "gesdd", "gesvd")
"""Routines that may never return from a matrix with an infinity, or, gees, with a NaN."""


def split_target(target: str) -> tuple[str, str]:
    """("s", "potrf") of lapack_spotrf_ffi."""
    routine = target.removeprefix("lapack_").removesuffix("_ffi")
    return routine[0], routine[1:]


class _Maker:
    """The arguments of one call in the making: sizes, element types, attributes."""

    def __init__(
        self,
        target: str,
        prefix: str,
        attributes: Mapping[str, Any],
        operands: Sequence[Shape],
        results: Sequence[Shape],
    ) -> None:
        self.target = target
        self.dtype = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}[prefix]
        self.real = {"s": "f32", "d": "f64", "c": "f32", "z": "f64"}[prefix]
        self.is_complex = prefix in "cz"
        self.attributes = attributes
        self.operands = operands
        self.results = results
        self.pairs: list[tuple[int, int, int]] = []
        if not operands or not results or operands[0].rank < 1:
            raise self.misfit("operands", operands)
        self.batch = operands[0].dimensions[: -1 if target.endswith("gtsv_ffi") else -2]  # gtsv begins with a vector

    def misfit(self, what: str, found: object) -> EvaluationError:
        return EvaluationError(f"custom-call target {self.target!r}: {what} {found} do not fit the routine [CCALL-6]")

    def sizes(self, operand: int) -> tuple[int, int]:
        """Rows and columns of an operand's matrices."""
        if operand >= len(self.operands) or self.operands[operand].rank < 2:
            raise self.misfit("operands", [str(o) for o in self.operands])
        rows, columns = self.operands[operand].dimensions[-2:]
        return rows, columns

    def square(self, operand: int = 0) -> int:
        rows, columns = self.sizes(operand)
        if rows != columns:
            raise self.misfit(f"operand {operand}", self.operands[operand])
        return rows

    def is_result(self, result: int, sizes: tuple[int, int]) -> bool:
        return result < len(self.results) and self.results[result].dimensions[-2:] == sizes

    def check(self, block: Block) -> None:
        """Checks that the block's operand and result have its sizes, for each matrix of the batch."""
        for kind, number, shapes in (("operand", block.source, self.operands), ("result", block.result, self.results)):
            if number is None:
                continue
            if number >= len(shapes):
                raise self.misfit(kind, number)
            shape = shapes[number]
            if not shape.is_array or shape.dtype.name != block.dtype or shape.dimensions != self.batch + block.sizes:
                raise self.misfit(f"{kind} {number}", shape)

    def letter(self, name: str, allowed: str) -> Character:
        """A ui8 attribute that is a character's code."""
        value = self.attributes.get(name)
        if not isinstance(value, int) or not 0 < value < 128 or chr(value) not in allowed:
            raise self.misfit(f"attribute {name}", value)
        return Character(chr(value))

    def integer(self, name: str) -> int:
        value = self.attributes.get(name)
        if not isinstance(value, int):
            raise self.misfit(f"attribute {name}", value)
        return int(value)

    def matrix(self, sizes: tuple[int, int], source: int | None, result: int | None) -> tuple[Block, Number]:
        """A matrix and its leading dimension."""
        return Block(self.dtype, sizes, source, result), Number(max(1, sizes[0]))

    def vector(self, size: int, result: int | None, source: int | None = None, dtype: str = "") -> Block:
        return Block(dtype or self.dtype, (size,), source, result)

    def info(self, result: int | None = None) -> Block:
        return Block("s32", (), None, result)

    def work(self) -> tuple[Work, WorkSize]:
        return Work(self.dtype), WorkSize()


Arguments: TypeAlias = "list[Argument]"


def _potrf(make: _Maker) -> Arguments:
    n = make.square()
    return [make.letter("uplo", "LU"), Number(n), *make.matrix((n, n), 0, 0), make.info(1)]


def _getrf(make: _Maker) -> Arguments:
    m, n = sizes = make.sizes(0)
    return [Number(m), Number(n), *make.matrix(sizes, 0, 0), make.vector(min(m, n), 1, dtype="s32"), make.info(2)]


def _geqrf(make: _Maker) -> Arguments:
    m, n = sizes = make.sizes(0)
    return [Number(m), Number(n), *make.matrix(sizes, 0, 0), make.vector(min(m, n), 1), *make.work(), make.info()]


def _geqp3(make: _Maker) -> Arguments:
    m, n = sizes = make.sizes(0)
    pivots, tau = make.vector(n, 1, 1, "s32"), make.vector(min(m, n), 2)
    rwork = [Work(make.real, 2 * n)] if make.is_complex else []
    return [Number(m), Number(n), *make.matrix(sizes, 0, 0), pivots, tau, *make.work(), *rwork, make.info()]


def _orgqr(make: _Maker) -> Arguments:
    m, n = sizes = make.sizes(0)
    k = make.operands[1].dimensions[-1] if len(make.operands) > 1 and make.operands[1].rank else -1
    if not 0 <= k <= n <= m:
        raise make.misfit("operands", [str(o) for o in make.operands])
    tau = make.vector(k, None, 1)
    return [Number(m), Number(n), Number(k), *make.matrix(sizes, 0, 0), tau, *make.work(), make.info()]


def _ormqr(make: _Maker) -> Arguments:
    rows, columns = make.sizes(0)
    m, n = sizes = make.sizes(2)
    left, transpose = (bool(make.attributes.get(name)) for name in ("left", "transpose"))
    k = make.operands[1].dimensions[-1] if make.operands[1].rank else -1
    if rows != (m if left else n) or not 0 <= k <= min(rows, columns):
        raise make.misfit("operands", [str(o) for o in make.operands])
    transposed = Character(("C" if make.is_complex else "T") if transpose else "N")
    matrices = *make.matrix((rows, columns), 0, None), make.vector(k, None, 1), *make.matrix(sizes, 2, 0)
    head = Character("L" if left else "R"), transposed, Number(m), Number(n), Number(k)
    return [*head, *matrices, *make.work(), make.info()]


def _evd(make: _Maker) -> Arguments:
    n = make.square()
    head = make.letter("mode", "NV"), make.letter("uplo", "LU"), Number(n), *make.matrix((n, n), 0, 0)
    rwork = [Work(make.real), WorkSize()] if make.is_complex else []
    tail = *make.work(), *rwork, Work("s32"), WorkSize()
    return [*head, make.vector(n, 1, dtype=make.real), *tail, make.info(2)]


def _gesdd(make: _Maker) -> Arguments:
    mode = make.letter("mode", "ASN")
    m, n = make.sizes(0)
    smaller, larger = sorted((m, n))
    rwork: list[Work] = []
    if make.is_complex:
        full = max(5 * smaller**2 + 5 * smaller, 2 * larger * smaller + 2 * smaller**2 + smaller)
        rwork = [Work(make.real, 7 * smaller if mode.value == "N" else full)]
    return [mode, *_singular(make, mode), *make.work(), *rwork, Work("s32", 8 * smaller), make.info(4)]


def _gesvd(make: _Maker) -> Arguments:
    mode = make.letter("mode", "ASN")
    rwork = [Work(make.real, 5 * min(make.sizes(0)))] if make.is_complex else []
    return [mode, mode, *_singular(make, mode), *make.work(), *rwork, make.info(4)]


def _singular(make: _Maker, mode: Character) -> Arguments:
    """m, n, a, s, u, vt of a singular value decomposition."""
    m, n = sizes = make.sizes(0)
    k = min(m, n)
    full = mode.value == "A" or (mode.value == "N" and make.is_result(2, (m, m)) and make.is_result(3, (n, n)))
    u, vt = ((m, m), (n, n)) if full else ((m, k), (k, n))
    values = make.vector(k, 1, dtype=make.real)
    return [
        Number(m),
        Number(n),
        *make.matrix(sizes, 0, 0),
        values,
        *make.matrix(u, None, 2),
        *make.matrix(vt, None, 3),
    ]


def _geev(make: _Maker) -> Arguments:
    n = make.square()
    head = *(make.letter(name, "NV") for name in ("compute_left", "compute_right")), Number(n)
    head = *head, *make.matrix((n, n), 0, None)
    if make.is_complex:
        vectors = *make.matrix((n, n), None, 1), *make.matrix((n, n), None, 2)
        return [*head, make.vector(n, 0), *vectors, *make.work(), Work(make.real, 2 * n), make.info(3)]
    vectors = *make.matrix((n, n), None, None), *make.matrix((n, n), None, None)
    values = make.vector(n, 0), make.vector(n, 1)
    make.pairs = [(2, 7, 6), (3, 9, 6)]
    complex_type = {"f32": "c64", "f64": "c128"}[make.dtype]
    for result in (2, 3):
        make.check(Block(complex_type, (n, n), None, result))
    return [*head, *values, *vectors, *make.work(), make.info(4)]


def _gees(make: _Maker) -> Arguments:
    n = make.square()
    mode, order = make.letter("mode", "NV"), make.letter("sort", "NS")
    if order.value == "S":
        raise UnsupportedError(f"custom-call target {make.target!r}: sorted eigenvalues")
    real = not make.is_complex
    values = [make.vector(n, i) for i in ((2, 3) if real else (2,))]
    selected, info = make.info(3 + real), make.info(4 + real)
    rwork = [] if real else [Work(make.real, n)]
    matrices = *make.matrix((n, n), 0, 0), selected, *values, *make.matrix((n, n), None, 1)
    return [mode, order, Null(), Number(n), *matrices, *make.work(), *rwork, Null(), info]


def _gehrd(make: _Maker) -> Arguments:
    n, low, high = make.square(), make.integer("low"), make.integer("high")
    if not (1 <= low <= high <= n if n else (low, high) == (1, 0)):
        raise make.misfit("attributes low and high", (low, high))
    tau = make.vector(max(0, n - 1), 1)
    return [Number(n), Number(low), Number(high), *make.matrix((n, n), 0, 0), tau, *make.work(), make.info(2)]


def _trd(make: _Maker) -> Arguments:
    n = make.square()
    diagonals = make.vector(n, 1, dtype=make.real), make.vector(max(0, n - 1), 2, dtype=make.real)
    tail = *diagonals, make.vector(max(0, n - 1), 3), *make.work(), make.info(4)
    return [make.letter("uplo", "LU"), Number(n), *make.matrix((n, n), 0, 0), *tail]


def _gtsv(make: _Maker) -> Arguments:
    n, count = make.sizes(3) if len(make.operands) == 4 else (0, 0)
    below = Block(make.dtype, (n,), 0, 0, first=1)  # row i's element below the diagonal is number i; the first is none
    diagonals = below, make.vector(n, 1, 1), make.vector(n, 2, 2)
    return [Number(n), Number(count), *diagonals, *make.matrix((n, count), 3, 3), make.info(4)]


def _trsm(make: _Maker) -> Arguments:
    m, n = sizes = make.sizes(1)
    side = make.letter("side", "LR")
    if (order := make.square()) != (m if side.value == "L" else n):
        raise make.misfit("operands", [str(o) for o in make.operands])
    letters = side, make.letter("uplo", "LU"), make.letter("trans_x", "NTC"), make.letter("diag", "UN")
    matrices = *make.matrix((order, order), 0, None), *make.matrix(sizes, 1, 0)
    return [*letters, Number(m), Number(n), Scalar(make.dtype, 1.0), *matrices]


FAMILIES: dict[str, Callable[[_Maker], Arguments]] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "geqp3": _geqp3,
    "orgqr": _orgqr,
    "ungqr": _orgqr,
    "ormqr": _ormqr,
    "unmqr": _ormqr,
    "syevd": _evd,
    "heevd": _evd,
    "gesdd": _gesdd,
    "gesvd": _gesvd,
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "sytrd": _trd,
    "hetrd": _trd,
    "gtsv": _gtsv,
    "trsm": _trsm,
}
_REAL_ONLY, _COMPLEX_ONLY = {"orgqr", "ormqr", "syevd", "sytrd"}, {"ungqr", "unmqr", "heevd", "hetrd"}
TARGETS = tuple(
    f"lapack_{prefix}{name}_ffi"
    for name in FAMILIES
    for prefix in "sdcz"
    if name not in (_COMPLEX_ONLY if prefix in "sd" else _REAL_ONLY)
)
