"""Where JAX looks for hlokit: it imports this module and calls `initialize` before it makes its first backend.

hlokit is registered with JAX only if it was asked for. Else nothing of it is imported.
"""

from __future__ import annotations

import os
from typing import Any


def initialize() -> None:
    """Registers hlokit as the platform "hlokit" if `jax_platforms` names it, as "cpu" if HLOKIT_AS_CPU is set.

    Raises nothing.
    """
    import jax

    config: Any = jax.config
    platforms = (config.jax_platforms or "").split(",")
    if "hlokit" in platforms:
        _register("hlokit")
    if os.environ.get("HLOKIT_AS_CPU", "0") not in ("", "0") and ("cpu" in platforms or platforms == [""]):
        _register("cpu")


def _register(platform: str) -> None:
    try:
        from hlokit.interop.jax.platform import register

        register(platform)
    except Exception as error:
        _register_failure(platform, error)


def _register_failure(platform: str, error: Exception) -> None:
    """The error is raised when JAX makes the backend: what `initialize` raises, JAX would only log."""
    from jax._src import xla_bridge  # pyright: ignore

    def make_client() -> Any:
        raise RuntimeError(f"hlokit: {type(error).__name__}: {error}") from error

    xla_bridge.register_backend_factory(platform, make_client, fail_quietly=False)  # pyright: ignore
