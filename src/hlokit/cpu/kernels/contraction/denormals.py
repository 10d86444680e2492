"""Arithmetic in which denormals are zeros: a hundred times faster on x86 where there are many.

Products of matrices and convolutions have it, unless they are strict, as XLA:CPU has it everywhere: a loop that decays
runs into denormals and would stay there. TYPE-11 leaves denormals open for what is approximated.
"""

from __future__ import annotations

from hlokit.cpu.kernels.routine import PHASE, Call
from hlokit.cpu.llvm import I32, I64, Function, Module, Pointer, Value
from hlokit.cpu.target import Target
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_FLUSH_X86 = 0x8040
"""MXCSR: results (FTZ) and operands (DAZ)."""

_FLUSH_ARM = 1 << 24
"""FPCR.FZ: both."""


def may_flush(call: Call) -> bool:
    """Not in strict code, nor with types that need denormals."""
    return not call.strict and not needs_denormals(*(shape.dtype for shape in (*call.operands, *call.results)))


def needs_denormals(*types: DType) -> bool:
    """Whether a denormal of f32 is a normal number of one of the types: 2^-127 of f8e8m0fnu.

    Arithmetic in f32 for these types must keep denormals: vdpbf16ps and tdpbf16ps, which do not, are not for them.
    """
    return dtypes.f8e8m0fnu in types


class PhaseFunction(Function):
    """The function of a phase, in which denormals are zeros if it `flushes`; it leaves the thread as it was.

    In itself: a function round it takes a millisecond more to compile.
    """

    def __init__(self, target: Target, table: str = "ptr", *, flushes: bool) -> None:
        """`table`: the type of its first parameter, with attributes."""
        (_, name), *bounds = PHASE
        super().__init__("", [(table, name), *bounds], attributes="nounwind", target=target)
        self._saved = self._begin_flushing() if flushes else None

    def end(self, module: Module, prefix: str, *, exported: bool = False) -> str:
        """Ends the function and adds it to the module; gives its name."""
        if self._saved is not None:
            name = "x86.sse.ldmxcsr" if isinstance(self._saved, Pointer) else "aarch64.set.fpcr"
            self.call(f"llvm.{name}", self._saved)
        self.returns()
        return module.add_by_text(self, prefix, exported=exported)

    def _begin_flushing(self) -> Value:
        """Sets the bits; gives the state before, or where it is kept."""
        if self.target.arch != "x86_64":
            saved = self.call_for(I64, "llvm.aarch64.get.fpcr")
            self.call("llvm.aarch64.set.fpcr", saved | _FLUSH_ARM)
            return saved
        state, changed = self.local(I32), self.local(I32)
        self.call("llvm.x86.sse.stmxcsr", state)
        changed.store(state.load() | _FLUSH_X86)
        self.call("llvm.x86.sse.ldmxcsr", changed)
        return state
