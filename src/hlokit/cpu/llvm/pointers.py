"""Addresses: of one element, or of one for each lane; loads, stores, atomics."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from hlokit.cpu.llvm.records import Record
from hlokit.cpu.llvm.references import MARK
from hlokit.cpu.llvm.types import I1, I8, I64, POINTER, PointerType, Type
from hlokit.cpu.llvm.values import Value, is_one_lane, variable

if TYPE_CHECKING:
    from hlokit.cpu.llvm.function import Function


class Pointer(Value):
    """An address. Sums are in bytes; `p[i]` is the address of element `i` of those that `p` points to.

    element   the type of an element in memory: the default of loads and stores, and the size that p[i] counts in.
              Of a Record p["field"] is the address of a field
    align     bytes that every element's address is a multiple of
    """

    __slots__ = ("align", "element")

    def __init__(self, fn: Function, text: str, element: Type = I8, align: int = 0) -> None:
        self.fn, self.type, self.text, self.number = fn, POINTER, text, None
        self.element, self.align = element, align or element.bytes

    def named(self, text: str) -> Pointer:
        return Pointer(self.fn, text, self.element, self.align)

    def chosen(self, name: str, otherwise: Value | float | None) -> Pointer:
        return self.named(name)

    def to(self, element: Type, align: int = 0) -> Pointer:
        """The same address, of elements of another type, or otherwise aligned."""
        return Pointer(self.fn, self.text, element, align)

    def __add__(self, other: Value | float) -> Pointer:
        """So many bytes further."""
        fn = self.fn
        if isinstance(other, Value):
            if other.number == 0:
                return self
            place = other.text if other.number is None else variable(other)
        elif other == 0:
            return self
        else:
            place = f"{MARK}{int(other)}{MARK}"
        fn.count = count = fn.count + 1
        name = f"%p{count}"
        fn.lines.append(f"  {name} = getelementptr i8, ptr {self.text}, i64 {place}")
        return Pointer(fn, name, self.element, self.align)

    def __getitem__(self, index: Value | int | str) -> Pointer:
        if isinstance(index, str):
            if not isinstance(self.element, Record):
                raise TypeError(f"{self.element} has no field {index!r}: it is not a Record")
            field = self.element.fields[index]
            return (self + field.offset).to(field.type)
        fn, element = self.fn, self.element
        if isinstance(index, Value):
            if index.number == 0:
                return self
            place = index.text if index.number is None else variable(index)
        elif index == 0:
            return self
        else:
            place = f"{MARK}{index}{MARK}"
        fn.count = count = fn.count + 1
        name = f"%p{count}"
        fn.lines.append(f"  {name} = getelementptr {element.text}, ptr {self.text}, i64 {place}")
        return Pointer(fn, name, element, self.align)

    def is_null(self) -> Value:
        return self.eq(None)

    def address(self) -> Value:
        """As an integer."""
        return self.let(f"ptrtoint {self.typed} to i64", I64)

    def load(
        self,
        lanes: int = 1,
        mask: Value | None = None,
        otherwise: str = "zeroinitializer",
        *,
        ordering: str = "",
        volatile: bool = False,
    ) -> Value:
        """So many elements from here on; where the mask is not set 0, or the constant `otherwise` ("poison": anything).

        ordering  of an atomic load: "monotonic", "acquire" or "seq_cst"
        """
        type = self.element
        if type.lanes != lanes or type.__class__ is not Type:
            type = type.of(lanes)
        if mask is None:
            if ordering or volatile:
                text = f"load{_kind(ordering, volatile)} {type.text}, ptr {self.text}{self._tail(ordering)}"
                return self.let(text, type)
            fn = self.fn
            fn.count = count = fn.count + 1
            name = f"%v{count}"
            fn.lines.append(f"  {name} = load {type.text}, ptr {self.text}, align {self.align}")
            return Value(fn, type, name)
        if is_one_lane(mask):
            return self.load().padded(lanes)
        operands = f"ptr align {self.align} {self.text}, {mask.typed}, {type.text} {otherwise}"
        return self.let(f"call {type.text} @llvm.masked.load.{type.suffix}.p0({operands})", type)

    def load_pointer(self, element: Type = I8, *, ordering: str = "", volatile: bool = False) -> Pointer:
        """The pointer that lies here, which points to such elements."""
        place = self.to(POINTER)
        text = f"load{_kind(ordering, volatile)} ptr, ptr {self.text}{place._tail(ordering)}"
        return Pointer(self.fn, self.fn.let(text, "p"), element)

    def store(
        self,
        value: Value | float | None,
        mask: Value | None = None,
        *,
        ordering: str = "",
        volatile: bool = False,
        nontemporal: bool = False,
    ) -> None:
        """The value's lanes from here on, those where the mask is set. A number is an element, None a null pointer.

        ordering     of an atomic store: "monotonic", "release" or "seq_cst"
        nontemporal  past the caches
        """
        if not isinstance(value, Value):
            value = self._constant(value)
        if mask is None:
            if not (ordering or volatile or nontemporal):
                number = f"{value.type.text} {value.text if value.number is None else variable(value)}"
                self.fn.lines.append(f"  store {number}, ptr {self.text}, align {self.align}")
                return
            hint = ""
            if nontemporal:
                hint = f", {NONTEMPORAL}"
                self.fn.has_metadata = self.fn.streams = True
            kind = _kind(ordering, volatile)
            shown = f"{value.type.text} {variable(value)}"
            self.fn.do(f"store{kind} {shown}, ptr {self.text}{self._tail(ordering)}{hint}")
            return
        if is_one_lane(mask):
            # LLVM 22 stores 8 bytes where the vector was truncated from 64 bits
            self.store(value.lane(0))
            return
        operands = f"{value.typed}, ptr align {self.align} {self.text}, {mask.typed}"
        self.fn.do(f"call void @llvm.masked.store.{value.type.suffix}.p0({operands})")

    def elements(self, offsets: Value) -> Pointers:
        """The addresses of the elements at these offsets, a vector of integers."""
        type = POINTER.of(offsets.lanes)
        name = self.fn.let(f"getelementptr {self.element.text}, ptr {self.text}, {offsets.typed}")
        return Pointers(self.fn, type, name, self.element, self.align)

    def prefetch(self, locality: int = 3, *, is_write: bool = False) -> None:
        """Asks for the cache line. `locality`: 3 for all caches, 2 for all but the nearest, ..., 0 for no cache."""
        self.fn.do(f"call void @llvm.prefetch.p0(ptr {self.text}, i32 {int(is_write)}, i32 {locality}, i32 1)")

    def atomicrmw(self, operation: str, value: Value | float | None, ordering: str = "seq_cst") -> Value:
        """Changes the element atomically by `add`, `sub`, `xchg`, ...; gives what it was."""
        text = f"atomicrmw {operation} ptr {self.text}, {self._constant(value).typed} {ordering}"
        return self.let(f"{text}, align {self.element.bytes}", self.element)

    def cmpxchg(
        self,
        expected: Value | float | None,
        new: Value | float | None,
        success: str = "seq_cst",
        failure: str = "seq_cst",
        *,
        weak: bool = False,
    ) -> tuple[Value, Value]:
        """Stores `new` if the element is as expected, atomically: what it was, and an i1, whether it was so.

        weak  it may fail without a reason
        """
        operands = f"{self._constant(expected).typed}, {self._constant(new).typed} {success} {failure}"
        kind = " weak" if weak else ""
        pair = self.fn.let(f"cmpxchg{kind} ptr {self.text}, {operands}, align {self.element.bytes}")
        both = f"extractvalue {{ {self.element}, i1 }} {pair}"
        return self.let(f"{both}, 0", self.element), self.let(f"{both}, 1", I1)

    @overload
    def call(self, result: PointerType, *operands: Value | None) -> Pointer: ...
    @overload
    def call(self, result: None, *operands: Value | None) -> None: ...
    @overload
    def call(self, result: Type, *operands: Value | None) -> Value: ...
    def call(self, result: Type | None, *operands: Value | None) -> Value | None:
        """Calls the function that lies here, for its result of this type. None is the null pointer."""
        shown = ", ".join("ptr null" if operand is None else operand.typed for operand in operands)
        return self.fn.called(result, f"{result or 'void'} {self.text}({shown})")

    def _constant(self, value: Value | float | None) -> Value:
        if isinstance(value, Value):
            return value
        return Value(self.fn, self.element, self.element.constant(value), value)

    def _tail(self, ordering: str) -> str:
        return f"{' ' if ordering else ''}{ordering}, align {self.align}"


class Pointers(Value):
    """Addresses of elements, one a lane; `element` and `align` as of a Pointer."""

    __slots__ = ("align", "element")

    def __init__(self, fn: Function, type: Type, text: str, element: Type, align: int = 0) -> None:
        super().__init__(fn, type, text)
        self.element, self.align = element, align or element.bytes

    def named(self, text: str) -> Pointers:
        return Pointers(self.fn, self.type, text, self.element, self.align)

    def chosen(self, name: str, otherwise: Value | float | None) -> Pointers:
        return self.named(name)

    def to(self, element: Type, align: int = 0) -> Pointers:
        """The same addresses, of elements of another type, or otherwise aligned."""
        return Pointers(self.fn, self.type, self.text, element, align)

    def gather(self, mask: Value | None = None, otherwise: str = "zeroinitializer") -> Value:
        """The elements; where the mask is not set 0, or the constant `otherwise`."""
        type, chosen = self.element.of(self.type.lanes), self._chosen(mask)
        operands = f"{self.type.text} align {self.align} {self.text}, {chosen}, {type.text} {otherwise}"
        return self.let(f"call {type.text} @llvm.masked.gather.{type.suffix}.{self.type.suffix}({operands})", type)

    def scatter(self, value: Value, mask: Value | None = None) -> None:
        """Stores the value's lanes, those where the mask is set, the first lane first."""
        operands = f"{value.typed}, {self.type.text} align {self.align} {self.text}, {self._chosen(mask)}"
        self.fn.do(f"call void @llvm.masked.scatter.{value.type.suffix}.{self.type.suffix}({operands})")

    def _chosen(self, mask: Value | None) -> str:
        return f"{self.type.mask.text} {self.type.mask.constant(True)}" if mask is None else mask.typed


NONTEMPORAL, INVARIANT = "!nontemporal !0", "!invariant.load !1"
METADATA = "!0 = !{i32 1}\n!1 = !{}\n"
"""The definitions of these, in the module's text."""


def _kind(ordering: str, volatile: bool) -> str:
    return (" atomic" if ordering else "") + (" volatile" if volatile else "")
