"""jax.random, jax.nn, jax.nn.initializers."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.functions.table import KEY, case, each, integers, normal, positive, uniform

R, M, INIT = "jax.random", "jax.nn", "jax.nn.initializers"
X, Y = normal(3, 4), normal(3, 4, seed=1)
A = uniform(4, low=0.5, high=3)
UNIT = uniform(4, low=0.2, high=0.8)


def draw(name, *values, label="", **flags):
    """A sample of 3 x 4 with these parameters after the key."""
    shape = {"shape": (3, 4)}
    return case(
        f"{R}.{name}", lambda key, *v: getattr(jax.random, name)(key, *v, **shape), KEY, *values, label=label, **flags
    )


RANDOM = [
    *[draw(f) for f in ["bits", "cauchy", "exponential", "gumbel", "laplace", "logistic", "maxwell", "normal"]],
    draw("uniform"),
    draw("rayleigh", A),
    case(f"{R}.normal", lambda key: jax.random.normal(key, (7,), jnp.bfloat16), KEY, label="bf16"),
    case(f"{R}.uniform", lambda key: jax.random.uniform(key, (7,), jnp.float16), KEY, label="f16"),
    case(f"{R}.normal", lambda key: jax.random.normal(key, (7,), jnp.complex64), KEY, label="c64"),
    case(f"{R}.bits", lambda key: jax.random.bits(key, (7,), jnp.uint8), KEY, label="u8"),
    draw("bernoulli", UNIT),
    draw("beta", A, A + 1),
    draw("chisquare", A),
    draw("gamma", A),
    draw("loggamma", A),
    draw("pareto", A),
    draw("t", A),
    draw("wald", A),
    case(f"{R}.f", lambda key, a, b: jax.random.f(key, a, b), KEY, A, A + 2),
    draw("geometric", UNIT),
    draw("lognormal", A[0]),
    draw("poisson", A * 4),
    draw("binomial", np.float32([3, 9, 30, 60]), UNIT),
    case(f"{R}.randint", lambda key, a, b: jax.random.randint(key, (3, 4), a, b), KEY, np.int32(-5), np.int32(9)),
    draw("rademacher"),
    draw("triangular", -A, A * 0, A),
    draw("truncated_normal", -A, A),
    draw("weibull_min", A, A + 1),
    draw("double_sided_maxwell", A, A),
    case(f"{R}.generalized_normal", lambda key: jax.random.generalized_normal(key, 1.5, (3, 4)), KEY),
    case(f"{R}.ball", lambda key: jax.random.ball(key, 3, shape=(4,)), KEY),
    case(f"{R}.categorical", lambda key, x: jax.random.categorical(key, x, axis=1), KEY, X),
    case(f"{R}.choice", lambda key, x, p: jax.random.choice(key, x, (5,), p=p), KEY, normal(4), np.float32([0.1, 0.2, 0.3, 0.4])),
    case(f"{R}.choice", lambda key, x: jax.random.choice(key, x, (3,), replace=False), KEY, normal(4), label="no replacement"),
    case(f"{R}.dirichlet", lambda key, a: jax.random.dirichlet(key, a, (3,)), KEY, A),
    case(f"{R}.multinomial", lambda key, p: jax.random.multinomial(key, 9, p), KEY, np.float32([0.2, 0.3, 0.5])),
    case(f"{R}.multivariate_normal", lambda key, m, c: jax.random.multivariate_normal(key, m, c), KEY, normal(3), positive(3)),
    case(f"{R}.orthogonal", lambda key: jax.random.orthogonal(key, 4), KEY),
    case(f"{R}.permutation", lambda key, x: jax.random.permutation(key, x), KEY, X),
    case(f"{R}.permutation", lambda key: jax.random.permutation(key, 20), KEY, label="range"),
    case(f"{R}.split", lambda key: jax.random.split(key, 3), KEY),
    case(f"{R}.fold_in", None, KEY, np.int32(7)),
    case(f"{R}.PRNGKey", None, np.int32(7)),
    case(f"{R}.key", lambda seed: jax.random.key_data(jax.random.key(seed)), np.int32(7)),
    case(f"{R}.key", lambda seed: jax.random.normal(jax.random.key(seed, impl="rbg"), (5,)), np.int32(7), label="rbg"),
    case(f"{R}.key", lambda seed: jax.random.normal(jax.random.key(seed, impl="unsafe_rbg"), (5,)), np.int32(7), label="unsafe_rbg"),
    case(f"{R}.key_data", lambda seed: jax.random.key_data(jax.random.key(seed)), np.int32(8)),
    case(f"{R}.wrap_key_data", lambda key: jax.random.uniform(jax.random.wrap_key_data(key)), KEY),
    case(f"{R}.clone", lambda seed: jax.random.uniform(jax.random.clone(jax.random.key(seed))), np.int32(8)),
    case(f"{R}.key_impl", lambda: str(jax.random.key_impl(jax.random.key(1))), host=True),
    case("jax.extend.random.threefry_2x32", lambda key, n: _threefry(key, n), KEY, np.arange(8, dtype=np.uint32)),
]  # fmt: skip


def _threefry(key, n):
    import jax.extend.random

    return jax.extend.random.threefry_2x32(key, n)


Q, K, V = normal(1, 5, 2, 4), normal(1, 6, 2, 4, seed=1), normal(1, 6, 2, 4, seed=2)
NN = [
    *each(M, "relu relu6 sigmoid silu swish softplus soft_sign log_sigmoid elu celu gelu selu leaky_relu mish tanh",
          X, types="f32 bf16"),
    *each(M, "hard_sigmoid hard_silu hard_swish hard_tanh sparse_plus sparse_sigmoid squareplus identity", X),
    *each(M, "softmax log_softmax logsumexp standardize", X, types="f32 bf16"),
    *each(M, "logmeanexp glu", X),
    case(f"{M}.log1mexp", None, np.abs(X) + 0.1),
    case(f"{M}.gelu", lambda x: jax.nn.gelu(x, approximate=False), X, label="exact", types="f32 bf16"),
    case(f"{M}.one_hot", lambda n: jax.nn.one_hot(n, 5), integers(3, 4, low=-1, high=6)),
    case(f"{M}.dot_product_attention", lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), Q, K, V, types="f32 bf16"),
]  # fmt: skip
INITIALIZERS = [
    *[case(f"{INIT}.{f}", lambda key, f=f: getattr(jax.nn.initializers, f)()(key, (4, 6), jnp.float32), KEY)
      for f in ["glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "orthogonal", "truncated_normal", "uniform", "xavier_normal", "xavier_uniform"]],
    case(f"{INIT}.variance_scaling", lambda key: jax.nn.initializers.variance_scaling(2.0, "fan_avg", "uniform")(key, (4, 6), jnp.bfloat16), KEY),
    case(f"{INIT}.delta_orthogonal", lambda key: jax.nn.initializers.delta_orthogonal()(key, (3, 3, 2, 4), jnp.float32), KEY),
    case(f"{INIT}.constant", lambda key: jax.nn.initializers.constant(3)(key, (2, 3), jnp.float32), KEY),
    *[case(f"{INIT}.{f}", lambda key, f=f: getattr(jax.nn.initializers, f)(key, (2, 3), jnp.float32), KEY) for f in ("ones", "zeros")],
]  # fmt: skip
CASES = [*RANDOM, *NN, *INITIALIZERS]
