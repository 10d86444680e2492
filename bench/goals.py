"""The numbers that the design set out to reach, beside what a run measured.

    python -m bench.goals build/bench/run.json [--markdown FILE]

Shares are of the machine's limits that the run measured. Where the design gives milliseconds, they were meant for the
machine it was made on; elsewhere the ratio counts that they are to XLA's time there. The run has most figures; what
it has not (fork and join, a native entry, a hit of the cache) is measured here, in some seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.limits import Limits
from bench.lower import stored_text
from bench.process import ROOT
from bench.programs import BY_NAME
from bench.report import Report, geometric_means, number


@dataclass(frozen=True)
class Finding:
    """A number: what was to be reached, what was seen, whether that is enough."""

    what: str
    goal: str
    seen: str
    reached: bool


ELSEWHERE = {
    "softmax_4096x1024": (0.7, 1.64), "layernorm_8192x1024": (0.9, 2.75), "layernorm_fwdbwd_8192x1024": (4.0, 22.7),
    "sort_f32_1M": (8.0, 255.0), "argsort_f32_1M": (15.0, 323.0), "cumsum_1D_4M": (1.5, 30.6),
    "threefry_bits_4M": (3.5, 33.1), "maxpool3s2_bwd_n8_112_64": (4.0, 65.4), "heat2d_2048_10it": (7.0, 92.1),
    "life_2048_10it": (3.0, 46.6), "nbody_2048": (1.0, 52.3), "attention_b4h8s512d64": (12.0, 17.2),
    "lstm_scan_T128_B32_H256": (22.0, 38.7), "resnet_block_train_n8": (16.0, 47.2),
    "transformer_layer_fwdbwd": (115.0, 178.0), "fft_c64_1M": (5.0, 13.2),
}  # fmt: skip
"""Milliseconds to reach on the design's machine (Zen 4), and the better XLA's there (jaxlib 0.10.2)."""

PEAKS = (
    ("gemm_f32_256", 0.95), ("gemm_f32_512", 0.95), ("gemm_f32_1024", 0.91), ("gemm_f32_2048", 0.87),
    ("batched_256x64x64", 0.78), ("gemm_bf16_1024", 0.90), ("gemm_i8_1024", 0.70),
    ("conv_3x3_n8_56_64-64_NHWC", 0.93), ("conv_1x1_n8_56_64-256_NHWC", 0.80),
)  # fmt: skip
"""Shares of the arithmetic peak: multiply-adds of f32, and whatever the machine has for bf16 and s8."""

SLOWNESS = (
    ("conv_dw3x3_n8_56_144_NHWC", 5.0), ("exp_4M", 1.1), ("tanh_4M", 1.1), ("gelu_tanh_4M", 1.1), ("sin_4M", 1.1),
    ("pow_4M", 1.5),
)  # fmt: skip
"""Times the floor's time."""

COMPILES = (("exp_4M", 10.0), ("tiny_add_1elt", 10.0), ("gemm_f32_256", 10.0), ("transformer_layer_fwdbwd", 200.0))
"""Milliseconds."""

STREAMS = ("chain_big_16M", "bf16_chain_16M", "bcast_add_row_4096", "copy_16M")
"""Bound by memory: at least 80 % of the bandwidth of a copy."""


class Goals:
    """What a run says to each goal."""

    def __init__(self, report: Report) -> None:
        self.report, self.rows = report, {row.name: row for row in report.rows}
        self.limits = Limits(**report.machine["limits"])

    def findings(self) -> Iterator[Finding]:
        yield from self.figures()
        yield from measured()

    def figures(self) -> Iterator[Finding]:
        """Those of the run."""
        yield from self.ratios()
        yield from self.shares()
        yield from self.elsewhere()
        yield from self.compiling()
        for name, most in (("tiny_add_1elt", 1.0), ("tiny_20args", 5.0)):
            seen = self.hlokit(name) * 1e3
            yield Finding(f"call of {name}", f"<= {most:g} us", f"{number(seen)} us", seen <= most)

    def hlokit(self, name: str) -> float:
        """Milliseconds."""
        return self.rows[name].median("hlokit") or float("inf")

    def ratios(self) -> Iterator[Finding]:
        mean = geometric_means(self.report.rows)["all"] or 0.0
        yield Finding("geometric mean over the best XLA", ">= 3", f"{mean:.2f}", mean >= 3)
        below = [row for row in self.report.rows if (row.ratio or 0.0) < 0.95]
        shown = ", ".join(f"{row.name} {number(row.ratio)}" for row in below)
        yield Finding("programs below 0.95", "none", shown or "none", not below)

    def shares(self) -> Iterator[Finding]:
        for name, least in PEAKS:
            program = BY_NAME[name]
            share = program.flops / self.limits.peaks[program.peak] / (self.hlokit(name) * 1e-3)
            yield Finding(f"{name}: of the {program.peak} peak", f">= {least:.0%}", f"{share:.0%}", share >= least)
        for name in STREAMS:
            share = self.rows[name].floor_ms / self.hlokit(name)
            yield Finding(f"{name}: of memory's bandwidth", ">= 80%", f"{share:.0%}", share >= 0.8)
        for name, most in SLOWNESS:
            times = self.hlokit(name) / self.rows[name].floor_ms
            yield Finding(f"{name}: times the floor", f"<= {most:g}", f"{times:.2f}", times <= most)

    def elsewhere(self) -> Iterator[Finding]:
        for name, (goal, xla) in ELSEWHERE.items():
            seen, ratio = self.hlokit(name), self.rows[name].ratio or 0.0
            goal_text = f"<= {goal:g} ms, or {xla / goal:.2f} times XLA"
            yield Finding(name, goal_text, f"{number(seen)} ms, {ratio:.2f} times", seen <= goal or ratio >= xla / goal)

    def compiling(self) -> Iterator[Finding]:
        mean = geometric_means(self.report.rows)["compile"] or float("inf")
        yield Finding("compile time over XLA's, geometric mean", "<= 1", f"{mean:.2f}", mean <= 1)
        for name, most in COMPILES:
            seen = self.rows[name].compiled("hlokit") or float("inf")
            yield Finding(f"compile {name}", f"<= {most:g} ms", f"{number(seen)} ms", seen <= most)
        for kind, most in (("hlokit", 250.0), ("hlokit-cached", 250.0)):
            cold = self.report.cold_start_ms.get(kind)
            if isinstance(cold, float):
                yield Finding(f"import to first result, {kind}", f"<= {most:g} ms", f"{cold:.0f} ms", cold <= most)


def measured() -> Iterator[Finding]:
    """Those that no run has."""
    measures = ((native_entry_us, "native entry", 0.15, "us"), (fork_join_us, "fork and join, hot", 0.4, "us"),
                (cache_hit_ms, "hit of the cache, exp_4M", 5.0, "ms"),
                (unrolled_s, "compile 200 unrolled stencil steps", 4.0, "s"))  # fmt: skip
    for measure, what, most, unit in measures:
        seen = measure()
        yield Finding(what, f"<= {most:g} {unit}", f"{number(seen)} {unit}", seen <= most)


TIMES = 20_000

REPEAT = """
declare i32 @entry(ptr)
declare void @parallel(ptr, ptr, ptr, i64)
define void @enter(ptr %table, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  call i32 @entry(ptr %table)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
define void @nothing(ptr %table, i64 %begin, i64 %end) {
  ret void
}
define void @fork(ptr %pool, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  call void @parallel(ptr %pool, ptr @nothing, ptr null, i64 2)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""


def repeated(name: str, address: int, entry: int) -> float:
    """Microseconds of one of the many times that function `name` above does its work at `address`."""
    from hlokit.cpu.jit.objects import Library, compile_object
    from hlokit.cpu.jit.pool import pool
    from hlokit.cpu.target import host

    functions = {"entry": entry, "parallel": pool().parallel}
    library = Library([compile_object(REPEAT, host())], functions)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address(name))

    def seconds() -> float:
        begun = time.perf_counter()
        function(address, TIMES)
        return time.perf_counter() - begun

    seconds()
    return statistics.median(seconds() for _ in range(9)) / TIMES * 1e6


def native_entry_us() -> float:
    """A program of one addition, called from machine code."""
    import hlokit as hk

    executable = hk.compile(hk.parse(stored_text("tiny_add_1elt")))
    arguments = BY_NAME["tiny_add_1elt"].draw()
    result = np.asarray(executable(*arguments))
    entry = executable.entry
    assert entry is not None
    address, rest = entry
    table = np.array([*(a.ctypes.data for a in arguments), result.ctypes.data, *rest], np.int64)
    return repeated("enter", table.ctypes.data, address)


def fork_join_us() -> float:
    """Two empty chunks, threads awake."""
    from hlokit.cpu.jit.pool import pool

    workers = pool()
    return repeated("fork", workers.address, workers.parallel)


CACHED = """
import time
import hlokit as hk
from bench.lower import stored_text
hk.compile(hk.parse(stored_text("tiny_add_1elt")))
text = stored_text("exp_4M")
begun = time.perf_counter()
hk.compile(hk.parse(text))
print(time.perf_counter() - begun)
"""


def cache_hit_ms() -> float:
    """From HLO text to an executable whose code is on disk, in fresh processes that have loaded another before."""
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        variables = os.environ | {
            "HLOKIT_CACHE_DIR": folder,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        for _ in range(6):
            done = subprocess.run(
                [sys.executable, "-c", CACHED], capture_output=True, text=True, env=variables, cwd=ROOT, check=True
            )
            times.append(float(done.stdout) * 1e3)
    return statistics.median(times[1:])


def unrolled_s() -> float:
    """Compiles 200 steps of heat's diffusion, written out, each of nine instructions of slices and pads."""
    import hlokit as hk

    b = hk.Builder("unrolled")
    x = b.parameter(0, hk.f32[512, 512], "x")
    quarter, zero = b.constant(np.float32(0.25)), b.constant(np.float32(0))
    for _ in range(200):
        sides = [
            hk.pad(hk.slice(x, starts, limits), zero, [(*edge, 0) for edge in edges])
            for starts, limits, edges in (
                ((1, 0), (512, 512), ((0, 1), (0, 0))),
                ((0, 0), (511, 512), ((1, 0), (0, 0))),
                ((0, 1), (512, 512), ((0, 0), (0, 1))),
                ((0, 0), (512, 511), ((0, 0), (1, 0))),
            )
        ]
        x = hk.mul(hk.add(hk.add(sides[0], sides[1]), hk.add(sides[2], sides[3])), quarter)
    module = b.build(x)
    begun = time.perf_counter()
    hk.compile(module)
    return time.perf_counter() - begun


def markdown(findings: list[Finding]) -> str:
    lines = ["| number | to reach | seen | reached |", "|---|---|---|---|"]
    lines += [f"| {f.what} | {f.goal} | {f.seen} | {'yes' if f.reached else 'no'} |" for f in findings]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="what `python -m bench.run --json` wrote")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    os.environ["HLOKIT_CACHE_DIR"] = ""  # what is compiled here is compiled
    findings = list(Goals(Report.from_json(json.loads(options.run.read_text()))).findings())
    text = markdown(findings)
    print(text + f"\n{sum(f.reached for f in findings)} of {len(findings)} reached")
    if options.markdown is not None:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
