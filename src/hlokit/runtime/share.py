"""Machine code for a member's share of a collective's movements: bytes fetched, folded, stored, block by block."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import Function, Module
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
        self._library = Library([compiled(_text(), target, name="collectives")])
        prototype = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64
        )
        self.address = self._library.address("hlokit_share")
        self.share = prototype(self.address)


@cache
def native_share() -> NativeShare:
    """Made when first wanted."""
    return NativeShare()


def _text() -> str:
    module = Module()
    for function in (_copy(), _fetch(), _store(), _block(), _job()):
        module.add(function)
    module.add(_share(), exported=True)
    return module.text() + "!0 = !{i32 1}\n"


_END_BYTES = 5 * 8
_JOB_BYTES = 5 * 8


def _word(fn: Function, base: str, number: int, type: str = "i64") -> str:
    return fn.let(f"load {type}, ptr {fn.let(f'getelementptr i64, ptr {base}, i64 {number}')}")


def _at(fn: Function, base: str, offset: str) -> str:
    return fn.let(f"getelementptr i8, ptr {base}, i64 {offset}")


def _copied(fn: Function, to: str, source: str, count: str) -> None:
    fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr align 1 {to}, ptr align 1 {source}, i64 {count}, i1 false)")


def _copy() -> Function:
    """Copies bytes; past the caches if `streams`, which takes whole lines."""
    fn = Function("copy", [("ptr", "to"), ("ptr", "from"), ("i64", "count"), ("i1", "streams")])
    long = fn.let("icmp sge i64 %count, 256")
    streamed, plain, after = fn.new_block("streamed"), fn.new_block("plain"), fn.new_block("after")
    fn.branch(fn.let(f"and i1 {long}, %streams"), streamed, plain)
    fn.start(plain)
    _copied(fn, "%to", "%from", "%count")
    fn.jump(after)
    fn.start(streamed)
    address = fn.let("ptrtoint ptr %to to i64")
    head = fn.let(f"and i64 {fn.let(f'sub i64 0, {address}')}, 63")
    _copied(fn, "%to", "%from", head)
    to, source = _at(fn, "%to", head), _at(fn, "%from", head)
    rest = fn.let(f"sub i64 %count, {head}")
    lines = fn.let(f"and i64 {rest}, -64")
    with fn.loop("0", lines, 64) as loop:
        value = fn.let(f"load <8 x i64>, ptr {_at(fn, source, loop.index)}, align 1")
        fn.do(f"store <8 x i64> {value}, ptr {_at(fn, to, loop.index)}, align 64, !nontemporal !0")
    _copied(fn, _at(fn, to, lines), _at(fn, source, lines), fn.let(f"and i64 {rest}, 63"))
    fn.jump(after)
    fn.start(after)
    fn.do("ret void")
    return fn


def _runs(fn: Function, end: str, base: str, action: Callable[[str, str, str], None]) -> None:
    """For each run of bytes of %count at %position of an end: action(address, bytes before it, its bytes)."""
    inner, stride = _word(fn, end, 3), _word(fn, end, 4)
    head, body, after = fn.new_block("run"), fn.new_block("some"), fn.new_block("all")
    before = fn.block
    fn.jump(head)
    fn.start(head)
    done, following = fn.fresh("done"), fn.fresh("next")
    place = len(fn.lines)
    fn.branch(fn.let(f"icmp slt i64 {done}, %count"), body, after)
    fn.start(body)
    position = fn.let(f"add i64 %position, {done}")
    row = fn.let(f"udiv i64 {position}, {inner}")
    column = fn.let(f"sub i64 {position}, {fn.let(f'mul i64 {row}, {inner}')}")
    left = fn.let(f"sub i64 %count, {done}")
    size = fn.let(f"call i64 @llvm.smin.i64(i64 {left}, i64 {fn.let(f'sub i64 {inner}, {column}')})")
    offset = fn.let(f"add i64 {fn.let(f'mul i64 {row}, {stride}')}, {column}")
    action(_at(fn, base, offset), done, size)
    fn.lines.append(f"  {following} = add i64 {done}, {size}")
    fn.lines.insert(place, f"  {done} = phi i64 [ 0, %{before} ], [ {following}, %{fn.block} ]")
    fn.jump(head)
    fn.start(after)


def _base_of(fn: Function, end: str) -> str:
    """Where a member has the array, and the end's block begins."""
    table = fn.let(f"load ptr, ptr {fn.let(f'getelementptr ptr, ptr %tables, i64 {_word(fn, end, 0)}')}")
    base = fn.let(f"load ptr, ptr {_at(fn, table, _word(fn, end, 1))}")
    return _at(fn, base, _word(fn, end, 2))


_RANGE = [("ptr", "tables"), ("ptr", "end"), ("i64", "position"), ("i64", "count")]


def _fetch() -> Function:
    """A pointer to bytes of an end: where they are, unless they are several runs or `packs`; else in `scratch`."""
    fn = Function("fetch", [*_RANGE, ("i1", "packs"), ("ptr", "scratch")], "ptr")
    base, inner = _base_of(fn, "%end"), _word(fn, "%end", 3)
    row = fn.let(f"udiv i64 %position, {inner}")
    column = fn.let(f"sub i64 %position, {fn.let(f'mul i64 {row}, {inner}')}")
    several = fn.let(f"icmp sgt i64 {fn.let(f'add i64 {column}, %count')}, {inner}")
    packed, direct = fn.new_block("packed"), fn.new_block("direct")
    fn.branch(fn.let(f"or i1 {several}, %packs"), packed, direct)
    fn.start(direct)
    stride = _word(fn, "%end", 4)
    offset = fn.let(f"add i64 {fn.let(f'mul i64 {row}, {stride}')}, {column}")
    fn.do(f"ret ptr {_at(fn, base, offset)}")
    fn.start(packed)
    _runs(fn, "%end", base, lambda address, done, size: _copied(fn, _at(fn, "%scratch", done), address, size))
    fn.do("ret ptr %scratch")
    return fn


def _store() -> Function:
    """Puts bytes to their places in an end."""
    fn = Function("store", [*_RANGE, ("ptr", "from"), ("i1", "streams")])

    def put(address: str, done: str, size: str) -> None:
        fn.do(f"call void @copy(ptr {address}, ptr {_at(fn, '%from', done)}, i64 {size}, i1 %streams)")

    _runs(fn, "%end", _base_of(fn, "%end"), put)
    fn.do("ret void")
    return fn


def _block() -> Function:
    """One block of a job: fetched and folded, then stored to all targets. `table`: the fold's, or null."""
    fn = Function(
        "block",
        [
            ("ptr", "tables"),
            ("ptr", "job"),
            ("i64", "position"),
            ("i64", "count"),
            ("ptr", "table"),
            ("ptr", "scratch"),
        ],
    )
    sources, targets = _word(fn, "%job", 0), _word(fn, "%job", 1)
    streams = fn.let(f"icmp ne i64 {_word(fn, '%job', 4)}, 0")
    ends = _at(fn, "%job", str(_JOB_BYTES))
    folds = fn.let("icmp ne ptr %table, null")
    packs = fn.let(f"and i1 {folds}, {fn.let(f'icmp slt i64 %count, {BLOCK}')}")
    right = _at(fn, "%scratch", str(BLOCK))
    given, store = fn.new_block("given"), fn.new_block("storing")
    before = fn.block
    fn.branch(fn.let(f"icmp eq i64 {sources}, 0"), store, given)
    fn.start(given)
    span = f"i64 %position, i64 %count, i1 {packs}"
    first = fn.let(f"call ptr @fetch(ptr %tables, ptr {ends}, {span}, ptr %scratch)")
    with fn.loop("1", sources, 1, [("ptr", first)]) as loop:
        end = _at(fn, ends, fn.let(f"mul i64 {loop.index}, {_END_BYTES}"))
        other = fn.let(f"call ptr @fetch(ptr %tables, ptr {end}, {span}, ptr {right})")
        odd = fn.let(f"and i64 {loop.index}, 1")
        result = _at(fn, "%scratch", fn.let(f"add i64 {2 * BLOCK}, {fn.let(f'mul i64 {odd}, {BLOCK}')}"))
        for number, pointer in enumerate((loop.carried[0], other, result)):
            fn.do(f"store ptr {pointer}, ptr {_at(fn, '%table', str(8 * number))}")
        entry = fn.let(f"load ptr, ptr {_word(fn, '%job', 3, 'ptr')}")
        fn.let(f"call i32 {entry}(ptr %table)")
        loop.next = [result]
    folded, last = loop.results[0], fn.block
    fn.jump(store)
    fn.start(store)
    value = fn.let(f"phi ptr [ %scratch, %{before} ], [ {folded}, %{last} ]")
    with fn.loop("0", targets) as loop:
        end = _at(fn, ends, fn.let(f"mul i64 {fn.let(f'add i64 {loop.index}, {sources}')}, {_END_BYTES}"))
        span = "i64 %position, i64 %count"
        fn.do(f"call void @store(ptr %tables, ptr {end}, {span}, ptr {value}, i1 {streams})")
    fn.do("ret void")
    return fn


def _job() -> Function:
    """A part of a job: as many of its blocks as of each other part, to one."""
    fn = Function("job", [("ptr", "job"), ("ptr", "tables"), ("i64", "part"), ("i64", "parts"), ("ptr", "scratch")])
    words = fn.alloca("i64", FOLD_WORDS)
    total, fold = _word(fn, "%job", 2), _word(fn, "%job", 3, "ptr")
    is_fold = fn.let(f"icmp ne ptr {fold}, null")
    with fn.when(is_fold):
        size = fn.let(f"mul i64 {_word(fn, fold, 1)}, 8")
        _copied(fn, words, _at(fn, fold, "16"), size)
    with fn.when(fn.let(f"icmp eq i64 {_word(fn, '%job', 0)}, 0")):
        fn.do(f"call void @llvm.memset.p0.i64(ptr %scratch, i8 0, i64 {BLOCK}, i1 false)")
    table = fn.let(f"select i1 {is_fold}, ptr {words}, ptr null")
    blocks = fn.let(f"udiv i64 {fn.let(f'add i64 {total}, {BLOCK - 1}')}, {BLOCK}")
    low = fn.let(f"udiv i64 {fn.let(f'mul i64 {blocks}, %part')}, %parts")
    following = fn.let("add i64 %part, 1")
    high = fn.let(f"udiv i64 {fn.let(f'mul i64 {blocks}, {following}')}, %parts")
    with fn.loop(low, high) as loop:
        position = fn.let(f"mul i64 {loop.index}, {BLOCK}")
        count = fn.let(f"call i64 @llvm.smin.i64(i64 {BLOCK}, i64 {fn.let(f'sub i64 {total}, {position}')})")
        arguments = f"ptr %tables, ptr %job, i64 {position}, i64 {count}, ptr {table}, ptr %scratch"
        fn.do(f"call void @block({arguments})")
    fn.do("ret void")
    return fn


def _share() -> Function:
    """A part of all jobs. Results that go past the caches are there for all when it returns."""
    fn = Function(
        "hlokit_share",
        [("ptr", "jobs"), ("i64", "count"), ("ptr", "tables"), ("i64", "part"), ("i64", "parts")],
    )
    scratch = fn.alloca("i8", 4 * BLOCK)
    with fn.loop("0", "%count", 1, [("ptr", "%jobs")]) as loop:
        job = loop.carried[0]
        fn.do(f"call void @job(ptr {job}, ptr %tables, i64 %part, i64 %parts, ptr {scratch})")
        ends = fn.let(f"add i64 {_word(fn, job, 0)}, {_word(fn, job, 1)}")
        size = fn.let(f"add i64 {_JOB_BYTES}, {fn.let(f'mul i64 {ends}, {_END_BYTES}')}")
        loop.next = [_at(fn, job, size)]
    fn.do("fence seq_cst")
    fn.do("ret void")
    return fn
