"""jax: transformations, custom derivatives, trees, callbacks, export; jax.experimental; jax.example_libraries."""

import jax
import jax.ad_checkpoint
import jax.custom_batching
import jax.dlpack
import jax.experimental.buffer_callback
import jax.experimental.sparse.linalg
import jax.extend
import jax.flatten_util
import jax.numpy as jnp
import jax.ref
import numpy as np
from jax import export
from jax.example_libraries import optimizers, stax
from jax.experimental import checkify, io_callback, jet, ode, sparse

from tests.jax.functions.table import KEY, case, devices, integers, normal, positive

X, Y, V = normal(3, 4), normal(3, 4, seed=1), normal(4)
F32 = jax.ShapeDtypeStruct((4,), np.float32)


def f(x):
    return jnp.sum(jnp.sin(x) * x**2)


def g(x):
    return jnp.sin(x) * jnp.cumsum(x)


@jax.custom_jvp
def with_jvp(x):
    return jnp.log1p(jnp.exp(x))


with_jvp.defjvp(lambda primals, tangents: (with_jvp(*primals), 3 * tangents[0]))


@jax.custom_vjp
def with_vjp(x, y):
    return jnp.sin(x) * y


with_vjp.defvjp(lambda x, y: (with_vjp(x, y), (x, y)), lambda saved, t: (t * saved[1] * 2, t * jnp.sin(saved[0])))


@jax.custom_gradient
def with_gradient(x):
    return x**2, lambda t: t * 7 * x


@jax.custom_batching.custom_vmap
def with_vmap(x):
    return jnp.sin(x)


@with_vmap.def_vmap
def _(size, batched, x):
    return jnp.cos(x), batched[0]


@jax.custom_batching.sequential_vmap
def one_by_one(x):
    return jnp.sort(x)


def host_sine(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")


TRANSFORMS = [
    case("jax.grad", lambda x: jax.grad(f)(x), V),
    case("jax.value_and_grad", lambda x: jax.value_and_grad(f)(x), V),
    case("jax.jacfwd", lambda x: jax.jacfwd(g)(x), V),
    case("jax.jacrev", lambda x: jax.jacrev(g)(x), V),
    case("jax.jacobian", lambda x: jax.jacobian(g)(x), V),
    case("jax.hessian", lambda x: jax.hessian(f)(x), V),
    case("jax.jvp", lambda x, t: jax.jvp(g, (x,), (t,)), V, V + 1),
    case("jax.vjp", lambda x, t: jax.vjp(g, x)[1](t), V, V + 1),
    case("jax.fwd_and_bwd", lambda x: jax.fwd_and_bwd(g, 0)[0](x)[0], V),
    case("jax.linearize", lambda x, t: jax.linearize(g, x)[1](t), V, V + 1),
    case("jax.linear_transpose", lambda x: jax.linear_transpose(jnp.cumsum, F32)(x), V),
    case("jax.vmap", lambda x, y: jax.vmap(jnp.dot, in_axes=(0, 1), out_axes=0)(x, y), X, Y.T),
    case("jax.jit", lambda x, n: jax.jit(lambda v, k: v * k, static_argnums=())(x, n), X, np.float32(3)),
    case("jax.checkpoint", lambda x: jax.checkpoint(lambda v: jnp.sin(jnp.sin(v)))(x), X),
    case("jax.checkpoint", lambda x: jax.checkpoint(g, policy=jax.checkpoint_policies.everything_saveable)(x), V, label="policy"),
    case("jax.remat", lambda x: jax.lax.scan(jax.remat(lambda c, _: (jnp.sin(c), None)), x, None, length=3)[0], X),
    case("jax.ad_checkpoint.checkpoint_name", lambda x: jax.ad_checkpoint.checkpoint_name(jnp.sin(x), "sine"), X),
    case("jax.custom_jvp", lambda x: (jax.custom_jvp, with_jvp(x))[1], X),
    case("jax.custom_vjp", lambda x, y: (jax.custom_vjp, with_vjp(x, y))[1], X, Y),
    case("jax.custom_gradient", lambda x: (jax.custom_gradient, with_gradient(x))[1], X),
    case("jax.closure_convert", lambda x: jax.closure_convert(lambda v: v * x, x)[0](x, *jax.closure_convert(lambda v: v * x, x)[1]), V),
    case("jax.custom_derivatives.linear_call", lambda x, y: jax.custom_derivatives.linear_call(lambda s, v: v * s, lambda s, t: t * s, y, x), V, V + 1, by=(0,), no_vmap=True),
    case("jax.custom_batching.custom_vmap", lambda x: (jax.custom_batching.custom_vmap, with_vmap(x))[1], X, no_grad=True),
    case("jax.custom_batching.sequential_vmap", lambda x: (jax.custom_batching.sequential_vmap, one_by_one(x))[1], V, no_grad=True),
    case("jax.named_call", lambda x: jax.named_call(jnp.sin, name="sine")(x), X),
    case("jax.named_scope", lambda x: _scoped(x), X),
    case("jax.eval_shape", lambda x: x * jax.eval_shape(jnp.transpose, x).shape[0], X),
    case("jax.make_jaxpr", lambda x: jax.extend.core.jaxpr_as_fun(jax.make_jaxpr(g)(x))(x), V),
    case("jax.default_matmul_precision", lambda x: _precise(x), X),
    case("jax.disable_jit", lambda x: _unjitted(x), V, host=True),
    case("jax.debug_nans", lambda x: _finite(x), V, host=True),
    case("jax.enable_x64", lambda x: _double(x), V, host=True),
    case("jax.device_put", lambda x: jax.device_put(x, devices()[0]) + 1, X, host=True),
    case("jax.device_get", lambda x: jax.device_get(x + 1), X, host=True),
    case("jax.block_until_ready", lambda x: jax.block_until_ready(x + 1), X, host=True),
    case("jax.copy_to_host_async", lambda x: _copied(x), X, host=True),
    case("jax.effects_barrier", lambda x: (jax.effects_barrier(), x)[1], X, host=True),
    case("jax.live_arrays", lambda x: len(jax.live_arrays(devices()[0].platform)) > 0, X, host=True),
    case("jax.new_ref", lambda x: _through_ref(x), X),
    case("jax.freeze", lambda x: _through_ref(x), X),
    case("jax.ref.swap", lambda x: _swapped(x), X),
    case("jax.ref.addupdate", lambda x: _added(x), X),
    case("jax.flatten_util.ravel_pytree", lambda t: jax.flatten_util.ravel_pytree(t)[0], {"a": X, "b": V}),
]  # fmt: skip


def _scoped(x):
    with jax.named_scope("scope"):
        return jnp.sin(x)


def _precise(x):
    with jax.default_matmul_precision("highest"):
        return x @ x.T


def _unjitted(x):
    with jax.disable_jit():
        return jax.lax.scan(lambda c, v: (c + v, c * v), 0.0, x)


def _finite(x):
    with jax.debug_nans(True):
        try:
            jax.block_until_ready(jnp.log(x - 100))
        except FloatingPointError:
            return x + 1
    raise AssertionError("no FloatingPointError")


def _double(x):
    with jax.enable_x64(True):
        return jnp.asarray(np.asarray(x), jnp.float64) * np.pi


def _copied(x):
    jax.copy_to_host_async(x)
    return np.asarray(x)


def _through_ref(x):
    ref = jax.new_ref(x)
    ref[...] = jnp.sin(ref[...]) + x
    return jax.freeze(ref)


def _swapped(x):
    ref = jax.new_ref(x)
    return jax.ref.swap(ref, 0, x[1]), ref[...]


def _added(x):
    ref = jax.new_ref(x)
    jax.ref.addupdate(ref, (1, slice(None)), x[0])
    return ref[...]


TREE = {"a": X, "b": [V, integers(4)]}
TREES = [
    case("jax.tree.map", lambda t: jax.tree.map(lambda v: v + 1, t), TREE),
    case("jax.tree.leaves", lambda t: jax.tree.leaves(t), TREE),
    case("jax.tree.flatten", lambda t: jax.tree.flatten(t)[0], TREE),
    case("jax.tree.unflatten", lambda t: jax.tree.unflatten(jax.tree.structure(t), jax.tree.leaves(t)), TREE),
    case("jax.tree.reduce", lambda t: jax.tree.reduce(lambda a, b: a + b.sum(), t, 0.0), TREE),
    case("jax.tree.reduce_associative", lambda t: jax.tree.reduce_associative(lambda a, b: a.sum() + b.sum(), t), TREE),
    case("jax.tree.transpose", lambda t: jax.tree.transpose(jax.tree.structure({"a": 0}), jax.tree.structure([0, 0]), {"a": [t["a"], t["a"]]}), TREE),
    case("jax.tree.map_with_path", lambda t: jax.tree.map_with_path(lambda p, v: v * len(p), t), TREE),
    case("jax.tree.leaves_with_path", lambda t: [v * len(p) for p, v in jax.tree.leaves_with_path(t)], TREE),
    case("jax.tree.broadcast", lambda t: jax.tree.broadcast(1, t), TREE, host=True),
    case("jax.tree.all", lambda t: jax.tree.all(jax.tree.map(lambda v: bool((v == v).all()), t)), TREE, host=True),
    case("jax.tree_util.tree_map", lambda t: jax.tree_util.tree_map(jnp.sin, t), {"a": X}),
    case("jax.tree_util.tree_flatten", lambda t: jax.tree_util.tree_flatten(t)[0], TREE),
    case("jax.tree_util.tree_reduce", lambda t: jax.tree_util.tree_reduce(lambda a, b: a + b.sum(), t, 0.0), TREE),
    case("jax.tree_util.Partial", lambda x, y: jax.jit(lambda h, v: h(v))(jax.tree_util.Partial(jnp.multiply, x), y), X, Y),
    case("jax.tree_util.register_pytree_node_class", lambda x: _pair(x), X),
    case("jax.tree_util.register_dataclass", lambda x: _record(x), X),
]  # fmt: skip


def _pair(x):
    @jax.tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def tree_flatten(self):
            return (self.a, self.b), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    pair = jax.jit(lambda p: Pair(p.b, p.a * 2))(Pair(x, x + 1))
    return pair.a, pair.b


def _record(x):
    import dataclasses

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Record:
        a: jax.Array

    return jax.jit(lambda r: Record(r.a * 2))(Record(x)).a


def _printed(x):
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        jax.jit(lambda v: jax.debug.print("{v}", v=v.sum(), ordered=True))(x)
        jax.effects_barrier()
    return out.getvalue()


def _seen(x):
    seen = []
    jax.jit(lambda v: jax.debug.callback(lambda a: seen.append(np.asarray(a)), v * 2))(x)
    jax.effects_barrier()
    return seen


def _buffers(x):
    from jax.experimental.buffer_callback import buffer_callback

    def host(context, out, v):
        np.asarray(out)[...] = np.asarray(v) * 3

    return jax.jit(buffer_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype)))(x)


def _exported(x):
    exported = export.export(jax.jit(g), platforms=[devices()[0].platform])(jax.ShapeDtypeStruct(x.shape, x.dtype))
    return export.deserialize(exported.serialize()).call(x)


def _polymorphic(x):
    shape = export.symbolic_shape("n")
    exported = export.export(jax.jit(g), platforms=["cpu", "hlokit"])(jax.ShapeDtypeStruct(shape, x.dtype))
    return [export.deserialize(exported.serialize()).call(v) for v in (x, x[:2])]


def _ahead(x):
    compiled = jax.jit(g).lower(x).compile()
    assert isinstance(compiled, jax.stages.Compiled)
    return compiled(x)


def _stored(x):
    from jax.experimental.serialize_executable import deserialize_and_load, serialize

    compiled = jax.jit(g).lower(x).compile()
    return deserialize_and_load(*serialize(compiled), backend=devices()[0].platform, execution_devices=devices()[:1])(x)


EFFECTS = [
    case("jax.pure_callback", lambda x: (jax.pure_callback, host_sine(x))[1], X, no_grad=True),
    case("jax.experimental.io_callback", lambda x: io_callback(lambda v: v * 2, F32, x, ordered=True), V, no_grad=True, no_vmap=True),
    case("jax.experimental.io_callback", lambda x: io_callback(lambda v: v * 2, F32, x), V, no_grad=True, label="unordered"),
    case("jax.debug.print", lambda x: (jax.debug.print, _printed(x))[1], X, host=True),
    case("jax.debug.callback", lambda x: (jax.debug.callback, _seen(x))[1], X, host=True),
    case("jax.experimental.buffer_callback.buffer_callback", lambda x: (jax.experimental.buffer_callback, _buffers(x))[1], X, host=True),
    case("jax.export.export", lambda x: (export.export, _exported(x))[1], V, host=True),
    case("jax.export.symbolic_shape", lambda x: (export.symbolic_shape, _polymorphic(x))[1], V, host=True),
    case("jax.stages.Compiled", lambda x: _ahead(x), V, host=True),
    case("jax.experimental.serialize_executable.serialize", lambda x: _stored(x), V, host=True),
    case("jax.experimental.serialize_executable.deserialize_and_load", lambda x: _stored(x + 1), V, host=True),
    case("jax.dlpack.from_dlpack", lambda x: jax.dlpack.from_dlpack(np.asarray(x) * 2), X, host=True),
    case("jax.experimental.checkify.checkify", lambda x: checkify.checkify(lambda v: v[0] / v[1], errors=checkify.all_checks)(x)[1], V),
    case("jax.experimental.checkify.check", lambda x: _checked(x), V, host=True),
]  # fmt: skip


def _checked(x):
    def positive(v):
        checkify.check(jnp.all(v > 0), "negative: {v}", v=v.min())
        return v

    error, _ = jax.jit(checkify.checkify(positive))(x - 100)
    return error.get().split("(")[0]


DIAGONAL = np.diag(V) + np.eye(4, k=1, dtype=np.float32)
SP = "jax.experimental.sparse"


def coo(a):
    return sparse.BCOO.fromdense(a, nse=7)


def csr(a):
    return sparse.BCSR.fromdense(a, nse=7)


SPARSE = [
    case(f"{SP}.BCOO", lambda a, b: sparse.BCOO.fromdense(a, nse=7) @ b, DIAGONAL, X.T),
    case(f"{SP}.BCSR", lambda a, b: sparse.BCSR.fromdense(a, nse=7) @ b, DIAGONAL, X.T),
    case(f"{SP}.COO", lambda a, b: sparse.COO.fromdense(a, nse=7) @ b, DIAGONAL, X.T, no_vmap=True),
    case(f"{SP}.CSR", lambda a, b: sparse.CSR.fromdense(a, nse=7) @ b, DIAGONAL, X.T, no_vmap=True),
    case(f"{SP}.CSC", lambda a, b: sparse.CSC.fromdense(a, nse=7).T @ b, DIAGONAL, X.T, no_vmap=True),
    case(f"{SP}.todense", lambda a: sparse.todense(coo(a)), DIAGONAL),
    case(f"{SP}.sparsify", lambda a, b: sparse.sparsify(lambda m, v: jnp.sum(m @ v + v))(coo(a), b), DIAGONAL, V),
    case(f"{SP}.bcoo_dot_general", lambda a, b: sparse.bcoo_dot_general(coo(a), b, dimension_numbers=(((0,), (0,)), ((), ()))), DIAGONAL, V),
    case(f"{SP}.bcoo_dot_general_sampled", lambda a, b, i: sparse.bcoo_dot_general_sampled(a, b, i, dimension_numbers=(((1,), (0,)), ((), ()))), X, Y.T, np.int32([[0, 1], [2, 2]])),
    case(f"{SP}.bcoo_transpose", lambda a: sparse.bcoo_transpose(coo(a), permutation=(1, 0)).todense(), DIAGONAL),
    case(f"{SP}.bcoo_reduce_sum", lambda a: sparse.bcoo_reduce_sum(coo(a), axes=(1,)).todense(), DIAGONAL),
    case(f"{SP}.bcoo_concatenate", lambda a: sparse.bcoo_concatenate([coo(a), coo(a)], dimension=0).todense(), DIAGONAL),
    case(f"{SP}.bcoo_slice", lambda a: sparse.bcoo_slice(coo(a), start_indices=(1, 0), limit_indices=(3, 4)).todense(), DIAGONAL),
    case(f"{SP}.bcoo_reshape", lambda a: sparse.bcoo_reshape(coo(a), new_sizes=(2, 8)).todense(), DIAGONAL),
    case(f"{SP}.bcoo_multiply_dense", lambda a, b: sparse.bcoo_multiply_dense(coo(a), b), DIAGONAL, DIAGONAL + 1),
    case(f"{SP}.bcoo_multiply_sparse", lambda a: sparse.bcoo_multiply_sparse(coo(a), coo(a)).todense(), DIAGONAL),
    case(f"{SP}.bcoo_sum_duplicates", lambda a: sparse.bcoo_sum_duplicates(coo(a), nse=7).todense(), DIAGONAL),
    case(f"{SP}.bcoo_sort_indices", lambda a: sparse.bcoo_sort_indices(coo(a).T).todense(), DIAGONAL),
    case(f"{SP}.bcoo_extract", lambda a, b: sparse.bcoo_extract(coo(a), b).todense(), DIAGONAL, DIAGONAL + 1),
    case(f"{SP}.bcsr_dot_general", lambda a, b: sparse.bcsr_dot_general(csr(a), b, dimension_numbers=(((1,), (0,)), ((), ()))), DIAGONAL, V),
    case(f"{SP}.bcsr_extract", lambda a, b: sparse.bcsr_extract(csr(a).indices, csr(a).indptr, b), DIAGONAL, DIAGONAL + 1),
    case(f"{SP}.csr_matvec", lambda a, b: sparse.csr_matvec(sparse.CSR.fromdense(a, nse=7), b), DIAGONAL, V, no_vmap=True),
    case(f"{SP}.coo_matmat", lambda a, b: sparse.coo_matmat(sparse.COO.fromdense(a, nse=7), b), DIAGONAL, X.T, no_vmap=True),
    case(f"{SP}.eye", lambda x: sparse.eye(4) @ x, V),
    case(f"{SP}.random_bcoo", lambda key: sparse.random_bcoo(key, (4, 5), nse=6).todense(), KEY),
    case(f"{SP}.grad", lambda a, b: sparse.grad(lambda m: jnp.sum((m @ b) ** 2))(coo(a)).todense(), DIAGONAL, V),
    case(f"{SP}.linalg.spsolve", lambda a, b: sparse.linalg.spsolve(csr(a + 5 * jnp.eye(4)).data, csr(a + 5 * jnp.eye(4)).indices, csr(a + 5 * jnp.eye(4)).indptr, b), DIAGONAL, V, no_vmap=True),
    case(f"{SP}.linalg.lobpcg_standard", lambda a, x: sparse.linalg.lobpcg_standard(a, x, m=20)[0], positive(12), normal(12, 2), no_grad=True,
         tolerance=1e-4, reason="an iterative solver that stops at a tolerance"),
]  # fmt: skip


def _trained(make, *rates):
    def train(x):
        start, update, params = make(*rates)
        state = start(x)
        for step in range(3):
            state = update(step, jax.grad(lambda v: jnp.sum(jnp.sin(v) * v))(params(state)), state)
        return params(state)

    return train


def _network(layer, shape):
    def run(key, x):
        start, apply = layer()
        _, params = start(key, shape)
        return apply(params, x, rng=key)

    return run


def _layer(name, make, shape, x):
    return case(
        f"jax.example_libraries.stax.{name}",
        lambda key, x: (getattr(stax, name), _network(make, shape)(key, x))[1],
        KEY,
        x,
    )


PICTURES = normal(2, 6, 5, 3)
OPTIMIZERS = {
    "sgd": (0.1,), "momentum": (0.1, 0.9), "nesterov": (0.1, 0.9), "adagrad": (0.1,), "rmsprop": (0.1,),
    "rmsprop_momentum": (0.1,), "adam": (0.1,), "adamax": (0.1,), "sm3": (0.1,),
}  # fmt: skip
LIBRARIES = [
    *[case(f"jax.example_libraries.optimizers.{f}", _trained(getattr(optimizers, f), *rates), V) for f, rates in OPTIMIZERS.items()],
    case("jax.example_libraries.optimizers.clip_grads", lambda x: optimizers.clip_grads(x, 0.5), X),
    case("jax.example_libraries.optimizers.l2_norm", lambda x: optimizers.l2_norm(x), X),
    _layer("Dense", lambda: stax.serial(stax.Dense(5), stax.Relu, stax.Dense(3), stax.LogSoftmax), (-1, 4), X),
    _layer("Conv", lambda: stax.serial(stax.Conv(4, (3, 3), padding="SAME"), stax.Gelu), (-1, 6, 5, 3), PICTURES),
    _layer("ConvTranspose", lambda: stax.ConvTranspose(2, (3, 3), (2, 2)), (-1, 6, 5, 3), PICTURES),
    _layer("BatchNorm", lambda: stax.BatchNorm(), (-1, 6, 5, 3), PICTURES),
    _layer("MaxPool", lambda: stax.MaxPool((2, 2), (2, 2)), (-1, 6, 5, 3), PICTURES),
    _layer("AvgPool", lambda: stax.AvgPool((2, 2)), (-1, 6, 5, 3), PICTURES),
    _layer("SumPool", lambda: stax.SumPool((2, 2), padding="SAME"), (-1, 6, 5, 3), PICTURES),
    _layer("Dropout", lambda: stax.Dropout(0.7), (-1, 4), X),
    case("jax.experimental.ode.odeint", lambda y, t: ode.odeint(lambda v, s: jnp.stack([v[1], -v[0] * s]), y, t), normal(2), np.float32([0, 0.5, 1]), batch=(normal(2), np.float32([0, 0.25, 2])),
         tolerance=1e-4, reason="an adaptive solver with a tolerance of its own"),
    case("jax.experimental.jet.jet", lambda x, a, b: jet.jet(lambda v: jnp.sin(v) * jnp.exp(v), (x,), ((a, b),)), V, V + 1, V * 2),
]  # fmt: skip
CASES = [*TRANSFORMS, *TREES, *EFFECTS, *SPARSE, *LIBRARIES]
