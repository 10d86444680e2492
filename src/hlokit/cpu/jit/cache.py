"""The persistent cache of object code: a folder of files, each named by everything on which its content depends.

An entry is a line with the SHA-256 of what follows, a line of JSON that says what it is, and the object. What does not
match its digest is not used and removed. Files appear under their names whole, so any number of processes may share the
folder. Without a folder that can be written, or read, all works, only slower.

HLOKIT_CACHE_DIR   the folder (empty: no cache); by default hlokit/ in the user's folder for caches
HLOKIT_CACHE_SIZE  bytes that it may hold (default 1 GB); what was used longest ago goes first
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from hlokit.cpu.jit.objects import ObjectCode, compile_object, compile_objects, made_at
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target
from hlokit.forks import unforked

SIZE = 10**9
_SHARED_NAME = "functions that programs share"
_SUFFIX = ".entry"
_TOUCH_AFTER = 3600
"""Seconds: a hit refreshes an entry's date only if it is older, which saves a write a hit."""


@dataclass(frozen=True)
class Key:
    """The facts that an entry depends on. `name` is not one of them: it is the program's, to compare its entries.

    Parts are (name, value); a value longer than 200 characters is kept as its SHA-256.
    """

    name: str
    parts: tuple[tuple[str, str], ...]

    @staticmethod
    def of(name: str, **parts: str | int) -> Key:
        shown = [(part, str(value)) for part, value in parts.items()]
        return Key(name, tuple((part, v if len(v) <= 200 else _sha256(v.encode())) for part, v in shown))

    @cached_property
    def text(self) -> bytes:
        """The parts as an entry's header has them, at its end."""
        return json.dumps(self.parts).encode()

    @cached_property
    def digest(self) -> str:
        return _sha256(self.text)

    @property
    def file(self) -> str:
        """The entry's file name: entries of one program share its beginning."""
        return f"{_sha256(self.name.encode())[:16]}-{self.digest[:40]}{_SUFFIX}"


def object_key(text: str, target: Target, opt: int = 2, name: str = "") -> Key:
    """The key of the object that `compile_object` makes of LLVM text."""
    import llvmlite

    versions: dict[str, str] = {"llvmlite": llvmlite.__version__, "hlokit": sys.modules["hlokit"].__version__}
    features = {f"feature {f[1:]}": f[0] for f in target.features.split(",") if f[1:]}
    return Key.of(
        name, text=_sha256(text.encode()), triple=target.triple, cpu=target.cpu, opt=opt, **versions, **features
    )


@dataclass(frozen=True)
class Entry:
    """An entry: the program's name, the key's parts, when it was made and what that took."""

    name: str
    parts: tuple[tuple[str, str], ...]
    created: float
    seconds: float
    size: int
    path: Path


@dataclass(frozen=True)
class Event:
    """One question to the cache, and whether there was an answer."""

    name: str
    hit: bool
    _why: Callable[[], str]

    @cached_property
    def reason(self) -> str:
        """Why it missed; empty for a hit. Found out when it is first asked for: that reads other entries."""
        return "" if self.hit else self._why()


@unforked
def compiled(
    code: Module | str, target: Target, opt: int = 2, name: str = "", time_limit: float | None = None
) -> ObjectCode:
    """`compile_object`, unless the cache has its result. An object of a lower level than asked for is not kept."""
    cache = Cache()
    key = object_key(code if isinstance(code, str) else code.text(), target, opt, name)
    found = cache.lookup(key)
    if found is not None:
        return made_at(found, opt)
    start = time.perf_counter()
    made = compile_object(code, target, opt, time_limit)
    if made.opt == opt:
        cache.store(key, made, time.perf_counter() - start)
    return made


def compiled_objects(
    module: Module, target: Target, opt: int = 2, name: str = "", time_limit: float | None = None
) -> list[ObjectCode]:
    """`compile_objects`, unless the cache has its result: one entry, a line with their lengths before them."""
    key = objects_key(module.text(), target, opt, name)
    found = stored_objects(key, opt)
    if found is not None:
        return found
    start = time.perf_counter()
    objects = compile_objects(module, target, opt, time_limit, make_shared=partial(compiled, name=_SHARED_NAME))
    if all(code.opt == opt for code in objects):
        payload = json.dumps([len(code) for code in objects]).encode() + b"\n" + b"".join(objects)
        Cache().store(key, payload, time.perf_counter() - start)
    return objects


def objects_key(text: str, target: Target, opt: int = 2, name: str = "") -> Key:
    """The key of what `compile_objects` makes of LLVM text."""
    key = object_key(text, target, opt, name)
    return Key(key.name, (*key.parts, ("content", "objects")))


def stored_objects(key: Key, opt: int = 2, cache: Cache | None = None) -> list[ObjectCode] | None:
    """The objects that the cache has under an `objects_key`."""
    found = (cache or Cache()).lookup(key)
    if found is None:
        return None
    lengths, _, rest = found.partition(b"\n")
    try:
        ends = list(itertools.accumulate(map(int, json.loads(lengths))))
    except _MALFORMED:
        return None
    if (ends or [0])[-1] != len(rest) or sorted(ends) != ends or min(ends, default=0) < 0:
        return None
    return [made_at(rest[start:end], opt) for start, end in zip([0, *ends], ends)]


def folder() -> Path | None:
    """Where the cache is; None for no cache. Read from the environment at each call."""
    named = os.environ.get("HLOKIT_CACHE_DIR")
    if named == "":
        return None
    try:
        return Path(named or _default()).expanduser()
    except RuntimeError:  # a user without a home, as in containers
        return None


def _default() -> str:
    places = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local")}
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or places.get(sys.platform, "~/.cache"), "hlokit")


_COMPARED = 32
"""Entries that `explain` reads at most."""


class Cache:
    """The cache in a folder. Cheap to make: it holds no more than the folder's name.

    Methods never raise for what is wrong with the folder: `lookup` misses, `store` says why it did not.
    """

    def __init__(self, at: Path | None = None, limit: int | None = None) -> None:
        self.folder = at if at is not None else folder()
        self.limit = limit if limit is not None else _limit()

    def lookup(self, key: Key) -> bytes | None:
        """The payload stored under the key, or None. Every question is an Event for who is recording."""
        payload, problem = self._read(key)
        for events, _ in _recorders:
            events.append(Event(key.name, payload is not None, lambda: problem or self.explain(key)))
        return payload

    def store(self, key: Key, payload: bytes, seconds: float = 0.0) -> str:
        """Keeps the payload; the reason if it cannot. `seconds`: what making it took."""
        if self.folder is None:
            return "there is no cache folder"
        if any(dry for _, dry in _recorders):
            return "this run leaves the cache as it is"
        header = {"name": key.name, "created": time.time(), "seconds": seconds, "parts": key.parts}
        body = json.dumps(header).encode() + b"\n" + payload
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_own(self.folder, self.folder.stat())
            handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_sha256(body).encode() + b"\n" + body)
                os.replace(temporary, self.folder / key.file)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            return str(error)
        _stored.add(len(body), self)
        return ""

    def explain(self, key: Key) -> str:
        """Why there is no entry for the key: how it differs from the one of the same program that is most like it.

        Only the entries used last are looked at: JAX gives thousands of programs one name.
        """
        if self.folder is None:
            return "there is no cache folder"
        start = key.file.partition("-")[0]
        found = self.entries(start, _COMPARED)
        same = [entry for entry in found if entry.name == key.name and entry.parts != key.parts]  # not stored since
        if not same:
            return f"no entry for {key.name or 'a program without a name'}"
        wanted = dict(key.parts)
        differences = [_difference(wanted, dict(entry.parts)) for entry in same]
        least = min(differences, key=len)
        return "; ".join(least)

    def entries(self, start: str = "", most: int | None = None) -> list[Entry]:
        """The entries, newest first; those that cannot be read are left out.

        start   of their files' names
        most    of them, those used last
        """
        files = sorted(self._files(start), key=lambda file: -file[1].st_mtime)[:most]
        found = [entry for path, _ in files if (entry := _entry(path)) is not None]
        return sorted(found, key=lambda entry: (-entry.created, entry.path.name))

    def clear(self) -> int:
        """Removes all entries, and what writers that were killed left; how many entries."""
        count = 0
        for path, _ in [*self._files(""), *self._files("", ".part")]:
            with suppress(OSError):
                path.unlink()
                count += path.suffix == _SUFFIX
        return count

    def shrink(self) -> None:
        """Beyond the limit, removes what was used longest ago until a fifth of it is free. Removes old remains."""
        files = self._files("")
        total = sum(status.st_size for _, status in files)
        if total > self.limit:
            for path, status in sorted(files, key=lambda file: (file[1].st_mtime, file[0].name)):
                with suppress(OSError):
                    path.unlink()
                total -= status.st_size
                if total <= 0.8 * self.limit:
                    break
        for path, status in self._files("", ".part"):
            if status.st_mtime < time.time() - 3600:
                with suppress(OSError):
                    path.unlink()

    def _read(self, key: Key) -> tuple[bytes | None, str]:
        """(payload, "") or (None, why); (None, "") if there is no file, which `explain` can say more about."""
        if self.folder is None:
            return None, "there is no cache folder"
        path = self.folder / key.file
        try:
            data, changed = _own_file(self.folder, key.file)
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, str(error)
        digest, _, body = data.partition(b"\n")
        if _sha256(body).encode() != digest:
            with suppress(OSError):
                path.unlink()
            return None, f"{path.name} was damaged; removed"
        header, _, payload = body.partition(b"\n")
        if not header.endswith(b'"parts": ' + key.text + b"}"):
            return None, f"{path.name} is another program's"
        with suppress(OSError):
            if changed < time.time() - _TOUCH_AFTER:
                os.utime(path)
        return payload, ""

    def _files(self, start: str, suffix: str = _SUFFIX) -> list[tuple[Path, os.stat_result]]:
        files: list[tuple[Path, os.stat_result]] = []
        with suppress(OSError):
            for item in os.scandir(self.folder) if self.folder is not None else ():
                if item.name.startswith(start) and item.name.endswith(suffix):
                    with suppress(OSError):
                        if not item.is_file(follow_symlinks=False):
                            continue
                        files.append((Path(item.path), item.stat()))
        return files


@contextmanager
def recorded(dry: bool = False) -> Generator[list[Event], None, None]:
    """The questions to the cache inside, by any thread. `dry`: nothing is stored meanwhile."""
    events: list[Event] = []
    recorder = (events, dry)
    _recorders.append(recorder)
    try:
        yield events
    finally:
        _recorders[:] = [each for each in _recorders if each is not recorder]


_recorders: list[tuple[list[Event], bool]] = []


@dataclass
class _Stored:
    """Bytes that this process has stored since it last looked at the folder's size."""

    bytes: int = 0
    looked: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, size: int, cache: Cache) -> None:
        with self.lock:
            self.bytes += size
            due = not self.looked or self.bytes > cache.limit / 16
            if due:
                self.bytes, self.looked = 0, True
        if due:
            cache.shrink()


_stored = _Stored()


def _entry(path: Path) -> Entry | None:
    try:
        with path.open("rb") as file:
            file.readline()
            line = file.readline(_LONGEST_HEADER)
        header: dict[str, Any] = json.loads(line)
        size, parts = path.stat().st_size, _parts(line)
        return Entry(str(header["name"]), parts, float(header["created"]), float(header["seconds"]), size, path)
    except _MALFORMED:
        return None


def _parts(header: bytes) -> tuple[tuple[str, str], ...]:
    """The key's parts that a header says; none for what is no header."""
    try:
        return tuple((str(part), str(value)) for part, value in json.loads(header)["parts"])
    except _MALFORMED:
        return ()


_LONGEST_HEADER = 1 << 20
_MALFORMED = (OSError, ValueError, KeyError, TypeError, RecursionError)


def _difference(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    changed = [part for part in {**wanted, **found} if wanted.get(part) != found.get(part)]
    return [f"{part} was {_brief(found.get(part))}, is {_brief(wanted.get(part))}" for part in changed]


def _brief(value: str | None) -> str:
    if value is None:
        return "not there"
    return value[:12] + "..." if len(value) == 64 else value


def _own_file(folder: Path, name: str) -> tuple[bytes, float]:
    """A file's content, and when it was changed.

    PermissionError where somebody else may have written it: it is code that will run. The folder that was looked at is
    the one that is read, whatever others put in its place meanwhile.
    """
    if sys.platform == "win32":
        return (folder / name).read_bytes(), (folder / name).stat().st_mtime
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_own(folder, os.fstat(directory))
        # neither a link to elsewhere nor a pipe, for which opening would wait
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory), "rb") as file:
            status = os.fstat(file.fileno())
            _check_own(folder / name, status)
            if not stat.S_ISREG(status.st_mode):
                raise PermissionError(f"{folder / name} is not a regular file")
            return file.read(), status.st_mtime
    finally:
        os.close(directory)


def _check_own(path: Path, status: os.stat_result) -> None:
    """PermissionError for what another user than this one and root owns or can write to."""
    if sys.platform != "win32" and (status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022):
        raise PermissionError(f"{path} can be written by other users")


def _limit() -> int:
    given = os.environ.get("HLOKIT_CACHE_SIZE", "")
    return int(given) if given.isdecimal() else SIZE


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
