"""Machine code against the reference: `wrong(module, seed)` says where a module's code is not what it should be.

Strict code gives the reference's bits (but a NaN's, and what hangs on the sign of one: a float4 has no NaN, and makes
a zero of either sign of it). Default code may round otherwise, which a program may make more of; how much is found by
the reference itself: it runs a few times, each instruction's result off by a random part of what tolerance.py allows
its op, and what then varies may vary in machine code too, a few times as much. An element that is no number in one of
these runs, or an integer that changes, is not compared.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import hlokit as hk
from hlokit.cpu.loops import order
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import valid_part
from hlokit.interpreter import evaluate as interpreter
from hlokit.interpreter.callee import Callee
from hlokit.interpreter.order import evaluation_order
from hlokit.interpreter.process import Process
from hlokit.ops.structure import Parameter
from tests.fuzz.properties import MEMORY, leaves
from tests.fuzz.tolerance import allowed
from tests.fuzz.values import arguments

NAN_SIGNS = (1.0, -1.0, 0.0, 0.0)
"""What NaNs have for a sign in each run, which no rule tells: all the same, or any of both (0)."""
RUNS = len(NAN_SIGNS)
MORE_RUNS = 12
"""Runs more before a difference counts: in four runs one element in a million hardly moves."""
ROOM = 30.0
"""How many times the spread of the runs the code's result may be away from them."""


def wrong(
    module: hk.HloModule, seed: int, *, passes: bool = True, donate: bool = True, given: Sequence[Any] = ()
) -> str | None:
    """The first way in which the module's machine code is wrong, or None."""
    inputs = list(given) or arguments(module, seed)
    try:
        expected = hk.evaluate(module, *inputs, memory_limit=MEMORY)
    except hk.HlokitError as error:
        return _refused(module, inputs, str(error))
    try:
        return _wrong(module, seed, inputs, expected, passes, donate)
    except hk.UnsupportedError as error:
        return None if "dynamic" in str(error) else f"refused: {error}"


def _wrong(
    module: hk.HloModule, seed: int, inputs: Sequence[Any], expected: Any, passes: bool, donate: bool
) -> str | None:
    before = [leaf.tobytes() for leaf in leaves(tuple(inputs))]
    varies = any(i.opcode == "multiply" and i.shape.dtype.is_complex for i in module.instructions())
    alike = _similar if varies else _same

    def compare(ours: Any, theirs: Any, where: str) -> str | None:
        found = alike(ours, theirs, where)
        return None if found and hangs_on_signs(ours, theirs, module, inputs, seed) else found

    if passes and (found := compare(hk.evaluate(hk.optimize(module), *inputs), expected, "after the passes")):
        return found
    strict = [hk.compile(module, strict=True, threads=n)(*inputs) for n in (1, 2)]
    if found := compare(strict[0], expected, "strict") or _bytes(*strict, "strict"):
        return found
    default = [hk.compile(module, threads=n)(*inputs) for n in (1, 2)]
    if found := _bytes(*default, "default"):
        return found
    if [leaf.tobytes() for leaf in leaves(tuple(inputs))] != before:
        return "a call changes its arguments"
    if not _equal(default[0], expected) and (found := near(default[0], expected, module, inputs, seed)):
        return found
    return _donated(module, inputs, expected, seed) if donate else None


def _refused(module: hk.HloModule, inputs: Sequence[Any], message: str) -> str | None:
    for strict in (False, True):
        try:
            hk.compile(module, strict=strict, memory_limit=MEMORY)(*inputs)
        except hk.HlokitError:
            continue
    return None


def _donated(module: hk.HloModule, inputs: Sequence[Any], expected: Any, seed: int) -> str | None:
    """All arguments given away: the same values; what is not overwritten stays as it was."""
    if not inputs or any(i.shape.is_dynamic for c in module.all_computations for i in c.instructions):
        return None
    program = hk.compile(module, strict=True, donate=range(len(inputs)))
    given = [_copied(value) for value in inputs]
    result = program(*given)
    found = _similar(result, expected, "strict, donated")
    return None if found and hangs_on_signs(result, expected, module, inputs, seed) else found


def _copied(value: Any) -> Any:
    return tuple(_copied(part) for part in value) if isinstance(value, tuple) else np.array(value)


# -- equal


def _equal(ours: Any, theirs: Any) -> bool:
    return _same(ours, theirs, "") is None


def _same(ours: Any, theirs: Any, where: str) -> str | None:
    """The same bits, but for those of NaNs."""
    for number, (a, b) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{where}: result {number} is {a.dtype}{list(a.shape)}, the reference's {b.dtype}{list(b.shape)}"
        if a.tobytes() == b.tobytes():
            continue
        differ = _bits(a) != _bits(b)
        differ &= ~(_nan(a) & _nan(b))
        if a.dtype.name.startswith("float4"):  # NaN becomes a zero of any sign
            differ &= ~((a == 0) & (b == 0))
        if a.dtype.kind == "c":
            differ = _component(a.real, b.real) | _component(a.imag, b.imag)
        if differ.any():
            return f"{where}: {_place(number, a, b, differ)}"
    return None


def _similar(ours: Any, theirs: Any, where: str) -> str | None:
    """The same up to a rounding of NumPy's complex products, which is another for arrays than for single numbers."""
    if _same(ours, theirs, where) is None:
        return None
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return _same(ours, theirs, where)
        if a.dtype.kind in "fc":
            close = np.isclose(a, b, 1e-4, 1e-30, equal_nan=True) | ~np.isfinite(b)
        else:
            close = (_bits(a) == _bits(b)) | (_nan(a) & _nan(b))
        if not close.all():
            return _same(ours, theirs, where)
    return None


def _component(a: Any, b: Any) -> Any:
    return (_bits(a) != _bits(b)) & ~(np.isnan(a) & np.isnan(b))


def _bytes(a: Any, b: Any, where: str) -> str | None:
    return None if same_bytes(a, b) else f"{where}: other bytes on two threads"


def same_bytes(a: Any, b: Any) -> bool:
    """Whether two results hold the same bytes."""
    return [x.tobytes() for x in leaves(a)] == [x.tobytes() for x in leaves(b)]


def differs(ours: Any, theirs: Any) -> str | None:
    """Where two results have other bits, NaNs' aside."""
    return _same(ours, theirs, "")


def _bits(array: Any) -> Any:
    return (
        np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
        if array.dtype.kind != "c"
        else array
    )


def _nan(array: Any) -> Any:
    if array.dtype.kind in "biuc" or array.dtype.name.startswith(("int", "uint")):
        return np.isnan(array) if array.dtype.kind == "c" else np.zeros(array.shape, bool)
    return np.isnan(array) if array.dtype.kind == "f" else np.isnan(array.astype(np.float32))


def _place(number: int, a: Any, b: Any, differ: Any) -> str:
    at = tuple(int(i) for i in np.argwhere(differ)[0])
    count = int(np.sum(differ))
    return f"result {number} ({a.dtype}{list(a.shape)}) at {list(at)}: {a[at]}, the reference's {b[at]}; {count} of {a.size} differ"


# -- near


def hangs_on_signs(ours: Any, theirs: Any, module: hk.HloModule, inputs: Sequence[Any], seed: int) -> bool:
    """Whether the reference's elements that ours differ from have other bits too, where NaNs have other signs."""
    runs = [leaves(_perturbed(module, inputs, seed * RUNS + k, nan, 0.0)) for k, nan in enumerate(NAN_SIGNS)]
    for number, (a, b) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        others = [run[number] for run in runs]
        if a.dtype.kind == "c" or any(o.shape != b.shape for o in others):
            if _same((a,), (b,), ""):
                return False
            continue
        steady = np.all([(_bits(o) == _bits(b)) | (_nan(o) & _nan(b)) for o in others], axis=0)
        if _same((np.where(steady, a, b).astype(b.dtype),), (b,), ""):
            return False
    return True


def near(ours: Any, theirs: Any, module: hk.HloModule, inputs: Sequence[Any], seed: int) -> str | None:
    runs = [leaves(_perturbed(module, inputs, seed * RUNS + k, nan)) for k, nan in enumerate(NAN_SIGNS)]
    if _beyond(ours, theirs, module, runs) is None:
        return None
    runs += [leaves(_perturbed(module, inputs, (seed, k), 0.0)) for k in range(MORE_RUNS)]
    return _beyond(ours, theirs, module, runs)


def _beyond(ours: Any, theirs: Any, module: hk.HloModule, runs: Sequence[Sequence[Any]]) -> str | None:
    """Where ours is further from the reference's values than what the runs gave."""
    loose = any(_takes_other_steps(i) for i in module.instructions())
    for number, (a, b) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
        others = [run[number] for run in runs]
        if any(o.shape != b.shape for o in others):
            continue  # a size at run time varies
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"default: result {number} is {a.dtype}{list(a.shape)}, the reference's {b.dtype}{list(b.shape)}"
        if a.dtype.kind == "c":
            parts = [(x.real, x.imag) for x in (a, b, *others)]
            scale = np.max([np.where(np.isfinite(np.abs(x)), np.abs(x), 0) for x in (b, *others)], axis=0)
            differ = np.logical_or(*(_far(p[0], p[1], p[2:], scale, loose) for p in zip(*parts, strict=True)))
        else:
            differ = _far(a, b, others, 0.0, loose)
        if differ.any():
            return f"default: {_place(number, a, b, differ)}"
    return None


_OTHER_STEPS = (
    "convolution",
    "triangular-solve",
    "cholesky",
    "fft",
    "batch-norm-training",
    "batch-norm-inference",
    "batch-norm-grad",
)
"""What machine code computes otherwise than the reference: other steps overflow."""


def _takes_other_steps(instruction: Instruction) -> bool:
    """Also products of complex numbers and what is made of them: one part may be infinite or NaN."""
    op, shape = instruction.op, instruction.shape
    if op.opcode in _OTHER_STEPS:
        return True
    if op.opcode in ("dot", "ragged-dot"):
        return shape.dtype.is_complex
    return op.opcode in ("multiply", "divide", "power", "atan2") and shape.dtype.is_complex


def _far(a: Any, b: Any, others: Sequence[Any], scale: Any, loose: bool) -> Any:
    """Where a is further from b than the others are. `loose`: what is no number here or there is not compared."""
    if not _is_floating(a.dtype):
        steady = np.all([_bits(o) == _bits(b) for o in others], axis=0) & (not loose)
        return (_bits(a) != _bits(b)) & steady
    info = ml_dtypes.finfo(a.dtype)
    wide = [x.astype(np.float64) for x in (a, b, *others)]
    with np.errstate(all="ignore"):
        steady = np.all([np.isfinite(w) for w in wide[1:]], axis=0)
        spread = np.max([np.abs(w - wide[1]) for w in wide[2:]], axis=0)
        size = np.maximum(np.abs(wide[1]), scale)
        room = ROOM * spread + 4 * float(info.eps) * size + 4 * float(info.smallest_normal)
        beyond = size + room >= float(info.max)  # may overflow
        far = ~(np.abs(wide[0] - wide[1]) <= room) & ~beyond
        # what is no number in all runs is none here, either
        same = np.all([(np.isnan(w) & np.isnan(wide[1])) | (w == wide[1]) for w in wide[2:]], axis=0) & ~np.isfinite(
            wide[1]
        )
        other = ~((np.isnan(wide[0]) & np.isnan(wide[1])) | (wide[0] == wide[1]))
    if loose:
        return steady & np.isfinite(wide[0]) & far
    return np.where(steady, far, same & other & np.isnan(wide[1]) & np.isfinite(wide[0]))


def _is_floating(dtype: Any) -> bool:
    return dtype.kind == "f" or "float" in dtype.name


def _perturbed(
    module: hk.HloModule, inputs: Sequence[Any], seed: int | tuple[int, int], nan_sign: float, rounding: float = 1.0
) -> Any:
    """The entry's value where every instruction's result is off by `rounding` times what its op may be off, in what it
    calls too."""
    with np.errstate(all="ignore"):
        noise = _Noise(np.random.default_rng(seed), nan_sign, rounding)
        return _valid(_Perturbed(noise).value_of(module.entry, inputs))


class _Noise(NamedTuple):
    source: np.random.Generator
    nan_sign: float
    rounding: float

    def nans(self, like: Any) -> Any:
        sign = self.nan_sign or np.where(self.source.random(like.shape) < 0.5, -1.0, 1.0)
        return np.copysign(np.nan, np.broadcast_to(sign, like.shape))


class _Perturbed(Process):
    def __init__(self, noise: _Noise) -> None:
        super().__init__()
        self.noise = noise

    def callee(self, computation: Computation) -> Callee:
        return _PerturbedCallee(self, computation)

    def value_of(self, computation: Computation, arguments: Sequence[Any]) -> Any:
        values: dict[Instruction, Any] = {}
        for instruction in evaluation_order(computation):
            if isinstance(instruction.op, Parameter):
                given = arguments[instruction.op.number]
                values[instruction] = interpreter._as_declared(instruction.shape, given)  # pyright: ignore[reportPrivateUsage]
                continue
            operands = [values[o] for o in instruction.operands]
            value = interpreter.run_instruction(self, instruction, operands)
            values[instruction] = _off(value, instruction.opcode, operands, self.noise)
        return values[computation.root]


class _PerturbedCallee(Callee):
    def __call__(self, *values: Any) -> Any:
        assert isinstance(self.process, _Perturbed)
        return self.process.value_of(self.computation, values)

    def of_each(self, instruction: Instruction, operands: list[Any]) -> Any:
        assert isinstance(self.process, _Perturbed)
        value = super().of_each(instruction, operands)
        value = value if isinstance(value, tuple) else np.asarray(value)
        return _off(value, instruction.opcode, operands, self.process.noise)


def _valid(value: Any) -> Any:
    """What is valid of a value at run time, tokens as None."""
    value = valid_part(value)
    if isinstance(value, tuple):
        return tuple(_valid(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(value, np.ndarray) else None


def _off(value: Any, opcode: str, operands: Sequence[Any], noise: _Noise) -> Any:
    if isinstance(value, tuple):
        return tuple(_off(part, opcode, operands, noise) for part in value) if opcode not in _KEEP else value
    if not isinstance(value, np.ndarray) or opcode in _KEEP:
        return value
    if value.dtype.kind == "c":
        found, parts = np.empty_like(value), (value.real, value.imag)
        scale = np.abs(value) * (_of_exponent(operands) if opcode == "power" else 1.0)
        alike = [o for o in operands if isinstance(o, np.ndarray) and o.shape == value.shape]
        cancels = np.all([(o.real != 0) & (o.imag != 0) for o in alike] or [False], axis=0)
        found.real, found.imag = (_moved(p, opcode, operands, scale, cancels, noise) for p in parts)
    elif _is_floating(value.dtype):
        found = _moved(value, opcode, operands, 0.0, False, noise)
    else:
        return value
    overflows = opcode in _OTHER_STEPS and noise.nan_sign < 0 and noise.rounding
    if overflows:  # what overflowed may be anything, the other part too
        found[~np.isfinite(value)] = complex(np.nan, np.nan) if value.dtype.kind == "c" else np.nan
    return found


_KEEP = frozenset(
    (
        *(
            "tuple",
            "get-tuple-element",
            "constant",
            "iota",
            "bitcast",
            "bitcast-convert",
            "slice",
            "reshape",
            "transpose",
        ),
        *("broadcast", "reverse", "copy", "pad", "concatenate", "gather", "sort", "dynamic-slice", "select", "clamp"),
        *("dynamic-update-slice", "maximum", "minimum", "negate", "abs", "floor", "ceil", "round-nearest-even", "sign"),
        *("round-nearest-afz", "real", "imag", "complex", "opt-barrier", "while", "call", "conditional"),
    )
)
"""Ops that round nothing, or nothing themselves."""


def _moved(value: Any, opcode: str, operands: Sequence[Any], scale: Any, cancels: Any, noise: _Noise) -> Any:
    """`scale`: what the error is a part of, besides the value. `cancels`: where zero is what rounding left of others."""
    ulps, parts = allowed(opcode)
    info = ml_dtypes.finfo(value.dtype)
    wide = value.astype(np.float64)
    size = np.maximum(np.abs(wide), np.where(np.isfinite(scale), scale, 0))
    room = float(info.eps) * ((ulps + 1) / 4 * size + parts / 16 * min(_greatest(operands), float(info.max))) + (
        float(info.smallest_normal) if ulps else 0
    )
    moved = wide + noise.source.uniform(-1, 1, value.shape) * room * noise.rounding
    moved = np.where(np.isfinite(wide) & ((wide != 0) | bool(parts) | (cancels & bool(ulps))), moved, wide)
    signless = np.isnan(wide) | (value.dtype.name.startswith("float4") & (wide == 0))  # the zero of a NaN
    return np.where(signless, noise.nans(wide), moved).astype(value.dtype)


def _of_exponent(operands: Sequence[Any]) -> Any:
    """What exp(w log z) makes of its rounding, in units of the result's: the exponent is rounded as f64."""
    z, w = (o.astype(np.complex128) for o in operands)
    eps = float(np.finfo(operands[0].dtype).eps)
    return 1.0 + np.abs(w * np.log(z)) * float(np.finfo(np.float64).eps) / eps


def _greatest(operands: Sequence[Any]) -> float:
    greatest = 0.0
    for operand in leaves(tuple(operands)):
        if isinstance(operand, np.ndarray) and operand.size and operand.dtype.kind not in "biu":
            wide = np.abs(operand.astype(np.complex128 if operand.dtype.kind == "c" else np.float64))
            greatest = max(greatest, float(np.max(wide, initial=0.0, where=np.isfinite(wide))))
    return greatest


@contextmanager
def many_chunks() -> Generator[None]:
    """Kernels of any size are cut into chunks for several threads."""
    usual = order._choose_chunks  # pyright: ignore[reportPrivateUsage]

    def eager(loops: Any, nodes: Any) -> None:
        work, loops.work = loops.work, max(loops.work, 1e6)
        usual(loops, nodes)
        loops.work = work

    order._choose_chunks = eager  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        order._choose_chunks = usual  # pyright: ignore[reportPrivateUsage]
