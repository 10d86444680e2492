"""Shardings on eight devices: what JAX's CPU client prints, written down."""

import contextlib
import io

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

NEWER = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 11)


def mesh_of(sizes, names, kind=AxisType.Explicit):
    return jax.make_mesh(sizes, names, axis_types=(kind,) * len(names))


def floats(*sizes):
    return np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)


def shards(array):
    return [np.asarray(s.data).tolist() for s in array.addressable_shards]


def check_gradient_through_a_gather_of_reduced_values():
    with jax.set_mesh(mesh_of((2, 2), ("data", "seq"))):
        x, y = jax.device_put(floats(4, 2), P("seq", None)), jax.device_put(floats(2, 6), P("seq", None))
        gather = jax.shard_map(
            lambda a: lax.all_gather(a, "seq", tiled=True, to="reduced"),
            in_specs=P("seq", None),
            out_specs=P(None, None, reduced={"seq"}),
        )
        made = jax.jit(jax.grad(lambda x, y: jnp.einsum("td,df->tf", x, gather(y)).sum(), argnums=1))(x, y)
        assert made.sharding.spec == P("seq", None)
        assert np.asarray(made).tolist() == [[12.0] * 6, [16.0] * 6]


def check_terms_of_a_product():
    with jax.set_mesh(mesh_of((2,), ("x",))):
        a, b = jax.device_put(floats(2, 4), P(None, "x")), jax.device_put(floats(4, 2), P("x", None))
        made = jax.jit(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=P(unreduced={"x"})))(a, b)
        assert made.sharding.spec == P(None, None, unreduced={"x"})
        assert shards(made) == [[[2, 3], [10, 19]], [[26, 31], [66, 79]]]
        assert np.asarray(jax.reshard(made, P())).tolist() == [[28, 34], [76, 98]]


def check_terms_of_a_product_in_a_function_and_a_sum():
    with jax.set_mesh(mesh_of((2, 2), ("x", "y"))):
        a, b = jax.device_put(floats(2, 4), P("x", "y")), jax.device_put(floats(4, 2), P("y", None))

        @jax.jit
        def product(a, b):
            return jnp.einsum("ij,jk->ik", a, b, out_sharding=P("x", None, unreduced={"y"}))

        made = jax.jit(lambda a, b: product(a, b) + product(a, b))(a, b)
        assert made.sharding.spec == P("x", None, unreduced={"y"})
        assert shards(made) == [[[4, 6]], [[52, 62]], [[20, 38]], [[132, 158]]]
        again = jax.jit(lambda v: v + v)(made)
        assert shards(again) == [[[8, 12]], [[104, 124]], [[40, 76]], [[264, 316]]]
        assert np.asarray(jax.reshard(again, P("x"))).tolist() == [[112, 136], [304, 392]]


def check_terms_of_a_sum():
    with jax.set_mesh(mesh_of((2,), ("x",))):
        x = jax.device_put(floats(8), P("x"))
        f = jax.jit(lambda x: lax.reduce_sum(x, axes=(0,), out_sharding=P(unreduced={"x"})))
        assert shards(f(x)) == [6, 22]
        made = jax.jit(jax.grad(f))(x)
        assert made.sharding.spec == P("x") and np.asarray(made).tolist() == [1.0] * 8


def check_terms_of_a_scattered_sum():
    with jax.set_mesh(mesh_of((4,), ("x",))):
        values, places = jax.device_put(np.arange(8, dtype=np.int32), P("x")), [0, 0, 1, 1, 1, 2, 2, 3]
        add = jax.jit(lambda v, p: jax.ops.segment_sum(v, p, num_segments=4, out_sharding=P(unreduced={"x"})))
        made = add(values, jax.device_put(np.int32(places), P("x")))
        assert shards(made)[:4] == [[1, 0, 0, 0], [0, 5, 0, 0], [0, 4, 5, 0], [0, 0, 6, 7]], shards(made)
        assert np.asarray(jax.reshard(made, P())).tolist() == [1, 9, 11, 7]
        ones = jnp.ones((8,), dtype=jnp.int32, out_sharding=P("x"))
        count = jax.jit(lambda v: jnp.bincount(v, length=2, out_sharding=P(unreduced={"x"})))
        assert shards(count(ones))[:4] == [[0, 2]] * 4, shards(count(ones))


def check_terms_of_windows_added_to_an_array():
    with jax.set_mesh(mesh_of((2, 2), ("x", "y"))):
        rows = jax.device_put(floats(4, 3), P("y", None))
        start = jax.device_put(np.ones((2, 3), np.float32), P(None, None))
        add = jax.jit(lambda a, r: a.at[np.array([0, 1, 0, 1])].add(r, out_sharding=P(None, None, unreduced={"y"})))
        made = add(start, rows)
        assert np.asarray(jax.reshard(made, P())).tolist() == [[7, 9, 11], [13, 15, 17]]
        first, second = shards(made)[0], shards(made)[1]
        assert np.add(first, second).tolist() == [[7, 9, 11], [13, 15, 17]] and np.any(second), shards(made)


def check_a_whole_value_becomes_terms():
    with jax.set_mesh(mesh_of((2, 2), ("x", "y"))):
        assert shards(jax.reshard(jnp.float32([5, 6]), P(None, unreduced={"x"}))) == [[5, 6], [5, 6], [0, 0], [0, 0]]
        assert shards(jax.reshard(jnp.float32([5]), P(None, unreduced={"x", "y"}))) == [[5], [0], [0], [0]]
        cut = jax.reshard(jnp.float32([1, 2, 3, 4]), P("x"))
        made = jax.reshard(cut, P(None, unreduced={"x"}))
        assert shards(made) == [[1, 2, 0, 0], [1, 2, 0, 0], [0, 0, 3, 4], [0, 0, 3, 4]]
        assert shards(jax.reshard(made, P("y"))) == [[1, 2], [3, 4], [1, 2], [3, 4]]


def check_every_way_to_terms_and_back():
    kinds = (None, "x", "y", "z", ("x", "z"), ("z", "y"))
    with jax.set_mesh(mesh_of((2, 2, 2), ("x", "y", "z"))):
        value = np.arange(1, 33).reshape(4, 8)
        for first in kinds:
            for second in kinds:
                used = [*np.atleast_1d(first), *np.atleast_1d(second)]
                if len({n for n in used if n}) != len([n for n in used if n]):
                    continue
                whole = jax.device_put(value, P(first, second))
                for axes in ({"x"}, {"y", "z"}, {"x", "y", "z"}):
                    spec = P(*(p if not set(np.atleast_1d(p)) & axes else None for p in (first, second)), unreduced=axes)
                    made = jax.reshard(whole, spec)
                    assert made.sharding == NamedSharding(jax.sharding.get_mesh(), spec)
                    assert np.array_equal(jax.reshard(made, P(first, second)), value), (first, second, axes)


def as_terms(x, axis):
    """A value that differs along the axis as terms of a sum: newer versions of JAX want it said."""
    return lax.pcast(x, axis, to="unreduced") if NEWER else x


def check_regions_take_and_give_terms():
    with jax.set_mesh(mesh_of((2, 2), ("x", "y"))):
        a, b = jax.device_put(floats(2, 4), P("x", "y")), jax.device_put(floats(4, 2), P("y", None))
        product = jax.shard_map(
            lambda a, b: as_terms(a @ b, "y"), in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None, unreduced={"y"})
        )
        made = jax.jit(product)(a, b)
        assert made.sharding.spec == P("x", None, unreduced={"y"})
        assert shards(made) == [[[2, 3]], [[26, 31]], [[10, 19]], [[66, 79]]]
        total = jax.shard_map(
            lambda t: lax.psum(t, "y"), in_specs=P("x", None, unreduced={"y"}), out_specs=P("x", None)
        )
        assert np.asarray(jax.jit(total)(made)).tolist() == [[28, 34], [76, 98]]
        assert np.asarray(jax.jit(lambda a, b: total(product(a, b)))(a, b)).tolist() == [[28, 34], [76, 98]]
        grads = jax.jit(jax.grad(lambda a, b: jax.reshard(product(a, b), P("x")).sum(), argnums=(0, 1)))(a, b)
        assert np.asarray(grads[0]).tolist() == [[1, 5, 9, 13]] * 2
        assert np.asarray(grads[1]).tolist() == [[4, 4], [6, 6], [8, 8], [10, 10]]


def check_a_device_keeps_its_own_term():
    with jax.set_mesh(mesh_of((2,), ("x",))):
        cut = jax.device_put(floats(4), P("x"))
        terms = jax.jit(jax.shard_map(lambda x: as_terms(x, "x"), in_specs=P("x"), out_specs=P(unreduced={"x"})))(cut)
        assert shards(terms) == [[0, 1], [2, 3]]
        back = jax.shard_map(lambda x: x, in_specs=P(unreduced={"x"}), out_specs=P("x"), check_vma=False)
        assert np.asarray(jax.jit(back)(terms)).tolist() == [0, 1, 2, 3]
        assert np.asarray(jax.reshard(terms, P())).tolist() == [2, 4]


def check_gradients_of_reduced_arguments_in_a_loop():
    """Values that a loop carries are whole; what leaves the program sums up to them."""
    with jax.set_mesh(mesh_of((2,), ("x",))):
        w = jax.device_put(floats(2, 2) / 8, P(reduced={"x"}))
        xs = jax.device_put(floats(3, 4, 2) / 32, P(None, "x", None))

        def loss(w, x):
            return jnp.tanh(x @ w).sum()

        @jax.jit
        def total(w, xs):
            def body(acc, x):
                return acc + jax.grad(loss)(w, x), None

            start = jax.reshard(jnp.zeros((2, 2), jnp.float32), P(None, None, unreduced={"x"}))
            return lax.scan(body, start, xs)[0]

        made = total(w, xs)
        assert made.sharding.spec == P(None, None, unreduced={"x"})
        expected = sum(x.T @ (1 - np.tanh(x @ floats(2, 2) / 8) ** 2) for x in floats(3, 4, 2) / 32)
        np.testing.assert_allclose(jax.reshard(made, P()), expected, rtol=1e-5)


def check_gathers_of_nothing():
    mesh = mesh_of((2,), ("x",), AxisType.Auto)
    f = jax.shard_map(lambda x: x[:, 100:116], mesh=mesh, in_specs=P(None, "x"), out_specs=P(None, "x"))
    assert jax.jit(f)(jnp.ones((32, 32))).shape == (32, 0)


def check_programs_without_results():
    mesh = mesh_of((4,), ("x",), AxisType.Auto)
    f = jax.shard_map(lambda: jax.jit(lambda: ())(), mesh=mesh, in_specs=(), out_specs=(), check_vma=False)
    assert f() == ()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        jax.pmap(lambda x: jax.debug.print("x: {}", x), devices=jax.devices()[:4])(jnp.arange(4))
        jax.effects_barrier()
    assert sorted(printed.getvalue().splitlines()) == ["x: 0", "x: 1", "x: 2", "x: 3"]


def check_a_constraint_of_an_argument():
    mesh = mesh_of((2, 2), ("x", "y"), AxisType.Auto)
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("x", "y"))
    a = jax.device_put(floats(4, 4), whole)
    made = jax.jit(lambda x: lax.with_sharding_constraint(x, cut))(a)
    assert made.sharding.spec == P("x", "y") and np.asarray(made).tolist() == floats(4, 4).tolist()
    twice = jax.jit(lambda x: lax.with_sharding_constraint(lax.with_sharding_constraint(x + 1, cut), whole))(a)
    assert twice.sharding.is_fully_replicated


def check_results_lie_as_their_operands():
    """Where XLA's partitioner gives the same."""
    mesh = mesh_of((2, 2), ("x", "y"), AxisType.Auto)
    a = jax.device_put(floats(4, 4, 2), NamedSharding(mesh, P("x", "y")))
    b = jax.device_put(floats(4, 8), NamedSharding(mesh, P("x", "y")))
    cases = {
        "an index": (lambda a, b: a[:, -1, :], P("x"), (2, 2)),
        "a transpose": (lambda a, b: a.transpose(1, 2, 0), P("y", None, "x"), (2, 2, 2)),
        "a reshape": (lambda a, b: a.reshape(2, 2, 4, 2)[0], P(None, "y"), (2, 2, 2)),
        "a sum": (lambda a, b: a.sum(0), P("y"), (2, 2)),
        "a product": (lambda a, b: b @ jnp.ones((8, 3)), P("x"), (2, 3)),
        "a function": (lambda a, b: jax.jit(lambda b: jnp.where(b > 2, b, 0))(b), P("x", "y"), (2, 4)),
        "a broadcast": (lambda a, b: jnp.broadcast_to(b, (3, 4, 8)), P(None, "x", "y"), (3, 2, 4)),
        "a loop": (lambda a, b: lax.fori_loop(0, 3, lambda i, b: b + 1, b), P("x", "y"), (2, 4)),
    }
    for name, (f, spec, sizes) in cases.items():
        made = jax.jit(f)(a, b)
        expected = np.asarray(jax.jit(f)(np.asarray(a), np.asarray(b)))
        assert np.asarray(made).tolist() == expected.tolist(), name
        found = made.sharding.spec, made.sharding.shard_shape(made.shape)
        assert made.sharding.is_equivalent_to(NamedSharding(mesh, spec), made.ndim) and found[1] == sizes, (name, found)


def check_shardings_are_shown():
    mesh = mesh_of((4,), ("x",), AxisType.Auto)
    x = jax.device_put(floats(8), NamedSharding(mesh, P("x")))
    seen = []

    def f(x):
        y = jnp.sin(x)
        jax.debug.inspect_array_sharding(y, callback=seen.append)
        jax.debug.inspect_array_sharding(y.sum(), callback=seen.append)
        return y

    np.testing.assert_allclose(jax.jit(f)(x), np.sin(floats(8)), rtol=1e-6)
    assert [s.spec for s in seen] == [P("x"), P()]


def check_open_dimensions_of_a_constraint_take_the_operands_cuts():
    mesh = mesh_of((4, 2), ("x", "y"), AxisType.Auto)
    seeds = jax.device_put(np.arange(16, dtype=np.uint32).reshape(8, 2), NamedSharding(mesh, P("x", "y")))
    made = jax.jit(lambda s: jax.vmap(jax.vmap(jax.random.key))(s).T)(seeds)  # the constraint [{?}, {?}, {}]
    assert made.sharding.spec == P("y", "x")
    x = jax.device_put(floats(8, 2), NamedSharding(mesh, P("x", "y")))
    inner = jax.sharding.explicit_axes(jnp.sin, axes="y", in_sharding=P(None, "y"))  # [{?}, {"y", ?}]
    with jax.set_mesh(mesh):
        made = jax.jit(lambda x: inner(x * 2))(x)
    assert made.sharding.spec == P("x", "y"), made.sharding
    assert np.allclose(made, np.sin(floats(8, 2) * 2))


def check_closed_dimensions_of_a_constraint_stay_whole():
    mesh = mesh_of((4, 2), ("x", "y"), AxisType.Auto)
    x = jax.device_put(floats(8, 2), NamedSharding(mesh, P("x", "y")))
    made = jax.jit(lambda x: lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, P(None, "y"))))(x)
    assert made.sharding.spec == P(None, "y"), made.sharding


def check_a_constraint_in_a_loop_says_where_its_results_lie():
    mesh = mesh_of((4, 2), ("x", "y"), AxisType.Auto)

    def constrained(x, _):
        return lax.with_sharding_constraint(x + 1, NamedSharding(mesh, P("x", None))), None

    made = jax.jit(lambda x: lax.scan(constrained, x, None, length=2)[0])(floats(8, 2))
    assert made.sharding.spec == P("x"), made.sharding
    assert np.array_equal(made, floats(8, 2) + 2)
    placed = NamedSharding(mesh, P("x"))
    inner = jax.jit(lambda x: lax.with_sharding_constraint(x, placed))  # the constraint is on a function's argument
    made = jax.jit(lambda x: lax.scan(lambda x, _: (inner(x), None), x, None, length=1)[0])(floats(8, 2))
    assert made.sharding.spec == P("x"), made.sharding


def check_a_constraint_in_a_branch_says_where_its_results_lie():
    mesh = mesh_of((4, 2), ("x", "y"), AxisType.Auto)

    def constrained(x):
        return lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(None, "y"))), x.sum()

    made, total = jax.jit(lambda p, x: lax.cond(p, constrained, lambda x: (x, x.sum()), x))(True, floats(8, 2))
    assert made.sharding.spec == P(None, "y"), made.sharding
    assert np.array_equal(made, floats(8, 2) * 2) and total == floats(8, 2).sum()


def check_results_lie_as_what_uses_them():
    """The region divides the product, whose operand alone would divide its rows."""
    mesh = mesh_of((4, 2), ("x", "y"), AxisType.Auto)
    x = jax.device_put(floats(8, 2), NamedSharding(mesh, P("x", "y")))

    @jax.jit
    def f(x):
        y = x @ x.T
        return y, jax.shard_map(lambda v: v + 1, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))(y)

    for made, more in zip(f(x), (0, 1), strict=True):
        assert made.sharding.spec == P("x", "y"), made.sharding
        assert np.array_equal(made, floats(8, 2) @ floats(8, 2).T + more)


def check_values_of_a_group_lie_alike():
    try:
        from jax.experimental.shard_alike import shard_alike
    except ImportError:  # JAX 0.12.0.1 has it no more
        return
    mesh = mesh_of((4, 2), ("x", "y"), AxisType.Auto)
    x = jax.device_put(floats(8, 2), NamedSharding(mesh, P("x", "y")))
    made = jax.jit(lambda x: shard_alike(x, jnp.arange(16.0).reshape(8, 2))[1])(x)
    assert made.sharding.spec == P("x", "y"), made.sharding
    assert np.array_equal(made, floats(8, 2))

    @jax.jit
    def chained(x):
        _, y = shard_alike(x, jnp.arange(16.0).reshape(8, 2) * 3)
        first, second = shard_alike(jnp.arange(16.0).reshape(8, 2), y + x)  # what is known last reaches what comes first
        return first * 2, second

    for made in chained(x):
        assert made.sharding.spec == P("x", "y"), made.sharding


def check_linear_algebra_keeps_the_batch_where_it_is():
    mesh = mesh_of((8,), ("x",), AxisType.Auto)
    made = np.random.RandomState(0).rand(8, 4, 4).astype(np.float32)
    x = jax.device_put(made @ made.transpose(0, 2, 1) + np.eye(4, dtype=np.float32), NamedSharding(mesh, P("x")))
    for name in ("cholesky", "qr", "svd", "eigh"):
        compiled = jax.jit(getattr(lax.linalg, name)).lower(x).compile()
        results = jax.tree.leaves(compiled(x))
        assert all(y.sharding.spec == P("x") for y in results), name
        assert "all-" not in compiled.as_text(), name
    solved = jax.jit(lambda a: lax.linalg.triangular_solve(a, a, left_side=True, lower=True))(x)
    assert solved.sharding.spec == P("x")


def check_partitioned_callbacks_are_given_parts():
    mesh = mesh_of((2,), ("x",), AxisType.Auto)
    x = jax.device_put(np.arange(4).reshape(2, 2), NamedSharding(mesh, P("x")))
    y = jax.device_put(np.arange(4).reshape(2, 2) + 6, NamedSharding(mesh, P("x")))
    found = []

    def note(*values):
        found.append([np.asarray(value).tolist() for value in values])

    def called(*values):
        jax.debug.callback(note, *values, partitioned=True)

    for f, expected in (
        (called, [[[[0, 1]], [[6, 7]]], [[[2, 3]], [[8, 9]]]]),
        (jax.vmap(called, in_axes=(0, 1)), [[[0, 1], [6]], [[0, 1], [8]], [[2, 3], [7]], [[2, 3], [9]]]),
        (lambda x, y: called(x.sum()), [[6], [6]]),
        (lambda x, y: jax.debug.callback(note, x), [[[[0, 1], [2, 3]]]]),
    ):
        found.clear()
        jax.jit(f)(x, y)
        jax.effects_barrier()
        assert sorted(found) == expected, found
