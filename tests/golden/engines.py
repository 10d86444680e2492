"""What runs a module in the golden tests: the reference, or machine code in its variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _compiled(**options: Any) -> Callable[..., Any]:
    def run(module: Any, *args: Any, **counts: int) -> Any:
        import hlokit as hk

        return hk.compile(module, **counts, **options)(*args)

    return run


def _backwards(module: Any, *args: Any, **counts: int) -> Any:
    from tests.fuzz.backwards import go_backwards

    go_backwards()
    return _compiled()(module, *args, **counts)


def _reference(module: Any, *args: Any, **counts: int) -> Any:
    import hlokit as hk

    return hk.evaluate(module, *args, **counts)


ENGINES: dict[str, Callable[..., Any]] = {
    "reference": _reference,
    "compiled": _compiled(),
    "compiled-1": _compiled(threads=1),
    "compiled-backwards": _backwards,
    "strict": _compiled(strict=True),
    "strict-1": _compiled(strict=True, threads=1),
}
"""By name: called with a module and its arguments, or a list of them for each of several replicas."""
