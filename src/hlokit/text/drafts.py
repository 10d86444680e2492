"""The state of the parser in the computation and the instruction that it is reading."""

from __future__ import annotations

from typing import Any

from hlokit.errors import ShapeError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction
from hlokit.hlo.names import Names
from hlokit.text.lexer import MAX_NESTING
from hlokit.text.spelling import Spelling
from hlokit.types.shape import Shape

MAX_LEAVES = 1_000_000
"""The most leaves of an instruction's tuple: more would take too long to print."""


Called = dict[str, Any]
"""Role -> computation, or list of computations with None where one is not given yet."""


class Body:
    """A computation being read."""

    __slots__ = ("_anonymous", "computation", "elements", "names", "parameters", "root", "starts")

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.names: dict[str, Instruction] = {}
        self.starts: dict[str, int] = {}
        self.elements: dict[tuple[Instruction, int], Instruction] = {}
        """The instructions of `%operand#index`."""
        self.parameters: set[int] = set()
        self.root: Instruction | None = None
        self._anonymous = Names()

    def anonymous(self, opcode: str) -> str:
        """A name for a nested instruction: add.anon, add.anon.1, ..."""
        while True:
            name = self._anonymous.unique(f"{opcode}.anon")
            if name not in self.names:
                return name


class Draft:
    """An instruction as read, not yet made."""

    __slots__ = ("called", "extra", "fields", "name", "operands", "shape", "spelling", "start", "wrapped")

    def __init__(
        self,
        name: str,
        spelling: Spelling,
        shape: Shape | None,
        fields: dict[str, Any],
        operands: list[Instruction],
        called: Called,
        extra: Extra | None,
        start: int,
        wrapped: str | None,
    ) -> None:
        self.name = name
        self.spelling = spelling
        self.shape = shape
        self.fields = fields
        self.operands = operands
        self.called = called
        self.extra = extra
        self.start = start
        self.wrapped = wrapped  # the opcode, in the short form of an async op


class TupleSizes:
    """Guards against tuples of tuples that are small to write and too large to handle."""

    def __init__(self) -> None:
        self._known: dict[Shape, tuple[int, int]] = {}

    def leaves(self, shape: Shape) -> int:
        """Number of non-tuple shapes in it."""
        return self._measure(shape)[0]

    def check(self, shape: Shape) -> None:
        """Checks that there are at most MAX_LEAVES leaves, nested at most as deep as the lexer allows."""
        leaves, depth = self._measure(shape)
        if leaves > MAX_LEAVES:
            raise ShapeError("HSHAPE-4", "leaves of the tuple", leaves, f"at most {MAX_LEAVES}")
        if depth > MAX_NESTING:
            raise ShapeError("HSHAPE-4", "nesting of the tuple", depth, f"at most {MAX_NESTING}")

    def _measure(self, shape: Shape) -> tuple[int, int]:
        if not shape.is_tuple:
            return 1, 0
        found = self._known.get(shape)
        if found is None:
            inner = [self._measure(element) for element in shape.elements]
            found = sum(leaves for leaves, _ in inner), 1 + max((depth for _, depth in inner), default=0)
            self._known[shape] = found
        return found
