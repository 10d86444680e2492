"""Arithmetic in which denormals are zeros: a hundred times faster on x86 where there are many.

Products of matrices and convolutions have it, unless they are strict, as XLA:CPU has it everywhere: a loop that decays
runs into denormals and would stay there. TYPE-11 leaves denormals open for what is approximated.
"""

from __future__ import annotations

from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_FLUSH_X86 = 0x8040
"""MXCSR: results (FTZ) and operands (DAZ)."""

_FLUSH_ARM = 1 << 24
"""FPCR.FZ: both."""


_X86 = (
    f"""  %saved = alloca i32, align 4
  %flushing = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  %state = load i32, ptr %saved
  %changed = or i32 %state, {_FLUSH_X86}
  store i32 %changed, ptr %flushing
  call void @llvm.x86.sse.ldmxcsr(ptr %flushing)
""",
    "  call void @llvm.x86.sse.ldmxcsr(ptr %saved)\n",
)
_ARM = (
    f"""  %saved = call i64 @llvm.aarch64.get.fpcr()
  %changed = or i64 %saved, {_FLUSH_ARM}
  call void @llvm.aarch64.set.fpcr(i64 %changed)
""",
    "  call void @llvm.aarch64.set.fpcr(i64 %saved)\n",
)


def may_flush(call: Call) -> bool:
    """Not in strict code, nor with types that need denormals."""
    return not call.strict and not needs_denormals(*(shape.dtype for shape in (*call.operands, *call.results)))


def needs_denormals(*types: DType) -> bool:
    """Whether a denormal of f32 is a normal number of one of the types: 2^-127 of f8e8m0fnu.

    Arithmetic in f32 for these types must keep denormals: vdpbf16ps and tdpbf16ps, which do not, are not for them.
    """
    return dtypes.f8e8m0fnu in types


def flushing(name: str, module: Module, target: Target) -> None:
    """Has a phase's function run so, and leave the thread as it was. In itself: one more round it takes a millisecond
    to compile."""
    before, after = _X86 if target.arch == "x86_64" else _ARM
    if "%saved = " in module.functions[name]:
        return
    head, entry, body = module.functions[name].partition("entry:\n")
    module.functions[name] = head + entry + before + body.replace("  ret void", f"{after}  ret void")
