"""Writing the plugin's machine code: LLVM functions over structs that layouts.py or a Record describes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from hlokit.cpu.llvm import Function, Module
from hlokit.interop.pjrt import layouts

_C = {
    "malloc": "ptr (i64)",
    "free": "void (ptr)",
    "aligned_alloc": "ptr (i64, i64)",
    "madvise": "i32 (ptr, i64, i32)",
    "usleep": "i32 (i32)",
    "strlen": "i64 (ptr)",
    "Py_IsInitialized": "i32 ()",
    "PyGILState_Ensure": "i32 ()",
    "PyGILState_Release": "void (i32)",
    "PyErr_Fetch": "void (ptr, ptr, ptr)",
    "PyErr_Restore": "void (ptr, ptr, ptr)",
    "PyExceptionClass_Name": "ptr (ptr)",
    "PyList_Append": "i32 (ptr, ptr)",
    "PyList_GetItem": "ptr (ptr, i64)",
    "PyList_New": "ptr (i64)",
    "PyList_Size": "i64 (ptr)",
    "PyLong_AsVoidPtr": "ptr (ptr)",
    "PyLong_FromVoidPtr": "ptr (ptr)",
    "PyObject_Type": "ptr (ptr)",
    "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "PyThread_get_thread_ident": "i64 ()",
    "Py_DecRef": "void (ptr)",
    "Py_IncRef": "void (ptr)",
    "hlokit_finalizing": "i32 ()",
    "hlokit_raised": "ptr ()",
    "hlokit_raise_later": "void (ptr)",
}
"""What the code calls of C and of Python."""


def module() -> Module:
    """A module that can call what is in C and Python."""
    made = Module()
    made.globals["hlokit_main_thread"] = "@hlokit_main_thread = external global i64"
    for name, type in _C.items():
        result, _, parameters = type.partition(" ")
        made.declared[name] = f"declare {result} @{name}{parameters}"
    return made


class Record:
    """A struct of our own, of 8-byte words, in C memory: its fields' offsets by name; `size` in bytes."""

    def __init__(self, fields: str) -> None:
        self.fields = fields.split()
        self.size = 8 * len(self.fields)

    def __getitem__(self, field: str) -> int:
        return 8 * self.fields.index(field)


class Code(Function):
    """A function in the writing. `arguments`: the PJRT struct that its one parameter %args points to."""

    def __init__(
        self,
        name: str,
        arguments: str = "",
        parameters: Sequence[tuple[str, str]] = (("ptr", "args"),),
        result: str = "ptr",
    ) -> None:
        super().__init__(name, parameters, result)
        self.arguments = arguments

    def at(self, pointer: str, offset: int | str) -> str:
        """pointer + offset bytes."""
        return pointer if offset == 0 else self.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, pointer: str, offset: int | str = 0, type: str = "ptr") -> str:
        return self.let(f"load {type}, ptr {self.at(pointer, offset)}")

    def store(self, type: str, value: object, pointer: str, offset: int | str = 0) -> None:
        self.do(f"store {type} {value}, ptr {self.at(pointer, offset)}")

    def given(self, field: str, type: str = "ptr") -> str:
        """A field of the arguments."""
        return self.load("%args", layouts.place(self.arguments, field)[0], type)

    def give(self, field: str, value: object, type: str = "ptr") -> None:
        """Fills a field of the arguments."""
        self.store(type, value, "%args", layouts.place(self.arguments, field)[0])

    def call_text(self, type: str, name: str, *arguments: str) -> str:
        """`arguments` with their types: "ptr %x"."""
        text = f"call {type} {name if name[0] in '@%' else '@' + name}({', '.join(arguments)})"
        if type == "void":
            self.do(text)
            return ""
        return self.let(text)

    def is_null(self, pointer: str) -> str:
        return self.let(f"icmp eq ptr {pointer}, null")

    def compare(self, how: str, a: object, b: object, type: str = "i64") -> str:
        return self.let(f"icmp {how} {type} {a}, {b}")

    def present(self, pointer: str) -> str:
        return self.let(f"icmp ne ptr {pointer}, null")

    def plus(self, a: object, b: object) -> str:
        return self.let(f"add i64 {a}, {b}")

    def minus(self, a: object, b: object) -> str:
        return self.let(f"sub i64 {a}, {b}")

    def times8(self, a: object) -> str:
        return self.let(f"shl i64 {a}, 3")

    def both(self, *conditions: str) -> str:
        return self._joined("and", conditions)

    def either(self, *conditions: str) -> str:
        return self._joined("or", conditions)

    def negated(self, condition: str) -> str:
        return self.let(f"xor i1 {condition}, true")

    def wide(self, value: str) -> str:
        """An i32 without sign as i64."""
        return self.let(f"zext i32 {value} to i64")

    def _joined(self, how: str, conditions: Sequence[str]) -> str:
        found = conditions[0]
        for condition in conditions[1:]:
            found = self.let(f"{how} i1 {found}, {condition}")
        return found

    def ret(self, value: str = "null") -> None:
        self.do("ret void" if self.result == "void" else f"ret {self.result} {value}")

    @contextmanager
    def leaving(self, condition: str) -> Generator[None]:
        """What is written inside runs if the i1 holds, and ends in a return or a jump of its own."""
        then, after = self.new_block("leave"), self.new_block("on")
        self.branch(condition, then, after)
        self.start(then)
        yield
        self.start(after)

    def lock(self, pointer: str, offset: int = 0) -> None:
        """Takes a spin lock, an i32 that is 0 when free. It is held for some nanoseconds at most."""
        place = self.at(pointer, offset)
        again, done = self.new_block("lock"), self.new_block("locked")
        self.jump(again)
        self.start(again)
        taken = self.let(f"cmpxchg ptr {place}, i32 0, i32 1 acquire monotonic")
        self.branch(self.let(f"extractvalue {{ i32, i1 }} {taken}, 1"), done, again)
        self.start(done)

    def unlock(self, pointer: str, offset: int = 0) -> None:
        self.do(f"store atomic i32 0, ptr {self.at(pointer, offset)} release, align 4")

    def add(self, pointer: str, offset: int, change: int) -> str:
        """Changes a counter atomically; gives what it was."""
        return self.let(f"atomicrmw add ptr {self.at(pointer, offset)}, i64 {change} seq_cst")

    def copy(self, to: str, source: str, count: object) -> None:
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {count}, i1 false)")

    def zero(self, to: str, count: object) -> None:
        self.do(f"call void @llvm.memset.p0.i64(ptr {to}, i8 0, i64 {count}, i1 false)")
