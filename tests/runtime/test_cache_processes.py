"""One cache folder under many processes: racing, damaged, cleared meanwhile, killed, without room, read-only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hlokit.cpu.jit.cache import Cache
from tests.runtime.cache_worker import key, payload

ROOT = Path(__file__).parents[2]


def started(folder: Path, role: str, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.cache_worker", role, str(seconds)],
        env={**os.environ, "HLOKIT_CACHE_DIR": str(folder), "HLOKIT_CACHE_SIZE": "300000"},
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def race(folder: Path, roles: list[str], seconds: float) -> None:
    processes = [(role, started(folder, role, seconds)) for role in roles]
    for role, process in processes:
        said, wrong = process.communicate(timeout=seconds * 10 + 60)
        if role == "die":
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode == 0, wrong
            assert int(said) >= 1
    left = {path.suffix for path in folder.iterdir()}
    assert left <= {".entry", ".part"} and len([p for p in folder.iterdir() if p.suffix == ".part"]) <= roles.count("die")
    cache = Cache(folder)
    assert cache.store(key(1), payload(1)) == "" and cache.lookup(key(1)) == payload(1)
    assert cache.clear() >= 1 and list(folder.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced there")
def test_processes_share_a_folder(tmp_path: Path) -> None:
    race(tmp_path, ["store", "store", "damage", "clear", "die"], 1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced there")
def test_eight_processes_share_a_folder(tmp_path: Path) -> None:
    race(tmp_path, ["store", "store", "damage", "clear", "compile", "compile", "compile", "die"], 20)


def test_a_disk_without_room(tmp_path: Path) -> None:
    """Files of this process may have so many bytes, as if the disk were full then."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    cache = Cache(tmp_path)
    assert cache.store(key(0), payload(0)) == ""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
    try:
        reason = cache.store(key(9), payload(9))
        again = cache.store(key(0), payload(9))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert reason and again
    assert cache.lookup(key(9)) is None and cache.lookup(key(0)) == payload(0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".entry"]
