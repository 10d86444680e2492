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

import typing as _typing
from importlib import import_module as _import_module

from hlokit import ops as _ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the registry
from hlokit.api import *  # noqa: F403
from hlokit.api import __all__ as _programs
from hlokit.errors import MissingNameError as _MissingNameError
from hlokit.exports import *  # noqa: F403
from hlokit.exports import __all__ as _classes
from hlokit.forks import unforked as _unforked
from hlokit.tracebacks import public as _public_function

if _typing.TYPE_CHECKING:
    from hlokit.builder.functions import *  # noqa: F403
else:

    @_public_function
    def __getattr__(name: str) -> object:
        """Imports the op functions when the first is asked for: a program that is read does without, 6 ms."""
        if name == "__all__":
            return _public()
        found = _functions()
        if name in found:
            from hlokit.builder.core import op_function

            value = globals()[name] = op_function(found[name])
            return value
        if name.startswith("_"):
            raise AttributeError(f"module 'hlokit' has no attribute {name!r}")
        from hlokit.builder import advice

        raise _MissingNameError(advice.no_name(name, _public()))

    def __dir__() -> list[str]:
        return [*_public(), *(name for name in globals() if name.startswith("__"))]

    def _functions() -> dict[str, object]:
        module = _unforked(_import_module)("hlokit.builder.functions")
        return {name: function for name, function in vars(module).items() if not name.startswith("_")}

    def _public() -> list[str]:
        """The names of the facade: no submodule, nothing that it imports for itself."""
        return sorted([*_programs, *_classes, *_functions()])


__version__ = "0.1.0"
