"""A pytest plugin that writes down which collected tests name which rules.

    python -m pytest -p tests.mutation.selection --collect-only --naming FILE [test files]

FILE gets a line of JSON per test: its id, the labels in its marker, id or parameters, and those in its source.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import hlokit
from tests.rules.test_labels import LABEL


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--naming", type=Path, metavar="FILE", help="write which tests name which rules")


def pytest_configure(config: pytest.Config) -> None:
    """The tests of a copy must test that copy."""
    assert Path(hlokit.__file__).is_relative_to(config.rootpath), f"{hlokit.__file__} is outside {config.rootpath}"


def pytest_collection_finish(session: pytest.Session) -> None:
    path: Path | None = session.config.getoption("--naming")
    if path is None:
        return
    with path.open("w") as out:
        for item in session.items:
            out.write(json.dumps([item.nodeid, sorted(_marked(item)), sorted(_in_source(item))]) + "\n")


def _marked(item: pytest.Item) -> set[str]:
    marked = {label for marker in item.iter_markers("rule") for label in marker.args}
    callspec = getattr(item, "callspec", None)
    parameters = [p for p in callspec.params.values() if isinstance(p, str)] if callspec else []
    return marked | {label for text in [item.nodeid, *parameters] for label in LABEL.findall(text)}


def _in_source(item: pytest.Item) -> set[str]:
    function = getattr(item, "function", None)
    return set(LABEL.findall(inspect.getsource(function))) if function is not None else set()
