"""JAX programs on hlokit: `jit` and `lower`, which need no platform, and the platform "hlokit" (`plugin`).

    import hlokit.interop.jax as hj

    @hj.jit
    def step(x): return jnp.sin(x) * 2      # runs on hlokit; arrays of NumPy in and out

    module = hj.lower(step, x)              # hk.HloModule

JAX is imported when one of them is first used. docs/interop_jax.md has the details.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlokit.interop.jax.function import Function, jit
    from hlokit.interop.jax.lowering import lower

__all__ = ["Function", "jit", "lower"]


def __getattr__(name: str) -> Any:
    if name == "lower":
        from hlokit.interop.jax import lowering

        return lowering.lower
    if name in ("Function", "jit"):
        from hlokit.interop.jax import function

        return getattr(function, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
