"""The hot path: Execute, from JAX's buffers to the program's machine code and back, as machine code.

A program on several devices runs once for all of them: whole values are made of the devices' parts, and results are
cut; what all devices have alike is shared. Or it runs in parts, for each device on its own (runtime/native_grid.py); a
run of the entry is a lane. Python fills a PROGRAM for each loaded executable. What machine code cannot do alone (steps
of the reference, an error's text) it hands to the Python function behind LoadedExecutable_Execute.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from hlokit.cpu.llvm import (
    I1,
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
from hlokit.runtime.grid_record import GRID

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
        "devices": I64,
        "places": POINTER,
        "donates": I64,
        "replicas": I64,
        "partitions": I64,
        "lanes": I64,
        "grid": POINTER,
    },
)
"""A loaded executable, and the executable that it comes from.

refs         handles that are out; with the last it goes to the list of the dead, linked by `next`
entry        the program's native entry, or null: Python runs it
fixed        pointers after the results' in the entry's table: their number and where they are, lane by lane;
             `arena_slot`: which of them is the temporaries' address
arena        memory of `arena_size` bytes a lane for temporaries, null while a call has it
places       the devices that run it
donates      whether any argument is donated
lanes        runs of the entry: one, or in parts one for each device; then `grid` is their GRID
"""
_VALUE = {"nbytes": I64, "type": I64, "whole": I64, "parts": I64, "pieces": POINTER, "part_of": POINTER}
ARGUMENT = Record("Argument", {**_VALUE, "flags": I64})
"""nbytes   of what a device has; `whole`: of the value
parts    different ones; 1: every device has the whole value
pieces   a PIECE for each part; `part_of`: the number of each device's part
"""
DONATED, OVERWRITTEN = 1, 2
RESULT = Record("Result", {**_VALUE, "rank": I64, "dims": POINTER, "alias": I64, "memories": POINTER})
"""alias     the argument over which the entry writes it, or -1
dims      of what a device has; `memories`: where each device has it
"""
LEVELS = 3
PIECE = Record(
    "Piece",
    {"device": I64, "offset": I64, "inner": I64}
    | {f"{name}{level}": I64 for level in range(LEVELS) for name in ("count", "stride")},
)
"""Where a part of a value lies in it: blocks of `inner` bytes from `offset` on, on each level so many, so far apart.
`device`: the first one that has it."""
_GIVEN, _KEPT, _TAKEN = 0, 1, 2
"""States of an argument in one call: it may be donated, it must not be, its buffer's reference has been taken."""

_DEAD = Global("dead", POINTER)
_FAILED = Global("failed", POINTER, exported=True)
"""The Python function that says why machine code has stopped midway."""
_DROP_PROGRAM = Prototype("drop_program", None, {"program": POINTER})
_MOVE_PIECE = Prototype("move_piece", None, {"piece": POINTER, "value": POINTER, "part": POINTER, "cuts": I64})


def write(module: Module) -> None:
    """Adds the functions and their data."""
    for function in (
        _move_piece(), _drop_program(), _take_dead(), _drop("Executable_Destroy"), _drop("LoadedExecutable_Destroy"),
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


def _move_piece() -> Function:
    """Copies a part into its value, or with `cuts` the other way."""
    f = Function.of(_MOVE_PIECE)
    piece, value, part = f.pointer("piece", PIECE), f.pointer("value"), f.pointer("part")
    cuts, inner = f.argument("cuts").ne(0), piece["inner"].load()
    value = value + piece["offset"].load()
    levels = [(piece[f"count{level}"].load(), piece[f"stride{level}"].load()) for level in range(LEVELS)]
    sizes = [inner]  # of a level's block in the part, the last one first
    for count, _ in levels[:0:-1]:
        sizes.append(sizes[-1] * count)
    with ExitStack() as loops:
        for (count, stride), size in zip(levels, reversed(sizes), strict=True):
            loop = loops.enter_context(f.loop(0, count))
            value, part = value + loop.index * stride, part + loop.index * size
        f.memcpy(cuts.select(part, value), cuts.select(value, part), inner)
    f.returns()
    return f


class _Execute:
    """LoadedExecutable_Execute in the writing.

    held         storages of the arguments of all devices, device by device: references that this call holds
    values, made storages of the arguments and results of the entry, lane by lane
    cut          storages of the results' parts, as many places for each result as there are devices
    kept         a byte for each of `held`: _GIVEN, _KEPT or _TAKEN
    python       the block that leaves the call to Python; short: where there is no memory
    """

    def __init__(self) -> None:
        self.function, self.args = api_function("LoadedExecutable_Execute")
        f = self.function
        self.python, self.short = f.new_block("python"), f.new_block("short")
        self.program = self.args["executable"].load_pointer(PROGRAM)
        self.arguments, self.results = self.program["arguments"].load(), self.program["results"].load()
        self.fixed = self.program["fixed"].load()
        self.devices = self.program["devices"].load()
        self.lanes, self.grid = self.program["lanes"].load(), self.program["grid"].load_pointer(GRID)
        arrays, buffers = self.arguments + self.results, self.devices * self.arguments
        self.words = arrays + self.fixed
        self.table, self.tables = f.local(POINTER, self.lanes * self.words, 64), f.local(POINTER, self.lanes, 8)
        self.held, self.kept = f.local(POINTER, buffers, 64), f.local(I8, buffers, 8)
        self.all_values, self.all_made = self.lanes * self.arguments, self.lanes * self.results
        self.values, self.made = f.local(POINTER, self.all_values, 64), f.local(POINTER, self.all_made, 64)
        self.cut = f.local(POINTER, self.devices * self.results, 64)
        self.simple()
        self.lists()
        self.take_arguments()
        self.put_together()
        self.own()
        self.make_results()
        status = self.run(arrays)
        self.deliver(status)
        f.start(self.short)
        self.release(self.held, buffers)
        self.release(self.values, self.all_values)
        self.release(self.made, self.all_made)
        self.release(self.cut, self.devices * self.results)
        self.leave()
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
            & self.args["num_devices"].load().eq(self.devices)
            & self.args["num_args"].load().eq(self.arguments),
            self.python,
        )
        with self.function.when(self.grid.ne(None)):
            taken = self.grid["take"].load_pointer().call(I1, self.grid)
            self.function.go_on_if(taken, self.python)

    def leave(self) -> None:
        """Lets go of the threads that `simple` took."""
        with self.function.when(self.grid.ne(None)):
            self.grid["leave"].load_pointer().call(None, self.grid)

    @contextmanager
    def each_lane(self, count: Value) -> Generator[tuple[Value, Value]]:
        """A loop over all lanes' values, of which each has so many: (place among all, number in the lane)."""
        f = self.function
        with f.loop(0, self.lanes) as lane, f.loop(0, count) as loop:
            yield lane.index * count + loop.index, loop.index

    def lists(self) -> None:
        """The rows, and which arguments are not to be donated in this call."""
        f = self.function
        self.argument_rows = self.program["argument_rows"].load_pointer(ARGUMENT)
        self.result_rows = self.program["result_rows"].load_pointer(RESULT)
        self.donates = self.program["donates"].load().ne(0)
        for storages, count in ((self.held, self.devices * self.arguments), (self.values, self.all_values)):
            f.memset(storages, 0, count << 3)
        f.memset(self.made, 0, self.all_made << 3)
        f.memset(self.cut, 0, self.devices * self.results << 3)
        with f.when(self.donates):
            f.memset(self.kept, _GIVEN, self.devices * self.arguments)
            options = self.args["options"].load_pointer(layouts.record("ExecuteOptions"))
            indices = options["non_donatable_input_indices"].load_pointer(I64)
            with f.loop(0, options["num_non_donatable_input_indices"].load()) as loop:
                index = indices[loop.index].load()
                with f.when(index.compare("ult", self.arguments)), f.loop(0, self.devices) as device:
                    self.kept[device.index * self.arguments + index].store(_KEPT)

    @contextmanager
    def each_argument(self) -> Generator[tuple[Value, Value, Pointer]]:
        """A loop over all devices' arguments: (place in `held` and `kept`, the argument's number, its buffer)."""
        f = self.function
        with f.loop(0, self.devices) as device:
            first = device.index * self.arguments
            lists = self.args["argument_lists"].load_pointer(POINTER)
            with f.loop(0, self.arguments) as loop:
                buffer = lists[device.index].load_pointer(POINTER)[loop.index].load_pointer(BUFFER)
                yield first + loop.index, loop.index, buffer

    def take_arguments(self) -> None:
        """References to the arguments' storages; those donated are taken, first, so that to give one twice is seen."""
        f = self.function
        back, taken = f.new_block("back"), f.new_block("taken")
        with f.when(self.donates), self.each_argument() as (place, number, buffer):
            kept, held = self.kept[place], self.held[place]
            with f.when(self.flag(number, DONATED) & kept.load().eq(_GIVEN)):
                storage = f.call(TAKE, buffer)
                held.store(storage)
                kept.store(_TAKEN)
                self.function.go_on_if(storage.ne(None), back)
        with self.each_argument() as (place, number, buffer):
            held, row = self.held[place], self.argument_rows[number]
            with f.when(held.load_pointer().is_null()):
                held.store(f.call(ACQUIRE, buffer))
            self.function.go_on_if(
                held.load_pointer().ne(None)
                & buffer["coming"].load_pointer().eq(None)  # Python waits for data that are on their way
                & buffer["nbytes"].load().eq(row["nbytes"].load())
                & buffer["type"].load().eq(row["type"].to(I32).load()),
                back,
            )
        f.jump(taken)
        f.start(back)
        self.give_back()
        self.leave()
        f.jump(self.python)
        f.start(taken)

    def give_back(self) -> None:
        """Undoes it: what was donated is its buffer's again."""
        f = self.function
        with self.each_argument() as (place, _, buffer):
            storage = self.held[place].load_pointer()
            with f.when(storage.ne(None)):
                is_taken = IfElse(f, self.donates & self.kept[place].load().eq(_TAKEN))
                buffer["storage"].store(storage)
                is_taken.otherwise()
                f.call(RELEASE, storage)
                is_taken.end()

    def put_together(self) -> None:
        """`values`: what every device has is the first device's; parts are put together in fresh memory. With more
        lanes, each one's are its device's."""
        f = self.function
        with self.each_lane(self.arguments) as (place, number):
            row, value = self.argument_rows[number], self.values[place]
            parts = row["parts"].load()
            is_whole = IfElse(f, parts.eq(1))
            value.store(self.held[place].load_pointer())
            self.held[place].store(None)
            is_whole.otherwise()
            made = self.memory(row["whole"].load())
            value.store(made)
            with f.loop(0, parts) as each:
                piece = row["pieces"].load_pointer(PIECE)[each.index]
                part = self.held[piece["device"].load() * self.arguments + number].load_pointer(STORAGE)
                f.call(_MOVE_PIECE, piece, made["data"].load_pointer(), part["data"].load_pointer(), 0)
            is_whole.end()
        self.release(self.held, self.devices * self.arguments)
        f.memset(self.held, 0, self.devices * self.arguments << 3)

    def own(self) -> None:
        """Copies what the entry overwrites, unless nobody else holds it and its memory is ours."""
        f = self.function
        each = self.each_lane(self.arguments)
        with f.when(self.donates), each as (place, number), f.when(self.flag(number, OVERWRITTEN)):
            value, row = self.values[place], self.argument_rows[number]
            storage = value.load_pointer(STORAGE)
            is_own = (
                (self.kept[place].load().eq(_TAKEN) | row["parts"].load().ne(1))
                & storage["refs"].load(ordering="acquire").eq(1)
                & storage["event"].load_pointer().is_null()
                & storage["callback"].load_pointer().is_null()
            )
            with f.when(~is_own):
                size = row["whole"].load()
                copy = self.memory(size)
                f.memcpy(copy["data"].load_pointer(), storage["data"].load_pointer(), size)
                f.call(RELEASE, storage)
                value.store(copy)

    def memory(self, size: Value) -> Pointer:
        """A fresh storage; where there is none, on with `short`."""
        storage = self.function.call(ALLOCATE, size).to(STORAGE)
        self.function.go_on_if(storage.ne(None), self.short)
        return storage

    def make_results(self) -> None:
        f = self.function
        with self.each_lane(self.results) as (place, number):
            row, made = self.result_rows[number], self.made[place]
            alias = row["alias"].load()
            is_alias = IfElse(f, alias >= 0)
            lane = (place - number) // self.results
            storage = self.values[lane * self.arguments + alias].load_pointer(STORAGE)
            storage["refs"].atomicrmw("add", 1)
            made.store(storage)
            is_alias.otherwise()
            made.store(self.memory(row["whole"].load()))
            is_alias.end()
            parts = row["parts"].load()
            with f.when(parts.ne(1)), f.loop(0, parts) as each:
                self.cut[number * self.devices + each.index].store(self.memory(row["nbytes"].load()))

    def run(self, arrays: Value) -> Value:
        """Fills the tables and calls the entry: its status."""
        f = self.function
        cell, size = self.program["arena"], self.program["arena_size"].load()
        needs, extra, arena = size.ne(0), f.local(POINTER), f.local(POINTER)
        extra.store(None)
        arena.store(None)
        with f.when(needs):
            arena.store(cell.atomicrmw("xchg", None, "acquire"))
            with f.when(arena.load_pointer().is_null()):
                storage = self.memory(self.lanes * size)
                extra.store(storage)
                arena.store(storage["data"].load_pointer())
        with f.loop(0, self.lanes) as lane:
            table = self.table[lane.index * self.words]
            self.tables[lane.index].store(table)
            with f.loop(0, self.arguments) as loop:
                storage = self.values[lane.index * self.arguments + loop.index].load_pointer(STORAGE)
                table[loop.index].store(storage["data"].load_pointer())
            with f.loop(0, self.results) as loop:
                storage = self.made[lane.index * self.results + loop.index].load_pointer(STORAGE)
                table[self.arguments + loop.index].store(storage["data"].load_pointer())
            rest = table[arrays]
            fixed = self.program["fixed_values"].load_pointer(POINTER)[lane.index * self.fixed]
            f.memcpy(rest, fixed, self.fixed << 3)
            with f.when(needs):
                rest[self.program["arena_slot"].load()].store(arena.load_pointer() + lane.index * size)
        is_one = IfElse(f, self.grid.is_null())
        alone = self.program["entry"].load_pointer().call(I32, self.table)
        is_one.otherwise(alone)
        (status,) = is_one.end(self.grid["run"].load_pointer().call(I32, self.grid, self.tables))
        with f.when(needs):
            borrowed = extra.load_pointer()
            is_own = IfElse(f, borrowed.is_null())
            cell.store(arena.load_pointer(), ordering="release")
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
        self.release(self.values, self.all_values)
        with f.when(status.ne(0)):
            self.release(self.made, self.all_made)
            self.release(self.cut, self.devices * self.results)
            f.returns(f.call(PYTHON, f.address(_FAILED).load_pointer(), self.program, True))
        lists, places = self.args["output_lists"].load_pointer(POINTER), self.program["places"].load_pointer(POINTER)
        with f.loop(0, self.results) as loop:
            row, cut = self.result_rows[loop.index], self.cut[loop.index * self.devices]
            is_one = IfElse(f, self.grid.is_null())
            self.cut_up(row, self.made[loop.index].load_pointer(STORAGE), cut)
            is_one.otherwise()
            with f.loop(0, self.devices) as device:
                cut[device.index].store(self.made[device.index * self.results + loop.index].load_pointer())
            is_one.end()
            shape = row["type"].to(I32).load(), row["rank"].load(), row["dims"].load_pointer(), row["nbytes"].load()
            with f.loop(0, self.devices) as device:
                home = places[device.index].load_pointer(DEVICE)
                given = self.args["execute_device"].load_pointer(DEVICE)
                given = given.ne(None).select(given, home)
                own = row["memories"].load_pointer(POINTER)[device.index]
                memory = given.ne(home).select(given["memory"], own).load_pointer()
                part = row["part_of"].load_pointer(I64)[device.index].load()
                number = self.grid.is_null().select(part, device.index)
                storage = cut[number].load_pointer(STORAGE)
                storage["refs"].atomicrmw("add", 1)
                buffer = f.call(MAKE_BUFFER, storage, given, memory, *shape)
                lists[device.index].load_pointer(POINTER)[loop.index].store(buffer)
            self.release(cut, self.grid.is_null().select(row["parts"].load(), self.devices))
        events = self.args["device_complete_events"].load_pointer(POINTER)
        with f.when(events.ne(None)), f.loop(0, self.devices) as device:
            events[device.index].store(f.address(READY))
        f.returns()

    def cut_up(self, row: Pointer, made: Pointer, cut: Pointer) -> None:
        """Fills the parts of a result, in place of which they then are."""
        f = self.function
        parts = row["parts"].load()
        is_whole = IfElse(f, parts.eq(1))
        cut.store(made)
        is_whole.otherwise()
        with f.loop(0, parts) as each:
            piece, part = row["pieces"].load_pointer(PIECE)[each.index], cut[each.index].load_pointer(STORAGE)
            f.call(_MOVE_PIECE, piece, made["data"].load_pointer(), part["data"].load_pointer(), 1)
        f.call(RELEASE, made)
        is_whole.end()
