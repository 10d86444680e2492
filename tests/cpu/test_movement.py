"""Data movement as machine code: every element where the reference puts it, at odd sizes, on one thread and on two."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu import costs
from hlokit.cpu.compiler import compile_program
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.lower.steps import KernelStep
from hlokit.cpu.target import host
from tests.fuzz.machine_code import many_chunks
from tests.targets import targets


def same(body: str, *arguments: Any, threads: int = 1) -> None:
    """The entry's body, compiled, gives the reference's bytes."""
    module = hk.parse("HloModule m\n" + CALLED + "ENTRY e {\n" + body + "\n}\n")
    expected = hk.evaluate(module, *arguments)
    found = hk.compile(module, threads=threads)(*arguments)
    for a, b in zip(_leaves(found), _leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else [np.asarray(value)]


CALLED = """
latter { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] copy(q) }
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
add64 { p = c64[] parameter(0) q = c64[] parameter(1) ROOT r = c64[] add(p, q) }
second { p = u8[] parameter(0) q = u8[] parameter(1) ROOT r = u8[] copy(q) }
"""


def numbers(shape: tuple[int, ...], dtype: str = "f32") -> Any:
    """Numbers that are exact in sums."""
    values = np.random.default_rng(sum(shape)).integers(0, 100, shape)
    if dtype == "pred":
        return values > 50
    return (values + 1j * values[::-1] if dtype == "c64" else values).astype(_NUMPY[dtype])


def _numpy_types() -> dict[str, Any]:
    import ml_dtypes

    return {
        "f32": np.float32, "f64": np.float64, "u8": np.uint8, "s16": np.int16, "c64": np.complex64,
        "bf16": ml_dtypes.bfloat16, "pred": np.bool_, "s32": np.int32,
    }  # fmt: skip


_NUMPY = _numpy_types()


def loops_of(body: str) -> Loops:
    """The loops of the only kernel."""
    program = compile_program(hk.parse("HloModule m\n" + CALLED + "ENTRY e {\n" + body + "\n}\n"), host())
    (step,) = [s for s in program.block.steps if isinstance(s, KernelStep)]
    return step.loops


# -- transposes


@pytest.mark.parametrize("dtype", ["f32", "f64", "u8", "s16", "bf16", "c64", "pred"])
@pytest.mark.parametrize("rows, columns", [(64, 80), (5, 7), (130, 67), (3, 200), (200, 3)])
def test_transpose(dtype: str, rows: int, columns: int) -> None:
    text = f"x = {dtype}[{rows},{columns}] parameter(0) ROOT r = {dtype}[{columns},{rows}] transpose(x), dimensions={{1,0}}"
    same(text, numbers((rows, columns), dtype))


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_transpose_of_three(order: tuple[int, ...]) -> None:
    sizes = (3, 33, 70)
    to = ",".join(str(sizes[d]) for d in order)
    dims = ",".join(map(str, order))
    text = f"x = f32[3,33,70] parameter(0) ROOT r = f32[{to}] transpose(x), dimensions={{{dims}}}"
    same(text, numbers(sizes), threads=2)


def test_transpose_among_others() -> None:
    text = """x = f32[65,130] parameter(0) y = f32[130,65] parameter(1) s = f32[40,130] slice(x), slice={[5:45], [0:130]}
    t = f32[130,40] transpose(s), dimensions={1,0} u = f32[130,40] slice(y), slice={[0:130], [3:43]}
    ROOT r = f32[130,40] add(t, u)"""
    same(text, numbers((65, 130)), numbers((130, 65)))


def test_transposes_are_tiled() -> None:
    loops = loops_of("x = f32[256,512] parameter(0) ROOT r = f32[512,256] transpose(x), dimensions={1,0}")
    assert loops.tile is not None and loops.rows == 4 and loops.vector is loops.order[1]


# -- segments


@pytest.mark.parametrize("dtype", ["f32", "u8", "c64"])
@pytest.mark.parametrize("columns", [9, 130, 300])
def test_concatenate(dtype: str, columns: int) -> None:
    wide = 2 * columns + 9
    text = f"""x = {dtype}[5,{columns}] parameter(0) y = {dtype}[5,9] slice(x), slice={{[0:5], [0:9]}}
    ROOT r = {dtype}[5,{wide}] concatenate(x, y, x), dimensions={{1}}"""
    same(text, numbers((5, columns), dtype), threads=2)


@pytest.mark.parametrize("padding", ["3_9x17_64", "0_1x1_0", "-1_2x-2_3", "1_2_1x2_3_2"])
def test_pad(padding: str) -> None:
    for dtype in ("f32", "u8"):
        text = f"x = {dtype}[70,200] parameter(0) c = {dtype}[] constant(3) ROOT r = pad(x, c), padding={padding}"
        sizes = []
        for n, part in zip((70, 200), padding.split("x"), strict=True):
            low, high, *inner = map(int, part.split("_"))
            sizes.append(low + high + n + (n - 1) * (inner[0] if inner else 0))
        same(text.replace("r = pad", f"r = {dtype}[{sizes[0]},{sizes[1]}] pad"), numbers((70, 200), dtype))


MANY = {
    "rows": ([(5, 20 + k) for k in range(19)], 1, "f32"),
    "bytes": ([(7, 24) for _ in range(25)], 1, "u8"),
    "few of each": ([(50, 3) for _ in range(17)], 1, "f64"),
    "first axis": ([(1 + k % 3, 130) for k in range(30)], 0, "f32"),
    "middle": ([(9, 1, 70) for _ in range(14)], 1, "s16"),
    "flags": ([(33 + k,) for k in range(21)], 0, "pred"),
    "complex": ([(40 + k,) for k in range(15)], 0, "c64"),
    "one axis, shared": ([(9000 + 37 * k,) for k in range(16)], 0, "f32"),
    "one axis, short and shared": ([(11 + k % 70,) for k in range(400)], 0, "u8"),
    "one long, one short": ([(3,), (33,), (1,)], 0, "f64"),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shapes, dimension, dtype", MANY.values(), ids=MANY)
def test_concatenate_of_many(
    shapes: list[tuple[int, ...]], dimension: int, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operand has code of its own, wherever it begins; chunks begin and end inside operands."""
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")  # a program cut into chunks has the key of one that is not
    types = [f"{dtype}[{','.join(map(str, shape))}]" for shape in shapes]
    sizes = list(shapes[0])
    sizes[dimension] = sum(shape[dimension] for shape in shapes)
    body = "".join(f"p{k} = {type} parameter({k})\n" for k, type in enumerate(types))
    names = ", ".join(f"p{k}" for k in range(len(types)))
    body += f"ROOT r = {dtype}[{','.join(map(str, sizes))}] concatenate({names}), dimensions={{{dimension}}}"
    with many_chunks() if threads > 1 else nullcontext():
        loops = loops_of(body)
        (pieces,) = loops.pieces.values()
        assert len(pieces) == len(shapes)
        assert (loops.parallel > 0) == (threads > 1)
        same(body, *(numbers(shape, dtype) for shape in shapes), threads=threads)


def test_patches_of_an_image() -> None:
    """Slices side by side: rows are moved, and no element is asked which of them it is from."""
    slices = [(i, j) for i in range(4) for j in range(4)]
    body = "x = f32[2,12,13,5] parameter(0)\n"
    for i, j in slices:
        body += f"t{i}{j} = f32[2,9,10,5] slice(x), slice={{[0:2], [{i}:{i + 9}], [{j}:{j + 10}], [0:5]}}\n"
    body += f"ROOT r = f32[2,9,10,80] concatenate({', '.join(f't{i}{j}' for i, j in slices)}), dimensions={{3}}"
    same(body, numbers((2, 12, 13, 5)))


def test_roll_and_stencil() -> None:
    text = """x = f32[70,200] parameter(0)
    a = f32[70,1] slice(x), slice={[0:70], [199:200]} b = f32[70,199] slice(x), slice={[0:70], [0:199]}
    right = f32[70,200] concatenate(a, b), dimensions={1}
    c = f32[1,200] slice(x), slice={[0:1], [0:200]} d = f32[69,200] slice(x), slice={[1:70], [0:200]}
    up = f32[70,200] concatenate(d, c), dimensions={0} ROOT r = f32[70,200] add(right, up)"""
    same(text, numbers((70, 200)), threads=2)


def test_long_pieces_have_their_own_code() -> None:
    text = "x = f32[100,4000] parameter(0) c = f32[] constant(0) ROOT r = f32[196,4096] pad(x, c), padding=48_48x48_48"
    pieces = list(loops_of(text).pieces.values())
    assert [(48, 148)] in [p[1:2] for p in pieces] and [(48, 4048)] in [p[1:2] for p in pieces]


# -- scatter and gather


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("table", [3, 1000, 40000])
def test_scatter_of_scalars(table: int, threads: int) -> None:
    n = 9001
    text = f"""x = f32[{table}] parameter(0) i = s32[{n},1] parameter(1) u = f32[{n}] parameter(2)
    ROOT r = f32[{table}] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum"""
    indices = np.random.default_rng(0).integers(-5, table + 5, (n, 1)).astype(np.int32)
    same(text, numbers((table,)), indices, numbers((n,)), threads=threads)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("window", [1, 5, 40])
def test_scatter_of_blocks_of_which_all_or_some_are_in_bounds(window: int, threads: int) -> None:
    n, table = 9001, 6000
    more, moved = (f",{window}", "1") if window > 1 else ("", "")
    text = f"""x = f32[{table}{more}] parameter(0) i = s32[{n},1] parameter(1) u = f32[{n}{more}] parameter(2)
    ROOT r = f32[{table}{more}] scatter(x, i, u), update_window_dims={{{moved}}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=latter"""
    rows = (window,) * bool(more)
    assert (loops_of(text).parted is not None) == (host().vector_bytes >= 64)  # with AVX-512
    indices = np.random.default_rng(0).integers(0, table, (n, 1)).astype(np.int32)
    indices[3000:5000:3] = table  # neither the first blocks nor the last, which is no whole one
    same(text, numbers((table, *rows)), indices, numbers((n, *rows)), threads=threads)
    indices = np.sort(indices, axis=0)  # whole blocks that belong to one part of the operand
    same(text, numbers((table, *rows)), indices, numbers((n, *rows)), threads=threads)


def test_scatter_of_complex() -> None:
    text = """x = c64[500] parameter(0) i = s64[6000,1] parameter(1) u = c64[6000] parameter(2)
    ROOT r = c64[500] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add64"""
    indices = np.random.default_rng(0).integers(-5, 505, (6000, 1))
    same(text, numbers((500,), "c64"), indices, numbers((6000,), "c64"), threads=2)


@pytest.mark.parametrize("sizes, window", [((40, 500), 1), ((40, 30, 6), 6), ((40, 30, 3), 3), ((7, 7000), 1)])
def test_scatter_in_batches(sizes: tuple[int, ...], window: int) -> None:
    """Index vectors of one batch index never hit what another's do: batches are shared out, in order inside."""
    batch, table = sizes[:2]
    whole, more = ",".join(map(str, sizes)), f",{window}" if window > 1 else ""
    moved = "2" if more else ""
    text = f"""x = f32[{whole}] parameter(0) i = s32[{batch},900,1] parameter(1) u = f32[{batch},900{more}] parameter(2)
    ROOT r = f32[{whole}] scatter(x, i, u), update_window_dims={{{moved}}}, inserted_window_dims={{1}},
    scatter_dims_to_operand_dims={{1}}, input_batching_dims={{0}}, scatter_indices_batching_dims={{0}},
    index_vector_dim=2, to_apply=latter"""
    indices = np.random.default_rng(0).integers(-5, table + 5, (batch, 900, 1)).astype(np.int32)
    assert loops_of(text).parallel == 1
    same(text, numbers(sizes), indices, numbers((batch, 900, *sizes[2:])), threads=2)


def test_scatter_across_columns() -> None:
    """Windows outside the index vectors: each row is a window's own."""
    text = """x = f32[300,70] parameter(0) i = s32[200,1] parameter(1) u = f32[300,200] parameter(2)
    ROOT r = f32[300,70] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=latter"""
    indices = np.random.default_rng(0).integers(-5, 75, (200, 1)).astype(np.int32)
    assert loops_of(text).parallel == 1
    same(text, numbers((300, 70)), indices, numbers((300, 200)), threads=2)


@pytest.mark.parametrize("n", [20000, 20011])
@pytest.mark.parametrize("table, window", [(50, 1), (50, 3), (40, 40)])
@pytest.mark.parametrize("type", ["s32", "s64", "s8"])
def test_many_updates_of_a_small_array(n: int, table: int, window: int, type: str) -> None:
    """They go to copies of it."""
    more, moved = (f",{window}", "1") if window > 1 else ("", "")
    text = f"""x = f32[{table}{more}] parameter(0) i = {type}[{n},1] parameter(1) u = f32[{n}{more}] parameter(2)
    ROOT r = f32[{table}{more}] scatter(x, i, u), update_window_dims={{{moved}}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum"""
    rows = (window,) * bool(more)
    indices = (
        np.random.default_rng(0).integers(-5, table + 5, (n, 1)).astype({"s32": "i4", "s64": "i8", "s8": "i1"}[type])
    )
    indices[::97] = np.iinfo(indices.dtype).min
    same(text, numbers((table, *rows)), indices, numbers((n, *rows)), threads=2)


def test_scatter_at_indices_that_cost_much_is_of_stored_ones() -> None:
    text = """x = f32[30000] parameter(0) y = f32[9000,1] parameter(1) u = f32[9000] parameter(2)
    s = f32[9000,1] sine(y) t = f32[9000,1] multiply(s, y) h = f32[] constant(30000) b = f32[9000,1] broadcast(h), dimensions={}
    v = f32[9000,1] multiply(t, b) i = s32[9000,1] convert(v)
    ROOT r = f32[30000] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"""
    program = compile_program(hk.parse("HloModule m\n" + CALLED + "ENTRY e {\n" + text + "\n}\n"), host())
    assert sum(isinstance(step, KernelStep) for step in program.block.steps) == 2


def test_scatter_of_rows_in_order() -> None:
    text = """x = u8[30,40,17] parameter(0) i = s32[2000,2] parameter(1) u = u8[2000,17] parameter(2)
    ROOT r = u8[30,40,17] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0,1},
    scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=second"""
    indices = np.random.default_rng(0).integers(0, 40, (2000, 2)).astype(np.int32)
    same(text, numbers((30, 40, 17), "u8"), indices, numbers((2000, 17), "u8"), threads=2)


def test_windows_that_overlap_are_not_parted() -> None:
    text = """x = f32[5000] parameter(0) i = s32[4000,1] parameter(1) u = f32[4000,7] parameter(2)
    ROOT r = f32[5000] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"""
    indices = np.random.default_rng(0).integers(-5, 5005, (4000, 1)).astype(np.int32)
    same(text, numbers((5000,)), indices, numbers((4000, 7)), threads=2)


@pytest.mark.parametrize("dtype", ["f32", "u8", "f64", "c64"])
def test_gather(dtype: str) -> None:
    indices = np.random.default_rng(0).integers(-9, 60, (333, 1)).astype(np.int32)
    scalars = f"""x = {dtype}[50] parameter(0) i = s32[333,1] parameter(1)
    ROOT r = {dtype}[333] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1}}"""
    same(scalars, numbers((50,), dtype), indices)
    rows = f"""x = {dtype}[50,19] parameter(0) i = s32[333,1] parameter(1)
    ROOT r = {dtype}[333,19] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1,19}}"""
    same(rows, numbers((50, 19), dtype), indices)


# -- strides


@pytest.mark.parametrize("dtype", ["f32", "u8", "c64", "bf16"])
@pytest.mark.parametrize("start, step", [(0, 2), (1, 2), (0, 3), (2, 4), (0, 5)])
def test_strided_slices(dtype: str, start: int, step: int) -> None:
    for columns in (64, 333):
        kept = -(-(columns - start) // step)
        text = f"""x = {dtype}[7,{columns}] parameter(0)
        s = {dtype}[7,{kept}] slice(x), slice={{[0:7], [{start}:{columns}:{step}]}}
        v = {dtype}[7,{kept}] reverse(s), dimensions={{1}} ROOT r = ({dtype}[7,{kept}], {dtype}[7,{kept}]) tuple(s, v)"""
        same(text, numbers((7, columns), dtype))


@pytest.mark.parametrize("to", ["s32", "u32", "f32"])
@pytest.mark.parametrize("type", ["u8", "s8"])
@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("pixels", [7, 100, 1003])
def test_interleaved_bytes(pixels: int, step: int, type: str, to: str) -> None:
    """Pixels' channels are computed with in 32 bits: in whole pixels, and in slices that begin and end inside one."""
    data = np.random.default_rng(pixels).integers(0, 256, pixels * step + 1).astype(np.uint8)
    end = pixels * step
    text = f"x = {type}[{end + 1}] parameter(0)\n"
    for k in range(step):
        text += f"a{k} = {type}[{pixels}] slice(x), slice={{[{k}:{end - step + k + 1}:{step}]}}\n"
        text += f"c{k} = {to}[{pixels}] convert(a{k})\n"
    text += f"b = {type}[{pixels}] slice(x), slice={{[{step}:{end + 1}:{step}]}} e = {to}[{pixels}] convert(b)\n"
    text += (
        f"s = {to}[{pixels}] add(c0, e) p = {to}[{pixels}] multiply(c1, c{step - 1}) ROOT r = {to}[{pixels}] add(s, p)"
    )
    same(text, data.view(np.int8) if type == "s8" else data)


def test_large_copies_are_shared() -> None:
    """An array that is updated in place is copied by chunks first."""
    text = """x = f32[400,1000] parameter(0) u = f32[3,1000] parameter(1) i = s32[] parameter(2) z = s32[] constant(0)
    ROOT r = f32[400,1000] dynamic-update-slice(x, u, i, z)"""
    same(text, numbers((400, 1000)), numbers((3, 1000)), np.int32(77), threads=2)


CHOSEN = """HloModule m
ENTRY e {
  x = f32[20000] parameter(0)
  y = f32[20000] parameter(1)
  i = s32[ROWS,1] parameter(2)
  p = f32[20000] multiply(x, y)
  c = f32[60000] concatenate(x, y, p), dimensions={0}
  ROOT g = f32[ROWS] gather(c, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1}
}
"""


@pytest.mark.parametrize("rows", [500, 50_000])
def test_what_takes_several_gathers_for_each_element_is_stored(rows: int) -> None:
    """Unless few elements are picked."""
    compiled = hk.compile(hk.parse(CHOSEN.replace("ROWS", str(rows))), threads=1)
    rng = np.random.default_rng(rows)
    x, y = rng.normal(size=(2, 20000)).astype(np.float32)
    i = rng.integers(0, 60000, (rows, 1)).astype(np.int32)
    np.testing.assert_array_equal(compiled(x, y, i), np.concatenate([x, y, x * y])[i[:, 0]])
    assert any("gathers would make" in why for _, _, why in compiled.reasons) == (rows > 500)


@pytest.mark.parametrize("type", ["u8", "bf16", "f32"])
def test_stores_past_the_caches_are_of_whole_lines(
    type: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those after the first piece of an axis may begin within a line, as in the rows of a large 3-D max pool of bf16."""
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path))  # the key of the cache has no costs
    monkeypatch.setattr(costs, "STREAM_BYTES", 0)
    low = {"u8": 0}.get(type, "-inf")
    text = f"""m {{ a = {type}[] parameter(0)
      b = {type}[] parameter(1)
      ROOT c = {type}[] maximum(a, b) }}
    ENTRY e {{ x = {type}[64,64,1024] parameter(0)
      i = {type}[] constant({low})
      ROOT r = {type}[64,32,512] reduce-window(x, i), window={{size=3x3x3 stride=1x2x2 pad=1_1x1_1x1_1}}, to_apply=m }}"""
    module = hk.parse(text)
    dtype = module.entry.parameters[0].shape.dtype.numpy
    x = np.random.default_rng(0).integers(0, 97, (64, 64, 1024)).astype(dtype)
    expected = hk.evaluate(module, x)
    for target in ("host", "x86-64-avx2") if "AVX2" in targets() else ("host",):
        assert np.array_equal(hk.compile(module, target=target)(x), expected)


@pytest.mark.parametrize("target", targets())
def test_masked_loads_of_no_lane_are_made_within_the_array(target: str) -> None:
    """A sum of products of a large array with itself, rolled: where its last elements are not what a vector needs, the
    masked load of them would be made a whole array further, which takes a microsecond where no memory is mapped."""
    size = 100_003
    text = f"""HloModule m
    {CALLED}
    ENTRY e {{
      x = f32[{size}] parameter(0)
      a = f32[3] slice(x), slice={{[{size - 3}:{size}]}}
      b = f32[{size - 3}] slice(x), slice={{[0:{size - 3}]}}
      r = f32[{size}] concatenate(a, b), dimensions={{0}}
      p = f32[{size}] multiply(x, r)
      z = f32[] constant(0)
      ROOT s = f32[] reduce(p, z), dimensions={{0}}, to_apply=sum
    }}"""
    module = hk.parse(text)
    compiled = hk.compile(module, target=targets()[target])
    written = compiled.as_text("llvm")
    loads = re.findall(r"@llvm\.masked\.load\.\S+\(ptr align 4 (%\w+),", written)
    chosen = re.findall(r"(%\w+) = select i1 %\w+, ptr ", written)
    far = re.findall(rf"(%\w+) = getelementptr float, ptr %\w+, i64 {size - 3}\n", written)
    assert loads and chosen and not set(far) & set(loads)
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    want = float(x.astype(np.float64) @ np.roll(x, 3))
    assert float(compiled(x)) == pytest.approx(want, rel=1e-4, abs=0.05)
