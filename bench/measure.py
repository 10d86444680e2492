"""Measures the machine's limits: small LLVM kernels that do nothing but multiply-add, add, read or copy.

    python -m bench.measure [--json FILE]

Rates are those of all cores together, the best of several tries: what the hardware allows. bf16 and s8 are those of AMX
where there is such; f32 stays that of multiply-adds, which products may exceed there
(docs/decisions/0005-products-in-parts.md).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.limits import Limits
from hlokit.cpu.target import host

CHAINS = 12  # independent accumulators: enough to hide the latency of two units
TRIES = 7
MB = 1 << 20
WORKING_SETS = (1, 2, 4, 8, 16, 32, 64, 128)  # MB
BEYOND_CACHES = 384  # MB


def counted_loop(
    name: str, arguments: str, before: str, carried: list[tuple[str, str, str]], body: str, after: str
) -> str:
    """A function that runs `body` %n times; `carried`: (type, name, initial value), next value in %name.next."""
    phis = "\n".join(
        f"  %{value} = phi {kind} [ {start}, %entry ], [ %{value}.next, %loop ]" for kind, value, start in carried
    )
    return f"""
define void @{name}({arguments}, i64 %n) {{
entry:
{before}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
{phis}
{body}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %loop, label %exit
exit:
{after}
  ret void
}}
"""


def arithmetic(name: str, vector: str, operand: str, step: str) -> str:
    """CHAINS accumulators of type `vector`; `step` has fields for an accumulator and its next value, and reads %x."""
    carried = [(vector, f"a{k}", f"%s{k}") for k in range(CHAINS)]
    body = "\n".join("  " + step.format(a=f"%a{k}", next=f"%a{k}.next") for k in range(CHAINS))
    after = "\n".join(f"  store volatile {vector} %a{k}.next, ptr %p" for k in range(CHAINS))
    # volatile: no chain is another's copy
    before = f"  %x = load volatile {operand}, ptr %p\n" + "\n".join(
        f"  %s{k} = load volatile {vector}, ptr %p" for k in range(CHAINS)
    )
    return counted_loop(name, "ptr %p", before, carried, body, after)


F32, S32 = "<16 x float>", "<16 x i32>"
LINE = "<16 x float>"


def multiply_add(name: str, element: str, lanes: int) -> str:
    """Fused multiply-adds of vectors of `element` (float or double)."""
    vector, intrinsic = f"<{lanes} x {element}>", f"@llvm.fma.v{lanes}{name}"
    step = f"{{next}} = call {vector} {intrinsic}({vector} {{a}}, {vector} %x, {vector} %x)"
    return f"declare {vector} {intrinsic}({vector}, {vector}, {vector})\n" + arithmetic(name, vector, vector, step)


KERNELS = {
    "vector": arithmetic("vector", F32, F32, "{next} = fadd <16 x float> {a}, %x"),
    "bf16": "declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)\n"
    + arithmetic(
        "bf16", F32, "<32 x bfloat>",
        "{next} = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512("
        "<16 x float> {a}, <32 x bfloat> %x, <32 x bfloat> %x)",
    ),
}  # fmt: skip


def dot_s8(operand: str) -> str:
    """vpdpbusd; LLVM changed its operands' type from 16 s32 to 64 s8."""
    intrinsic = "@llvm.x86.avx512.vpdpbusd.512"
    return f"declare {S32} {intrinsic}({S32}, {operand}, {operand})\n" + arithmetic(
        "i8", S32, operand, f"{{next}} = call {S32} {intrinsic}({S32} {{a}}, {operand} %x, {operand} %x)"
    )


def matrix(name: str, instruction: str) -> str:
    """%n times four products on AMX, in tiles of 16 rows of 64 bytes."""
    registers = range(8)
    configuration = b"\1".ljust(16, b"\0") + b"\x40\0" * 8 + bytes(16) + b"\x10" * 8 + bytes(8)
    shown = "".join(f"\\{byte:02x}" for byte in configuration)
    zeros = [f"  call void @llvm.x86.tilezero(i8 {r})" for r in registers]
    begin = "\n".join([f"  call void @llvm.x86.ldtilecfg(ptr @{name}_registers)", *zeros])
    body = "\n".join(f"  call void @llvm.x86.{instruction}(i8 {r}, i8 {4 + r // 2}, i8 {6 + r % 2})" for r in range(4))
    end = "  call void @llvm.x86.tilestored64(i8 0, ptr %p, i64 64)\n  call void @llvm.x86.tilerelease()"
    return (
        f'@{name}_registers = constant [64 x i8] c"{shown}"\n'
        "declare void @llvm.x86.ldtilecfg(ptr)\ndeclare void @llvm.x86.tilezero(i8)\n"
        f"declare void @llvm.x86.{instruction}(i8, i8, i8)\n"
        "declare void @llvm.x86.tilestored64(i8, ptr, i64)\ndeclare void @llvm.x86.tilerelease()\n"
        + counted_loop(name, "ptr %p", begin, [], body, end)
    )


def streaming(name: str, hint: str) -> str:
    """Copies %n times 512 bytes; `hint` is written on each store."""
    body = "  %at = mul i64 %i, 512\n" + "\n".join(
        f"  %o{k} = add i64 %at, {64 * k}\n"
        f"  %from{k} = getelementptr i8, ptr %p, i64 %o{k}\n  %to{k} = getelementptr i8, ptr %q, i64 %o{k}\n"
        f"  %v{k} = load {LINE}, ptr %from{k}, align 64\n  store {LINE} %v{k}, ptr %to{k}, align 64{hint}"
        for k in range(8)
    )
    return counted_loop(name, "ptr %p, ptr %q", "", [], body, "") + "\n!0 = !{i32 1}\n"


def reading() -> str:
    """Adds up %n times 512 bytes."""
    body = "  %at = mul i64 %i, 512\n" + "\n".join(
        f"  %o{k} = add i64 %at, {64 * k}\n  %from{k} = getelementptr i8, ptr %p, i64 %o{k}\n"
        f"  %v{k} = load {LINE}, ptr %from{k}, align 64\n  %a{k}.next = fadd {LINE} %a{k}, %v{k}"
        for k in range(8)
    )
    after = "\n".join(f"  store volatile {LINE} %a{k}.next, ptr %q" for k in range(8))
    return counted_loop(
        "read", "ptr %p, ptr %q", "", [(LINE, f"a{k}", "zeroinitializer") for k in range(8)], body, after
    )


class Compiler:
    """LLVM for this machine. Its code lives as long as it does."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        # 512-bit registers where the machine has them, whatever LLVM prefers for it
        features = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"
        self.machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)

    def function(self, text: str, name: str, pointers: int) -> Callable[..., None]:
        wide = text.replace("{\nentry", '"min-legal-vector-width"="512" "prefer-vector-width"="512" {\nentry')
        module = self.llvm.parse_assembly(wide)
        module.verify()
        self.engine.add_module(module)
        self.engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers, ctypes.c_int64)
        return kind(self.engine.get_function_address(name))


def together(work: Callable[[int], None], threads: int) -> tuple[float, float]:
    """Seconds until all threads have done work(thread), and the CPU time they took on average.

    ctypes lets go of Python's lock. The second counts where memory does not matter: it leaves out what others took.
    """
    start = threading.Barrier(threads)
    begun, ended, busy = [0.0] * threads, [0.0] * threads, [0.0] * threads

    def run(number: int) -> None:
        start.wait()
        begun[number], before = time.perf_counter(), time.thread_time()
        work(number)
        ended[number], busy[number] = time.perf_counter(), time.thread_time() - before

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(ended) - min(begun), sum(busy) / threads


def measure(threads: int | None = None) -> Limits:
    """The limits of this machine, or the lesser one that HLOKIT_TARGET names; those of absent instructions are f32's.

    threads: how many take part, by default one for each core.
    """
    compiler = Compiler()
    threads = threads or os.cpu_count() or 1
    bytes_wide = max(16, host().vector_bytes)

    scratch = [aligned_bytes(4096) for _ in range(threads)]

    def arithmetic_rate(name: str, text: str, per_step: int, steps: int = 2_000_000) -> float:
        function = compiler.function(text, name, 1)
        addresses = [array.ctypes.data for array in scratch]
        tries = [together(lambda number: function(addresses[number], steps), threads)[1] for _ in range(TRIES)]
        return per_step * steps * threads / min(tries)

    def vector_rate(name: str, text: str, per_vector: int) -> float:
        return arithmetic_rate(name, text, CHAINS * per_vector)

    def matrix_rate(name: str, instruction: str, per_register: int) -> float:
        return arithmetic_rate(name, matrix(name, instruction), 4 * per_register, 500_000)

    peaks = {
        name: vector_rate(name, multiply_add(name, element, bytes_wide // size), 2 * bytes_wide // size)
        for name, element, size in (("f32", "float", 4), ("f64", "double", 8))
    }
    peaks["bf16"] = peaks["f32"]  # by conversion
    if host().has("avx512bf16"):  # slower than that on some
        peaks["bf16"] = max(peaks["f32"], vector_rate("bf16", KERNELS["bf16"], 64))
    peaks["i8"] = peaks["f32"]
    if host().has("avx512vnni"):
        try:
            peaks["i8"] = vector_rate("i8", dot_s8(S32), 128)
        except RuntimeError:
            peaks["i8"] = vector_rate("i8", dot_s8("<64 x i8>"), 128)
    if host().has("amx-bf16"):
        peaks["bf16"] = max(peaks["bf16"], matrix_rate("bf16_registers", "tdpbf16ps", 2 * 16 * 16 * 32))
    if host().has("amx-int8"):
        peaks["i8"] = max(peaks["i8"], matrix_rate("i8_registers", "tdpbssd", 2 * 16 * 16 * 64))
    vector_ops = vector_rate("vector", KERNELS["vector"], 16)

    source, destination = (aligned_bytes(BEYOND_CACHES * MB // 2) for _ in range(2))

    def moving_rate(function: Callable[..., None], size: int, moved: int) -> float:
        """Bytes a second of `moved` bytes a step of 512, the working set being `size` bytes."""
        lines = size // (moved * threads)

        repeats = max(1, 128 * MB // size)

        def work(number: int) -> None:
            offset = number * lines * 512
            for _ in range(repeats):
                function(source.ctypes.data + offset, destination.ctypes.data + offset, lines)

        alone = threads == 1  # then CPU time leaves out what others took; several threads share the memory meanwhile
        return moved * lines * repeats * threads / min(together(work, threads)[alone] for _ in range(TRIES))

    plain = compiler.function(streaming("copy", ""), "copy", 2)
    past = compiler.function(streaming("copy_past", ", !nontemporal !0"), "copy_past", 2)
    read = compiler.function(reading(), "read", 2)
    caches = tuple((size * MB * 1.0, moving_rate(plain, size * MB, 1024)) for size in WORKING_SETS)
    memory = max(moving_rate(copy, BEYOND_CACHES * MB, 1024) for copy in (plain, past))
    memory_read = moving_rate(read, BEYOND_CACHES * MB // 2, 512)
    return Limits(peaks, vector_ops, caches, memory, memory_read)


def aligned_bytes(size: int) -> Any:
    """Zeros that start on a cache line, touched."""
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    values = room[start : start + size]
    values[:] = 0
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    limits = asdict(measure())
    for name, peak in limits["peaks"].items():
        print(f"{name:12} {peak / 1e9:7.0f} G operations/s")
    print(f"{'vector':12} {limits['vector_ops'] / 1e9:7.0f} G elements/s")
    for size, bandwidth in limits["caches"]:
        print(f"copy {size / MB:4.0f} MB {bandwidth / 1e9:7.0f} GB/s")
    print(f"copy memory  {limits['memory'] / 1e9:7.0f} GB/s\nread memory  {limits['memory_read'] / 1e9:7.0f} GB/s")
    if options.json is not None:
        options.json.write_text(json.dumps(limits, indent=1) + "\n")


if __name__ == "__main__":
    main()
