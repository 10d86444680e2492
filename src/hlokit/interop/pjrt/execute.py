"""The hot path: Execute for one device, from JAX's buffers to the program's machine code and back, as machine code.

Python fills a PROGRAM for each loaded executable. What machine code cannot do alone (steps of the reference, several
devices, an error's text) it hands to the Python function behind LoadedExecutable_Execute.
"""

from __future__ import annotations

from hlokit.cpu.llvm import (
    I8,
    I32,
    I64,
    POINTER,
    Function,
    Global,
    IfElse,
    Module,
    Pointer,
    Prototype,
    Record,
    Value,
    While,
)
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.buffers import (
    ACQUIRE,
    ALLOCATE,
    BUFFER,
    DEVICE,
    MAKE_BUFFER,
    RELEASE,
    STORAGE,
    TAKE,
    no_memory,
)
from hlokit.interop.pjrt.code import api_function
from hlokit.interop.pjrt.events import PYTHON, READY, into_python

PROGRAM = Record(
    "Program",
    {
        "refs": I64,
        "next": POINTER,
        "deleted": I64,
        "entry": POINTER,
        "arguments": I64,
        "results": I64,
        "argument_rows": POINTER,
        "result_rows": POINTER,
        "fixed": I64,
        "fixed_values": POINTER,
        "arena_slot": I64,
        "arena": POINTER,
        "arena_size": I64,
        "device": POINTER,
        "donates": I64,
        "replicas": I64,
        "partitions": I64,
    },
)
"""A loaded executable, and the executable that it comes from.

refs         handles that are out; with the last it goes to the list of the dead, linked by `next`
entry        the program's native entry, or null: Python runs it
fixed        pointers after the results' in the entry's table: their number and where they are; `arena_slot`: which of
             them is the temporaries' address
arena        memory of `arena_size` bytes for temporaries, null while a call has it
donates      whether any argument is donated
"""
ARGUMENT = Record("Argument", {"nbytes": I64, "type": I64, "flags": I64})
DONATED, OVERWRITTEN = 1, 2
RESULT = Record("Result", {"nbytes": I64, "type": I64, "rank": I64, "dims": POINTER, "alias": I64, "memory": POINTER})
"""`alias`: the argument over which the entry writes it, or -1."""
_GIVEN, _KEPT, _TAKEN = 0, 1, 2
"""States of an argument in one call: it may be donated, it must not be, its buffer's reference has been taken."""

_DEAD = Global("dead", POINTER)
_FAILED = Global("failed", POINTER, exported=True)
"""The Python function that says why machine code has stopped midway."""
_DROP_PROGRAM = Prototype("drop_program", None, {"program": POINTER})


def write(module: Module) -> None:
    """Adds the functions and their data."""
    for function in (
        _drop_program(), _take_dead(), _drop("Executable_Destroy"), _drop("LoadedExecutable_Destroy"),
        _get_executable(), _is_deleted(), _delete(),
        _number("Executable_NumOutputs", "num_outputs", "results"),
        _number("Executable_NumReplicas", "num_replicas", "replicas"),
        _number("Executable_NumPartitions", "num_partitions", "partitions"), _Execute().function,
    ):  # fmt: skip
        module.add(function, exported=True)


def _drop_program() -> Function:
    """Gives up a handle. Any thread may, at any time: Python takes the dead away when it is next at work."""
    f = Function.of(_DROP_PROGRAM)
    program = f.pointer("program", PROGRAM)
    with f.when(program.is_null()):
        f.returns()
    with f.when(program["refs"].atomicrmw("add", -1).ne(1)):
        f.returns()
    dead = f.address(_DEAD)
    tries = While(f, [])
    first = dead.load_pointer(ordering="monotonic")
    program["next"].store(first)
    _, is_put = dead.cmpxchg(first, program, "release", "monotonic")
    tries.test(~is_put)
    tries.again()
    f.returns()
    return f


def _take_dead() -> Function:
    """All that died since the last call, linked by `next`."""
    f = Function("take_dead", [], POINTER)
    f.returns(f.address(_DEAD).atomicrmw("xchg", None, "acquire"))
    return f


def _drop(name: str) -> Function:
    f, args = api_function(name)
    f.call(_DROP_PROGRAM, args["executable"].load_pointer())
    f.returns()
    return f


def _get_executable() -> Function:
    f, args = api_function("LoadedExecutable_GetExecutable")
    program = args["loaded_executable"].load_pointer(PROGRAM)
    program["refs"].atomicrmw("add", 1)
    args["executable"].store(program)
    f.returns()
    return f


def _is_deleted() -> Function:
    f, args = api_function("LoadedExecutable_IsDeleted")
    args["is_deleted"].store(args["executable"].load_pointer(PROGRAM)["deleted"].load().trunc(8))
    f.returns()
    return f


def _delete() -> Function:
    f, args = api_function("LoadedExecutable_Delete")
    args["executable"].load_pointer(PROGRAM)["deleted"].store(1)
    f.returns()
    return f


def _number(name: str, field: str, own: str) -> Function:
    """JAX asks for these at every call."""
    f, args = api_function(name)
    args[field].store(args["executable"].load_pointer(PROGRAM)[own].load())
    f.returns()
    return f


class _Execute:
    """LoadedExecutable_Execute in the writing.

    held, made   storages of the arguments and of the results: references that this call holds
    kept         a byte for each argument: _GIVEN, _KEPT or _TAKEN
    python       the block that leaves the call to Python; short: where there is no memory
    """

    def __init__(self) -> None:
        self.function, self.args = api_function("LoadedExecutable_Execute")
        f = self.function
        self.python, self.short = f.new_block("python"), f.new_block("short")
        self.program = self.args["executable"].load_pointer(PROGRAM)
        self.arguments, self.results = self.program["arguments"].load(), self.program["results"].load()
        self.fixed = self.program["fixed"].load()
        arrays = self.arguments + self.results
        self.table = f.local(POINTER, arrays + self.fixed, 64)
        self.held, self.made = f.local(POINTER, self.arguments, 64), f.local(POINTER, self.results, 64)
        self.kept = f.local(I8, self.arguments, 8)
        self.simple()
        self.lists()
        self.take_arguments()
        self.own()
        self.make_results()
        status = self.run(arrays)
        self.deliver(status)
        f.start(self.short)
        self.release(self.held, self.arguments)
        self.release(self.made, self.results)
        f.returns(no_memory(f))
        f.start(self.python)
        into_python(f, self.args, f.name)

    def flag(self, index: Value, flag: int) -> Value:
        return (self.argument_rows[index]["flags"].load() & flag).ne(0)

    def simple(self) -> None:
        """On, if this is a call for machine code."""
        self.function.go_on_if(
            self.program["entry"].load_pointer().ne(None)
            & self.program["deleted"].load().eq(0)
            & self.args["num_devices"].load().eq(1)
            & self.args["num_args"].load().eq(self.arguments),
            self.python,
        )

    def lists(self) -> None:
        """The rows, the list of buffers, and which arguments are not to be donated in this call."""
        f = self.function
        self.argument_rows = self.program["argument_rows"].load_pointer(ARGUMENT)
        self.result_rows = self.program["result_rows"].load_pointer(RESULT)
        are_any = IfElse(f, self.arguments.ne(0))
        given = self.args["argument_lists"].load_pointer(POINTER).load_pointer(POINTER)
        are_any.otherwise(given)
        (self.buffers,) = are_any.end(f.null())
        self.donates = self.program["donates"].load().ne(0)
        f.memset(self.held, 0, self.arguments << 3)
        with f.when(self.donates):
            f.memset(self.kept, _GIVEN, self.arguments)
            options = self.args["options"].load_pointer(layouts.record("ExecuteOptions"))
            indices = options["non_donatable_input_indices"].load_pointer(I64)
            with f.loop(0, options["num_non_donatable_input_indices"].load()) as loop:
                index = indices[loop.index].load()
                with f.when(index.compare("ult", self.arguments)):
                    self.kept[index].store(_KEPT)

    def take_arguments(self) -> None:
        """References to the arguments' storages; those donated are taken, first, so that to give one twice is seen."""
        f = self.function
        back, taken = f.new_block("back"), f.new_block("taken")
        with f.when(self.donates), f.loop(0, self.arguments) as loop:
            kept, held = self.kept[loop.index], self.held[loop.index]
            with f.when(self.flag(loop.index, DONATED) & kept.load().eq(_GIVEN)):
                storage = f.call(TAKE, self.buffers[loop.index].load_pointer())
                held.store(storage)
                kept.store(_TAKEN)
                self.function.go_on_if(storage.ne(None), back)
        with f.loop(0, self.arguments) as loop:
            buffer, row = self.buffers[loop.index].load_pointer(BUFFER), self.argument_rows[loop.index]
            held = self.held[loop.index]
            with f.when(held.load_pointer().is_null()):
                held.store(f.call(ACQUIRE, buffer))
            self.function.go_on_if(
                held.load_pointer().ne(None)
                & buffer["nbytes"].load().eq(row["nbytes"].load())
                & buffer["type"].load().eq(row["type"].to(I32).load()),
                back,
            )
        f.jump(taken)
        f.start(back)
        self.give_back()
        f.jump(self.python)
        f.start(taken)

    def give_back(self) -> None:
        """Undoes it: what was donated is its buffer's again."""
        f = self.function
        with f.loop(0, self.arguments) as loop:
            storage = self.held[loop.index].load_pointer()
            with f.when(storage.ne(None)):
                is_taken = IfElse(f, self.donates & self.kept[loop.index].load().eq(_TAKEN))
                self.buffers[loop.index].load_pointer(BUFFER)["storage"].store(storage)
                is_taken.otherwise()
                f.call(RELEASE, storage)
                is_taken.end()

    def own(self) -> None:
        """Copies what the entry overwrites, unless nobody else holds it and its memory is ours."""
        f = self.function
        with f.when(self.donates), f.loop(0, self.arguments) as loop, f.when(self.flag(loop.index, OVERWRITTEN)):
            held = self.held[loop.index]
            storage = held.load_pointer(STORAGE)
            is_own = (
                self.kept[loop.index].load().eq(_TAKEN)
                & storage["refs"].load(ordering="acquire").eq(1)
                & storage["event"].load_pointer().is_null()
                & storage["callback"].load_pointer().is_null()
            )
            with f.when(~is_own):
                size = self.argument_rows[loop.index]["nbytes"].load()
                copy = self.memory(size)
                f.memcpy(copy["data"].load_pointer(), storage["data"].load_pointer(), size)
                f.call(RELEASE, storage)
                held.store(copy)

    def memory(self, size: Value) -> Pointer:
        """A fresh storage; where there is none, on with `short`."""
        storage = self.function.call(ALLOCATE, size).to(STORAGE)
        self.function.go_on_if(storage.ne(None), self.short)
        return storage

    def make_results(self) -> None:
        f = self.function
        f.memset(self.made, 0, self.results << 3)
        with f.loop(0, self.results) as loop:
            row, made = self.result_rows[loop.index], self.made[loop.index]
            alias = row["alias"].load()
            is_alias = IfElse(f, alias >= 0)
            storage = self.held[alias].load_pointer(STORAGE)
            storage["refs"].atomicrmw("add", 1)
            made.store(storage)
            is_alias.otherwise()
            made.store(self.memory(row["nbytes"].load()))
            is_alias.end()

    def run(self, arrays: Value) -> Value:
        """Fills the table and calls the entry: its status."""
        f = self.function
        with f.loop(0, self.arguments) as loop:
            storage = self.held[loop.index].load_pointer(STORAGE)
            self.table[loop.index].store(storage["data"].load_pointer())
        with f.loop(0, self.results) as loop:
            storage = self.made[loop.index].load_pointer(STORAGE)
            self.table[self.arguments + loop.index].store(storage["data"].load_pointer())
        rest = self.table[arrays]
        f.memcpy(rest, self.program["fixed_values"].load_pointer(), self.fixed << 3)
        cell, size = self.program["arena"], self.program["arena_size"].load()
        needs, extra = size.ne(0), f.local(POINTER)
        extra.store(None)
        slot = rest[self.program["arena_slot"].load()]
        with f.when(needs):
            arena = cell.atomicrmw("xchg", None, "acquire")
            slot.store(arena)
            with f.when(arena.eq(None)):
                storage = self.memory(size)
                extra.store(storage)
                slot.store(storage["data"].load_pointer())
        status = self.program["entry"].load_pointer().call(I32, self.table)
        with f.when(needs):
            borrowed = extra.load_pointer()
            is_own = IfElse(f, borrowed.is_null())
            cell.store(slot.load_pointer(), ordering="release")
            is_own.otherwise()
            f.call(RELEASE, borrowed)
            is_own.end()
        return status

    def release(self, storages: Pointer, count: Value) -> None:
        f = self.function
        with f.loop(0, count) as loop:
            storage = storages[loop.index].load_pointer()
            with f.when(storage.ne(None)):
                f.call(RELEASE, storage)

    def deliver(self, status: Value) -> None:
        """The results as buffers, or the error."""
        f = self.function
        self.release(self.held, self.arguments)
        with f.when(status.ne(0)):
            self.release(self.made, self.results)
            f.returns(f.call(PYTHON, f.address(_FAILED).load_pointer(), self.program, True))
        home = self.program["device"].load_pointer(DEVICE)
        device = self.args["execute_device"].load_pointer(DEVICE)
        device = device.ne(None).select(device, home)
        is_moved = device.ne(home)
        with f.when(self.results.ne(0)):
            given = self.args["output_lists"].load_pointer(POINTER).load_pointer(POINTER)
            with f.loop(0, self.results) as loop:
                row = self.result_rows[loop.index]
                memory = is_moved.select(device["memory"], row["memory"]).load_pointer()
                shape = row["type"].to(I32).load(), row["rank"].load(), row["dims"].load_pointer(), row["nbytes"].load()
                storage = self.made[loop.index].load_pointer()
                given[loop.index].store(f.call(MAKE_BUFFER, storage, device, memory, *shape))
        events = self.args["device_complete_events"].load_pointer(POINTER)
        with f.when(events.ne(None)):
            events.store(f.address(READY))
        f.returns()
