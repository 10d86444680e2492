"""The frameworks, each behind the same four steps: take a program, compile it, run it, show its results."""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np

from bench.lower import hlo_text, jitted, stored_text
from bench.programs import Program

# Large allocations from the heap, which keeps their pages, and on huge pages: what a user can do for XLA without code.
TUNABLES = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=68719476736:glibc.malloc.hugetlb=1"


class Absent(Exception):
    """The program is not said in this framework."""


class Engine:
    """A framework with one program loaded."""

    def __init__(self, program: Program, arguments: list[Any]) -> None:
        """Arguments are NumPy arrays, and the engine's to keep."""
        self.program = program
        self.arguments: list[Any] = [self.placed(value) for value in arguments]

    @staticmethod
    def warm_up() -> None:
        """What a process does once, so that no program's compile time holds it."""

    def placed(self, value: Any) -> Any:
        """An argument in the framework's own array type."""
        return value

    def text(self) -> str | None:
        """The lowered HLO, from an engine that lowers."""
        return None

    def compile(self, text: str | None) -> float | None:
        """Makes the program ready to run, again if asked again: seconds from its HLO, None where nothing is compiled.

        `text`: the lowered HLO, for an engine that does not lower by itself.
        """
        return None

    def first(self) -> list[Any]:
        """The results of one call as NumPy arrays."""
        raise NotImplementedError

    def run(self, count: int) -> None:
        """Calls the program, waits for its results and drops them, `count` times over."""
        raise NotImplementedError

    def fed(self, results: Any) -> None:
        """Donated memory comes back as results: they are the next call's arguments."""
        results = results if isinstance(results, (tuple, list)) else (results,)
        for number, result in zip(self.program.donate, results):
            self.arguments[number] = result


class Hlokit(Engine):
    executable: Any = None

    @staticmethod
    def warm_up() -> None:
        import hlokit as hk

        executable = hk.compile(hk.parse(stored_text("tiny_add_1elt")))
        executable(np.float32(1.0), np.float32(2.0))

    def compile(self, text: str | None) -> float:
        import hlokit as hk
        from hlokit.cpu.jit import objects as jit

        assert text is not None, "hlokit compiles what XLA lowered"
        jit.forget()  # a process's first compile each time: XLA keeps nothing of the programs before
        start = time.perf_counter()
        self.executable = hk.compile(hk.parse(text), donate=self.program.donate)
        return time.perf_counter() - start

    def first(self) -> list[Any]:
        results = self.executable(*self.arguments)
        copies = [np.array(result) for result in (results if isinstance(results, (tuple, list)) else (results,))]
        self.fed(results)
        return copies

    def run(self, count: int) -> None:
        call, arguments = self.executable, self.arguments
        if self.program.donate:
            for _ in range(count):
                self.fed(call(*arguments))
            return
        for _ in range(count):
            call(*arguments)


class Xla(Engine):
    """XLA:CPU through jax.jit."""

    @staticmethod
    def warm_up() -> None:
        import jax

        jax.block_until_ready(jax.jit(lambda x, y: x + y)(np.float32(1.0), np.float32(2.0)))

    def __init__(self, program: Program, arguments: list[Any]) -> None:
        self.function = jitted(program)
        super().__init__(program, arguments)
        self.lowered = self.function.lower(*self.arguments)
        self.compiled = False

    def placed(self, value: Any) -> Any:
        import jax

        # a copy in JAX's own memory: what it shares with NumPy it does not donate
        return jax.block_until_ready(jax.numpy.array(value, copy=True))

    def text(self) -> str:
        return hlo_text(self.lowered)

    def compile(self, text: str | None) -> float:
        import jax

        if self.compiled:  # JAX holds on to what it has compiled
            jax.clear_caches()
            self.lowered = self.function.lower(*self.arguments)
        start = time.perf_counter()
        self.lowered.compile()
        self.compiled = True
        return time.perf_counter() - start

    def first(self) -> list[Any]:
        import jax

        results = jax.block_until_ready(self.function(*self.arguments))
        copies = [np.array(leaf) for leaf in jax.tree.leaves(results)]
        self.fed(results)
        return copies

    def run(self, count: int) -> None:
        call, arguments = self.function, self.arguments
        if self.program.donate:
            for _ in range(count):
                results = call(*arguments)
                ready(results)
                self.fed(results)
            return
        for _ in range(count):
            ready(call(*arguments))


def ready(results: Any) -> None:
    """Waits for one execution: its results become ready together, so the last one tells."""
    (results[-1] if isinstance(results, (tuple, list)) else results).block_until_ready()


class NumPy(Engine):
    def __init__(self, program: Program, arguments: list[Any]) -> None:
        super().__init__(program, arguments)
        if program.numpy is None:
            raise Absent("not said in NumPy")
        self.function = program.numpy

    def first(self) -> list[Any]:
        self.function(*self.arguments)
        return []

    def run(self, count: int) -> None:
        call, arguments = self.function, self.arguments
        for _ in range(count):
            call(*arguments)


class Torch(NumPy):
    """torch, eager."""

    def __init__(self, program: Program, arguments: list[Any]) -> None:
        Engine.__init__(self, program, arguments)
        if program.torch is None:
            raise Absent("not said in torch")
        self.function = program.torch

    def placed(self, value: Any) -> Any:
        import torch

        if value.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(value)


KINDS: dict[str, type[Engine]] = {
    "hlokit": Hlokit,
    "xla": Xla,
    "xla-tunables": Xla,
    "xla-newest": Xla,
    "xla-newest-tunables": Xla,
    "numpy": NumPy,
    "torch": Torch,
}
