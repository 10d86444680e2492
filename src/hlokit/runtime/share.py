"""Machine code for a member's share of a collective's data movement: reads, folds and stores, block by block."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    Field,
    Function,
    IfElse,
    Module,
    Pointer,
    Prototype,
    Record,
    Value,
    While,
)
from hlokit.cpu.target import host

BLOCK = 8192
"""Bytes that are folded at a time: the sources' blocks, and two for what is folded so far, stay in the first cache."""
FOLD_WORDS = 32
"""Pointers that the code of a fold takes, at most."""


class NativeShare:
    """void share(jobs, how many, tables by member, part, parts).

    A job is 5 words, then its ends, sources first, of 5 words each: how many sources and targets, bytes in all, the
    fold or 0, whether it is stored past the caches; an end's member, its place in the member's table (in bytes), the
    offset, inner and stride of its runs.
    """

    def __init__(self) -> None:
        target = host()
        self._library = Library([compiled(_module(), target, name="collectives")])
        prototype = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64
        )
        self.address = self._library.address(SHARE.name)
        self.share = prototype(self.address)


@cache
def native_share() -> NativeShare:
    """Made when first wanted."""
    return NativeShare()


SHARE = Prototype("hlokit_share", None, {"jobs": POINTER, "count": I64, "tables": POINTER, "part": I64, "parts": I64})
_RANGE = {"tables": POINTER, "end": POINTER, "position": I64, "count": I64}
_COPY = Prototype("copy", None, {"to": POINTER, "from": POINTER, "count": I64, "streams": I1})
_FETCH = Prototype("fetch", POINTER, {**_RANGE, "packs": I1, "scratch": POINTER})
_STORE = Prototype("store", None, {**_RANGE, "from": POINTER, "streams": I1})
_BLOCK = Prototype(
    "block",
    None,
    {"tables": POINTER, "job": POINTER, "position": I64, "count": I64, "table": POINTER, "scratch": POINTER},
)
_RUN = Prototype("job", None, {"job": POINTER, "tables": POINTER, "part": I64, "parts": I64, "scratch": POINTER})

_END = Record("End", {"member": I64, "place": I64, "offset": I64, "inner": I64, "stride": I64})
_JOB = Record(
    "Job",
    {"sources": I64, "targets": I64, "bytes": I64, "fold": POINTER, "streams": I64, "ends": Field(_END, 0)},
)
_FOLD = Record("Fold", {"entry": POINTER, "words": I64, "table": Field(POINTER, 0)})


def _module() -> Module:
    module = Module()
    for function in (_copy(), _fetch(), _store(), _block(), _job()):
        module.add(function)
    module.add(_share(), exported=True)
    return module


def _copy() -> Function:
    """Copies bytes; past the caches if `streams`, which takes whole lines."""
    f = Function.of(_COPY)
    to, source, count = f.pointer("to"), f.pointer("from"), f.argument("count")
    is_streamed = IfElse(f, (count >= 256) & f.argument("streams"))
    head = (0 - to.address()) & 63
    f.memcpy(to, source, head)
    to_line, of_line = (to + head).to(I64, 64), (source + head).to(I64, 1)
    rest = count - head
    lines = rest & -64
    with f.loop(0, lines, 64) as loop:
        (to_line + loop.index).store((of_line + loop.index).load(8), nontemporal=True)
    f.memcpy(to_line + lines, of_line + lines, rest & 63)
    is_streamed.otherwise()
    f.memcpy(to, source, count)
    is_streamed.end()
    f.returns()
    return f


def _runs(end: Pointer, action: Callable[[Pointer, Value, Value], None]) -> None:
    """For each run of bytes of %count at %position of an end: action(address, bytes before it, its bytes)."""
    f = end.fn
    base, inner, stride = _base(end), end["inner"].load(), end["stride"].load()
    position, count = f.argument("position"), f.argument("count")
    runs = While(f, [f.constant(0, I64)])
    (done,) = runs.values
    runs.test(done < count)
    row = (position + done) // inner
    column = (position + done) - row * inner
    size = (count - done).smin(inner - column)
    action(base + (row * stride + column), done, size)
    runs.again(done + size)


def _base(end: Pointer) -> Pointer:
    """Where a member has the array, and the end's block begins."""
    table = end.fn.pointer("tables", POINTER)[end["member"].load()].load_pointer()
    return (table + end["place"].load()).to(POINTER).load_pointer() + end["offset"].load()


def _fetch() -> Function:
    """A pointer to bytes of an end: where they are, unless they are several runs or `packs`; else in `scratch`."""
    f = Function.of(_FETCH)
    end, scratch = f.pointer("end", _END), f.pointer("scratch")
    position, inner = f.argument("position"), end["inner"].load()
    row = position // inner
    column = position - row * inner
    is_several = column + f.argument("count") > inner
    with f.when(~(is_several | f.argument("packs"))):
        f.returns(_base(end) + (row * end["stride"].load() + column))
    _runs(end, lambda address, done, size: f.memcpy(scratch + done, address, size))
    f.returns(scratch)
    return f


def _store() -> Function:
    """Puts bytes to their places in an end."""
    f = Function.of(_STORE)
    source, streams = f.pointer("from"), f.argument("streams")
    _runs(f.pointer("end", _END), lambda address, done, size: f.call(_COPY, address, source + done, size, streams))
    f.returns()
    return f


def _block() -> Function:
    """One block of a job: fetched and folded, then stored to all targets. `table`: the fold's, or null."""
    f = Function.of(_BLOCK)
    job, table, scratch = f.pointer("job", _JOB), f.pointer("table", POINTER), f.pointer("scratch")
    tables, span = f.pointer("tables"), (f.argument("position"), f.argument("count"))
    sources, ends = job["sources"].load(), job["ends"]
    are_any = IfElse(f, sources.ne(0))
    packs = table.ne(None) & (f.argument("count") < BLOCK)
    first = f.call(_FETCH, tables, ends, *span, packs, scratch)
    with f.loop(1, sources, carries=[first]) as loop:
        other = f.call(_FETCH, tables, ends[loop.index], *span, packs, scratch + BLOCK)
        result = scratch + ((loop.index & 1) * BLOCK + 2 * BLOCK)
        for number, pointer in enumerate((loop.carried[0], other, result)):
            table[number].store(pointer)
        job["fold"].load_pointer(_FOLD)["entry"].load_pointer().call(I32, table)
        loop.next = [result]
    are_any.otherwise(*loop.results)
    (value,) = are_any.end(scratch)
    streams = job["streams"].load().ne(0)
    with f.loop(0, job["targets"].load()) as loop:
        f.call(_STORE, tables, ends[loop.index + sources], *span, value, streams)
    f.returns()
    return f


def _job() -> Function:
    """A part of a job: as many of its blocks as of each other part, to one."""
    f = Function.of(_RUN)
    job, tables, scratch = f.pointer("job", _JOB), f.pointer("tables"), f.pointer("scratch")
    words = f.local(POINTER, FOLD_WORDS, 64)
    total, fold = job["bytes"].load(), job["fold"].load_pointer(_FOLD)
    with f.when(fold.ne(None)):
        f.memcpy(words, fold["table"], fold["words"].load() * 8)
    with f.when(job["sources"].load().eq(0)):
        f.memset(scratch, 0, BLOCK)
    table = fold.ne(None).select(words, None)
    part, parts = f.argument("part"), f.argument("parts")
    blocks = (total + (BLOCK - 1)) // BLOCK
    with f.loop(blocks * part // parts, blocks * (part + 1) // parts) as loop:
        position = loop.index * BLOCK
        f.call(_BLOCK, tables, job, position, (total - position).smin(BLOCK), table, scratch)
    f.returns()
    return f


def _share() -> Function:
    """A part of all jobs. Results that go past the caches are there for all when it returns."""
    f = Function.of(SHARE)
    scratch = f.local(I8, 4 * BLOCK, 64)
    with f.loop(0, f.argument("count"), carries=[f.pointer("jobs", _JOB)]) as loop:
        (job,) = loop.carried
        f.call(_RUN, job, f.pointer("tables"), f.argument("part"), f.argument("parts"), scratch)
        count = job["sources"].load() + job["targets"].load()
        loop.next = [job["ends"][count]]
    f.fence()
    f.returns()
    return f
