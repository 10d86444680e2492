"""What a hostile reviewer found, on one device."""

import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import export


def check_exported_functions() -> None:
    """For this platform, for the CPU, for both: as JAX's own platforms call what was exported for them."""
    for platforms in (None, ["cpu"], ["cpu", "hlokit"], ["hlokit", "cpu"]):
        made = export.export(jax.jit(lambda x: jnp.sin(x) * 2), platforms=platforms)(jnp.ones(4))
        np.testing.assert_allclose(made.call(jnp.ones(4)), np.sin(np.ones(4)) * 2, rtol=1e-6)
        np.testing.assert_allclose(jax.jit(made.call)(jnp.ones(4)), np.sin(np.ones(4)) * 2, rtol=1e-6)
    made = export.export(jax.jit(jnp.sin), platforms=["cuda"])(jnp.ones(4))
    try:
        made.call(jnp.ones(4))
    except ValueError as error:
        assert "exported for platforms" in str(error)
    else:
        raise AssertionError("a function that was exported for another platform ran")


def _in_threads(work: Callable[[], None], count: int = 4) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check_threads_that_donate_one_array() -> None:
    """One of them has it; the others are told."""
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(20):
        x, found = jnp.zeros(5000), []

        def work(x: jax.Array = x, found: list[object] = found) -> None:
            try:
                found.append(step(x))
            except (RuntimeError, ValueError) as error:
                found.append(error)

        _in_threads(work)
        made = [value for value in found if isinstance(value, jax.Array)]
        assert len(found) == 4 and len(made) == 1, found
        np.testing.assert_array_equal(made[0], np.ones(5000))


def check_an_array_that_its_program_deletes() -> None:
    """A callback deletes the argument of the program that calls it, and others take memory."""
    held = [jnp.arange(70000.0)]

    def delete(value: np.ndarray) -> np.ndarray:
        held.pop().delete()
        for _ in range(5):
            jnp.full(70000, 7.0).block_until_ready()
        return value

    shape = jax.ShapeDtypeStruct((), jnp.float32)
    result = jax.jit(lambda x: jax.pure_callback(delete, shape, x[0]) + x[5] + x.sum() * 0)(held[0])
    assert result == 5


def check_programs_leave_nothing_for_ever() -> None:
    """What C++ asks of a program, its fingerprint too, goes with it; asked again, it takes no more memory."""
    from hlokit.interop.pjrt.loaded import Loaded
    from hlokit.interop.pjrt.memory import FOREVER

    def run(k: int) -> None:
        assert jax.jit(lambda x: x * k + 1)(2.0) == 2 * k + 1

    run(0)
    before = len(FOREVER._storages)
    for k in range(1, 6):
        run(k)
    assert len(FOREVER._storages) == before
    made: list[Loaded] = []
    init = Loaded.__init__

    def noted(self: Loaded, *args: object) -> None:
        init(self, *args)
        made.append(self)

    Loaded.__init__ = noted
    try:
        compiled = jax.jit(jnp.tanh).lower(1.5).compile().runtime_executable()
    finally:
        Loaded.__init__ = init
    sizes = []
    for _ in range(3):
        assert compiled.serialize() and compiled.cost_analysis()
        compiled.get_output_memory_kinds(), compiled.get_output_shardings(), compiled.get_output_layouts()
        sizes.append(len(made[-1].kept._storages))
    assert sizes[0] == sizes[2], sizes
