"""JAX programs on hlokit: `jit` and `lower`, which need no platform, and the platform "hlokit" (`use`, `step_hooks`).

    import hlokit.interop.jax as hj

    @hj.jit
    def step(x): return jnp.sin(x) * 2      # runs on hlokit; arrays of NumPy in and out

    module = hj.lower(step, x)              # hk.HloModule

    hj.use()                                # all of JAX runs on hlokit from here on

JAX is imported when one of them is first used. docs/interop_jax.md and docs/jax.md have the details.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlokit.interop.jax.function import Function, jit
    from hlokit.interop.jax.lowering import lower
    from hlokit.interop.jax.platform import use
    from hlokit.interop.pjrt.running import step_hooks

__all__ = ["Function", "jit", "lower", "step_hooks", "use"]
_MODULES = {
    "Function": "hlokit.interop.jax.function",
    "jit": "hlokit.interop.jax.function",
    "lower": "hlokit.interop.jax.lowering",
    "step_hooks": "hlokit.interop.pjrt.running",
    "use": "hlokit.interop.jax.platform",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
