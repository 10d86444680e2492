"""JAX's platform "hlokit": registered by `use`, or by jax_plugins.hlokit where `jax_platforms` names it."""

from __future__ import annotations

from typing import Any

from hlokit.errors import ArgumentError, UnsupportedError

OLDEST_JAX = (0, 10, 2)


def use() -> None:
    """Makes JAX run programs on hlokit, as `JAX_PLATFORMS=hlokit,cpu` does.

    The platform "hlokit" becomes JAX's default: it is put in front of `jax.config.jax_platforms`, or that is set to
    "hlokit,cpu" if it was empty. More calls change nothing.

        import hlokit.interop.jax
        hlokit.interop.jax.use()
        import jax
        assert jax.devices()[0].platform == "hlokit"

    Raises ArgumentError if JAX has made its backends already with another default (any use of an array or of
    `jax.devices` does that), and UnsupportedError for versions of JAX that hlokit does not work with.
    """
    import jax
    from jax._src import xla_bridge  # pyright: ignore

    if xla_bridge.backends_are_initialized():  # pyright: ignore
        if jax.default_backend() == "hlokit":
            return
        raise ArgumentError(
            f"JAX's backends are there already, with the default {jax.default_backend()!r}: "
            "call hlokit.interop.jax.use() before JAX's first array or jax.devices()"
        )
    register()
    config: Any = jax.config
    others = [name for name in (config.jax_platforms or "cpu").split(",") if name != "hlokit"]
    config.update("jax_platforms", ",".join(["hlokit", *others]))


def register() -> None:
    """Makes the table of functions and hands it to JAX. UnsupportedError: this version of JAX is too old."""
    import jax

    if jax.__version_info__ < OLDEST_JAX:
        oldest = ".".join(map(str, OLDEST_JAX))
        raise UnsupportedError(f"hlokit works with jax {oldest} and newer, this is {jax.__version__}")
    from jax._src import xla_bridge  # pyright: ignore

    from hlokit.interop.jax.rules import install
    from hlokit.interop.pjrt import client, executables, optimized, transfers  # noqa: F401  # pyright: ignore
    from hlokit.interop.pjrt.table import capsule

    if client.PLATFORM in xla_bridge._backend_factories:  # pyright: ignore
        return
    xla_bridge._nonexperimental_plugins.add(client.PLATFORM)  # pyright: ignore  # else a warning at every start
    xla_bridge.register_plugin(client.PLATFORM, c_api=capsule())  # pyright: ignore
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
