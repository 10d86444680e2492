"""Memory in whole pages, as machine code: what comes back is used again, whole or in part.

A piece of LARGE or more bytes is a mapping of its own, on huge pages as far as it fills them, of which a part can go
back to the system; a smaller one is malloc's.
"""

from __future__ import annotations

from hlokit.cpu.jit.libc import ALIGNED_ALLOC, FREE, MADVISE, MMAP, MUNMAP, spin_lock, spin_unlock, thread_ns
from hlokit.cpu.llvm import I8, I32, I64, POINTER, Function, Global, Module, Prototype, Record
from hlokit.runtime.arena import SLOW_NS

LARGE, HUGE, PAGE = 2**20, 2**21, 2**12
SLOTS, KEPT = 128, 2**30
"""Pieces of memory, and bytes, that wait to be used again."""
TAKE_PAGES = Prototype("take_pages", POINTER, {"size": I64})
GIVE_PAGES = Prototype("give_pages", None, {"data": POINTER, "size": I64})

_FREE_PAGES = Prototype("free_pages", None, {"data": POINTER, "size": I64})
_MAP_PAGES = Prototype("map_pages", POINTER, {"size": I64})
_PART_OF_PAGES = Prototype("part_of_pages", POINTER, {"size": I64})
_SLOT = Record("Slot", {"data": POINTER, "size": I64})
_KEPT = Global("kept", _SLOT, SLOTS)
_KEPT_BYTES = Global("kept_bytes", I64)
_KEPT_LOCK = Global("kept_lock", I32)
_NEXT = Global("next_kept", I64)
"""The slot that is emptied next if all are full."""
_SLOW = Global("slow_huge_pages", I32)
_MADV_HUGEPAGE, _MADV_NOHUGEPAGE = 14, 15
_PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS, _MAP_FAILED = 3, 0x22, -1


def write(module: Module, platform: str) -> None:
    """Adds the functions and their data."""
    maps = platform == "linux"
    for function in (_map_pages(), _part_of_pages()) if maps else ():
        module.add(function)
    for function in (_free_pages(maps), _take_pages(maps), _give_pages()):
        module.add(function)


def _take_pages(maps: bool) -> Function:
    """`size` bytes, whole pages: what came back, or fresh memory. Null if there is none."""
    f = Function.of(TAKE_PAGES)
    size, lock, kept_bytes = f.argument("size"), f.address(_KEPT_LOCK), f.address(_KEPT_BYTES)
    spin_lock(lock)
    with f.loop(0, SLOTS) as loop:
        slot = f.address(_KEPT)[loop.index]
        with f.when(slot["size"].load().eq(size)):
            found = slot["data"].load_pointer()
            slot["size"].store(0)
            kept_bytes.store(kept_bytes.load() - size)
            spin_unlock(lock)
            f.returns(found)
    if maps:
        with f.when(size.compare("uge", LARGE)):
            part = f.call(_PART_OF_PAGES, size)
            with f.when(part.is_null()):
                f.returns(f.call(_MAP_PAGES, size))
            f.returns(part)
    spin_unlock(lock)
    f.returns(f.call(ALIGNED_ALLOC, PAGE, size))
    return f


def _part_of_pages() -> Function:
    """The beginning of the smallest larger piece that waits, or null. Called with the lock, which it gives back.

    What follows waits on, from a huge page's beginning; of less than LARGE nothing does. A program that goes through
    the same sizes again and again finds pieces of just these soon, and takes none apart any more.
    """
    f = Function.of(_PART_OF_PAGES)
    size, lock = f.argument("size"), f.address(_KEPT_LOCK)
    least, best = f.local(I64), f.local(POINTER)
    least.store(2 * KEPT)
    best.store(None)
    with f.loop(0, SLOTS) as loop:
        slot = f.address(_KEPT)[loop.index]
        held = slot["size"].load()
        with f.when(held.compare("ugt", size) & held.compare("ult", least.load())):
            least.store(held)
            best.store(slot)
    slot = best.load_pointer(_SLOT)
    with f.when(slot.is_null()):
        spin_unlock(lock)
        f.returns(None)
    data, held = slot["data"].load_pointer(), least.load()
    end = data.address() + held
    following = (data.address() + (size + (HUGE - 1))) & -HUGE
    left = f.local(I64)
    left.store(end - following)
    with f.when(left.load() < LARGE):
        left.store(0)
    slot["size"].store(left.load())
    slot["data"].store(data + (held - left.load()))
    kept_bytes = f.address(_KEPT_BYTES)
    kept_bytes.store(kept_bytes.load() - (held - left.load()))
    spin_unlock(lock)
    f.call(MUNMAP, data + size, held - left.load() - size)
    f.returns(data)
    return f


def _map_pages() -> Function:
    """Fresh memory, from a huge page's beginning; null if there is none. On small pages as soon as a huge one has been
    slow: hlokit.runtime.arena says why."""
    f = Function.of(_MAP_PAGES)
    size = f.argument("size")
    fresh = f.call(MMAP, None, size + HUGE, _PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS, -1, 0)
    with f.when(fresh.address().eq(_MAP_FAILED)):
        f.returns(None)
    before = -fresh.address() & (HUGE - 1)
    data = fresh + before
    with f.when(before.ne(0)):
        f.call(MUNMAP, fresh, before)
    f.call(MUNMAP, data + size, HUGE - before)
    whole = size & -HUGE  # what does not fill a huge page would take all of it
    slow = f.address(_SLOW)
    with f.when(slow.load().ne(0)):
        f.call(MADVISE, data, whole, _MADV_NOHUGEPAGE)
        f.returns(data)
    f.call(MADVISE, data, whole, _MADV_HUGEPAGE)
    with f.loop(0, whole, HUGE) as loop:
        before = thread_ns(f)
        (data + loop.index).store(f.constant(0, I8))
        with f.when((thread_ns(f) - before).compare("ugt", SLOW_NS)):
            slow.store(1)
            f.call(MADVISE, data, whole, _MADV_NOHUGEPAGE)
            f.returns(data)
    f.returns(data)
    return f


def _free_pages(maps: bool) -> Function:
    """Gives memory back to the system, or to malloc."""
    f = Function.of(_FREE_PAGES)
    data, size = f.pointer("data"), f.argument("size")
    if maps:
        with f.when(size.compare("uge", LARGE)):
            f.call(MUNMAP, data, size)
            f.returns()
    f.call(FREE, data)
    f.returns()
    return f


def _give_pages() -> Function:
    """Keeps memory for later, in place of another piece if there is no room."""
    f = Function.of(GIVE_PAGES)
    data, size = f.pointer("data"), f.argument("size")
    lock, kept_bytes, following = f.address(_KEPT_LOCK), f.address(_KEPT_BYTES), f.address(_NEXT)
    spin_lock(lock)
    total = kept_bytes.load() + size
    with f.when(total.compare("ugt", KEPT)):
        spin_unlock(lock)
        f.call(_FREE_PAGES, data, size)
        f.returns()
    with f.loop(0, SLOTS) as loop:
        slot = f.address(_KEPT)[loop.index]
        with f.when(slot["size"].load().eq(0)):
            slot["data"].store(data)
            slot["size"].store(size)
            kept_bytes.store(total)
            spin_unlock(lock)
            f.returns()
    number = following.load()
    following.store((number + 1) % SLOTS)
    slot = f.address(_KEPT)[number]
    old, held = slot["data"].load_pointer(), slot["size"].load()
    kept_bytes.store(total - held)
    slot["data"].store(data)
    slot["size"].store(size)
    spin_unlock(lock)
    f.call(_FREE_PAGES, old, held)
    f.returns()
    return f
