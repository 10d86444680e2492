"""hlokit cache: the persistent cache of compiled programs."""

from __future__ import annotations

import json as json_module
import time
from pathlib import Path

from cyclopts import App

from hlokit.api import compile, verify
from hlokit.cpu.jit.cache import Cache, recorded
from hlokit.tools.examples import epilogue
from hlokit.tools.files import loaded

cache = App(name="cache", help="Shows, clears and explains the persistent cache of compiled programs.")


@cache.command(help_epilogue=epilogue("cache show"))
def show(*, json: bool = False) -> None:
    """Lists the entries, newest first, with the time of creation, the size, the compile time and the program's name.

    Parameters
    ----------
    json:
        print JSON.
    """
    store = Cache()
    entries = store.entries()
    if json:
        rows = [{"name": e.name, "bytes": e.size, "created": e.created, "seconds": e.seconds} for e in entries]
        print(json_module.dumps({"folder": str(store.folder), "limit": store.limit, "entries": rows}, indent=2))
        return
    print(f"{store.folder}: {len(entries)} entries, {sum(e.size for e in entries):,} of {store.limit:,} bytes")
    for entry in entries:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created))
        print(f"{made}  {entry.size:>12,}  {entry.seconds:8.3f} s  {entry.name}")


@cache.command(help_epilogue=epilogue("cache clear"))
def clear(*, dry_run: bool = False) -> None:
    """Removes all entries; first prints how many it will remove, and from which folder.

    Parameters
    ----------
    dry_run:
        print this without removing anything.
    """
    store = Cache()
    entries = store.entries()
    what = f"{len(entries)} entries, {sum(e.size for e in entries):,} bytes, from {store.folder}"
    print(f"{'would remove' if dry_run else 'removing'} {what}", flush=True)
    if not dry_run:
        print(f"{store.clear()} entries removed")


@cache.command(help_epilogue=epilogue("cache why"))
def why(file: Path, *, json: bool = False) -> None:
    """Compiles a program and reports for each part whether it is in the cache, and if not, why. Nothing is stored.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    json:
        print JSON.
    """
    module = loaded(file)
    verify(module)
    with recorded(dry=True) as events:
        compile(module)
    if json:
        rows = [{"name": e.name, "hit": e.hit, "reason": e.reason} for e in events]
        print(json_module.dumps({"module": module.name, "questions": rows}, indent=2))
        return
    for event in events:
        print(f"{event.name}: " + ("hit" if event.hit else f"miss: {event.reason}"))
    if not events:
        print(f"{module.name}: the cache was not used")
