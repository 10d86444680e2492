"""hlokit: XLA in Python. Build a program or read one, check it, run it.

    import hlokit as hk

    b = hk.Builder("axpy")
    x, y = b.parameter(0, hk.f32[3]), b.parameter(1, hk.f32[3])
    module = b.build(2.0 * x + y)
    hk.evaluate(module, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0])

Op functions have XlaBuilder's names in snake_case (`hk.dot_general`, `hk.while_`); functions without operands are
methods of the builder (`b.iota`, `b.constant`). All errors derive from `hk.HlokitError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hlokit import ops as _ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the registry
from hlokit.api import *  # noqa: F403
from hlokit.exports import *  # noqa: F403
from hlokit.forks import unforked as _unforked

if TYPE_CHECKING:
    from hlokit.builder.functions import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Imports the op functions when the first is asked for: a program that is read does without, 6 ms."""
        functions = vars(_unforked(import_module)("hlokit.builder.functions"))
        found = {key: value for key, value in functions.items() if not key.startswith("_")}
        globals().update(found)
        if name not in found:
            raise AttributeError(f"module 'hlokit' has no attribute {name!r}")
        return found[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *vars(import_module("hlokit.builder.functions"))})


__version__ = "0.1.0"
