"""The command `hlokit`: whatever its arguments and files, it ends with a status of its table and no traceback."""

from __future__ import annotations

import io
import os
import random
import re
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np

import hlokit as hk
from hlokit.proto.module import module_to_proto
from hlokit.tools.files import standard_input
from hlokit.tools.main import main
from tests.fuzz.readers import stablehlo_artifact
from tests.fuzz.readers.fuzzer import Broken, Fuzzer, any_of, edited, noise

_HLO = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0) ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=sum }
"""
_MLIR = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }\n"
_COMMANDS = (
    "run p.hlo --random 1", "run p.hlo --input x.npz --output out.npz", "run p.mlir --input p.hlo",
    "run p.hlo --random 1 --replicas 2 --output out{device}.npz", "run p.bc --random 3 --backend cpu",
    "run p.pb --random 2 --profile trace.json", "run p.hlo --random 1 --xla_dump_to=dump --xla_dump_hlo_pass_re=.*",
    "run p.hlo --random 1 --shadow shadow", "run broken.npz", "check p.hlo --replicas 2", "check p.bc", "check noise",
    "print p.hlo --form canonical", "print p.mlir --form dot", "print p.hlo --form stablehlo", "print p.pb --form proto",
    "convert p.hlo q.pb", "convert p.pb q.mlir --to stablehlo", "convert p.bc q.dot", "opt p.hlo --passes cse,dce",
    "opt p.hlo --print-after-all", "opt --list-passes", "compile p.hlo --emit llvm", "compile p.hlo --target aarch64",
    "compile p.hlo --emit obj --output q.o", "compile p.mlir --threads 2 --strict", "ops add", "ops", "cache show",
    "simulate p.hlo --topology ring:8 --bandwidth 100GB/s --latency 1us --json",
    "simulate p.hlo --topology torus:4x4 --bandwidth 1GB/s,2GB/s --latency 1us --algorithm ring --trip-count 3",
    "simulate p.hlo --topology hosts:2x4 --bandwidth 1GB/s --latency 1ms --flops 1TFLOPS --trace trace.json", "--help",
    "cache why p.hlo", "--version", "cache clear --dry-run", "check p.hlo wrong.hlo noise", "check wrong.hlo", "check -",
    "print -", "run s.pb", "run s.pb --trap-nan", "run p.hlo --random 1 --after r", "run - --random 1",
    "opt p.hlo --passes constant_folding --output q.hlo", "convert p.hlo q.hlo.pb", "convert p.hlo q.svg",
    "convert wrong.hlo - --to hlo_proto", "print e.jax",
)  # fmt: skip
_TOKEN = re.compile(r"--\w[\w\-]*|[A-Za-z_][\w.]*|[0-9]+|\s+|.", re.DOTALL)
_WORDS = (
    "0 -1 1 2 3 7 99999999999999999999 1e400 nan inf GB/s us x:, = { } {device} {device:d} * ( [ \\ p.hlo p.mlir p.bc p.pb "
    "x.npz broken.npz noise missing . --emit asm loops --replicas --partitions --random --seed --input --output --form "
    "--target host x86-64-avx512 aarch64/generic,+sve --topology mesh:3x3 tree:2x2 full:1000000000 ring:0 --algorithm tree "
    "algsimp constant-folding --threads " + "9" * 5000
).split(" ")


def _mutated(line: str, other: str, random_: random.Random) -> str:
    def character() -> str:
        return noise(random_).replace("\0", "0")  # no argument of a process can hold that one

    changed = "".join(edited(_TOKEN.findall(line), _TOKEN.findall(other), _WORDS, character, random_))
    return changed.replace("--load", "--seed").replace("/", "" if "GB" not in changed else "/")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """With programs, arrays and noise in it."""
    folder = tempfile.TemporaryDirectory()
    at = Path(folder.name)
    (at / "p.hlo").write_text(_HLO)
    (at / "p.mlir").write_text(_MLIR)
    (at / "p.bc").write_bytes(stablehlo_artifact.artifacts()[0])
    (at / "p.pb").write_bytes(module_to_proto(hk.parse(_HLO)))
    np.savez(at / "x.npz", x=np.ones(4, np.float32))
    data = (at / "x.npz").read_bytes()
    (at / "broken.npz").write_bytes(data[:90] + b"\xff\0\xff" + data[93:])
    (at / "wrong.hlo").write_text(_HLO.replace("r = f32[4]", "r = f32[5]"))
    for name, data in (("s.pb", "snapshot.pb"), ("e.jax", "exported.jax")):
        (at / name).write_bytes((Path(__file__).parents[2] / "data/files" / data).read_bytes())
    (at / "noise").write_bytes(random.Random(0).randbytes(1000))
    return folder


def _check(line: str) -> str:
    before = os.getcwd()
    files = {path.name: path.read_bytes() for path in Path(_folder().name).iterdir() if path.is_file()}
    standard_input.cache_clear()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(_HLO.encode()), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    try:
        os.chdir(_folder().name)
        with redirect_stdout(out), redirect_stderr(err):
            main([word for word in line.split(" ") if word])
        raise Broken("the command did not exit")
    except SystemExit as end:
        status = end.code
    finally:
        sys.stdin = stdin
        os.chdir(before)
        for name, data in files.items():
            (Path(_folder().name) / name).write_bytes(data)
    err.flush()
    said = err.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
    if status not in (0, 1, 2, None):
        raise Broken(f"status {status}: {said[:300]}")
    if "Traceback" in said:
        raise Broken(f"a traceback: {said[-300:]}")
    if status and not said.strip():
        raise Broken(f"a status of {status}, and no word why")
    return "refused" if status else "read"


FUZZER = Fuzzer(any_of(*_COMMANDS), _mutated, _check)
