"""The persistent cache: what is stored is found again, and what is wrong with the folder never matters."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hlokit.cpu.jit import cache as caching
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.jit.cache import Cache, Key, compiled, compiled_objects, object_key, recorded
from hlokit.cpu.llvm import I64, Module
from hlokit.cpu.target import baseline, host
from hlokit.tools.cache import clear, show, why

TEXT = "define i64 @f() {\n  ret i64 5\n}\n"
KEY = Key.of("program", text="a", opt=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("HLOKIT_CACHE_SIZE", raising=False)
    return Cache()


def path(cache: Cache, key: Key = KEY) -> Path:
    assert cache.folder is not None
    return cache.folder / key.file


def test_what_is_stored_is_found(cache: Cache) -> None:
    assert cache.lookup(KEY) is None
    assert cache.store(KEY, b"code\n\x00more", 0.25) == ""
    assert cache.lookup(KEY) == b"code\n\x00more"
    assert cache.lookup(Key.of("other name", text="a", opt=2)) is None
    [entry] = cache.entries()
    assert (entry.name, entry.parts, entry.seconds) == ("program", KEY.parts, 0.25)
    assert entry.size == path(cache).stat().st_size and abs(entry.created - time.time()) < 60


def test_an_object_is_compiled_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(TEXT, host(), name="m")
    monkeypatch.setattr(caching, "compile_object", lambda *_: pytest.fail("compiled again"))
    second = compiled(TEXT, host(), name="m")
    assert first == second and second.opt == 2
    assert jit.Library([second]).address("f")


def test_several_objects_are_one_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    two = Module()
    for name, result in (("f", 5), ("g", 6)):
        with two.function(name, [], I64) as f:
            f.returns(result)
        two.exported[name] = None
    monkeypatch.setattr(jit, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(jit, "available_threads", lambda: 2)
    first = compiled_objects(two, host(), name="m")
    monkeypatch.setattr(caching, "compile_objects", lambda *_: pytest.fail("compiled again"))
    second = compiled_objects(two, host(), name="m")
    assert first == second and len(second) == 2 and [code.opt for code in second] == [2, 2]
    library = jit.Library(second)
    assert library.address("f") != library.address("g") and len(cache.entries()) == 1


def test_an_object_of_a_lower_level_is_not_kept(cache: Cache) -> None:
    code = compiled(TEXT, host(), opt=1, time_limit=1e-9)
    assert code.opt == 0 and cache.entries() == []


@pytest.mark.parametrize("position", [3, 70, -1])
def test_damage_is_a_miss_and_removed(cache: Cache, position: int) -> None:
    cache.store(KEY, b"code")
    data = bytearray(path(cache).read_bytes())
    data[position] ^= 1
    path(cache).write_bytes(data)
    with recorded() as events:
        assert cache.lookup(KEY) is None
    assert "damaged" in events[0].reason and not path(cache).exists()


@pytest.mark.parametrize("content", [b"", b"\n", b"abc", b"\n\n\n"])
def test_a_file_that_is_no_entry(cache: Cache, content: bytes) -> None:
    cache.store(KEY, b"code")
    path(cache).write_bytes(content)
    assert cache.entries() == [] and cache.lookup(KEY) is None


def test_an_entry_under_another_name_is_not_used(cache: Cache) -> None:
    cache.store(KEY, b"code")
    other = Key.of("program", text="b", opt=2)
    os.replace(path(cache), path(cache, other))
    with recorded() as events:
        assert cache.lookup(other) is None
    assert "another program's" in events[0].reason


def test_why_it_missed(cache: Cache) -> None:
    cache.store(object_key("old", host(), 2, "m"), b"1")
    cache.store(object_key("text", baseline("aarch64"), 2, "m"), b"2")
    cache.store(object_key("text", host(), 2, "n"), b"3")
    with recorded() as events:
        cache.lookup(object_key("text", host(), 1, "nobody"))
        cache.lookup(object_key("text", host(), 2, "n"))
        cache.lookup(object_key("old", host(), 1, "m"))
        cache.lookup(object_key("new", host(), 2, "m"))
    assert [event.hit for event in events] == [False, True, False, False]
    assert events[0].reason == "no entry for nobody"
    assert events[2].reason == "opt was 2, is 1"
    assert events[3].reason.startswith("text was ") and ";" not in events[3].reason
    narrow = object_key("text", baseline("x86-64-avx512"), 2, "k")
    cache.store(narrow, b"4")
    assert "feature" in cache.explain(object_key("text", baseline("x86-64-avx2"), 2, "k"))


def test_why_it_missed_is_found_out_when_asked_for_from_few_of_many_entries(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        key = object_key(str(number), host(), 2, "m")
        cache.store(key, b"")
        os.utime(path(cache, key), (number, number))
    read: list[Path] = []
    entry = caching._entry
    monkeypatch.setattr(caching, "_entry", lambda path: read.append(path) or entry(path))
    with recorded() as events:
        cache.lookup(object_key("new", host(), 2, "m"))
    assert not events[0].hit and not read, "a miss costs nothing until someone asks why"
    cache.store(object_key("new", host(), 2, "m"), b"")
    assert events[0].reason.startswith("text was ") and events[0].reason is events[0].reason
    assert len(read) == 32 and path(cache, object_key("99", host(), 2, "m")) in read
    assert len(cache.entries()) == 101


def test_a_dry_run_stores_nothing(cache: Cache) -> None:
    with recorded(dry=True) as events:
        compiled(TEXT, host(), name="m")
    assert len(events) == 1 and cache.entries() == []
    with recorded() as events:
        compiled(TEXT, host(), name="m")
        compiled(TEXT, host(), name="m")
    assert [event.hit for event in events] == [False, True]


def test_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    cache = Cache()
    assert cache.folder is None and cache.lookup(KEY) is None
    assert cache.store(KEY, b"") == cache.explain(KEY) == "there is no cache folder"
    assert compiled(TEXT, host()) and cache.entries() == [] and cache.clear() == 0


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    assert cache.store(KEY, b"code") and cache.lookup(KEY) is None


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_to(cache: Cache, mode: int) -> None:
    cache.store(KEY, b"code")
    assert cache.folder is not None
    cache.folder.chmod(mode)
    assert cache.lookup(KEY) is None and "other users" in cache.store(KEY, b"code")


def test_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOKIT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert caching.folder() == Path("/somewhere/hlokit")
    monkeypatch.delenv("XDG_CACHE_HOME")
    found = caching.folder()
    assert found is not None and found.is_absolute() and found.name == "hlokit"


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HLOKIT_CACHE_DIR", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does with "~" then
    assert caching.folder() is None and compiled(TEXT, host())
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "~/cache")
    assert caching.folder() is None
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "/somewhere")
    assert caching.folder() == Path("/somewhere")


def test_the_oldest_go_when_it_is_full(cache: Cache) -> None:
    keys = [Key.of("m", text=str(i)) for i in range(10)]
    for i, key in enumerate(keys):
        cache.store(key, bytes(1000))
        os.utime(path(cache, key), (10**9 + i, 10**9 + i))
    cache.lookup(keys[0])  # used now: no longer the oldest
    cache.limit = sum(entry.size for entry in cache.entries()) * 11 // 20
    cache.shrink()
    assert [cache.lookup(key) is not None for key in keys] == [True] + [False] * 6 + [True] * 3


def test_the_size_is_watched(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_stored", caching._Stored())
    cache.limit = 20_000
    for i in range(100):
        cache.store(Key.of("m", text=str(i)), bytes(1000))
    assert 0 < sum(entry.size for entry in cache.entries()) < 25_000


def test_processes_share_it(cache: Cache) -> None:
    script = """
from hlokit.cpu.jit.cache import Cache, Key
for turn in range(300):
    key = Key.of("m", text=str(turn % 3))
    found = Cache().lookup(key)
    assert found in (None, bytes([turn % 3]) * 5000), found
    assert Cache().store(key, bytes([turn % 3]) * 5000) == ""
"""
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert len(cache.entries()) == 3 and cache.folder is not None
    assert len(os.listdir(cache.folder)) == 3


def test_commands(cache: Cache, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch) -> None:
    compiled(TEXT, host(), name="m")
    show()
    assert "1 entries" in (shown := capsys.readouterr().out) and shown.endswith(" s  m\n")
    program = tmp_path / "p.hlo"
    program.write_text("HloModule m\nENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n")
    monkeypatch.setattr("hlokit.tools.cache.compile", lambda module: compiled(TEXT, host(), 1, module.name))
    why(program)
    assert capsys.readouterr().out == "m: miss: opt was 2, is 1\n"
    clear()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("removing 1 entries, ") and said[1:] == ["1 entries removed"] and cache.entries() == []
