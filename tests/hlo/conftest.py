"""Collects the `.hlo` files of this folder: each is a test (tests/hlo/runner.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hlo.runner import Program, Unmet, check


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return HloFile.from_parent(parent, path=file_path) if file_path.suffix == ".hlo" else None


class HloFile(pytest.File):
    """A `.hlo` file: the one test in it has the file's name."""

    def collect(self) -> Iterator[pytest.Item]:
        yield HloItem.from_parent(self, name=self.path.stem)


class HloItem(pytest.Item):
    """The test that a `.hlo` file's expectations hold."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.text = self.path.read_text(encoding="utf-8")
        for labels in re.findall(r"^\s*// rule: (.*)$", self.text, re.MULTILINE):
            self.add_marker(pytest.mark.rule(*labels.split(", ")))
        if re.search(r"^\s*// (engines:|\w+\[).*jaxlib", self.text, re.MULTILINE):
            self.add_marker(pytest.mark.outside)

    def runtest(self) -> None:
        check(Program(self.text))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Unmet):
            return f"{self.path}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name
