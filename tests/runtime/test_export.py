"""Objects for C: linked and called from there, compared with the interpreter."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.target import host
from hlokit.errors import HlokitError, UnsupportedError

COMPILER = next((c for c in ("gcc", "cc", "clang") if shutil.which(c)), None)
MAIN = """#include <stdio.h>
#include <stdlib.h>
#include "$NAME.h"

static void *memory(size_t size) { return aligned_alloc(64, (size + 127) / 64 * 64); }

int main(void) {
  static const size_t in[] = {$IN 0}, out[] = {$OUT 0};
  const void *args[$UPPER_ARGUMENTS + 1];
  void *results[$UPPER_RESULTS + 1];
  for (int i = 0; i < $UPPER_ARGUMENTS; i++) {
    void *data = memory(in[i]);
    if (fread(data, 1, in[i], stdin) != in[i]) return 2;
    args[i] = data;
  }
  for (int i = 0; i < $UPPER_RESULTS; i++) results[i] = memory(out[i]);
  if ($NAME(args, results, memory($UPPER_ARENA_BYTES))) return 3;
  for (int i = 0; i < $UPPER_RESULTS; i++) fwrite(results[i], 1, out[i], stdout);
  return 0;
}
"""
MIXED = """HloModule mixed
add { x = f32[] parameter(0)
      y = f32[] parameter(1)
      ROOT r = f32[] add(x, y) }
body { p = (s32[], f32[24,24]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[24,24] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[24,24] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[24,24] tanh(y)
  ROOT t = (s32[], f32[24,24]) tuple(next, z) }
condition { p = (s32[], f32[24,24]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(12)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e {
  x = f32[24,24] parameter(0)
  k = s32[5] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[24,24]) tuple(zero, x)
  w = (s32[], f32[24,24]) while(t), condition=condition, body=body
  y = f32[24,24] get-tuple-element(w), index=1
  table = f32[7] constant({1, 2, 3, 5, 8, 13, 21})
  g = f32[5] gather(table, k), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}
  f = f32[] constant(0)
  s = f32[24] reduce(y, f), dimensions={1}, to_apply=add
  ROOT r = (f32[24,24], f32[5], f32[24]) tuple(y, g, s) }
"""


def called_from_c(object: Path, header: Path, module: hk.HloModule, arguments, folder: Path) -> list[np.ndarray]:
    """Compiles a main that reads the arguments and writes the results."""
    name = object.stem
    root = module.entry.root.shape
    shapes = list(root.elements) if root.is_tuple else [root]
    sizes = [s.size * s.dtype.numpy.itemsize for s in shapes]
    text = MAIN.replace("$NAME", name).replace("$UPPER", name.upper())
    text = text.replace("$IN", "".join(f"{a.nbytes}, " for a in arguments)).replace(
        "$OUT", "".join(f"{n}, " for n in sizes)
    )
    source, program = folder / "main.c", folder / "main"
    source.write_text(text)
    command = [
        COMPILER,
        "-std=c11",
        "-Wall",
        "-Werror",
        f"-I{header.parent}",
        str(source),
        str(object),
        "-o",
        str(program),
    ]
    done = subprocess.run([*command, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(program)], input=b"".join(a.tobytes() for a in arguments), capture_output=True)
    assert done.returncode == 0
    results, at = [], 0
    for shape, size in zip(shapes, sizes, strict=True):
        results.append(np.frombuffer(done.stdout[at : at + size], shape.dtype.numpy).reshape(shape.dimensions))
        at += size
    assert at == len(done.stdout)
    return results


needs_c = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


@needs_c
def test_c_calls_it(tmp_path: Path) -> None:
    """Loops, products, constants, several results; the host's own instructions."""
    module = hk.parse(MIXED)
    object, header = hk.export_object(module, "host", tmp_path / "mixed.o")
    x = np.random.default_rng(0).normal(size=(24, 24)).astype(np.float32)
    k = np.int32([0, 6, 3, 99, -1])
    got = called_from_c(object, header, module, [x, k], tmp_path)
    for ours, expected in zip(got, hk.compile(module)(x, k), strict=True):
        np.testing.assert_array_equal(ours, expected)
    np.testing.assert_allclose(got[1], hk.evaluate(module, x, k)[1])


@needs_c
@pytest.mark.skipif(host().arch != "x86_64" or not host().has("avx2"), reason="code for x86-64 with AVX2")
def test_a_baseline_and_small_types(tmp_path: Path) -> None:
    text = """HloModule small
    ENTRY e { x = bf16[9] parameter(0)
      p = pred[9] parameter(1)
      c = c64[9] parameter(2)
      y = bf16[9] multiply(x, x)
      z = bf16[9] select(p, y, x)
      d = c64[9] multiply(c, c)
      ROOT r = (bf16[9], c64[9]) tuple(z, d) }"""
    module = hk.parse(text)
    object, header = hk.export_object(module, "x86-64-avx2", tmp_path / "small.o")
    x = np.linspace(-2, 2, 9).astype(hk.bf16.numpy)
    p = np.arange(9) % 2 == 0
    c = (np.arange(9) + 1j).astype(np.complex64)
    got = called_from_c(object, header, module, [x, p, c], tmp_path)
    for ours, expected in zip(got, hk.evaluate(module, x, p, c), strict=True):
        np.testing.assert_array_equal(ours, expected)


@needs_c
def test_objects_of_two_programs_link(tmp_path: Path) -> None:
    """All but the one function is the object's own."""
    for name, op in (("one", "add"), ("two", "multiply")):
        hk.export_object(
            hk.parse(f"ENTRY e {{\n x = f32[4] parameter(0)\n ROOT r = f32[4] {op}(x, x)\n}}"),
            path=tmp_path / f"{name}.o",
        )
    source = tmp_path / "main.c"
    source.write_text("""#include "one.h"
        #include "two.h"
        int main(void) { float x[4] = {3, 3, 3, 3}, y[4], z[4]; const void *a[] = {x}; void *p[] = {y}, *q[] = {z};
          return one(a, p, 0) || two(a, q, 0) || y[3] != 6 || z[3] != 9; }""")
    program = tmp_path / "main"
    objects = [str(tmp_path / f"{name}.o") for name in ("one", "two")]
    subprocess.run([str(COMPILER), str(source), *objects, "-o", str(program)], check=True)
    subprocess.run([str(program)], check=True)


@needs_c
@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_it_needs_nothing_but_memory_functions(tmp_path: Path) -> None:
    text = """ENTRY e { x = f32[100] parameter(0)
      a = f32[100] sine(x)
      b = f32[100] exponential(a)
      c = f32[100] power(b, x)
      h = f16[100] convert(c)
      d = f64[100] convert(c)
      f = f64[100] erf(d)
      ROOT r = (f32[100], f16[100], f64[100]) tuple(c, h, f) }"""
    object, _ = hk.export_object(hk.parse(text), "host", tmp_path / "math.o")
    shown = subprocess.run(["nm", "-u", str(object)], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in shown.splitlines()} <= {"memcpy", "memset", "memmove"}


def test_aarch64(tmp_path: Path) -> None:
    object, header = hk.export_object(
        hk.parse(MIXED), "aarch64-unknown-linux-gnu/generic,+fp-armv8,+neon", tmp_path / "arm.o"
    )
    data = object.read_bytes()
    assert data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == 183  # EM_AARCH64
    assert "aarch64" in header.read_text()


def test_the_header_says_what_is_passed(tmp_path: Path) -> None:
    _, header = hk.export_object(hk.parse(MIXED), path=tmp_path / "mixed.o")
    text = header.read_text()
    assert "#define MIXED_ARGUMENT1_BYTES 20ULL /* k: s32[5] */" in text
    assert "a stack of 2 MB" in text and "#define MIXED_RESULTS 3" in text and "MIXED_ARENA_BYTES" in text
    assert "int mixed(const void *const *args, void **results, void *arena);" in text


def test_the_name_is_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = hk.parse("HloModule jit-f.3\nENTRY e {\n x = f32[4] parameter(0)\n ROOT r = f32[4] negate(x)\n}")
    assert [str(p) for p in hk.export_object(module)] == ["jit_f_3.o", "jit_f_3.h"]


def test_a_path_in_the_place_of_the_target() -> None:
    with pytest.raises(hk.ArgumentError, match=r"target='/tmp/x\.o' is the path of a file: write path='/tmp/x\.o'"):
        hk.export_object(hk.parse("ENTRY e { ROOT x = f32[2] parameter(0) }"), "/tmp/x.o")


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    rng = "ENTRY e {\n x = f32[] parameter(0)\n o = f32[] constant(9)\n ROOT r = f32[4] rng(x, o), distribution=rng_uniform\n}"
    with pytest.raises(UnsupportedError, match=r"r \(rng\): rng is evaluated by the reference"):
        hk.export_object(hk.parse(rng), path=tmp_path / "a.o")
    dynamic = "ENTRY e {\n x = f32[<=4] parameter(0)\n ROOT r = f32[<=4] negate(x)\n}"
    with pytest.raises(UnsupportedError, match="dynamic dimensions"):
        hk.export_object(hk.parse(dynamic), path=tmp_path / "a.o")
    with pytest.raises(HlokitError, match="'2x' is not a name"):
        hk.export_object(hk.parse(MIXED), path=tmp_path / "2x.o")
    with pytest.raises(HlokitError, match="'é' is not a name"):
        hk.export_object(hk.parse(MIXED), path=tmp_path / "é.o")
    with pytest.raises(HlokitError, match=r"a\.h is the header's name"):
        hk.export_object(hk.parse(MIXED), path=tmp_path / "a.h")
    with pytest.raises(UnsupportedError, match="m68k"):
        hk.export_object(hk.parse(MIXED), "m68k/68000", tmp_path / "a.o")
    assert not list(tmp_path.iterdir())
