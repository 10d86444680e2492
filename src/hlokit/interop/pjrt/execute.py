"""The hot path: Execute for one device, from JAX's buffers to the program's machine code and back, as machine code.

Python fills a PROGRAM for each loaded executable. What machine code cannot do alone (steps of the reference, several
devices, an error's text) it hands to the Python function behind LoadedExecutable_Execute.
"""

from __future__ import annotations

from hlokit.cpu.llvm import Module
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.buffers import BUFFER, DEVICE, STORAGE
from hlokit.interop.pjrt.code import Code, Record
from hlokit.interop.pjrt.events import into_python

PROGRAM = Record(
    "refs next deleted entry arguments results argument_rows result_rows fixed fixed_values arena_slot arena "
    "arena_size device donates replicas partitions"
)
"""A loaded executable, and the executable that it comes from.

refs         handles that are out; with the last it goes to the list of the dead, linked by `next`
entry        the program's native entry, or null: Python runs it
fixed        pointers after the results' in the entry's table: their number and where they are; `arena_slot`: which of
             them is the temporaries' address
arena        memory of `arena_size` bytes for temporaries, null while a call has it
donates      whether any argument is donated
"""
ARGUMENT = Record("nbytes type flags")
DONATED, OVERWRITTEN = 1, 2
RESULT = Record("nbytes type rank dims alias memory")
"""`alias`: the argument over which the entry writes it, or -1."""


def write(module: Module) -> None:
    module.globals["failed"] = "@failed = global ptr null"
    module.globals["dead"] = "@dead = internal global ptr null"
    for function in (_drop_program(), _take_dead()):
        module.add(function, exported=True)
    for function in (
        _drop("Executable_Destroy"), _drop("LoadedExecutable_Destroy"), _get_executable(), _is_deleted(), _delete(),
        _number("Executable_NumOutputs", "num_outputs", "results"),
        _number("Executable_NumReplicas", "num_replicas", "replicas"),
        _number("Executable_NumPartitions", "num_partitions", "partitions"), _execute(),
    ):  # fmt: skip
        module.add(function, exported=True)


def _drop_program() -> Code:
    """Gives up a handle. Any thread may, at any time: Python takes the dead away when it is next at work."""
    f = Code("drop_program", parameters=[("ptr", "program")], result="void")
    with f.leaving(f.is_null("%program")):
        f.ret()
    with f.leaving(f.compare("ne", f.add("%program", PROGRAM["refs"], -1), 1)):
        f.ret()
    again, done = f.new_block("again"), f.new_block("done")
    f.jump(again)
    f.start(again)
    first = f.let("load atomic ptr, ptr @dead monotonic, align 8")
    f.store("ptr", first, "%program", PROGRAM["next"])
    put = f.let(f"cmpxchg ptr @dead, ptr {first}, ptr %program release monotonic")
    f.branch(f.let(f"extractvalue {{ ptr, i1 }} {put}, 1"), done, again)
    f.start(done)
    f.ret()
    return f


def _take_dead() -> Code:
    """All that died since the last call, linked by `next`."""
    f = Code("take_dead", parameters=[])
    f.ret(f.let("atomicrmw xchg ptr @dead, ptr null acquire"))
    return f


def _drop(name: str) -> Code:
    f = Code(name, name)
    f.call_text("void", "drop_program", f"ptr {f.given('executable')}")
    f.ret()
    return f


def _get_executable() -> Code:
    f = Code("LoadedExecutable_GetExecutable", "LoadedExecutable_GetExecutable")
    program = f.given("loaded_executable")
    f.add(program, PROGRAM["refs"], 1)
    f.give("executable", program)
    f.ret()
    return f


def _is_deleted() -> Code:
    f = Code("LoadedExecutable_IsDeleted", "LoadedExecutable_IsDeleted")
    deleted = f.load(f.given("executable"), PROGRAM["deleted"], "i64")
    f.give("is_deleted", f.let(f"trunc i64 {deleted} to i8"), "i8")
    f.ret()
    return f


def _delete() -> Code:
    f = Code("LoadedExecutable_Delete", "LoadedExecutable_Delete")
    f.store("i64", 1, f.given("executable"), PROGRAM["deleted"])
    f.ret()
    return f


def _number(name: str, field: str, own: str) -> Code:
    """JAX asks for these at every call."""
    f = Code(name, name)
    f.give(field, f.load(f.given("executable"), PROGRAM[own], "i64"), "i64")
    f.ret()
    return f


def _execute() -> Code:
    return _Execute().code


class _Execute:
    """LoadedExecutable_Execute in the writing."""

    def __init__(self) -> None:
        name = "LoadedExecutable_Execute"
        f = self.code = Code(name, name)
        self.python = f.new_block("python")
        self.program = f.given("executable")
        self.arguments, self.results = self.field("arguments", "i64"), self.field("results", "i64")
        self.fixed = self.field("fixed", "i64")
        arrays = f.plus(self.arguments, self.results)
        self.table = self.stack(f.plus(arrays, self.fixed))
        self.held, self.made = self.stack(self.arguments), self.stack(self.results)
        self.kept = f.let(f"alloca i8, i64 {self.arguments}, align 8")
        self.temporary = f.alloca("ptr")
        self.simple()
        self.lists()
        self.take_arguments()
        self.own()
        self.make_results()
        self.run(arrays)
        self.deliver()
        f.start(self.python)
        into_python(f, name)

    # -- parts of the struct, of rows, of arrays

    def field(self, name: str, type: str = "ptr") -> str:
        return self.code.load(self.program, PROGRAM[name], type)

    def stack(self, count: str) -> str:
        return self.code.let(f"alloca ptr, i64 {count}, align 64")

    def item(self, array: str, index: str) -> str:
        """The address of a pointer in an array of them."""
        return self.code.let(f"getelementptr ptr, ptr {array}, i64 {index}")

    def row(self, kind: str, record: Record, index: str) -> str:
        return self.code.let(f"getelementptr [{record.size} x i8], ptr {self.rows[kind]}, i64 {index}")

    def flag(self, index: str, flag: int) -> str:
        flags = self.code.load(self.row("arguments", ARGUMENT, index), ARGUMENT["flags"], "i64")
        return self.code.compare("ne", self.code.let(f"and i64 {flags}, {flag}"), 0)

    # -- the way

    def simple(self) -> None:
        """On, if this is a call for machine code."""
        f = self.code
        on = f.new_block("on")
        ready = f.both(
            f.present(self.field("entry")),
            f.compare("eq", self.field("deleted", "i64"), 0),
            f.compare("eq", f.given("num_devices", "i64"), 1),
            f.compare("eq", f.given("num_args", "i64"), self.arguments),
        )
        f.branch(ready, on, self.python)
        f.start(on)

    def lists(self) -> None:
        """The rows, the lists of buffers, and which arguments are not to be donated in this call."""
        f = self.code
        self.rows = {"arguments": self.field("argument_rows"), "results": self.field("result_rows")}
        self.buffers = f.alloca("ptr")
        f.store("ptr", "null", self.buffers)
        with f.when(f.compare("ne", self.arguments, 0)):
            f.store("ptr", f.load(f.given("argument_lists")), self.buffers)
        self.buffers = f.load(self.buffers)
        self.donates = f.compare("ne", self.field("donates", "i64"), 0)
        f.zero(self.held, f.times8(self.arguments))
        with f.when(self.donates):
            f.zero(self.kept, self.arguments)
            options = f.given("options")
            places = [layouts.place("ExecuteOptions", n)[0] for n in _KEPT]
            indices, count = f.load(options, places[0]), f.load(options, places[1], "i64")
            with f.loop("0", count) as loop:
                index = f.load(indices, f.times8(loop.index), "i64")
                with f.when(f.compare("ult", index, self.arguments)):
                    f.store("i8", 1, f.at(self.kept, index))

    def take_arguments(self) -> None:
        """References to the arguments' storages; those donated are taken, first, so that to give one twice is seen."""
        f = self.code
        self.back = f.new_block("back")
        with f.when(self.donates), f.loop("0", self.arguments) as loop:
            kept = f.load(self.kept, loop.index, "i8")
            given = f.both(self.flag(loop.index, DONATED), f.compare("eq", kept, 0, "i8"))
            with f.when(given):
                storage = f.call_text("ptr", "take", f"ptr {f.load(self.item(self.buffers, loop.index))}")
                f.store("ptr", storage, self.item(self.held, loop.index))
                f.store("i8", 2, f.at(self.kept, loop.index))
                on = f.new_block("on")
                f.branch(f.is_null(storage), self.back, on)
                f.start(on)
        with f.loop("0", self.arguments) as loop:
            buffer = f.load(self.item(self.buffers, loop.index))
            row, place = self.row("arguments", ARGUMENT, loop.index), self.item(self.held, loop.index)
            with f.when(f.is_null(f.load(place))):
                f.store("ptr", f.call_text("ptr", "acquire", f"ptr {buffer}"), place)
            storage = f.load(place)
            fine = f.both(
                f.present(storage),
                f.compare("eq", f.load(buffer, BUFFER["nbytes"], "i64"), f.load(row, ARGUMENT["nbytes"], "i64")),
                f.compare("eq", f.load(buffer, BUFFER["type"], "i32"), f.load(row, ARGUMENT["type"], "i32"), "i32"),
            )
            on = f.new_block("on")
            f.branch(fine, on, self.back)
            f.start(on)
        on = f.new_block("taken")
        f.jump(on)
        f.start(self.back)
        self.give_back()
        f.jump(self.python)
        f.start(on)

    def give_back(self) -> None:
        """Undoes it: what was donated is its buffer's again."""
        f = self.code
        with f.loop("0", self.arguments) as loop:
            storage = f.load(self.item(self.held, loop.index))
            with f.when(f.present(storage)):
                taken, shared, done = f.new_block("taken"), f.new_block("shared"), f.new_block("done")
                kept = f.load(self.kept, loop.index, "i8")
                f.branch(f.both(self.donates, f.compare("eq", kept, 2, "i8")), taken, shared)
                f.start(taken)
                f.store("ptr", storage, f.load(self.item(self.buffers, loop.index)), BUFFER["storage"])
                f.jump(done)
                f.start(shared)
                f.call_text("void", "release", f"ptr {storage}")
                f.jump(done)
                f.start(done)

    def own(self) -> None:
        """What the entry overwrites becomes a copy, unless nobody else holds it and its memory is ours."""
        f = self.code
        self.short = f.new_block("short")
        with f.when(self.donates), f.loop("0", self.arguments) as loop:
            overwritten = self.flag(loop.index, OVERWRITTEN)
            with f.when(overwritten):
                place = self.item(self.held, loop.index)
                storage, kept = f.load(place), f.load(self.kept, loop.index, "i8")
                alone = f.both(
                    f.compare("eq", kept, 2, "i8"),
                    f.compare("eq", f.let(f"load atomic i64, ptr {storage} acquire, align 8"), 1),
                    f.is_null(f.load(storage, STORAGE["event"])),
                    f.is_null(f.load(storage, STORAGE["callback"])),
                )
                with f.when(f.negated(alone)):
                    size = f.load(self.row("arguments", ARGUMENT, loop.index), ARGUMENT["nbytes"], "i64")
                    copy = self.memory(size)
                    f.copy(f.load(copy, STORAGE["data"]), f.load(storage, STORAGE["data"]), size)
                    f.call_text("void", "release", f"ptr {storage}")
                    f.store("ptr", copy, place)

    def memory(self, size: str) -> str:
        """A fresh storage; where there is none, on with `short`."""
        f = self.code
        storage, on = f.call_text("ptr", "allocate", f"i64 {size}"), f.new_block("on")
        f.branch(f.is_null(storage), self.short, on)
        f.start(on)
        return storage

    def make_results(self) -> None:
        f = self.code
        f.zero(self.made, f.times8(self.results))
        with f.loop("0", self.results) as loop:
            row, place = self.row("results", RESULT, loop.index), self.item(self.made, loop.index)
            alias = f.load(row, RESULT["alias"], "i64")
            over, fresh, done = f.new_block("over"), f.new_block("fresh"), f.new_block("done")
            f.branch(f.compare("sge", alias, 0), over, fresh)
            f.start(over)
            storage = f.load(self.item(self.held, alias))
            f.add(storage, STORAGE["refs"], 1)
            f.store("ptr", storage, place)
            f.jump(done)
            f.start(fresh)
            f.store("ptr", self.memory(f.load(row, RESULT["nbytes"], "i64")), place)
            f.jump(done)
            f.start(done)

    def run(self, arrays: str) -> None:
        """Fills the table and calls the entry."""
        f = self.code
        with f.loop("0", self.arguments) as loop:
            storage = f.load(self.item(self.held, loop.index))
            f.store("ptr", f.load(storage, STORAGE["data"]), self.item(self.table, loop.index))
        with f.loop("0", self.results) as loop:
            storage = f.load(self.item(self.made, loop.index))
            f.store("ptr", f.load(storage, STORAGE["data"]), self.item(self.table, f.plus(self.arguments, loop.index)))
        rest = self.item(self.table, arrays)
        f.copy(rest, self.field("fixed_values"), f.times8(self.fixed))
        cell, size = f.at(self.program, PROGRAM["arena"]), self.field("arena_size", "i64")
        needs, extra = f.compare("ne", size, 0), f.alloca("ptr")
        f.store("ptr", "null", extra)
        slot = self.item(rest, self.field("arena_slot", "i64"))
        with f.when(needs):
            arena = f.let(f"atomicrmw xchg ptr {cell}, ptr null acquire")
            f.store("ptr", arena, slot)
            with f.when(f.is_null(arena)):
                storage = self.memory(size)
                f.store("ptr", storage, extra)
                f.store("ptr", f.load(storage, STORAGE["data"]), slot)
        self.status = f.call_text("i32", self.field("entry"), f"ptr {self.table}")
        with f.when(needs):
            borrowed = f.load(extra)
            own, gift, done = f.new_block("own"), f.new_block("gift"), f.new_block("done")
            f.branch(f.is_null(borrowed), own, gift)
            f.start(own)
            f.do(f"store atomic ptr {f.load(slot)}, ptr {cell} release, align 8")
            f.jump(done)
            f.start(gift)
            f.call_text("void", "release", f"ptr {borrowed}")
            f.jump(done)
            f.start(done)

    def release(self, storages: str, count: str) -> None:
        f = self.code
        with f.loop("0", count) as loop:
            storage = f.load(self.item(storages, loop.index))
            with f.when(f.present(storage)):
                f.call_text("void", "release", f"ptr {storage}")

    def deliver(self) -> None:
        """The results as buffers, or the error."""
        f = self.code
        self.release(self.held, self.arguments)
        with f.leaving(f.compare("ne", self.status, 0, "i32")):
            self.release(self.made, self.results)
            f.ret(f.call_text("ptr", "python", f"ptr {f.load('@failed')}", f"ptr {self.program}", "i1 true"))
        device = f.given("execute_device")
        elsewhere = f.present(device)
        home = self.field("device")
        device = f.let(f"select i1 {elsewhere}, ptr {device}, ptr {home}")
        moved = f.compare("ne", device, home, "ptr")
        with f.when(f.compare("ne", self.results, 0)):
            given = f.load(f.given("output_lists"))
            with f.loop("0", self.results) as loop:
                row = self.row("results", RESULT, loop.index)
                own, other = f.at(row, RESULT["memory"]), f.at(device, DEVICE["memory"])
                memory = f.load(f.let(f"select i1 {moved}, ptr {other}, ptr {own}"))
                buffer = f.call_text(
                    "ptr", "make_buffer", f"ptr {f.load(self.item(self.made, loop.index))}", f"ptr {device}",
                    f"ptr {memory}", f"i32 {f.load(row, RESULT['type'], 'i32')}",
                    f"i64 {f.load(row, RESULT['rank'], 'i64')}", f"ptr {f.load(row, RESULT['dims'])}",
                    f"i64 {f.load(row, RESULT['nbytes'], 'i64')}",
                )  # fmt: skip
                f.store("ptr", buffer, self.item(given, loop.index))
        events = f.given("device_complete_events")
        with f.when(f.present(events)):
            f.store("ptr", "@ready", events)
        f.ret()
        f.start(self.short)
        self.release(self.held, self.arguments)
        self.release(self.made, self.results)
        f.ret(f.call_text("ptr", "make_error", "i64 8", "ptr @text_memory", "i64 13"))


_KEPT = ("non_donatable_input_indices", "num_non_donatable_input_indices")
