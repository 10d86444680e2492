"""Functions in the writing: blocks, loops, branches, calls. Text is 40 times faster to make than llvmlite's objects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from hlokit.cpu.llvm.types import Type, type_of
from hlokit.cpu.llvm.values import I8, I64, Index, Pointer, Value
from hlokit.cpu.target import Target

COLD = '"hlokit-cold"'
"""The attribute of functions whose own instructions take next to no time of a program's: they call what does."""
SHARED = '"hlokit-shared"'
"""The attribute of functions that are the same in many programs; its value names those that are made together."""
_ALIGN = "align 64"
"""Of the others: it is worth 5 % where a short loop lies in the cache's lines, whatever functions come before."""

Parameter = tuple[str, str]
"""The type with its attributes, and the name without %."""
Carry = Value | tuple[str, str]
"""The initial value of what a loop carries; or its type and text."""


class Function:
    """A function in the writing: instructions go to the end of it. Values are their SSA names, as text."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str = "void",
        attributes: str = "",
        is_cold: bool = False,
        shared: str = "",
        target: Target | None = None,
    ) -> None:
        """`parameters`: (type with its attributes, name without %). `is_cold`: see COLD; `shared`: SHARED's value.

        `target`: the machine, for what is written in its own instructions.
        """
        self.name = name
        self.parameters = list(parameters)
        self.result = result
        self.attributes = attributes
        self.is_cold = is_cold
        self.shared = shared
        self.lines: list[str] = ["entry:"]
        self.block = "entry"
        self._target = target
        self._count = 0
        self._entry: list[str] = []
        self._once: dict[str, str] = {}

    @property
    def target(self) -> Target:
        """The machine that the function is for; it must have been given."""
        if self._target is None:
            raise TypeError(f"the function {self.name} was begun without a target")
        return self._target

    @target.setter
    def target(self, target: Target) -> None:
        self._target = target

    def fresh(self, prefix: str = "v") -> str:
        """A new name, with % before it."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def let(self, instruction: str, prefix: str = "v") -> str:
        """Appends `name = instruction`; gives the name."""
        name = self.fresh(prefix)
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Appends an instruction without result."""
        self.lines.append(f"  {instruction}")

    def alloca(self, type: str, count: int = 1, align: int = 64, name: str = "") -> str:
        """Stack memory, taken once at the function's entry wherever this is called."""
        name = name or self.fresh("stack")
        self._entry.append(f"  {name} = alloca {type}, i64 {count}, align {align}")
        return name

    def once(self, instruction: str) -> str:
        """The name of what is computed at the function's entry, the first time that it is asked for."""
        name = self._once.get(instruction)
        if name is None:
            name = self._once[instruction] = self.fresh("e")
            self._entry.append(f"  {name} = {instruction}")
        return name

    def table_pointer(self, number: int) -> str:
        """The pointer at this place of the function's first parameter, %table; read once, at the function's entry."""
        slot = self.once(f"getelementptr ptr, ptr %table, i64 {number}")
        return self.once(f"load ptr, ptr {slot}, align 8")

    def new_block(self, prefix: str = "b") -> str:
        """A label for a block that `start` begins later."""
        return self.fresh(prefix)[1:]

    def start(self, label: str) -> None:
        """Begins the block; the one before must have ended in a jump."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: Value | str, then: str, otherwise: str) -> None:
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    # -- values

    def argument(self, name: str) -> Value:
        """The parameter of this name."""
        kind = next(kind for kind, known in self.parameters if known == name).partition(" ")[0]
        return Value(self, _parsed(kind), f"%{name}")

    def index_argument(self, name: str) -> Index:
        """The parameter of this name, an i64 that counts."""
        return self.index(self.argument(name))

    def pointer(self, name: str, element: Type = I8, align: int = 0) -> Pointer:
        """The parameter of this name, a pointer to such elements."""
        return Pointer(self, f"%{name}", element, align)

    def constant(self, number: float, type: Type) -> Value:
        """The number in every lane."""
        return Value(self, type, type.constant(number), number)

    def vector_constant(self, numbers: Sequence[int], element: Type) -> Value:
        """A constant vector of integers."""
        shown = ", ".join(f"{element} {n}" for n in numbers)
        return Value(self, element.of(len(numbers)), f"<{shown}>")

    def lane_numbers(self, type: Type) -> Value:
        """0, 1, 2, ... in the lanes of a vector of integers."""
        return Value(self, type, f"<{', '.join(f'{type.scalar} {k}' for k in range(type.lanes))}>")

    def index(self, value: Value | float) -> Index:
        """An i64 that does not overflow: a number, or the value itself."""
        if isinstance(value, Index):
            return value
        if isinstance(value, Value):
            return Index(self, I64, value.text, value.number)
        return Index(self, I64, str(int(value)), value)

    def call(self, name: str, *operands: Value) -> None:
        """Calls a function that returns nothing."""
        self.do(f"call void @{name}({', '.join(operand.typed for operand in operands)})")

    def call_for(self, type: Type, name: str, *operands: Value) -> Value:
        """Calls a function for its result, of this type."""
        return Value(self, type, self.let(f"call {type} @{name}({', '.join(o.typed for o in operands)})"))

    def returns(self, value: Value | None = None) -> None:
        """Ends the function."""
        self.do("ret void" if value is None else f"ret {value.typed}")

    def return_if(self, condition: Value) -> None:
        """Ends a function without result if the i1 holds."""
        leave, stay = self.new_block("leave"), self.new_block("stay")
        self.branch(condition, leave, stay)
        self.start(leave)
        self.returns()
        self.start(stay)

    # -- control flow

    @contextmanager
    def when(self, condition: Value | str) -> Generator[None]:
        """What is written inside runs only if the i1 holds."""
        then, after = self.new_block("then"), self.new_block("after")
        self.branch(condition, then, after)
        self.start(then)
        yield
        self.jump(after)
        self.start(after)

    @contextmanager
    def loop(
        self,
        low: Value | str | int,
        high: Value | str | int,
        step: int = 1,
        carries: Sequence[Carry] = (),
        hint: str = "",
    ) -> Generator[Loop]:
        """for (i64 i = low; i < high; i += step), with carried values, whose initial ones are given.

        The body reads `loop.index` and `loop.carried`, and sets `loop.next`; after it `loop.results` are the last
        values (the initial ones, if the body never ran).
        """
        before, head = self.block, self.new_block("loop")
        body, after = self.new_block("body"), self.new_block("end")
        self.jump(head)
        self.start(head)
        index = Index(self, I64, self.fresh("i"))
        carried = [self.carried(carry, "c") for carry in carries]
        place = len(self.lines)
        more = self.let(f"icmp slt i64 {index}, {high}")
        self.branch(more, body, after)
        self.start(body)
        loop = Loop(index, carried)
        yield loop
        latch = self.block
        following = self.let(f"add nsw i64 {index}, {step}", "i")
        self.do(f"br label %{head}{hint}")
        phis = [f"  {index} = phi i64 [ {low}, %{before} ], [ {following}, %{latch} ]"]
        self.lines[place:place] = phis + _phis(carried, carries, before, loop.next, latch)
        self.start(after)
        loop.results = carried

    def carried(self, carry: Carry, prefix: str) -> Value:
        """What the loop reads: of a pointer's elements and alignment as its initial value."""
        name = self.fresh(prefix)
        if isinstance(carry, Pointer):
            return Pointer(self, name, carry.element, carry.align)
        if isinstance(carry, Index):
            return Index(self, I64, name)
        return Value(self, carry.type if isinstance(carry, Value) else _parsed(carry[0]), name)

    def text(self) -> str:
        parameters = ", ".join(f"{type} %{name}" for type, name in self.parameters)
        attributes = f"{self.attributes} {COLD if self.is_cold else _ALIGN}"
        if self.shared:
            attributes += f' {SHARED}="{self.shared}"'
        head = f"define internal {self.result} @{self.name}({parameters}) {attributes} {{"
        return "\n".join([head, self.lines[0], *self._entry, *self.lines[1:], "}"])


class Loop:
    """See Function.loop. `index` is an Index, what is carried are Values; callers that take text format them."""

    def __init__(self, index: Any, carried: list[Any]) -> None:
        self.index = index
        self.carried = carried
        self.next: list[Any] = []
        self.results: list[Any] = []


class While:
    """A loop in the writing: `values` are its carried values at the head; `test` leaves it, `again` closes it.

    What is written between construction and `test` runs once more than the rest. `test` may come several times.
    After `again`, `values` are the last ones.
    """

    def __init__(self, fn: Function, carries: Sequence[Carry]) -> None:
        self._fn = fn
        self._carries = carries
        self._before, self._head, self._after = fn.block, fn.new_block("while"), fn.new_block("done")
        fn.jump(self._head)
        fn.start(self._head)
        self._place = len(fn.lines)
        self.values: list[Any] = [fn.carried(carry, "w") for carry in carries]

    def test(self, condition: Value | str) -> None:
        """Goes on only if the i1 holds."""
        body = self._fn.new_block("on")
        self._fn.branch(condition, body, self._after)
        self._fn.start(body)

    def again(self, *values: Value | str) -> None:
        """Goes to the head with the new values."""
        latch = self._fn.block
        self._fn.jump(self._head)
        self._fn.lines[self._place : self._place] = _phis(self.values, self._carries, self._before, values, latch)
        self._fn.start(self._after)


class Repeat:
    """A loop in the writing that runs once at least: `values` are its carried values, `while_` closes it."""

    def __init__(self, fn: Function, carries: Sequence[Value]) -> None:
        self._fn, self._carries = fn, carries
        self._before, self._head, self._after = fn.block, fn.new_block("repeat"), fn.new_block("done")
        fn.jump(self._head)
        fn.start(self._head)
        self.values = [fn.carried(carry, "r") for carry in carries]
        self._place = len(fn.lines)

    def while_(self, condition: Value, *values: Value) -> None:
        """Goes to the head with the new values if the i1 holds."""
        latch = self._fn.block
        self._fn.lines[self._place : self._place] = _phis(self.values, self._carries, self._before, values, latch)
        self._fn.branch(condition, self._head, self._after)
        self._fn.start(self._after)


def unlikely(condition: Value, values: Sequence[Value], otherwise: Callable[[], Sequence[Value]]) -> list[Value]:
    """The values, or what `otherwise` writes, in a branch of its own, if the i1 holds in any lane: which is rare."""
    fn, is_any = condition.fn, condition.any()
    rare, after, last = fn.new_block("rare"), fn.new_block("usual"), fn.block
    fn.do(f'br i1 {is_any}, label %{rare}, label %{after}, !prof !{{!"branch_weights", i32 1, i32 100000}}')
    fn.start(rare)
    others, end = otherwise(), fn.block
    fn.jump(after)
    fn.start(after)
    return [
        a.let(f"phi {a.type} [ {a}, %{last} ], [ {b}, %{end} ]", a.type) for a, b in zip(values, others, strict=True)
    ]


class IfElse:
    """Two ways in the writing: what follows the construction runs if the i1 holds, what follows `otherwise` if not.

    choice = IfElse(fn, count > 0)
    ...
    choice.otherwise(x)
    ...
    (result,) = choice.end(y)
    """

    def __init__(self, fn: Function, condition: Value) -> None:
        self._fn = fn
        then, self._else, self._after = (fn.new_block(name) for name in ("then", "else", "both"))
        fn.branch(condition, then, self._else)
        fn.start(then)

    def otherwise(self, *values: Value) -> None:
        """Ends the first way, which gives these values, and begins the other."""
        self._first, self._last = values, self._fn.block
        self._fn.jump(self._after)
        self._fn.start(self._else)

    def end(self, *values: Value) -> list[Value]:
        """Ends the other way, which gives these values: those of the way that was taken."""
        last = self._fn.block
        self._fn.jump(self._after)
        self._fn.start(self._after)
        return [
            type(a)(self._fn, a.type, self._fn.let(f"phi {a.type} [ {a}, %{self._last} ], [ {b}, %{last} ]"))
            for a, b in zip(self._first, values, strict=True)
        ]


def _phis(
    names: Sequence[Value], initial: Sequence[Carry], before: str, following: Sequence[Value | str], latch: str
) -> list[str]:
    """The lines of a loop's carried values."""
    return [
        f"  {name} = phi {name.type} [ {first[1] if isinstance(first, tuple) else first}, %{before} ], "
        f"[ {value}, %{latch} ]"
        for name, first, value in zip(names, initial, following, strict=True)
    ]


@cache
def _parsed(text: str) -> Type:
    """The type that LLVM spells so."""
    if not text.startswith("<"):
        return type_of(text)
    lanes, _, scalar = text[1:-1].partition(" x ")
    return type_of(scalar, int(lanes))
