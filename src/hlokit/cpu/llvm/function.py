"""Functions being written: blocks, loops, branches, calls. Text is written 40 times faster than llvmlite's objects."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Self, overload

from hlokit.cpu.llvm.definition import Definition
from hlokit.cpu.llvm.indices import Index
from hlokit.cpu.llvm.pointers import INVARIANT, Pointer
from hlokit.cpu.llvm.records import Record
from hlokit.cpu.llvm.references import MARK
from hlokit.cpu.llvm.symbols import Global, Prototype, R
from hlokit.cpu.llvm.types import I8, I64, POINTER, Type, type_of
from hlokit.cpu.llvm.values import Poison, Value, variable
from hlokit.cpu.target import Target

NOALIAS = "ptr noalias"
"""The type of a parameter that points to what no other parameter does."""

Parameter = tuple[str, str]
"""The type with its attributes, and the name without %."""
Carry = Value | tuple[str, str]
"""The initial value of what a loop carries; or its type and text."""


class Function:
    """A function in the writing: instructions go to the end of it.

    block     the label of the block that instructions go to; empty after a return, a jump or a branch
    symbols   the functions and globals that it names, by name
    lines, count   the instructions so far, and how many names it has given: for cpu/llvm alone
    region    the Region that instructions go to, of a function that has several
    stack     bytes that it has taken of the stack
    has_metadata, streams   it has instructions with metadata; stores past the caches among them
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[str | Type, str]],
        result: str | Type = "void",
        attributes: str = "",
        is_cold: bool = False,
        shared: str = "",
        target: Target | None = None,
        personality: Prototype[Any] | None = None,
        fast_math: str = "",
    ) -> None:
        """`parameters`: (type with its attributes, name without %). `is_cold`: see COLD; `shared`: SHARED's value.

        `target`: the machine, for what is written in its own instructions. `personality`: the function that unwinding
        asks, of one that catches exceptions. `fast_math`: LLVM's flags of all sums, differences and products of floats,
        such as "contract".
        """
        self.name = name
        self.parameters = [(str(type), name) for type, name in parameters]
        self.result = str(result)
        self.attributes = attributes
        self.is_cold = is_cold
        self.shared = shared
        self.lines: list[str] = ["entry:"]
        self.block = "entry"
        self.symbols: dict[str, Prototype[Any] | Global] = {}
        self.personality = personality
        self.fast_math = f" {fast_math}" if fast_math else ""
        self.region: Any = None
        self.stack = 0
        self.has_metadata = self.streams = False
        self._target = target
        self.count = 0
        self._entry: list[str] = []
        self._once: dict[str, str] = {}

    @classmethod
    def of(cls, prototype: Prototype[Any], attributes: str = "", target: Target | None = None) -> Self:
        """The function of this name and these parameters."""
        parameters = list(zip(prototype.parameters, prototype.names, strict=True))
        return cls(prototype.name, parameters, prototype.result or "void", attributes, target=target)

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
        self.count += 1
        return f"%{prefix}{self.count}"

    def let(self, instruction: str, prefix: str = "v") -> str:
        """Appends `name = instruction`; gives the name."""
        self.count += 1
        name = f"%{prefix}{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Appends an instruction without result."""
        self.lines.append(f"  {instruction}")

    def alloca(self, type: Type, count: int = 1, align: int = 64, name: str = "") -> str:
        """Stack memory, taken once at the function's entry wherever this is called."""
        name = name or self.fresh("stack")
        self.stack += type.size * count
        self._entry.append(f"  {name} = alloca {type.text}, i64 {count}, align {align}")
        return name

    def scratch(self, type: Type, align: int = 64) -> Pointer:
        """Stack memory of this type: the same for all who ask for it."""
        instruction = f"alloca {type.text}, i64 1, align {align}"
        if instruction not in self._once:
            self.stack += type.size
        return Pointer(self, self.once(instruction))

    def once(self, instruction: str) -> str:
        """The name of what is computed at the function's entry, the first time that it is asked for."""
        name = self._once.get(instruction)
        if name is None:
            name = self._once[instruction] = self.fresh("e")
            self._entry.append(f"  {name} = {instruction}")
        return name

    def table_pointer(self, number: int) -> str:
        """The pointer at this place of the function's first parameter, %table; read once, at the function's entry."""
        slot = self.once(f"getelementptr ptr, ptr %table, i64 {MARK}{number}{MARK}")
        return self.once(f"load ptr, ptr {slot}, align 8")

    def table(self, number: int, element: Type = I8, align: int = 0) -> Pointer:
        """The pointer at this place of the function's first parameter, %table, to such elements."""
        return Pointer(self, self.table_pointer(number), element, align)

    def element_once(self, base: Pointer, number: int) -> Pointer:
        """The address of an element, computed at the function's entry, where `base` must be known."""
        if not number:
            return base
        return base.named(self.once(f"getelementptr {base.element}, {base.typed}, i64 {MARK}{number}{MARK}"))

    def invariant_pointer(self, base: Pointer, number: int) -> Pointer:
        """The pointer at this place of an array of pointers that nobody changes; read once, at the function's entry."""
        place = self.element_once(base, number)
        self.has_metadata = True
        return Pointer(self, self.once(f"load ptr, {place.typed}, {INVARIANT}"))

    def new_block(self, prefix: str = "b") -> str:
        """A label for a block that `start` begins later."""
        return self.fresh(prefix)[1:]

    def start(self, label: str) -> None:
        """Begins the block; the one before must have ended in a jump."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """Goes to the block; of a block that has ended already nothing."""
        if self.block:
            self._end(f"br label %{label}")

    def branch(self, condition: Value | str, then: str, otherwise: str) -> None:
        self._end(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def go_on_if(self, condition: Value, otherwise: str) -> None:
        """Goes on if the i1 holds; else control goes to the block `otherwise`."""
        on = self.new_block("on")
        self.branch(condition, on, otherwise)
        self.start(on)

    def switch(self, value: Value, cases: Mapping[int, str], otherwise: str) -> None:
        """Goes to the block of the number that the integer is."""
        shown = " ".join(f"{value.type} {number}, label %{label}" for number, label in cases.items())
        self._end(f"switch {value.typed}, label %{otherwise} [ {shown} ]")

    def unreachable(self) -> None:
        """Ends the block: nothing gets here."""
        self._end("unreachable")

    def _end(self, instruction: str) -> None:
        self.do(instruction)
        self.block = ""

    def phi(self, *incoming: tuple[Value, str]) -> Value:
        """At a block's beginning: the value of the block that control came from."""
        first = incoming[0][0]
        shown = ", ".join(f"[ {value}, %{label} ]" for value, label in incoming)
        return first.named(self.let(f"phi {first.type} {shown}"))

    # -- values

    def argument(self, name: str) -> Value:
        """The parameter of this name."""
        kind = next(kind for kind, known in self.parameters if known == name)
        end = kind.index(">") + 1 if kind.startswith("<") else None
        return Value(self, _parsed(kind[:end] if end else kind.partition(" ")[0]), f"%{name}")

    def index_argument(self, name: str) -> Index:
        """The parameter of this name, an i64 that counts."""
        return self.index(self.argument(name))

    def pointer(self, name: str, element: Type = I8, align: int = 0) -> Pointer:
        """The parameter of this name, a pointer to such elements."""
        return Pointer(self, f"%{name}", element, align)

    def arguments(self, element: Type = I8) -> list[Any]:
        """All parameters: pointers to such elements, Indexes for those of i64, other Values."""
        return [self._argument(_parsed(kind.partition(" ")[0]), f"%{name}", element) for kind, name in self.parameters]

    def _argument(self, type: Type, text: str, element: Type) -> Value:
        if type is POINTER:
            return Pointer(self, text, element)
        return Index(self, I64, text) if type is I64 else Value(self, type, text)

    def constant(self, number: float | None, type: Type) -> Value:
        """The number in every lane; None is the null pointer."""
        return Value(self, type, type.constant(number), number)

    def poison(self, type: Type) -> Poison:
        """A value that nothing is to depend on."""
        return Poison(self, type)

    def vector_constant(self, numbers: Sequence[float], element: Type) -> Value:
        """A constant vector of these numbers."""
        if element.is_float:
            shown = _float_elements(struct.pack(f"{len(numbers)}d", *numbers), element)
        else:
            shown = ", ".join(f"{element} {element.constant(n)}" for n in numbers)
        return Value(self, element.of(len(numbers)), f"<{shown}>")

    def zeros(self, type: Type) -> Value:
        """0 in every lane."""
        return Value(self, type, "zeroinitializer", 0)

    def lane_numbers(self, type: Type) -> Value:
        """0, 1, 2, ... in the lanes of a vector."""
        return self.vector_constant(range(type.lanes), type.element)

    def index(self, value: Value | float) -> Index:
        """An integer that does not overflow: a number as an i64, or the value itself."""
        if isinstance(value, Index):
            return value
        if isinstance(value, Value):
            return Index(self, value.type, value.text, value.number)
        return Index(self, I64, str(int(value)), value)

    @overload
    def call(self, function: str, *operands: Value | int | None) -> None: ...
    @overload
    def call(self, function: Prototype[R], *operands: Value | float | None) -> R: ...
    def call(self, function: str | Prototype[Any], *operands: Value | float | None) -> Any:
        """Calls a function: by its name one that returns nothing, by its prototype any, for its result.

        Numbers become constants of the parameters' types, of i64 where there is no prototype, None the null pointer.
        """
        if isinstance(function, str):
            is_intrinsic = function.startswith("llvm.")  # whose constants must be some
            shown = ", ".join([_operand(o, is_intrinsic) for o in operands])
            self.lines.append(f"  call void {MARK}@{function}({MARK}{shown}{MARK}){MARK}")
            return None
        self.symbols[function.name] = function
        shown = _shown(function, operands)
        types = f" ({function.types})" if function.variadic else ""
        attributes = f" {function.attributes}" if function.attributes else ""
        end = f"{MARK}){MARK}" if function.result is None else ")"
        text = f"{function.result or 'void'}{types} {MARK}@{function.name}({MARK}{shown}{end}{attributes}"
        return self.called(function.result, text)

    def called(self, result: Type | None, call: str) -> Any:
        """Writes a call, as LLVM spells what follows the word; gives its result."""
        if result is None:
            self.do(f"call {call}")
            return None
        name = self.let(f"call {call}")
        return Pointer(self, name) if result is POINTER else Value(self, result, name)

    def call_for(self, type: Type, name: str, *operands: Value) -> Value:
        """Calls a function or an intrinsic for its result, of this type."""
        shown = ", ".join([o.typed for o in operands])
        return Value(self, type, self.let(f"call {type} {MARK}@{name}({MARK}{shown})"))

    def returns(self, value: Value | float | None = None) -> None:
        """Ends the function. A number is one of the result's type; None the null pointer, or no result."""
        if not isinstance(value, Value):
            value = None if self.result == "void" else self.constant(value, _parsed(self.result))
        self._end("ret void" if value is None else f"ret {value.typed}")

    def returns_struct(self, values: Sequence[Value]) -> None:
        """Ends the function, whose result is a literal struct of these values; one alone is the result itself."""
        if len(values) == 1:
            self.returns(values[0])
            return
        total = "poison"
        for number, value in enumerate(values):
            total = self.let(f"insertvalue {self.result} {total}, {value.typed}, {number}")
        self._end(f"ret {self.result} {total}")

    # -- memory

    def local(self, type: Type, count: int | Value = 1, align: int = 0) -> Pointer:
        """Memory on the stack for so many elements. If a Value counts them it is taken where this is called."""
        align = align or (type.align if isinstance(type, Record) else type.bytes)
        if isinstance(count, Value):
            return Pointer(self, self.let(f"alloca {type}, {count.typed}, align {align}", "stack"), type)
        return Pointer(self, self.alloca(type, count, align), type)

    def address(self, symbol: Prototype[Any] | Global) -> Pointer:
        """The address of a function or a global."""
        self.symbols[symbol.name] = symbol
        element = symbol.type if isinstance(symbol, Global) else I8
        return Pointer(self, f"{MARK}@{symbol.name}{MARK}", element)

    def function(self, name: str) -> Pointer:
        """The address of a function of the same module."""
        return Pointer(self, f"{MARK}@{name}{MARK}")

    def null(self) -> Pointer:
        """The null pointer."""
        return Pointer(self, "null")

    def memcpy(self, to: Pointer, source: Pointer, count: Value | int) -> None:
        """Copies so many bytes between places that do not overlap."""
        self.do(f"call void @llvm.memcpy.p0.p0.i64({to.typed}, {source.typed}, i64 {count}, i1 false)")

    def memmove(self, to: Pointer, source: Pointer, count: Value | int) -> None:
        """Copies so many bytes between places that may overlap."""
        self.do(f"call void @llvm.memmove.p0.p0.i64({to.typed}, {source.typed}, i64 {count}, i1 false)")

    def memset(self, to: Pointer, byte: int, count: Value | int) -> None:
        """Fills so many bytes."""
        self.do(f"call void @llvm.memset.p0.i64({to.typed}, i8 {byte}, i64 {count}, i1 false)")

    def fence(self, ordering: str = "seq_cst") -> None:
        self.do(f"fence {ordering}")

    # -- exceptions

    def invoke(self, function: Pointer, result: Type, operands: Sequence[Value], unwind: str) -> Any:
        """Calls the function that lies there; an exception goes on at the label `unwind`."""
        after, name = self.new_block("returned"), self.fresh()
        shown = ", ".join(operand.typed for operand in operands)
        self._end(f"{name} = invoke {result} {function}({shown}) to label %{after} unwind label %{unwind}")
        self.start(after)
        return Pointer(self, name) if result is POINTER else Value(self, result, name)

    def landingpad(self, *types: Pointer | None) -> tuple[Pointer, Value]:
        """At the beginning of a block that exceptions of these C++ types come to, None being any: what was thrown, and
        a number that says which type it is of (`typeid`)."""
        clauses = "".join(f" catch {(type or self.null()).typed}" for type in types)
        pair = self.let(f"landingpad {{ ptr, i32 }}{clauses}")
        thrown, number = (self.let(f"extractvalue {{ ptr, i32 }} {pair}, {k}") for k in range(2))
        return Pointer(self, thrown), Value(self, type_of("i32"), number)

    def typeid(self, type: Pointer) -> Value:
        """The number of a C++ type among those that this function catches."""
        return self.call_for(type_of("i32"), "llvm.eh.typeid.for.p0", type)

    def return_if(self, condition: Value, value: Value | float | None = None) -> None:
        """Ends the function, with this result, if the i1 holds."""
        leave, stay = self.new_block("leave"), self.new_block("stay")
        self.branch(condition, leave, stay)
        self.start(leave)
        self.returns(value)
        self.start(stay)

    # -- control flow

    @contextmanager
    def when(self, condition: Value | str) -> Generator[None]:
        """A branch: the code written inside runs only if the i1 holds."""
        then, after = self.new_block("then"), self.new_block("after")
        self.branch(condition, then, after)
        self.start(then)
        yield
        self.jump(after)  # unless a return or a jump has ended it
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
        more = self.let(f"icmp slt i64 {index.text}, {variable(high)}")
        self.branch(more, body, after)
        self.start(body)
        loop = Loop(index, carried)
        yield loop
        latch = self.block
        following = self.let(f"add nsw i64 {index.text}, {MARK}{step}{MARK}", "i")
        self.do(f"br label %{head}{hint}")
        self.lines[place:place] = [
            f"  {index} = phi i64 [ {variable(low)}, %{before} ], [ {following}, %{latch} ]",
            *phis(carried, carries, before, loop.next, latch),
        ]
        self.start(after)
        loop.results = carried

    def carried(self, carry: Carry, prefix: str) -> Value:
        """The value that a pass of the loop reads: of a pointer's elements and alignment as its initial value."""
        name = self.fresh(prefix)
        return carry.named(name) if isinstance(carry, Value) else Value(self, _parsed(carry[0]), name)

    def definition(self) -> Definition:
        """The function as far as it is written."""
        return Definition(
            self.name,
            tuple(self.parameters),
            self.result,
            self.attributes,
            "\n".join([self.lines[0], *self._entry, *self.lines[1:], "}"]),
            is_cold=self.is_cold,
            shared=self.shared,
            personality=self.personality,
            stack=self.stack,
            uses=self.symbols.values(),
            has_metadata=self.has_metadata,
            streams=self.streams,
        )

    def text(self) -> str:
        """As LLVM reads it."""
        return self.definition().text()


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
        self._fn.lines[self._place : self._place] = phis(self.values, self._carries, self._before, values, latch)
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
        self._fn.lines[self._place : self._place] = phis(self.values, self._carries, self._before, values, latch)
        self._fn.branch(condition, self._head, self._after)
        self._fn.start(self._after)


@lru_cache(1024)
def _float_elements(numbers: bytes, element: Type) -> str:
    """The elements of a constant vector. Tables of coefficients come again and again.

    `numbers` are C doubles: of a sequence of floats 0.0 would be found for -0.0.
    """
    values = struct.unpack(f"{len(numbers) // 8}d", numbers)
    return ", ".join(f"{element} {element.constant(n)}" for n in values)


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
        a.let(f"phi {a.type} [ {variable(a)}, %{last} ], [ {variable(b)}, %{end} ]", a.type)
        for a, b in zip(values, others, strict=True)
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

    def end(self, *values: Value) -> list[Any]:
        """Ends the other way, which gives these values: those of the way that was taken.

        A way that has ended in a return or a jump gives nothing.
        """
        last = self._fn.block
        self._fn.jump(self._after)
        self._fn.start(self._after)
        if not last:
            return list(self._first)
        if not self._last:
            return list(values)
        return [
            a.named(self._fn.let(f"phi {a.type} [ {variable(a)}, %{self._last} ], [ {variable(b)}, %{last} ]"))
            for a, b in zip(self._first, values, strict=True)
        ]


def phis(
    names: Sequence[Value], initial: Sequence[Carry], before: str, following: Sequence[Value | str], latch: str
) -> list[str]:
    """The lines of a loop's carried values."""
    return [
        f"  {name} = phi {name.type} [ {first[1] if isinstance(first, tuple) else variable(first)}, %{before} ], "
        f"[ {variable(value)}, %{latch} ]"
        for name, first, value in zip(names, initial, following, strict=True)
    ]


@cache
def _parsed(text: str) -> Type:
    """The type that LLVM spells so."""
    if not text.startswith("<"):
        return type_of(text)
    lanes, _, scalar = text[1:-1].partition(" x ")
    return type_of(scalar, int(lanes))


def _shown(function: Prototype[Any], operands: Sequence[Value | float | None]) -> str:
    """A call's operands with their types."""
    count = len(function.parameters)
    if len(operands) < count or (len(operands) > count and not function.variadic):
        raise TypeError(f"{function.name} takes {count} operands, not {len(operands)}")
    more = [operand.type if isinstance(operand, Value) else POINTER for operand in operands[count:]]
    shown: list[str] = []
    for type, operand in zip([*function.parameters, *more], operands, strict=True):
        if isinstance(operand, Value) and operand.type is not type:
            raise TypeError(f"{function.name} takes {type}, not {operand.type}")
        if isinstance(operand, Value):
            shown.append(f"{type.text} {variable(operand)}")
        else:
            shown.append(f"{type.text} {variable(operand or 0) if type is I64 else type.constant(operand)}")
    return ", ".join(shown)


def _operand(operand: Value | float | None, is_fixed: bool) -> str:
    """With its type; a number is an i64. `is_fixed`: no variable can stand in a constant's place."""
    if isinstance(operand, Value):
        return operand.typed if is_fixed else f"{operand.type.text} {variable(operand)}"
    if operand is None:
        return "ptr null"
    return f"i64 {operand}" if is_fixed else f"i64 {variable(operand)}"
