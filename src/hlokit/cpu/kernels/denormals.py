"""Arithmetic in which denormals are zeros: a hundred times faster on x86 where there are many.

Products of matrices and convolutions have it, unless they are strict, as XLA:CPU has it everywhere: a loop that decays
runs into denormals and would stay there. TYPE-11 leaves denormals open for what is approximated.
"""

from __future__ import annotations

from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target

_FLUSH_X86 = 0x8040
"""MXCSR: results (FTZ) and operands (DAZ)."""

_FLUSH_ARM = 1 << 24
"""FPCR.FZ: both."""


def flushing(name: str, module: Module, target: Target) -> str:
    """A phase's function that runs the phase's function `name` so, and leaves the thread as it was."""
    fn = Function(f"{name}_flushing", [("ptr", "table"), ("i64", "begin"), ("i64", "end")])
    call = f"call void @{name}(ptr %table, i64 %begin, i64 %end)"
    if target.arch == "x86_64":
        saved, changed = fn.alloca("i32", align=4), fn.alloca("i32", align=4)
        fn.do(f"call void @llvm.x86.sse.stmxcsr(ptr {saved})")
        before = fn.let(f"load i32, ptr {saved}")
        fn.do(f"store i32 {fn.let(f'or i32 {before}, {_FLUSH_X86}')}, ptr {changed}")
        fn.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {changed})")
        fn.do(call)
        fn.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {saved})")
    elif target.arch == "aarch64":
        before = fn.let("call i64 @llvm.aarch64.get.fpcr()")
        fn.do(f"call void @llvm.aarch64.set.fpcr(i64 {fn.let(f'or i64 {before}, {_FLUSH_ARM}')})")
        fn.do(call)
        fn.do(f"call void @llvm.aarch64.set.fpcr(i64 {before})")
    else:
        return name
    fn.do("ret void")
    module.add(fn)
    return fn.name
