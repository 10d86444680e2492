"""hlokit cache: the persistent cache of compiled programs."""

from __future__ import annotations

import time
from pathlib import Path

from cyclopts import App

from hlokit.api import compile, load, verify
from hlokit.cpu.cache import Cache, recorded

cache = App(name="cache", help="Shows, clears and explains the persistent cache of compiled programs.")


@cache.command
def show() -> None:
    """Lists the entries, newest first: when it was made, bytes, what the compile took, the program's name."""
    store = Cache()
    entries = store.entries()
    print(f"{store.folder}: {len(entries)} entries, {sum(e.size for e in entries):,} of {store.limit:,} bytes")
    for entry in entries:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created))
        print(f"{made}  {entry.size:>12,}  {entry.seconds:8.3f} s  {entry.name}")


@cache.command
def clear() -> None:
    """Removes all entries."""
    print(f"{Cache().clear()} entries removed")


@cache.command
def why(file: Path) -> None:
    """Compiles a program and says of each part whether the cache has it, and if not, why. Nothing is stored.

    Parameters
    ----------
    file:
        HLO or StableHLO text, or a serialized HloModuleProto.
    """
    module = load(file)
    verify(module)
    with recorded(dry=True) as events:
        compile(module)
    for event in events:
        print(f"{event.name}: " + ("hit" if event.hit else f"miss: {event.reason}"))
    if not events:
        print(f"{module.name}: the cache was not asked")
