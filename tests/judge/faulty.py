"""hlokit's worker with a fault in it: python -m tests.judge.faulty FAULT.json ENGINE MEMORY.

FAULT.json has the name of a module and its source with the fault, which is imported instead of the file's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


class _Loader(SourceFileLoader):
    """Loads a module from another source than the file's."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType | None:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    """Finds the module that has the fault."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self.source)
        return spec


def main() -> None:
    fault = json.loads(Path(sys.argv.pop(1)).read_text(encoding="utf-8"))
    os.environ["HLOKIT_CACHE_DIR"] = ""  # programs of right code are no programs of this
    sys.meta_path.insert(0, Finder(fault["module"], fault["source"]))
    if sys.argv[1] == "texts":
        from tests.judge.kernels import answer

        answer()
        return
    from hlokit.judge.engines.worker import main as work

    work()


if __name__ == "__main__":
    main()
