"""The functions of jaxlib 0.4.30's `xla_client.ops`, with its names, arguments and defaults.

Each is hlokit's op function under XLA's name. `arguments` says what the types of arguments mean, `signatures` how a
call finds its overload and what becomes of an error.
"""

from types import ModuleType
from typing import Any

from hlokit.interop.xla_client.enums import CustomCallApiVersion as CustomCallApiVersion
from hlokit.interop.xla_client.enums import CustomCallSchedule as CustomCallSchedule
from hlokit.interop.xla_client.enums import RandomAlgorithm as RandomAlgorithm
from hlokit.interop.xla_client.enums import TriangularSolveOptions_Transpose as TriangularSolveOptions_Transpose
from hlokit.interop.xla_client.ops import collectives, control, custom_calls, linalg, movement, reduction, values
from hlokit.interop.xla_client.ops.elementwise import ELEMENTWISE
from hlokit.interop.xla_client.ops.signatures import OpFunction


def _functions_of(module: ModuleType) -> dict[str, OpFunction]:
    return {name: f for name, f in vars(module).items() if isinstance(f, OpFunction) and name != "_"}


FUNCTIONS: dict[str, OpFunction] = dict(ELEMENTWISE)
"""All op functions by name."""
for _module in (values, movement, reduction, linalg, control, custom_calls, collectives):
    FUNCTIONS.update(_functions_of(_module))
globals().update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    """Reached only for names that are not there; type checkers take it for all op functions."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
