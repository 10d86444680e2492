"""Systems that the tests do not run on: what reads, checks, interprets and builds programs uses nothing of Linux alone.

A name that Windows or macOS lacks may stand where it is asked for first: under a condition with `hasattr` or
`sys.platform`, after one that returns, or in a `try` that catches what its lack raises.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import hlokit

SOURCE = Path(hlokit.__file__).parent

_MISSING = """
os: chroot confstr ctermid eventfd fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp
os: getpriority getresgid getresuid getsid getuid getxattr initgroups killpg lchown lockf major makedev memfd_create
os: minor mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn posix_spawnp
os: pread preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_getparam sched_getscheduler
os: sched_setaffinity sched_yield sendfile setegid seteuid setgid setgroups setns setpgid setpriority setsid setuid
os: splice statvfs sync sysconf tcgetpgrp uname unshare wait wait3 wait4 waitid WEXITSTATUS WIFEXITED WIFSIGNALED
os: WIFSTOPPED WTERMSIG WNOHANG writev O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC O_TMPFILE RTLD_GLOBAL
os: RTLD_LAZY RTLD_LOCAL RTLD_NOW
mmap: MAP_ANON MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED MAP_POPULATE MAP_NORESERVE MAP_STACK PROT_EXEC PROT_READ PROT_WRITE
mmap: MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTNEED MADV_DONTFORK MADV_WILLNEED MADV_SEQUENTIAL MADV_FREE
signal: SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 SIGXCPU alarm getitimer
signal: pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo SIG_BLOCK
signal: SIG_SETMASK SIG_UNBLOCK ITIMER_REAL
socket: AF_UNIX AF_NETLINK MSG_DONTWAIT SO_REUSEPORT TCP_KEEPCNT TCP_KEEPIDLE TCP_KEEPINTVL socketpair
time: clock_getres clock_gettime clock_gettime_ns CLOCK_MONOTONIC pthread_getcpuclockid tzset
select: poll epoll kqueue
resource: *
fcntl: *
pwd: *
grp: *
termios: *
pty: *
tty: *
syslog: *
posix: *
readline: *
"""
_MISSING_ON_MACOS = """
os: sched_getaffinity sched_setaffinity memfd_create eventfd splice pidfd_open unshare O_TMPFILE
mmap: MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTFORK MAP_POPULATE MAP_STACK
signal: sigtimedwait sigwaitinfo
socket: TCP_KEEPIDLE AF_NETLINK
select: epoll
"""


def _listed(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        module, _, names = line.partition(": ")
        found.setdefault(module, []).extend(names.split())
    return found


MISSING = _listed(_MISSING)
"""What Python has not on Windows or macOS; * for a whole module."""

PLACES = ("/proc", "/sys", "/dev", "/run", "/etc", "/tmp", "/usr", "/var")
_WORDS = {word for module, names in MISSING.items() for word in ([module] if names == ["*"] else names)}
_ANY = re.compile(rf"\b({'|'.join(sorted(_WORDS | {'CDLL', 'PyDLL'}))})\b|[\"']({'|'.join(PLACES)})/")


def foreign(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, name) of what is used unasked."""
    return list(_search([tree], frozenset()))


def _search(nodes: Sequence[ast.AST], asked: frozenset[str]) -> Iterator[tuple[int, str]]:
    """`asked`: the conditions and handlers that hold here, as words."""
    for node in nodes:
        name = _name(node)
        if name and not _is_allowed(name, asked):
            yield getattr(node, "lineno", 0), name
        if isinstance(node, ast.If | ast.IfExp):
            yield from _search([node.test], asked)
            inner = asked | _questions(node.test)
            branches = [node.body, node.orelse]
            for branch in branches:
                yield from _search(branch if isinstance(branch, list) else [branch], inner)
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue):
                asked = inner
        elif isinstance(node, ast.BoolOp):
            known = asked
            for value in node.values:
                yield from _search([value], known)
                known |= _questions(value)
        elif isinstance(node, ast.Try):
            caught = frozenset(
                word.id for handler in node.handlers if handler.type for word in ast.walk(handler.type)
                if isinstance(word, ast.Name)
            )  # fmt: skip
            yield from _search(node.body, asked | caught)
            yield from _search([*node.handlers, *node.orelse, *node.finalbody], asked)
        elif isinstance(node, ast.With) and any("suppress" in ast.unparse(item) for item in node.items):
            caught = frozenset(word.id for i in node.items for word in ast.walk(i) if isinstance(word, ast.Name))
            yield from _search(node.body, asked | caught)
        else:
            for field in ast.iter_fields(node):
                below = field[1] if isinstance(field[1], list) else [field[1]]
                yield from _search([each for each in below if isinstance(each, ast.AST)], asked)


def _name(node: ast.AST) -> str | None:
    """The name of another system's that this very node is, if it is one."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        missing = MISSING.get(node.value.id, [])
        return f"{node.value.id}.{node.attr}" if node.attr in missing else None
    if isinstance(node, ast.Import | ast.ImportFrom):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        whole = [name for name in modules if name and MISSING.get(name) == ["*"]]
        some = isinstance(node, ast.ImportFrom) and [a.name for a in node.names if a.name in MISSING.get(modules[0] or "", [])]
        return f"import {(whole or some or [''])[0]}" if whole or some else None
    match node:
        case ast.Call(func=ast.Attribute(attr="CDLL" | "PyDLL"), args=[ast.Constant(value=None)]):
            return ast.unparse(node)
        case _:
            pass
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if node.value.startswith(tuple(f"{place}/" for place in PLACES)) else None
    return None


def _is_allowed(name: str, asked: frozenset[str]) -> bool:
    if "sys.platform" in asked:
        return True
    if name.startswith("/"):
        return "OSError" in asked
    if name.startswith("import"):
        return "ImportError" in asked
    return name in asked or "AttributeError" in asked


def _questions(test: ast.expr) -> frozenset[str]:
    """`sys.platform`, and the names that hasattr asks for."""
    found: set[str] = set()
    for node in ast.walk(test):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="platform"):
                found.add("sys.platform")
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id=module), ast.Constant(value=str(attribute))]):
                found.add(f"{module}.{attribute}")
            case _:
                pass
    return frozenset(found)


@pytest.mark.parametrize(
    "text",
    [
        "os.fork()",
        "def f():\n    os.sched_getaffinity(0)",
        "from os import register_at_fork",
        "import fcntl",
        "mmap.mmap(-1, 5, flags=mmap.MAP_PRIVATE)",
        "open('/proc/cpuinfo')",
        "ctypes.CDLL(None)",
        "if hasattr(os, 'fork'):\n    os.getuid()",
        "if hasattr(os, 'fork'):\n    pass\nos.fork()",
        "try:\n    os.fork()\nexcept OSError:\n    os.wait()",
        "x = signal.SIGUSR1",
        "x = os.getuid() and hasattr(os, 'getuid')",
    ],
)
def test_unasked_use_is_found(text: str) -> None:
    assert foreign(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "if hasattr(os, 'fork'):\n    os.fork()",
        "x = os.fork() if hasattr(os, 'fork') else 0",
        "def f():\n    if not hasattr(os, 'fork'):\n        return 1\n    return os.fork()",
        "def f():\n    if sys.platform == 'win32':\n        return 1\n    return os.getuid(), mmap.MAP_PRIVATE",
        "try:\n    open('/proc/cpuinfo')\nexcept OSError:\n    pass",
        "with suppress(AttributeError):\n    os.fork()",
        "x = hasattr(os, 'getuid') and os.getuid()",
        "try:\n    import fcntl\nexcept ImportError:\n    pass",
    ],
)
def test_use_that_asks_first_is_not(text: str) -> None:
    assert not foreign(ast.parse(text))


def test_source_uses_nothing_of_one_system_unasked() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    assert len(texts) > 100
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path, text in texts.items()
        if _ANY.search(text)  # most have nothing to look at
        for line, name in foreign(ast.parse(text))
    ]
    assert found == []


# -- as on another system

_ELSEWHERE = '''
import builtins, ctypes, io, json, mmap, os, select, signal, socket, sys, time, threading
system, missing, program = json.loads(sys.argv[1])
# libraries of others come first: they are made for their systems, which this is not
import asyncio, concurrent.futures, multiprocessing, numpy, ml_dtypes, pathlib, random, shutil, subprocess, tempfile
import scipy.linalg, scipy.special, rich.console, rich.table, cyclopts, llvmlite.binding
import google.protobuf.message
llvmlite.binding.initialize_all_targets()
sys.platform = system
if system == "win32":
    shutil._use_fd_functions = False
for module, names in missing.items():
    if names == ["*"]:
        sys.modules[module] = None
    else:
        for name in names:
            sys.modules[module].__dict__.pop(name, None)
def opened(path, *rest, real=io.open, **more):
    if str(path).startswith(("/proc/", "/sys/", "/dev/")):
        raise FileNotFoundError(path)
    return real(path, *rest, **more)
builtins.open = io.open = opened
assert "hlokit" not in sys.modules
exec(program)
'''

_READS_AND_RUNS = '''
import numpy as np
import hlokit as hk
from hlokit.tools.main import main

b = hk.Builder("softmax")
x = b.parameter(0, hk.f32[2, 4], "x")
e = hk.exp(hk.sub(x, hk.reduce(x, b.constant(-np.inf, hk.f32), hk.max, [1]), [0]))
module = b.build(hk.div(e, hk.reduce(e, b.constant(0.0), hk.add, [1]), [0]))
text = str(module)
assert str(hk.parse(text)) == text
hk.verify(module)
value = np.float32([[1, 2, 3, 4], [0, 0, 0, 0]])
result = hk.evaluate(module, value)
np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-6)
assert np.asarray(hk.evaluate(hk.parse(hk.to_stablehlo(module)), value)).tobytes() == result.tobytes()
assert np.asarray(hk.evaluate(hk.optimize(module), value)).tobytes() == result.tobytes()
sums = hk.parse("""HloModule s, replica_count=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[4] parameter(0)
  ROOT y = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add
}
""")
assert [np.asarray(r).tolist() for r in hk.evaluate(sums, [value[0]], [value[1]])] == [[1, 2, 3, 4]] * 2
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "softmax.hlo").write_text(text)
made, header = hk.export_object(module, "x86-64-avx2", folder / "softmax.o")
assert made.stat().st_size > 500 and "softmax" in header.read_text()
for command in (["print"], ["check"], ["run", "--random", "0"], ["opt"], ["convert"], ["ops"], ["compile", "--target", "aarch64"]):
    name, *rest = command
    file = [str(folder / "softmax.hlo")] if name != "ops" else ["add"]
    more = [str(folder / "softmax.mlir"), "--to", "stablehlo"] if name == "convert" else []
    try:
        main([name, *file, *more, *rest])
    except SystemExit as end:
        assert not end.code, command
shutil.rmtree(folder)
'''

_TRIES = '''
for tried in ("", "1"):
    os.environ["HLOKIT_UNTESTED_SYSTEM"] = tried
    for program, arguments in ((module, [value]), (sums, [[value[0]], [value[1]]])):
        try:
            hk.compile(program)(*arguments)
            print("compiled")
        except hk.UnsupportedError as error:
            print("refused:", error)
'''


def _elsewhere(system: str, program: str) -> str:
    missing = MISSING if system == "win32" else _listed(_MISSING_ON_MACOS)
    command = [sys.executable, "-c", _ELSEWHERE, json.dumps([system, missing, program])]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_windows_reads_and_interprets() -> None:
    said = _refusals(_elsewhere("win32", _READS_AND_RUNS + _TRIES))
    assert len(said) == 4
    assert all("does not run on Windows" in line and "hk.evaluate" in line for line in said)


def test_macos_reads_and_interprets_and_may_try_machine_code() -> None:
    """What macOS lacks is not what machine code of this machine needs, so that it runs here when it is tried."""
    output = _elsewhere("darwin", _READS_AND_RUNS + _TRIES)
    said = _refusals(output)
    assert len(said) == 2
    assert all("never been run on macOS" in line and "HLOKIT_UNTESTED_SYSTEM" in line for line in said)
    assert output.count("compiled") == 2


def _refusals(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("refused:")]


# -- what is said of systems

ROOT = Path(__file__).parents[1]


def test_the_workflow_runs_what_is_there() -> None:
    """`.github/workflows/tests.yml` cannot be run here: what it names exists."""
    import yaml

    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    assert {"push", "pull_request"} <= workflow[True].keys()  # YAML takes "on" for a truth value
    made = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    systems: set[str] = set()
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        named = [job["runs-on"], *matrix.get("os", []), *(row["os"] for row in matrix.get("include", []))]
        systems |= {name.partition("-")[0] for name in named if not name.startswith("$")}
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            words = step.get("run", "").split()
            if words[:1] == ["make"]:
                assert words[1] in made
            missing = [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()]
            assert not missing, missing
    assert systems == {"ubuntu", "macos", "windows"}


def test_versions_said_are_the_same_everywhere() -> None:
    """The package's classifiers, README's table and the workflow name the same versions of Python."""
    import yaml

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classified = {text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)}
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Where it runs")[2].partition("\n## ")[0]
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    rows = workflow["jobs"]["linux"]["strategy"]["matrix"]["include"]
    assert classified == set(re.findall(r"Python (3\.\d+)", table)) == {row["python"] for row in rows}
    assert not any("OS Independent" in text for text in project["classifiers"])
