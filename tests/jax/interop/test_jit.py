"""hlokit.interop.jax.jit and lower: arguments, results, caching, errors."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import hlokit as hk
import hlokit.interop.jax as hj
from hlokit.errors import ArgumentError, EvaluationError, UnsupportedError
from hlokit.hlo.sources import source_lines
from tests.jax.interop.compare import agrees, matrix

X = np.float32([0.5, 1.5, -2.0])


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self, f: Any) -> None:
        self.f, self.count = f, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.f(*args, **kwargs)


class State(NamedTuple):
    weights: dict[str, Any]
    step: Any


# -- lower


def test_lower_keeps_the_lines_of_the_script() -> None:
    module = hj.lower(lambda x: jnp.sort(x) * 2, X)
    (product,) = (i for i in module.entry.instructions if i.opcode == "multiply")
    (line, *_) = source_lines(product)
    assert line.file == __file__ and "jnp.sort(x) * 2" in Path(__file__).read_text(encoding="utf-8").splitlines()[line.line - 1]


def test_lower_gives_a_module() -> None:
    module = hj.lower(lambda x, y: jnp.sin(x) @ y["w"], X, {"w": matrix(3, 2), "unused": np.int32(1)})
    assert isinstance(module, hk.HloModule)
    shapes = [str(p.shape.logical) for p in module.entry.parameters]
    assert shapes == ["f32[3]", "s32[]", "f32[3,2]"]  # leaves in JAX's order, the unused one too
    hk.verify(module)
    expected = np.sin(X) @ matrix(3, 2)
    for run in (functools.partial(hk.evaluate, module), hk.compile(module)):
        np.testing.assert_allclose(run(X, np.int32(1), matrix(3, 2)), expected, rtol=1e-6)


def test_lower_of_shapes_statics_and_jitted_functions() -> None:
    shape = jax.ShapeDtypeStruct((2, 3), jnp.bfloat16)
    module = hj.lower(jax.jit(lambda x, axis: x.sum(axis), static_argnums=1), shape, 1, static_argnums=1)
    assert str(module.entry.root.shape.logical) == "bf16[2]"
    module = hj.lower(lambda x, axis: x.sum(axis), shape, axis=0, static_argnames="axis")
    assert str(module.entry.root.shape.logical) == "bf16[3]"


def test_lower_makes_the_same_text_again() -> None:
    def f(x: Any) -> Any:
        return jnp.linalg.svd(x @ x.T)[1] + matrix(4)

    assert str(hj.lower(f, matrix(4, 5))) == str(hj.lower(f, matrix(4, 5)))


def test_lower_has_constants_inside() -> None:
    table = jnp.arange(1000.0).reshape(10, 100)
    module = hj.lower(lambda i: table[i], np.int32(3))
    assert len(module.entry.parameters) == 1
    np.testing.assert_array_equal(hk.evaluate(module, np.int32(3)), np.asarray(table)[3])


def test_lower_of_keys() -> None:
    module = hj.lower(lambda k: jax.random.split(k, 3), jax.random.key(1))
    words = hk.evaluate(module, np.uint32([0, 1]))
    np.testing.assert_array_equal(words, jax.random.key_data(jax.random.split(jax.random.key(1), 3)))


def test_what_jax_cannot_lower() -> None:
    unknown = jax.extend.core.Primitive("unknown")
    unknown.def_abstract_eval(lambda x: x)
    with pytest.raises(UnsupportedError, match="'unknown'"):
        hj.lower(unknown.bind, X)
    with pytest.raises(TypeError, match="add got incompatible shapes"):
        hj.lower(jax.lax.add, np.zeros(2), np.zeros(3))


def test_what_hlokit_cannot_run() -> None:
    call = jax.ffi.ffi_call("no_such_function", jax.ShapeDtypeStruct((), np.float32))
    with pytest.raises(UnsupportedError, match="no_such_function"):
        hj.jit(lambda x: call(x))(1.0)


# -- jit: trees, types, constants


def test_results_are_arrays_of_numpy_in_their_tree() -> None:
    @hj.jit
    def f(state: State) -> Any:
        """Doubles."""
        return State({k: 2 * v for k, v in state.weights.items()}, state.step + 1), None, [state.step]

    result = f(State({"a": X, "b": jnp.ones((2, 2))}, 3))
    assert isinstance(result[0], State)
    assert type(result[0].weights["b"]) is np.ndarray
    np.testing.assert_array_equal(result[0].weights["a"], 2 * X)
    assert result[0].step == 4 and result[0].step.dtype == np.int32
    assert result[1] is None
    assert f.__name__ == "f" and f.__doc__ == "Doubles."


def test_no_arguments_and_no_results() -> None:
    assert hj.jit(lambda: ())() == ()
    np.testing.assert_array_equal(hj.jit(lambda: jnp.arange(3))(), [0, 1, 2])
    assert hj.jit(lambda x: None)(X) is None


@pytest.mark.parametrize("value", [True, 3, 2.5, 1j, np.float16(2), np.int8(3), np.float64(1), [1, 2.0], X])
def test_kinds_of_arguments(value: Any) -> None:
    agrees(lambda x, y: jax.tree.map(lambda leaf: leaf * y, x), value, jnp.float16(2))


def test_masked_arrays_are_refused() -> None:
    twice = hj.jit(lambda x: x + x)
    x = np.array([1.0, 2.0], np.float32)
    for value in (np.ma.array(x, mask=[True, False]), x, np.ma.array(x, mask=[True, False])):
        if value is x:
            assert twice(x).tolist() == [2, 4]
            continue
        with pytest.raises(ValueError, match="masked"):
            twice(value)


def test_weak_types_are_told_apart() -> None:
    agrees(lambda x: x * jnp.float16(2), 3.0)
    agrees(lambda x: x * jnp.float16(2), np.float32(3))


def test_64_bits() -> None:
    run = hj.jit(lambda x: x / 3)
    assert run(np.float64(1)).dtype == np.float32
    with jax.enable_x64(True):
        assert run(np.float64(1)).dtype == np.float64
        assert run(np.float64(1)) == 1 / 3
    assert run(np.float64(1)).dtype == np.float32


def test_constants() -> None:
    weights, small = jnp.asarray(matrix(300, 300)), np.arange(3.0, dtype=np.float32)
    agrees(lambda x: (x @ weights[:3], x + small), X)


def test_keys_go_in_and_out() -> None:
    key = jax.random.key(5)
    keys, drawn = hj.jit(lambda k: (jax.random.split(k, 2), jax.random.bits(k)))(key)
    assert keys.dtype == key.dtype
    expected = jax.random.split(key, 2)
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(expected))
    assert drawn == jax.random.bits(key)
    (again,) = hj.jit(lambda k: (k[1],))(keys)
    np.testing.assert_array_equal(jax.random.key_data(again), jax.random.key_data(expected[1]))


def test_derivative_by_integers() -> None:
    found = hj.jit(jax.grad(lambda x, i: x * 2.0 * i, argnums=1, allow_int=True))(1.0, 3)
    assert found.dtype == jax.dtypes.float0


# -- jit: static and donated arguments


def test_static_arguments() -> None:
    counted = Counted(lambda x, power, flip=False: -(x**power) if flip else x**power)
    run = hj.jit(counted.__call__, static_argnums=(1,), static_argnames=("flip",))
    assert run(3.0, 2) == 9 and run(4.0, 2) == 16
    assert counted.count == 1
    assert run(3.0, 3) == 27 and run(3.0, 2, flip=True) == -9
    assert counted.count == 3
    named = hj.jit(lambda x, axis: x.sum(axis), static_argnames="axis")
    np.testing.assert_array_equal(named(matrix(2, 3), 0), named(matrix(2, 3), axis=0))
    last = hj.jit(lambda x, n: x * n, static_argnums=-1)
    assert last(2, 3) == 6 and last(2, 4) == 8
    typed = hj.jit(lambda x, n: jnp.asarray(n) + x, static_argnums=1)
    assert typed(1, 1).dtype == np.int32 and typed(1, 1.0).dtype == np.float32


def test_methods() -> None:
    class Model:
        def __init__(self, scale: int) -> None:
            self.scale = scale

        @functools.partial(hj.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.scale

    assert Model(2).apply(3) == 6 and Model(5).apply(3) == 15


def test_donated_arguments() -> None:
    run = hj.jit(lambda x, y: (x + 1, y), donate_argnums=0)
    theirs = jnp.ones(100)
    result, _ = run(theirs, X)
    np.testing.assert_array_equal(theirs, np.ones(100))  # an array of JAX's is never written to
    np.testing.assert_array_equal(result, np.full(100, 2))
    own, kept = np.ones(100, np.float32), X.copy()
    result, _ = run(own, kept)
    np.testing.assert_array_equal(result, np.full(100, 2))
    np.testing.assert_array_equal(kept, X)
    both = np.ones(4, np.float32)
    added, same = hj.jit(lambda x, y: (x + 1, y * 3), donate_argnums=(0, 1))(both, both)
    assert added.tolist() == [2] * 4 and same.tolist() == [3] * 4


# -- jit: tracing


def test_one_trace_for_each_kind_of_arguments() -> None:
    counted = Counted(lambda x: x + 1)
    run = hj.jit(counted.__call__)
    for value in (X, X + 1, jnp.ones(3), np.ones((2, 2), np.float32), 1.0, 2.0):
        run(value)
    assert counted.count == 3


def test_functions_of_hlokit_in_one_another() -> None:
    inner = hj.jit(lambda x: jnp.sin(x).sum())
    outer = hj.jit(jax.grad(lambda x: inner(x) * 2))
    np.testing.assert_allclose(outer(X), 2 * np.cos(X), rtol=1e-6)
    module = hj.lower(lambda x: inner(x) + 1, X)
    np.testing.assert_allclose(hk.evaluate(module, X), np.sin(X).sum() + 1, rtol=1e-6)


@pytest.mark.parametrize("transform", [jax.grad, jax.vmap, jax.jit])
def test_transformations_belong_inside(transform: Any) -> None:
    with pytest.raises(ArgumentError, match="inside a JAX transformation"):
        transform(hj.jit(jnp.sum))(X)
    agrees(transform(lambda x: jnp.sum(x)), X)


def test_backends_and_options() -> None:
    for options in ({"backend": "interpreter"}, {"threads": 1}, {"strict": True}, {"shadow": True}):
        agrees(lambda x: jnp.tanh(x) @ matrix(3, 2), X, **options)
    with pytest.raises(UnsupportedError, match="gpu"):
        hj.jit(jnp.sin, backend="gpu")


@pytest.mark.parametrize("wrong", ["text", object(), {1, 2}])
def test_arguments_that_are_none(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=type(wrong).__name__):
        hj.jit(lambda x: x)(wrong)


def test_shapes_are_no_values() -> None:
    with pytest.raises(ArgumentError, match="is not an array"):
        hj.jit(lambda x: x + 1)(jax.ShapeDtypeStruct((2,), np.float32))


def test_other_errors() -> None:
    with pytest.raises(ArgumentError, match="hashable"):
        hj.jit(lambda x, s: x, static_argnums=1)(X, [1])
    with pytest.raises(ArgumentError, match="expected a function"):
        hj.jit(3)  # type: ignore[call-overload]
    with pytest.raises(ZeroDivisionError):  # the function's own
        hj.jit(lambda x: x / (1 // 0))(X)
    with pytest.raises((UnsupportedError, TypeError, ValueError)):
        hj.jit(lambda r: r[...])(jax.new_ref(jnp.ones(3)))
    with pytest.raises(EvaluationError, match="limit"):
        hj.jit(lambda x: jnp.zeros((1 << 22, 1 << 22)) + x)(1.0)


def test_references_inside() -> None:
    def f(x: Any) -> Any:
        ref = jax.new_ref(x)
        ref[0] = 7.0
        return ref[...] * 2

    agrees(f, X)


def test_rules_that_ask_for_the_platform() -> None:
    """They take hlokit for the CPU."""

    def choice(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.tan, default=jnp.cos)

    agrees(choice, X)
    agrees(jax.vmap(jax.grad(choice)), X)
    agrees(lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin), X)
    np.testing.assert_allclose(
        hj.jit(lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, hlokit=jnp.cos))(X), np.cos(X), rtol=1e-6
    )
    exported = jax.export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((3,), np.float32))
    agrees(exported.call, X)


def test_one_device_of_a_mesh() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    agrees(jax.shard_map(lambda x: jax.lax.psum(x, "i") * 2, mesh=mesh, in_specs=spec, out_specs=spec), X)
    sharding = jax.sharding.NamedSharding(mesh, spec)
    agrees(lambda x: jax.lax.with_sharding_constraint(x, sharding) + 1, jax.device_put(X, sharding))


SEVERAL = """
import jax, numpy as np, hlokit as hk, hlokit.interop.jax as hj
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
spec = jax.sharding.PartitionSpec("i")
f = jax.shard_map(lambda x: x * 2 + jax.lax.psum(x.sum(), "i"), mesh=mesh, in_specs=spec, out_specs=spec)
x = np.arange(4, dtype=np.float32)
try:
    hj.jit(f)(x)
    raise AssertionError("it ran")
except hk.UnsupportedError as error:
    assert "several devices" in str(error), error
module = hj.lower(f, x)
assert module.num_partitions == 2, module
"""


def test_several_devices_are_refused() -> None:
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SEVERAL], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_checks() -> None:
    def f(x: Any) -> Any:
        checkify.check(x > 0, "{} is not positive", x)
        return jnp.log(x)

    error, _ = hj.jit(checkify.checkify(f))(-1.0)
    assert error.get().startswith("-1.0 is not positive")
    assert hj.jit(checkify.checkify(f))(1.0)[0].get() is None


def test_training_step() -> None:
    """A whole step: losses, gradients, momentum, a scan over batches."""

    def loss(w: Any, batch: Any) -> Any:
        x, y = batch
        hidden = jax.nn.gelu(x @ w["a"])
        return jnp.mean((jax.nn.log_softmax(hidden @ w["b"]) - y) ** 2)

    def train(w: Any, batches: Any) -> Any:
        def step(state: Any, batch: Any) -> Any:
            w, m = state
            value, gradient = jax.value_and_grad(loss)(w, batch)
            m = jax.tree.map(lambda m, g: 0.9 * m + g, m, gradient)
            return (jax.tree.map(lambda w, m: w - 0.1 * m, w, m), m), value

        return jax.lax.scan(step, (w, jax.tree.map(jnp.zeros_like, w)), batches)

    weights = {"a": matrix(8, 16) / 4, "b": matrix(16, 4, seed=1) / 4}
    agrees(train, weights, (matrix(5, 12, 8, seed=2), matrix(5, 12, 4, seed=3)), scale=5)


def test_jax_is_imported_when_it_is_used() -> None:
    script = (
        "import sys, hlokit.interop.jax as hj; assert 'jax' not in sys.modules; hj.jit; assert 'jax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_tracebacks_of_jit_end_in_the_callers_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOKIT_TRACEBACK_FILTERING", raising=False)
    function = hj.jit(jnp.sin)
    for call in (lambda: function("text"), lambda: hj.jit(3), lambda: hj.jit(jnp.sin, backend="gpu")):  # type: ignore[arg-type]
        with pytest.raises(hk.HlokitError) as caught:
            call()
        assert [Path(e.filename).name for e in traceback.extract_tb(caught.value.__traceback__)][-1] == "test_jit.py"
