"""Where JAX looks for hlokit: it imports this module and calls `initialize` before it makes its first backend.

hlokit is registered with JAX only if it was asked for by name. Else nothing of it is imported.
"""

from __future__ import annotations

from typing import Any


def initialize() -> None:
    """Registers the platform "hlokit" if `jax_platforms` names it. Raises nothing."""
    import jax

    config: Any = jax.config
    if "hlokit" not in (config.jax_platforms or "").split(","):
        return
    try:
        from hlokit.interop.jax.platform import register

        register()
    except Exception as error:
        _register_failure("hlokit", error)


def _register_failure(platform: str, error: Exception) -> None:
    """The error is raised when JAX makes the backend: what `initialize` raises, JAX would only log."""
    from jax._src import xla_bridge  # pyright: ignore

    def make_client() -> Any:
        raise RuntimeError(f"hlokit: {type(error).__name__}: {error}") from error

    xla_bridge.register_backend_factory(platform, make_client, fail_quietly=False)  # pyright: ignore
