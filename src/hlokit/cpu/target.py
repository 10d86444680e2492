"""The machine for which code is generated."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hlokit.cpu import llvm_lock
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.memory import drop_unchanged, require

ALIGNMENT = 64
"""Bytes: all arrays that hlokit makes begin at a multiple of it, the size of a cache line."""
_X86 = """sse3 ssse3 sse4.1 sse4.2 sse4a popcnt cx16 prfchw movbe lzcnt bmi bmi2 adx gfni tbm avx xop fma4 f16c fma avx2
    avxvnni avxifma avxvnniint8 avxvnniint16 avxneconvert avx512f avx512cd avx512dq avx512bw avx512vl avx512ifma
    avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq avx512bf16 avx512fp16 vpclmulqdq
    amx-tile amx-int8 amx-bf16"""
_ARM = "fp-armv8 neon lse rdm fullfp16 fp16fml dotprod jsconv complxnum i8mm bf16 sve sve2"
_V1 = "cx16"
_V3 = f"{_V1} sse3 ssse3 sse4.1 sse4.2 popcnt movbe lzcnt bmi bmi2 avx f16c fma avx2"
_V4 = f"{_V3} avx512f avx512cd avx512dq avx512bw avx512vl"
_BASELINES = {
    "x86-64": ("x86_64", "x86-64", _V1),
    "x86-64-avx2": ("x86_64", "x86-64-v3", _V3),
    "x86-64-avx512": ("x86_64", "x86-64-v4", _V4),
    "aarch64": ("aarch64", "generic", "fp-armv8 neon"),
}
BASELINES = tuple(_BASELINES)
"""Names of machines that code can be made for without being on one."""


@dataclass(frozen=True)
class Target:
    """A CPU as LLVM names it.

    features      LLVM's feature string: "+avx512f,+fma,...": all that code generation can use, in one fixed order, each
                  with + or -, since the CPU's name alone promises what a virtual machine may hide
    vector_bytes  the widest vector register: 64 with AVX-512, 32 with AVX2, 16 for NEON and SSE
    threads       cores that this process may use; no matter to the code
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    threads: int = 1

    def has(self, feature: str) -> bool:
        """Whether the CPU has LLVM's feature of this name: "avx512bf16", "avx512vnni", "f16c", ..."""
        return f"+{feature}" in self.features.split(",")

    @property
    def arch(self) -> str:
        """The instruction set: x86_64 or aarch64."""
        return _arch(self.triple)

    def gathers(self, size: int) -> bool:
        """Whether LLVM has one instruction for loads of so many bytes from an address a lane under a mask: AVX2's it
        takes on some CPUs only."""
        return size >= 4 and self.has("avx512f") and self.has("avx512vl")

    def lacks(self, other: Target) -> list[str]:
        """The features that code for the other CPU needs and this one has not, or the other architecture."""
        if self.arch != other.arch:
            return [other.arch]
        own = {*self.features.split(","), *("+" + name for name in _least(self.triple))}
        return [f[1:] for f in other.features.split(",") if f[:1] == "+" and f not in own]

    def without(self, *features: str) -> Target:
        """This machine if it lacked them."""
        kept = [f"-{f[1:]}" if f[1:] in features else f for f in self.features.split(",")]
        return replace(self, features=",".join(kept))

    def with_threads(self, threads: int) -> Target:
        return replace(self, threads=threads)

    def __str__(self) -> str:
        """As `parse` reads it."""
        present = [f for f in self.features.split(",") if f.startswith("+")]
        return ",".join([f"{self.triple}/{self.cpu}", *present])


def require_system() -> None:
    """Raises UnsupportedError where machine code has never been run: on all systems but Linux.

    HLOKIT_UNTESTED_SYSTEM=1 tries it on systems with POSIX threads (macOS, the BSDs); Windows has none.
    """
    if sys.platform == "linux":
        return
    name = _SYSTEMS.get(sys.platform, sys.platform)
    advice = "hk.evaluate runs programs, hk.export_object makes machine code for other systems"
    if sys.platform == "win32":
        raise UnsupportedError(f"machine code does not run on {name}, which has no POSIX threads: {advice}")
    if os.environ.get("HLOKIT_UNTESTED_SYSTEM", "0") in ("", "0"):
        raise UnsupportedError(
            f"machine code has never been run on {name}: {advice}; set HLOKIT_UNTESTED_SYSTEM=1 to allow it"
        )


_SYSTEMS = {"darwin": "macOS", "win32": "Windows"}


def host() -> Target:
    """This machine, or the lesser one that HLOKIT_TARGET names as `parse` reads it.

    Raises UnsupportedError if HLOKIT_TARGET names a machine with features that this one lacks.
    """
    return _host().with_threads(available_threads())


def baseline(name: str) -> Target:
    """A machine by the name of what it has at least: one of BASELINES. Raises UnsupportedError."""
    if name not in _BASELINES:
        known = ", ".join(BASELINES)
        raise UnsupportedError(f"target {name!r}: expected host, {known} or TRIPLE/CPU,+FEATURE...")
    arch, cpu, features = _BASELINES[name]
    system = "apple-darwin" if platform.system() == "Darwin" else "unknown-linux-gnu"
    return _target(f"{arch}-{system}", cpu, features.split())


def parse(text: str) -> Target:
    """The target that a user means: `host`, a baseline's name, or TRIPLE/CPU; then `,+feature` and `,-feature`.

    Raises UnsupportedError for an architecture, a baseline or a feature that is not known.
    """
    return _parsed(text, host())


def _parsed(text: str, machine: Target) -> Target:
    """`parse` on this machine."""
    name, *changes = [part.strip() for part in text.split(",")]
    if name in ("", "host", "native"):
        target = machine
    elif "/" in name:
        triple, _, cpu = name.partition("/")
        target = _target(triple, cpu, [])
    else:
        target = baseline(name)
    if not changes:
        return target
    features = [f[1:] for f in target.features.split(",") if f.startswith("+")]
    for change in changes:
        sign, feature = change[:1], change[1:]
        if sign not in ("+", "-") or feature not in _known(target.triple):
            raise UnsupportedError(f"target feature {change!r}: expected + or - and one of {_known(target.triple)}")
        features = [f for f in features if f != feature] + ([feature] if sign == "+" else [])
    return _target(target.triple, target.cpu, features, target.threads)


def available_threads() -> int:
    """Threads of a call where `threads=` does not say how many: HLOKIT_THREADS, else one for each core that this
    process may run on (its affinity), and no more than its control groups' share of time.

    Raises ArgumentError for a HLOKIT_THREADS that is not a number of threads.
    """
    if text := os.environ.get("HLOKIT_THREADS", "").strip():
        if not (text.isascii() and text.isdecimal() and int(text) >= 1):
            raise ArgumentError(f"HLOKIT_THREADS={text!r} is not a number of threads: expected 1 or more")
        return int(text)
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return max(1, min(len(os.sched_getaffinity(0)), quota()))


@cache
def quota(own: Path | None = None, root: Path | None = None) -> int:
    """Cores' worth of time that the control groups of this process may use, rounded up; threads that spin beyond it
    stall all. `own` names the groups (/proc/self/cgroup). Their limits, and those of the groups around them, are under
    `root` (/sys/fs/cgroup)."""
    if sys.platform != "linux":
        return _NO_LIMIT
    root = root or Path("/sys/fs/cgroup")
    try:
        lines = (own or Path("/proc/self/cgroup")).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    least = _NO_LIMIT
    for line in ["0::/", *lines]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        names = [controllers, "cpu"] if "cpu" in controllers.split(",") else ["", "unified"] if not controllers else []
        parts = [part for part in path.split("/") if part not in ("", "..")]
        groups = [root.joinpath(name, *parts[:depth]) for name in names for depth in range(len(parts) + 1)]
        least = min([least, *map(_share, groups)])
    return least


_NO_LIMIT = 2**31


def _share(group: Path) -> int:
    """Cores' worth of time by one group's limit."""
    try:
        if (group / "cpu.max").exists():
            limit, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:  # the first version of control groups
            limit, period = ((group / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period"))
        return -(-int(limit) // int(period)) if int(limit) > 0 else _NO_LIMIT
    except (OSError, ValueError, ZeroDivisionError):  # no limit: "max 100000"
        return _NO_LIMIT


@cache
def _host() -> Target:
    """The machine, or the lesser one that HLOKIT_TARGET names."""
    name = os.environ.get("HLOKIT_TARGET", "").strip()
    machine = this_machine()
    if not name or name == "host":
        return machine
    chosen = _parsed(name, machine)
    if lacking := ", ".join(machine.lacks(chosen)):
        raise UnsupportedError(f"HLOKIT_TARGET={name!r} is not a part of this machine, which lacks {lacking}")
    return chosen


@cache
def llvm_library() -> Any:
    """llvmlite.binding, which has no types. Raises OutOfMemoryError where the process may not have the memory."""
    if "llvmlite.binding" not in sys.modules:
        require(_LLVM_BYTES, "the library of LLVM")
    import llvmlite.binding

    llvm_lock.replace(llvmlite.binding.ffi.lib)
    drop_llvm_pages()  # its constructors are all over it
    return llvmlite.binding


def drop_llvm_pages() -> None:
    """Gives back the pages of LLVM, some 40 MB after code generation, until they are needed again."""
    drop_unchanged("libllvmlite")


_LLVM_BYTES = 1 << 28
"""Address space that the library takes."""


@cache
def this_machine() -> Target:
    """This machine with all its features. LLVM is asked; where it cannot tell, the least that the architecture has."""
    llvm = llvm_library()
    triple = llvm.get_process_triple()
    try:
        found: dict[str, bool] = llvm.get_host_cpu_features()
    except RuntimeError:
        found = {}
    features = [name for name, present in found.items() if present] or _least(triple)
    if "amx-tile" in features and not _may_use_matrix_registers():
        features = [name for name in features if not name.startswith("amx-")]
    return _target(triple, _scheduled_as(llvm.get_host_cpu_name(), features), features)


_WITH_MATRIX_REGISTERS = ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids")


def _scheduled_as(cpu: str, features: list[str]) -> str:
    """The CPU whose instruction times LLVM takes: the one that it names by the model's number, but for a number that
    a virtual machine makes up, such as a Rocket Lake with AMX: that counts as a Sapphire Rapids."""
    return cpu if "amx-tile" not in features or cpu in _WITH_MATRIX_REGISTERS else "sapphirerapids"


def _may_use_matrix_registers() -> bool:
    """Asks Linux for them, once for all threads of the process and its children."""
    if sys.platform != "linux":
        return False
    import ctypes

    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    try:
        return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0
    except (OSError, AttributeError):  # a C library without it
        return False


def _target(triple: str, cpu: str, present: Iterable[str], threads: int = 1) -> Target:
    present = frozenset(present)
    features = [("+" if name in present else "-") + name for name in _known(triple)]
    if _arch(triple) == "x86_64":
        features.append("-prefer-256-bit")  # a tuning of some CPUs that halves every 512-bit vector
    return Target(triple, cpu, ",".join(features), _vector_bytes(triple, present), threads)


def _vector_bytes(triple: str, present: frozenset[str]) -> int:
    if _arch(triple) == "aarch64":
        return 16
    if present.issuperset(_V4.split()):
        return 64
    return 32 if "avx2" in present else 16


def _known(triple: str) -> list[str]:
    return str.split(_X86 if _arch(triple) == "x86_64" else _ARM)


def _least(triple: str) -> list[str]:
    """The features that every CPU of the architecture has."""
    return str.split(_V1 if _arch(triple) == "x86_64" else "fp-armv8 neon")


def _arch(triple: str) -> str:
    arch = triple.partition("-")[0].lower()
    if arch in ("x86_64", "amd64"):
        return "x86_64"
    if arch in ("aarch64", "arm64"):
        return "aarch64"
    known = ", ".join(BASELINES)
    raise UnsupportedError(
        f"target architecture {arch!r}: expected x86_64 or aarch64 in TRIPLE/CPU,+FEATURE..., or host, {known}"
    )
