"""A pytest plugin: pytest -p tests.sampling --sample COUNT --seed SEED runs so many of the tests, the same for a seed."""

from __future__ import annotations

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, metavar="COUNT", help="run this many of the tests")
    parser.addoption("--seed", type=int, default=0, help="of the sample")


@pytest.hookimpl(trylast=True)  # of what markers and -k left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    count: int | None = config.getoption("--sample")
    if count is None or count >= len(items):
        return
    chosen = set(random.Random(config.getoption("--seed")).sample(sorted(item.nodeid for item in items), count))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
