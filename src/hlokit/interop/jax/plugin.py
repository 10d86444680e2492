"""JAX's platform "hlokit": found by JAX through the entry point group jax_plugins."""

from __future__ import annotations

import os
from typing import Any

from hlokit.interop.pjrt.running import step_hooks

__all__ = ["initialize", "register", "step_hooks"]

PRIORITY = 500
"""JAX's own CPU client has 0 and its GPU plugins 400: without JAX_PLATFORMS, hlokit is the default."""


def initialize() -> None:
    """Registers the platform, unless JAX was told to use others only. Called by JAX when it looks for its backends."""
    import jax

    config: Any = jax.config
    wanted: str = config.jax_platforms or os.environ.get("JAX_PLATFORMS", "")
    if wanted and "hlokit" not in wanted.split(","):
        return
    register()


def register() -> None:
    """Makes the table of functions and hands it to JAX."""
    from jax._src import xla_bridge  # pyright: ignore

    from hlokit.interop.jax.rules import install
    from hlokit.interop.pjrt import client, executables, optimized, transfers  # noqa: F401  # pyright: ignore
    from hlokit.interop.pjrt.table import capsule

    if client.PLATFORM in xla_bridge._backend_factories:  # pyright: ignore
        return
    xla_bridge._nonexperimental_plugins.add(client.PLATFORM)  # pyright: ignore  # else a warning at every start
    xla_bridge.register_plugin(client.PLATFORM, priority=PRIORITY, c_api=capsule())  # pyright: ignore
    _use_compilation_cache(client.PLATFORM)
    install(client.PLATFORM)


def _use_compilation_cache(platform: str) -> None:
    """JAX's persistent cache has its platforms in a list inside a function; this one serializes executables too."""
    from jax._src import compilation_cache  # pyright: ignore

    others: Any = compilation_cache.is_cache_used  # pyright: ignore

    def is_cache_used(backend: Any) -> bool:
        if backend.platform != platform:
            return others(backend)
        return bool(compilation_cache._is_cache_enabled())  # pyright: ignore

    compilation_cache.is_cache_used = is_cache_used
