"""Python functions that programs call: debug.print, debug.callback, pure_callback, io_callback, buffer_callback."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback

import hlokit as hk
import hlokit.interop.jax as hj
from hlokit.errors import EvaluationError
from hlokit.interop.jax import callbacks
from tests.jax.interop.compare import agrees

X = np.float32([0.5, 1.5, -2.0])
BOTH = pytest.mark.parametrize("backend", ["cpu", "interpreter"])


def host_sine(x: Any, vmap_method: str | None = None) -> Any:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method=vmap_method)


@BOTH
def test_debug_print(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        jax.debug.print("x = {x}, sum = {}", x.sum(), x=x)
        return x + 1

    np.testing.assert_array_equal(hj.jit(f, backend=backend)(X), X + 1)
    assert capsys.readouterr().out == "x = [ 0.5  1.5 -2. ], sum = 0.0\n"


@BOTH
def test_ordered_prints_in_loops(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        def step(carry: Any, i: Any) -> Any:
            jax.debug.print("{}", i, ordered=True)
            return carry + i, carry

        total, _ = jax.lax.scan(step, x, jnp.arange(4))
        jax.debug.print("end", ordered=True)
        return total

    assert hj.jit(f, backend=backend)(1) == 7
    assert capsys.readouterr().out.split() == ["0", "1", "2", "3", "end"]


def test_debug_callback_in_a_gradient() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = jnp.sin(x)
        jax.debug.callback(seen.append, y)
        return y.sum()

    np.testing.assert_allclose(hj.jit(jax.grad(f))(X), np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(seen, [np.sin(X)], rtol=1e-6)
    assert isinstance(seen[0], jax.Array)


def test_inspecting_results_may_be_kept() -> None:
    """What a callback got is its own, also when the program goes on in the same memory."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            y = jax.pure_callback(
                lambda v: (seen.append(v), np.asarray(v) * 2)[1], jax.ShapeDtypeStruct((64,), np.float32), carry
            )
            return y + 1, None

        return jax.lax.scan(step, x, None, length=3)[0]

    hj.jit(f)(np.zeros(64, np.float32))
    assert [float(v[0]) for v in seen] == [0, 1, 3]


@BOTH
def test_pure_callback(backend: str) -> None:
    agrees(host_sine, X, backend=backend)
    agrees(lambda x: jnp.where(x > 0, host_sine(x * 2), x).sum(), X, backend=backend)


def test_pure_callback_of_trees() -> None:
    def host(d: Any) -> Any:
        return {"sum": np.asarray(d["a"]) + d["b"], "count": np.int32(3)}

    def f(a: Any, b: Any) -> Any:
        kinds = {"sum": jax.ShapeDtypeStruct((2, 3), np.float32), "count": jax.ShapeDtypeStruct((), np.int32)}
        return jax.pure_callback(host, kinds, {"a": a, "b": b})

    agrees(f, np.ones((2, 3), np.float32), X)


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"])
def test_pure_callback_under_vmap(method: str) -> None:
    agrees(jax.vmap(lambda x: host_sine(x, method)), np.arange(12, dtype=np.float32).reshape(4, 3))


def test_pure_callback_in_control_flow_and_gradients() -> None:
    @jax.custom_jvp
    def sine(x: Any) -> Any:
        return host_sine(x)

    sine.defjvp(lambda primals, tangents: (sine(*primals), jnp.cos(primals[0]) * tangents[0]))
    agrees(jax.grad(lambda x: sine(x).sum()), X)
    agrees(lambda x: jax.lax.cond(x[0] > 0, sine, jnp.cos, x), X)
    agrees(lambda x: jax.lax.cond(x[0] > 0, sine, jnp.cos, x), -X)
    agrees(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: sine(c) + i, x), X)
    agrees(lambda x: jax.lax.while_loop(lambda c: host_sine(c)[0] > 0.1, lambda c: c - 0.25, x), X)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "complex64", "int4"])
def test_element_types(dtype: str) -> None:
    x = jnp.asarray([0, 1, 3]).astype(dtype)
    agrees(lambda x: jax.pure_callback(lambda v: v[::-1], jax.ShapeDtypeStruct(x.shape, x.dtype), x), x)


def test_no_operands_no_elements() -> None:
    def f(x: Any) -> Any:
        empty = jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((0, 2), np.float32), x)
        return jax.pure_callback(lambda: np.float32(4), jax.ShapeDtypeStruct((), np.float32)), empty

    agrees(f, np.zeros((0, 2), np.float32))


@BOTH
@pytest.mark.parametrize("ordered", [True, False])
def test_io_callback(ordered: bool, backend: str) -> None:
    seen: list[float] = []

    def count(x: Any) -> Any:
        seen.append(float(x))
        return np.int32(len(seen))

    def f(x: Any) -> Any:
        kind = jax.ShapeDtypeStruct((), np.int32)
        first = io_callback(count, kind, x, ordered=ordered)
        io_callback(count, kind, x * 2, ordered=ordered)  # its result is not used, and yet it runs
        return first + 0 * io_callback(count, kind, x * 3, ordered=ordered)

    run = hj.jit(f, backend=backend)
    assert run(np.float32(1)) == 1 or not ordered
    assert sorted(seen) == [1, 2, 3]
    assert seen == [1, 2, 3] or not ordered
    run(np.float32(5))
    assert sorted(seen) == [1, 2, 3, 5, 10, 15]


def test_io_callback_under_vmap_and_scan() -> None:
    rng = np.random.default_rng(0)
    drawn: list[int] = []

    def draw(i: Any) -> Any:
        drawn.append(int(i))
        return np.float32(rng.normal())

    def one(i: Any) -> Any:
        return io_callback(draw, jax.ShapeDtypeStruct((), np.float32), i)

    assert hj.jit(jax.vmap(one))(np.arange(3)).shape == (3,)
    assert sorted(drawn) == [0, 1, 2]
    hj.jit(lambda: jax.lax.map(one, jnp.arange(2)))()
    assert len(drawn) == 5


@BOTH
def test_errors_reach_the_caller(backend: str) -> None:
    def fails(x: Any) -> Any:
        raise KeyError("no such row")

    def f(x: Any) -> Any:
        return io_callback(fails, jax.ShapeDtypeStruct((3,), np.float32), x, ordered=True)

    run = hj.jit(f, backend=backend)
    for _ in range(2):  # and the program can be called again
        with pytest.raises(EvaluationError, match="KeyError: 'no such row'") as caught:
            run(X)
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("wrong", [np.zeros(2, np.float32), np.zeros(3, np.int32), "text"])
def test_results_that_do_not_fit(wrong: Any) -> None:
    with pytest.raises(EvaluationError):
        hj.jit(lambda x: jax.pure_callback(lambda v: wrong, jax.ShapeDtypeStruct((3,), np.float32), x))(X)


def test_a_callback_that_runs_programs() -> None:
    """JAX's and hlokit's, inside of hlokit's."""
    inner = hj.jit(lambda x: x * 2)

    def host(x: Any) -> Any:
        return np.asarray(jnp.sum(x)) + inner(x)

    agrees(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((3,), np.float32), x) + 1, X)


@BOTH
def test_buffer_callback(backend: str) -> None:
    def host(context: Any, out: Any, x: Any) -> None:
        np.asarray(out)[...] = np.asarray(x) * 3

    f = buffer_callback(host, jax.ShapeDtypeStruct((3,), np.float32))
    np.testing.assert_array_equal(hj.jit(f, backend=backend)(X), X * 3)


def test_lower_keeps_callbacks() -> None:
    """The module runs by itself; tokens stand before parameters and results where effects have an order."""
    seen: list[Any] = []
    module = hj.lower(lambda x: (jax.debug.callback(seen.append, x, ordered=True), x * 2)[1], X)
    gc.collect()
    token, doubled = hk.evaluate(module, None, X)
    assert token is None
    np.testing.assert_array_equal(doubled, X * 2)
    np.testing.assert_array_equal(hk.compile(module)(None, X)[1], X * 2)
    np.testing.assert_array_equal(seen, [X, X])


def test_callbacks_go_with_their_programs() -> None:
    """A jitted function that is gone leaves none; a program of another process is told that there is none."""
    before = len(callbacks._callbacks)
    run = hj.jit(lambda x: host_sine(x) + 1)
    run(X)
    assert len(callbacks._callbacks) == before + 1
    del run
    jax.clear_caches()
    gc.collect()
    assert len(callbacks._callbacks) <= before
    module = hk.parse("""HloModule m
ENTRY e {
  x = f32[] parameter(0)
  ROOT r = f32[] custom-call(x), custom_call_target="xla_ffi_python_cpu_callback",
    api_version=API_VERSION_TYPED_FFI, backend_config={index = 987654321 : ui64}
}""")
    with pytest.raises(EvaluationError, match=r"no callback .*987654321"):
        hk.evaluate(module, 1.0)


def test_jax_itself_is_as_it_was() -> None:
    """The CPU client's own callbacks, after hlokit's rules were installed."""
    hj.lower(host_sine, X)
    np.testing.assert_allclose(jax.jit(host_sine)(X), np.sin(X), rtol=1e-6)
