"""hlokit as JAX's platform "hlokit" or "cpu": registered by `use`, or by jax_plugins.hlokit from JAX's settings."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from hlokit.devices.processes.engines import VARIABLE, engine_name
from hlokit.devices.processes.guard import job_size
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.tracebacks import public

if TYPE_CHECKING:
    from hlokit.interop.pjrt.processes import Carrier

OLDEST_JAX = (0, 10, 2)


@public
def use(as_cpu: bool = False) -> None:
    """Makes JAX run programs on hlokit. Call it before JAX's first array; more calls change nothing.

        import hlokit.interop.jax
        hlokit.interop.jax.use(as_cpu=True)
        import jax
        assert jax.devices()[0].platform == "cpu" and "hlokit" in jax.devices()[0].client.platform_version

    Parameters
    ----------
    as_cpu : bool, optional
        Whether hlokit takes the place of JAX's CPU client, as with `HLOKIT_AS_CPU=1`: the platform "cpu", its devices
        and JAX's rules for it. Libraries that want a CPU take it for one. The default device is as JAX chooses it: the
        CPU, where there is no GPU and `jax_platforms` names no other. With False the platform "hlokit" becomes JAX's
        default, as with `JAX_PLATFORMS=hlokit,cpu`: it is put in front of `jax.config.jax_platforms`, or that is set to
        "hlokit,cpu" if it was empty, and JAX's CPU client stays.

    Raises
    ------
    ArgumentError
        JAX has made its backends already, without hlokit (any use of an array or of `jax.devices` does that), or hlokit
        is the other of its two platforms already.
    UnsupportedError
        The version of JAX is not one that hlokit works with.
    """
    import jax
    from jax._src import xla_bridge  # pyright: ignore

    name = "cpu" if as_cpu else "hlokit"
    backends: Any = xla_bridge._backends  # pyright: ignore
    if xla_bridge.backends_are_initialized():  # pyright: ignore
        is_chosen = name in backends and "hlokit" in backends[name].platform_version
        if is_chosen and (as_cpu or jax.default_backend() == name):
            return
        raise ArgumentError(
            f"JAX has made its backends already: {', '.join(backends)}, with the default {jax.default_backend()!r}. "
            "Call hlokit.interop.jax.use() before JAX's first array or jax.devices()"
        )
    register(name)
    config: Any = jax.config
    others = [other for other in (config.jax_platforms or "").split(",") if other not in ("", "hlokit", name)]
    if not as_cpu:
        config.update("jax_platforms", ",".join(["hlokit", *(others or ["cpu"])]))
    elif others:
        config.update("jax_platforms", ",".join(["cpu", *others]))


def register(name: str = "hlokit") -> None:
    """Makes the table of functions and hands it to JAX as the platform "hlokit" or "cpu".

    UnsupportedError: this version of JAX is too old. ArgumentError: it is the other platform already.
    """
    import jax

    if jax.__version_info__ < OLDEST_JAX:
        oldest = ".".join(map(str, OLDEST_JAX))
        raise UnsupportedError(f"hlokit works with jax {oldest} and newer, this is {jax.__version__}")
    from jax._src import xla_bridge  # pyright: ignore

    from hlokit.interop.jax.rules import install
    from hlokit.interop.pjrt import client, executables, optimized, transfers  # noqa: F401  # pyright: ignore
    from hlokit.interop.pjrt.table import capsule

    client.choose(name)
    factories: Any = xla_bridge._backend_factories  # pyright: ignore
    if name in factories and factories[name].c_api is not None:
        return
    xla_bridge._nonexperimental_plugins.add(name)  # pyright: ignore  # else a warning at every start
    priority = 0 if name == "cpu" else 400  # JAX's own numbers, for its CPU client and for plugins
    xla_bridge.register_plugin(  # pyright: ignore
        name, priority=priority, c_api=capsule(), factory=partial(_client, name),
        make_topology=partial(_no_topology, name),
    )
    _use_compilation_cache(name)
    install(name)


def _client(name: str) -> Any:
    """A client, for all processes if `jax.distributed` has several.

    Not by make_pjrt_c_api_client, which would give jaxlib the connection to the other processes: that starts a thread
    that watches them, and warns at every exit.
    """
    from jax._src import distributed, xla_bridge  # pyright: ignore
    from jaxlib import xla_client  # pyright: ignore

    from hlokit.interop.jax.store import CoordinatorStore
    from hlokit.interop.pjrt import client

    jaxlib, state = cast(Any, xla_client), cast(Any, distributed.global_state)
    if state.client is not None and state.num_processes > 1:
        client.share(state.process_id, state.num_processes, CoordinatorStore(state.client), _carrier(state))
    if not jaxlib.pjrt_plugin_initialized(name):
        jaxlib.initialize_pjrt_plugin(name)
    given: Any = xla_bridge._options_from_jax_configs(name)  # pyright: ignore
    options = {**_options(), **given}
    bridge: Any = xla_bridge
    if state.client is None or not bridge.CROSS_HOST_TRANSFER_SOCKET_ADDRESS.value:
        return jaxlib.make_c_api_client(name, options, None)
    # copies between processes: jaxlib's sockets carry them
    forced = bridge.FORCE_DCN_CROSS_HOST_TRANSFERS.value
    return jaxlib.make_c_api_client(name, options, None, bridge._make_transfer_server_factory(), forced)


def _carrier(state: Any) -> Carrier:
    """HLOKIT_COLLECTIVES, else JAX's option jax_cpu_collectives_implementation, of which "gloo" is the default: that
    counts where the environment says it, or MPI did not start the processes."""
    import jax

    from hlokit.interop.pjrt.processes import Carrier

    name = "jax_cpu_collectives_implementation"
    config: Any = jax.config
    chosen = os.environ.get(name.upper()) or getattr(config, name)
    if chosen == "gloo" and name.upper() not in os.environ and job_size() > 1:
        chosen = "mpi"
    found = engine_name(None if os.environ.get(VARIABLE) else chosen, name)
    return Carrier(found, state.coordinator_address.rpartition(":")[0].strip("[]"))


def _options() -> dict[str, Any]:
    """The client's options. The flags of JAX's CPU client count where HLOKIT_NUM_DEVICES is not set."""
    from jax._src import xla_bridge  # pyright: ignore

    from hlokit.interop.pjrt.options import host_device_count

    if "HLOKIT_NUM_DEVICES" in os.environ:
        return {}
    count: int = xla_bridge.num_cpu_devices.value  # pyright: ignore
    if count < 0:
        count = host_device_count(_default_compile_options())
    return {"num_devices": count}


def _default_compile_options() -> bytes:
    """The default options, with the flags of XLA_FLAGS, as jaxlib reads them."""
    from jaxlib import xla_client  # pyright: ignore

    return xla_client.CompileOptions().SerializeAsString()  # pyright: ignore


def _no_topology(platform: str, *args: Any, **options: Any) -> None:
    """Raises what JAX raises for its CPU client."""
    raise NotImplementedError(f"topology not implemented for {platform}")


class _AsCpu:
    """A backend that says it is the CPU's."""

    platform = "cpu"

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def _use_compilation_cache(platform: str) -> None:
    """JAX's persistent cache keeps executables, but for those with callbacks: another process has other functions.

    JAX has the platforms that it works for in a list inside a function: hlokit's is taken for the CPU there.
    """
    from jax._src import compilation_cache  # pyright: ignore

    from hlokit.interop.pjrt.programs import WITH_CALLBACKS

    others: Any = compilation_cache.is_cache_used  # pyright: ignore
    put: Any = compilation_cache.put_executable_and_time  # pyright: ignore

    def is_cache_used(backend: Any) -> bool:
        return others(_AsCpu(backend) if backend.platform == platform else backend)

    def put_executable_and_time(*args: Any, **kwargs: Any) -> None:
        try:
            put(*args, **kwargs)
        except Exception as error:
            if WITH_CALLBACKS not in str(error):
                raise

    if platform != "cpu":
        compilation_cache.is_cache_used = is_cache_used
    compilation_cache.put_executable_and_time = put_executable_and_time
