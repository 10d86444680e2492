"""A pytest plugin: each test's begin and outcome, written to a log as they happen.

In the environment: JAX_SUITE_LOG, the log; JAX_SUITE_TESTS, a JSON file with the ids of the tests to run, or nothing for
all; JAX_SUITE_DONE, the same for tests to leave out; JAX_SUITE_MEMORY, bytes of memory at which the process stops.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

_MOST_TEXT = 16000


def pytest_configure() -> None:
    """Lets `jax._src` find the modules for tests that stand beside them, too."""
    for name in ("jax._src", "jax._src.pallas"):
        folder = os.path.join(os.getcwd(), "beside", *name.split("."))
        if os.path.isdir(folder):
            importlib.import_module(name).__path__.append(folder)


def _write(**row: object) -> None:
    with open(os.environ["JAX_SUITE_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")


def _ids(variable: str) -> set[str] | None:
    path = os.environ.get(variable)
    if not path:
        return None
    with open(path, encoding="utf-8") as file:
        return set(json.load(file))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    wanted, done = _ids("JAX_SUITE_TESTS"), _ids("JAX_SUITE_DONE") or set()
    items[:] = [item for item in items if item.nodeid not in done and (wanted is None or item.nodeid in wanted)]


def pytest_runtest_logstart(nodeid: str, location: object) -> None:
    _write(id=nodeid, begins=True)


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        text = "" if report.outcome == "passed" else str(report.longrepr)[-_MOST_TEXT:]
        _write(id=report.nodeid, outcome=report.outcome, text=text, seconds=round(report.duration, 2))


def pytest_runtest_teardown(item: Any) -> None:
    if sys.platform == "linux" and _resident() > int(os.environ.get("JAX_SUITE_MEMORY", 2**62)):
        item.session.shouldstop = "the process has as much memory as it may have"


def pytest_collectreport(report: Any) -> None:
    if report.outcome != "passed":
        _write(id=report.nodeid, outcome=report.outcome, text=str(report.longrepr)[-_MOST_TEXT:], seconds=0)


def pytest_sessionfinish(session: Any) -> None:
    _write(ends=not session.shouldstop)


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
