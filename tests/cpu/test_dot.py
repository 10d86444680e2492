"""Matrix products as machine code against the ops' references."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import FLOAT, has_32_registers
from hlokit.cpu.kernels.contraction.elements import write
from hlokit.cpu.kernels.contraction.routine import plan
from hlokit.cpu.kernels.contraction.streamed import StreamedPlan
from hlokit.cpu.kernels.routine import KERNELS, Call, Routine
from hlokit.cpu.llvm import COLD, Function, Module
from hlokit.cpu.target import Target
from hlokit.hlo.op import Op
from hlokit.ops.contraction import Dot, ScaledDot
from hlokit.ops.ragged_dot import RaggedDot
from hlokit.types import dtype as dt
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape
from tests.cpu.native import Native, avx2, host

PLAIN = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
LHS_ACROSS = {"lhs_contracting_dims": (0,), "rhs_contracting_dims": (0,)}
RHS_ALONG = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,)}
TARGETS = {"host": host, "avx2": avx2}
AMX = ("amx-tile", "amx-int8", "amx-bf16")


def numbers(dtype: DType, sizes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([dtype.number, *sizes])
    if dtype.kind == "pred":
        return np.asarray(rng.integers(0, 2, sizes), bool)
    if dtype.is_integral:
        low, high = (-(1 << (dtype.bits - 1)), 1 << (dtype.bits - 1)) if dtype.is_signed else (0, 1 << dtype.bits)
        return np.asarray(rng.integers(max(low, -(1 << 40)), min(high, 1 << 40), sizes)).astype(dtype.numpy)
    values = rng.standard_normal(sizes)
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(sizes)
        return np.asarray(values).astype(dtype.numpy)
    return np.asarray(values, np.float32).astype(dtype.numpy)


class Compiled:
    """A routine's machine code."""

    def __init__(self, call: Call) -> None:
        self.call = call
        module = Module()
        routine = KERNELS[call.op.opcode](call, module)
        assert routine is not None
        self.routine: Routine = routine
        for phase in routine.phases:
            module.exported[phase.function] = None
        self.text = module.text()
        self.native = Native(module, call.target)

    def __call__(self, *operands: np.ndarray[Any, Any], chunks: list[int] | None = None) -> np.ndarray[Any, Any]:
        shape = self.call.results[0]
        result = np.zeros(shape.dimensions, shape.dtype.numpy)
        result.view(np.uint8 if result.ndim else result.dtype)[...] = 1  # what is not written shows
        scratch = np.full(max(1, self.routine.scratch), 0xFF, np.uint8)
        table = np.array([a.ctypes.data for a in (*operands, result, scratch)], np.uint64)
        for phase in self.routine.phases:
            for chunk in chunks or range(phase.chunks):
                self.native(phase.function, table, chunk, chunk + 1)
        return result


def call_of(op: Op, operands: tuple[Shape, ...], target: Target) -> Call:
    return Call(op, operands, (op.output_shape,), target)  # type: ignore[attr-defined]


def dot_of(dtype: DType, lhs: tuple[int, ...], rhs: tuple[int, ...], result: DType, **dims: Any) -> Dot:
    shape = Dot(output_shape=result[()], **dims).product_shape(dtype[lhs], dtype[rhs])
    return Dot(output_shape=shape, **dims)


def check(op: Op, operands: list[np.ndarray[Any, Any]], target: Target) -> Compiled:
    compiled = Compiled(call_of(op, tuple(dt.dtype(a.dtype)[a.shape] for a in operands), target))
    shapes = [dt.dtype(x.dtype)[x.shape] for x in operands]
    keywords: dict[str, Any] = {"operand_shapes": shapes} if isinstance(op, ScaledDot) else {}
    agree(compiled(*operands), op.reference(*operands, **keywords), operands)
    return compiled


def agree(result: Any, wanted: Any, operands: list[np.ndarray[Any, Any]]) -> None:
    """Exactly for integers; else to some units of rounding of the largest element."""
    dtype = dt.dtype(wanted.dtype)
    if not (dtype.is_floating or dtype.is_complex):
        np.testing.assert_array_equal(result, wanted)
        return
    wide = np.complex128 if dtype.is_complex else np.float64
    x, y = np.asarray(result).astype(wide), np.asarray(wanted).astype(wide)
    unit = {64: 1e-13, 32: 1e-5, 16: 1e-2, 8: 0.15, 4: 0.5}[dtype.real.bits]
    if any(dt.dtype(a.dtype).real.bits == 32 for a in operands[:1]):
        unit = max(unit, 1e-6)
    finite = np.isfinite(y)
    np.testing.assert_array_equal(np.isfinite(x), finite)
    scale = np.abs(y[finite]).max(initial=1.0)
    np.testing.assert_allclose(x[finite], y[finite], unit, unit * scale)


def check_dot(
    dtype: DType, lhs: tuple[int, ...], rhs: tuple[int, ...], result: DType, target: Target, **dims: Any
) -> Compiled:
    return check(dot_of(dtype, lhs, rhs, result, **dims), [numbers(dtype, lhs), numbers(dtype, rhs)], target)


SHAPES = [
    ((1, 1), (1, 1), PLAIN),
    ((33, 70), (70, 65), PLAIN),
    ((130, 1100), (1100, 40), PLAIN),  # more than one part of the inner axis
    ((40, 256), (256, 300), PLAIN),  # rows that would meet in the cache
    ((3, 50), (50, 300), PLAIN),  # few rows: rhs streams
    ((300, 40), (40,), PLAIN),
    ((70, 33), (70, 65), LHS_ACROSS),
    ((33, 70), (65, 70), RHS_ALONG),
    ((1396, 31), (1396, 30), LHS_ACROSS),  # short rows of rhs: a few rows of tiles read them where they lie
    ((2, 70), (65, 70), RHS_ALONG),
    ((1030,), (1030,), LHS_ACROSS),
    ((5, 0), (0, 7), PLAIN),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("lhs", "rhs", "dims"), SHAPES)
def test_shapes(lhs: Any, rhs: Any, dims: Any, target: str) -> None:
    check_dot(dt.f32, lhs, rhs, dt.f32, TARGETS[target](), **dims)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 6), (1, 23), (2, 3), (3, 17), (4, 1), (4, 37)])
def test_few_rows_along_the_inner_axis(rows: int, columns: int, target: str) -> None:
    """Sums of several columns are added up together: with fewer, and with a last group that is not full."""
    for dtype in (dt.f32, dt.f64, dt.s32):
        check_dot(dtype, (rows, 37), (columns, 37), dtype, TARGETS[target](), **RHS_ALONG)
        check_dot(dtype, (2 * rows, 300), (columns, 300), dtype, TARGETS[target](), **RHS_ALONG)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 13, 16])
def test_few_rows_add_rows_of_rhs_to_sums(rows: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rows of rhs at a time, and the rest one by one; of the last columns less than a vector, in some chunk."""
    monkeypatch.setattr(costs, "NEAR_BYTES", {True: 0, False: 0})  # what is read from memory is too large for a test
    for dtype in (dt.f32, dt.f64, dt.s32, dt.c64):
        for inner, columns in ((40, 97), (300, 2101)):
            done = check_dot(dtype, (rows, inner), (inner, columns), dtype, TARGETS[target](), **PLAIN)
            assert "few_rows" in done.text
    check_dot(dt.f32, (rows, 70), (70, 300), dt.bf16, TARGETS[target](), **PLAIN)
    check_dot(dt.bf16, (rows, 70), (70, 300), dt.f32, TARGETS[target](), **PLAIN)


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "is_streamed"),
    [(4, 256, 256, True), (8, 256, 256, False), (12, 256, 256, False), (16, 256, 256, True), (8, 64, 1024, True),
     (8, 4096, 300, True)],
)  # fmt: skip
def test_few_rows_by_a_matrix_that_is_near_are_made_by_tiles(
    rows: int, inner: int, columns: int, is_streamed: bool
) -> None:
    """But where rows of the matrix fall into one set of the first cache, or are few."""
    done = check_dot(dt.f32, (rows, inner), (inner, columns), dt.f32, TARGETS["avx2"](), **PLAIN)
    assert ("few_rows" in done.text) is is_streamed


def test_parts_of_the_inner_axis_are_added_up_in_their_order() -> None:
    op = dot_of(dt.f32, (2, 3000), (3000, 500), dt.f32, **PLAIN)
    compiled = Compiled(call_of(op, (dt.f32[2, 3000], dt.f32[3000, 500]), host()))
    operands = numbers(dt.f32, (2, 3000)), numbers(dt.f32, (3000, 500))
    sums, added = compiled.routine.phases
    assert sums.chunks > 1
    forward = compiled(*operands)
    scratch, result = np.full(compiled.routine.scratch, 0xFF, np.uint8), np.zeros_like(forward)
    table = np.array([a.ctypes.data for a in (*operands, result, scratch)], np.uint64)
    for phase in (sums, added):
        with ThreadPoolExecutor(2) as pool:
            chunks = [pool.submit(compiled.native, phase.function, table, c, c + 1) for c in reversed(range(phase.chunks))]
        for chunk in chunks:
            chunk.result()
    assert forward.tobytes() == result.tobytes()


def test_what_multiplies_is_not_cold() -> None:
    """A function that only calls tiles may be made carelessly, as one is of large blocks; one that makes sums may not."""
    for rows, may_be_cold in ((1, False), (100, host().vector_bytes == 64)):
        text = check_dot(dt.f32, (rows, 600), (100, 600), dt.f32, host(), **RHS_ALONG).text
        assert (COLD in text) is may_be_cold


DIMENSION_ORDERS = [
    (
        (3, 20, 5, 17),
        (3, 17, 5, 40),
        {
            "lhs_batch_dims": (0,),
            "rhs_batch_dims": (0,),
            "lhs_contracting_dims": (2, 3),
            "rhs_contracting_dims": (2, 1),
        },
    ),
    ((2, 6, 16, 32), (6, 32, 50), {"lhs_contracting_dims": (1, 3), "rhs_contracting_dims": (0, 1)}),
    (
        (4, 9, 3, 16),
        (4, 11, 3, 16),
        {
            "lhs_batch_dims": (0, 2),
            "rhs_batch_dims": (0, 2),
            "lhs_contracting_dims": (3,),
            "rhs_contracting_dims": (3,),
        },
    ),
    ((7, 8, 9), (10, 7, 8), {"lhs_contracting_dims": (1, 0), "rhs_contracting_dims": (2, 1)}),
    ((7, 8, 9), (10, 7, 8), {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (2,)}),
    (
        (6, 30),
        (6, 30),
        {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,), "lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,)},
    ),
    ((600, 2, 3), (3, 600, 4, 34), {"lhs_contracting_dims": (0, 2), "rhs_contracting_dims": (1, 0)}),
    ((6,), (5,), {}),
    ((), (), {}),
]


@pytest.mark.parametrize(("lhs", "rhs", "dims"), DIMENSION_ORDERS)
def test_dimension_orders(lhs: Any, rhs: Any, dims: Any) -> None:
    check_dot(dt.f32, lhs, rhs, dt.f32, host(), **dims)


@pytest.mark.parametrize(("lhs", "rhs", "dims"), DIMENSION_ORDERS[:5:2])
def test_dimension_orders_of_bytes(lhs: Any, rhs: Any, dims: Any) -> None:
    check_dot(dt.s8, lhs, rhs, dt.s32, host(), **dims)


FLOATS = [
    dt.DTYPES[n] for n in ("f4e2m1fn", "f8e3m4", "f8e4m3b11fnuz", "f8e4m3fn", "f8e5m2", "f8e8m0fnu", "f16", "bf16")
]
TYPES = [
    *((t, t) for t in (*FLOATS, dt.f64, dt.c64, dt.c128, dt.pred, dt.s2, dt.u4, dt.u8, dt.s16, dt.u16, dt.s64, dt.u64)),
    *((t, dt.f32) for t in (*FLOATS, dt.f64, dt.pred, dt.s4, dt.u32)),
    *((t, dt.s32) for t in (dt.s4, dt.u4, dt.s8, dt.u8, dt.s16, dt.pred)),
    *((dt.f64, t) for t in (dt.bf16, dt.f16, dt.f8e4m3fn)),
    *((dt.f32, dt.c64), (dt.s32, dt.c64), (dt.s8, dt.s64), (dt.s8, dt.pred), (dt.f32, dt.pred)),
]


@pytest.mark.parametrize(("dtype", "result"), TYPES, ids=lambda t: t.name)
def test_types(dtype: DType, result: DType) -> None:
    check_dot(dtype, (5, 9), (9, 20), result, host(), **PLAIN)


@pytest.mark.parametrize("dtype", [dt.bf16, dt.f16, dt.s8, dt.s64, dt.c64, dt.f8e4m3fn], ids=str)
def test_types_without_avx512(dtype: DType) -> None:
    check_dot(dtype, (5, 9), (9, 20), dtype, avx2(), **PLAIN)


@pytest.mark.parametrize("result", [dt.s4, dt.u8, dt.s32, dt.s64], ids=str)
def test_sums_of_floats_to_integers_saturate(result: DType) -> None:
    op = dot_of(dt.f32, (3, 4), (4, 5), result, **PLAIN)
    lhs = np.array([[1e30] * 4, [np.nan] * 4, [-2.5] * 4], np.float32)
    check(op, [lhs, np.ones((4, 5), np.float32)], host())


@pytest.mark.parametrize(
    ("dtype", "dims"), [(dt.s8, PLAIN), (dt.u8, RHS_ALONG), (dt.s16, LHS_ACROSS), (dt.bf16, RHS_ALONG)]
)
def test_groups_of_products(dtype: DType, dims: Any) -> None:
    """Sizes that are no whole groups, in each order."""
    lhs = (37, 515) if dims is not LHS_ACROSS else (515, 37)
    rhs = (67, 515) if dims is RHS_ALONG else (515, 67)
    check_dot(dtype, lhs, rhs, dt.s32 if dtype.is_integral else dt.f32, host(), **dims)


def test_zeros_do_not_hide_infinities() -> None:
    lhs = np.zeros((20, 30), np.float32)
    rhs = np.ones((30, 40), np.float32)
    rhs[3, 5], rhs[4, 7] = np.inf, np.nan
    result = Compiled(
        call_of(dot_of(dt.f32, (20, 30), (30, 40), dt.f32, **PLAIN), (dt.f32[20, 30], dt.f32[30, 40]), host())
    )(lhs, rhs)
    assert np.isnan(result[:, [5, 7]]).all()
    assert not np.isnan(np.delete(result, [5, 7], 1)).any()


def test_any_order_of_chunks_on_any_thread_gives_the_same_bits() -> None:
    op = dot_of(dt.f32, (300, 700), (700, 200), dt.f32, **PLAIN)
    compiled = Compiled(call_of(op, (dt.f32[300, 700], dt.f32[700, 200]), host()))
    operands = numbers(dt.f32, (300, 700)), numbers(dt.f32, (700, 200))
    chunks = compiled.routine.phases[0].chunks
    assert chunks > 1
    forward = compiled(*operands)
    assert forward.tobytes() == compiled(*operands, chunks=list(range(chunks))[::-1]).tobytes()
    result = np.zeros_like(forward)
    table = np.array([a.ctypes.data for a in (*operands, result)], np.uint64)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda c: compiled.native(compiled.routine.phases[0].function, table, c, c + 1), range(chunks)))
    assert forward.tobytes() == result.tobytes()


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "steps"),
    [
        *((1, 700, 768, (8, 5)), (2, 130, 3072, (8, 1)), (4, 65, 5003, (8, 1))),
        *((1, 40, 70_000, (8, 8)), (7, 1500, 900, (16, 16))),
    ],
)
@pytest.mark.parametrize("cpu", ["znver4", "znver5"])
def test_rows_of_rhs_that_are_read_at_once_depend_on_the_cpu(
    cpu: str, rows: int, inner: int, columns: int, steps: tuple[int, int]
) -> None:
    """They lie together but where chunks have parts of long rows."""
    if host().arch != "x86_64":
        pytest.skip("CPUs are named that only x86-64 has")
    target = replace(host().without(*AMX), cpu=cpu)
    compiled = check_dot(dt.f32, (rows, inner), (inner, columns), dt.f32, target, **PLAIN)
    streamed = plan(compiled.call)
    assert isinstance(streamed, StreamedPlan)
    assert streamed.steps == steps[cpu == "znver5"]


@pytest.mark.parametrize("dims", [PLAIN, RHS_ALONG], ids=["plain", "rhs_along"])
@pytest.mark.parametrize("dtype", [dt.f32, dt.f64], ids=str)
def test_rhs_is_packed_once_for_all_chunks(dtype: DType, dims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that fall into few sets of the cache, with edges on both sides and two parts of the inner axis."""
    if not has_32_registers(host()):
        pytest.skip("tiles are small: all chunks pack their part of rhs")
    monkeypatch.setattr(costs, "KEPT_ROWS_OF", {})
    lhs, rhs = (461, 1024), (307, 1024) if dims is RHS_ALONG else (1024, 307)
    compiled = check_dot(dtype, lhs, rhs, dtype, host().without(*AMX), **dims)
    packing, product = compiled.routine.phases
    assert compiled.routine.scratch >= 307 * 1024 * dtype.bits // 8
    assert min(packing.chunks, product.chunks) > 1


def test_few_rows_do_not_make_few_chunks() -> None:
    """Three chunks of rows that share a packed rhs would leave one of two threads idle for a third of the time."""
    compiled = check_dot(dt.f32, (197, 1024), (1024, 512), dt.f32, host().without(*AMX), **PLAIN)
    assert len(compiled.routine.phases) == 1
    assert compiled.routine.phases[0].chunks >= 6


@pytest.mark.parametrize("is_kept", [False, True], ids=["packed", "kept"])
@pytest.mark.parametrize(
    ("ahead", "lhs", "rhs", "dims"),
    [
        ("rows", (1030, 128), (128, 70), PLAIN),
        ("rows", (190, 512), (512, 70), PLAIN),
        ("rows", (401, 1030), (1030, 300), PLAIN),
        ("rows", (130, 1030), (70, 1030), RHS_ALONG),
        ("columns", (70, 130), (130, 900), PLAIN),
        ("columns", (30, 1024), (1024, 410), PLAIN),
        ("parts", (1100, 70), (1100, 130), LHS_ACROSS),
        ("parts", (2100, 30), (2100, 300), LHS_ACROSS),
        ("", (50, 128), (128, 50), PLAIN),
    ],
)
@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.f16, dt.c64], ids=str)
def test_tiles_prefetch_what_is_read_next(
    dtype: DType, ahead: str, lhs: Any, rhs: Any, dims: Any, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind the last rows, and behind the end of the inner axis, where there is nothing."""
    monkeypatch.setattr(costs, "KEPT_ROWS_OF", {})
    monkeypatch.setattr(costs, "KEPT_ROWS", (10_000, 1 << 20) if is_kept else (0, 0))
    monkeypatch.setattr(costs, "PREFETCHED_BYTES", 1 << 16)
    compiled = check_dot(dtype, lhs, rhs, dtype, host().without(*AMX), **dims)
    cut = plan(compiled.call).blocking
    if ahead == "columns" and not (is_kept and dtype in (dt.f32, dt.f64)):  # others are converted, thus packed
        ahead = "rows" if lhs[0] * lhs[1] * dtype.bits // 8 >= costs.PREFETCHED_BYTES else ""
    assert cut.ahead == ahead
    assert bool(cut.prefetched) == bool(ahead)


def test_equal_products_have_equal_text() -> None:
    texts: list[str] = []
    module = Module()
    for _ in range(2):
        op = dot_of(dt.f32, (30, 70), (70, 20), dt.f32, **PLAIN)
        KERNELS["dot"](call_of(op, (dt.f32[30, 70], dt.f32[70, 20]), host()), module)
        texts.append(module.text())
    assert texts[0] == texts[1]


def test_strict_is_for_integers() -> None:
    for dtype, is_taken in ((dt.f32, False), (dt.s32, True)):
        call = call_of(dot_of(dtype, (3, 4), (4, 5), dtype, **PLAIN), (dtype[3, 4], dtype[4, 5]), host())
        assert (KERNELS["dot"](replace(call, strict=True), Module()) is not None) == is_taken


@pytest.mark.parametrize(
    ("lhs", "rhs", "dims"),
    [((20, 700), (700, 50), PLAIN), ((5, 9), (9, 3, 7), PLAIN), ((9, 4), (4,), PLAIN), ((4,), (4,), LHS_ACROSS)],
)
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16], ids=str)
def test_epilogue_gets_each_element_once(lhs: Any, rhs: Any, dims: Any, dtype: DType) -> None:
    """An epilogue that adds to what the result's memory has."""
    op = dot_of(dtype, lhs, rhs, dt.f32, **dims)
    sizes = op.output_shape.dimensions

    def store(fn: Function, index: Any, parts: Any, mask: Any) -> None:
        place, (value,) = fn.index(0), parts
        for position, size in zip(index, sizes, strict=True):
            place = place * size + position
        base = fn.table(2, FLOAT)
        assert value.lanes > 1 or mask is None
        write(dt.f32, base, place, [base[place].load(value.lanes, mask) + value], mask)

    operands = [numbers(dtype, lhs), numbers(dtype, rhs)]
    call = call_of(op, (dtype[lhs], dtype[rhs]), host())
    plain, fused = Compiled(call)(*operands), Compiled(replace(call, store=store))(*operands)
    before = np.full(sizes, np.frombuffer(b"\1\1\1\1", np.float32)[0])
    np.testing.assert_allclose(fused, plain + (before if sizes else 1), 1e-5, 1e-4)


SCALES = [((), ()), ((20, 4), (4, 30)), ((1, 128), (1, 1)), ((20, 2), (8, 30))]


@pytest.mark.parametrize(("left", "right"), SCALES)
def test_scaled_dot(left: Any, right: Any) -> None:
    op = ScaledDot(output_shape=dt.f32[20, 60], **PLAIN)  # type: ignore[arg-type]
    check(op, [numbers(dt.f32, s) for s in ((20, 128), (128, 60), left, right)], host())


def test_scaled_dot_of_blocks_of_32() -> None:
    op = ScaledDot(output_shape=dt.bf16[20, 60], **RHS_ALONG)  # type: ignore[arg-type]
    scales = [np.exp2(numbers(dt.s2, s).astype(np.float32)).astype(dt.f8e8m0fnu.numpy) for s in ((20, 4), (60, 4))]
    check(op, [numbers(dt.f8e4m3fn, (20, 128)), numbers(dt.f8e4m3fn, (60, 128)), *scales], host())


BY_ROWS = {**RHS_ALONG, "lhs_ragged_dims": (0,), "rhs_group_dims": (0,)}


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.s32], ids=str)
def test_ragged_dot(dtype: DType) -> None:
    cases = [
        (RaggedDot(output_shape=dtype[50, 40], **BY_ROWS), (50, 600), (3, 600, 40)),
        (RaggedDot(output_shape=dtype[3, 24, 40], **LHS_ACROSS, lhs_ragged_dims=(0,)), (50, 24), (50, 40)),
    ]
    for op, lhs, rhs in cases:
        compiled = Compiled(call_of(op, (dtype[lhs], dtype[rhs], dt.s32[3]), host()))
        for sizes in ((10, 20, 5), (0, 0, 0), (50, 10, 3), (33, 0, 30), (1, -1, 100)):
            operands = [numbers(dtype, lhs), numbers(dtype, rhs), np.array(sizes, np.int32)]
            agree(compiled(*operands), op.reference(*operands), operands)


def test_ragged_dot_with_sizes_for_each_batch() -> None:
    sizes = np.array([[10, 20, 5], [50, 1, 2]], np.uint8)
    batch = {"lhs_batch_dims": (0,), "lhs_contracting_dims": (2,), "lhs_ragged_dims": (1,)}
    op = RaggedDot(
        output_shape=dt.f32[2, 50, 40], **batch, rhs_batch_dims=(1,), rhs_contracting_dims=(2,), rhs_group_dims=(0,)
    )
    check(op, [numbers(dt.f32, (2, 50, 24)), numbers(dt.f32, (3, 2, 24, 40)), sizes], host())
    op = RaggedDot(
        output_shape=dt.f32[2, 50, 40],
        **{**batch, "lhs_ragged_dims": (0,)},
        rhs_batch_dims=(0,),
        rhs_contracting_dims=(1,),
    )
    check(op, [numbers(dt.f32, (2, 50, 24)), numbers(dt.f32, (2, 24, 40)), sizes], host())


@pytest.mark.parametrize("target", ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"])
def test_code_for_other_machines(target: str) -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    is_arm = target.startswith("aarch64")
    machine = Target(target, "generic" if is_arm else "x86-64", "+neon" if is_arm else "+sse2", 16)
    for dtype in (dt.f32, dt.bf16, dt.s8):
        module = Module()
        op = dot_of(dtype, (40, 70), (70, 50), dt.s32 if dtype is dt.s8 else dtype, **PLAIN)
        routine = KERNELS["dot"](call_of(op, (dtype[40, 70], dtype[70, 50]), machine), module)
        assert routine is not None
        module.exported[routine.phases[0].function] = None
        parsed = llvm.parse_assembly(module.text())
        parsed.verify()
        assert llvm.Target.from_triple(target).create_target_machine(cpu=machine.cpu).emit_object(parsed)


@pytest.mark.parametrize(
    "dtype", [dt.f8e5m2, dt.f8e4m3fn, dt.f8e4m3b11fnuz, dt.f8e3m4, dt.f6e3m2fn, dt.f4e2m1fn], ids=str
)
def test_denormals_of_narrow_types_count(dtype: DType) -> None:
    """Where those of f32 are zeros."""
    codes = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    codes = np.where(np.isfinite(codes.astype(np.float32)), codes, np.zeros_like(codes))[:, None]
    b = hk.Builder("product")
    x, y = b.parameter(0, dtype[codes.shape]), b.parameter(1, dtype[1, 40])
    module = b.build(hk.dot_general(x, y, hk.DotDimensionNumbers([1], [0]), preferred_element_type=hk.f32))
    ones = np.ones((1, 40), dtype.numpy)
    np.testing.assert_array_equal(hk.compile(module)(codes, ones), np.repeat(codes.astype(np.float32), 40, axis=1))


@pytest.mark.parametrize("name", ["f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f8e3m4"])
def test_what_is_fused_to_a_product_keeps_denormals_of_narrow_types(name: str) -> None:
    dtype = dt.dtype(name).numpy
    x = np.full(4, float(ml_dtypes.finfo(dtype).smallest_subnormal)).astype(dtype)
    module = hk.parse(f"""HloModule m
      ENTRY e {{ x = {name}[4] parameter(0)
        y = {name}[4] parameter(1)
        s = {name}[4,4] dot(x, y), lhs_contracting_dims={{}}, rhs_contracting_dims={{}}
        ROOT d = {name}[4,4] divide(s, s) }}""")
    assert (hk.compile(module)(x, np.ones(4, dtype)).astype(np.float32) == 1).all()


@pytest.mark.parametrize(
    ("product", "sizes"),
    [
        (lambda x, y: hk.dot_general(x, y, hk.DotDimensionNumbers((2,), (1,), (0,), (0,))), [(10, 3, 4), (10, 4, 5)]),
        (lambda x, y: hk.conv(x, y, [1], "SAME"), [(2, 5, 9), (7, 5, 4)]),
    ],
)
def test_products_of_constants_have_the_bits_of_products_of_arguments(product: Any, sizes: Any) -> None:
    """The reference rounds each product, machine code fuses it with the sum where the machine can: XLA's own tests of
    its Python client compare products of constants with NumPy's to 1e-6."""
    rng = np.random.RandomState(0)
    arrays = [rng.randn(*size).astype(np.float32) for size in sizes]
    constants, arguments = hk.Builder(), hk.Builder()
    module = constants.build(product(*map(constants.constant, arrays)))
    parameters = [arguments.parameter(i, hk.f32[size]) for i, size in enumerate(sizes)]
    want = np.asarray(hk.compile(arguments.build(product(*parameters)))(*arrays))
    assert np.asarray(hk.compile(module)()).tobytes() == want.tobytes()
    assert hk.optimize(module).entry.root.opcode == "constant"
