"""Programs of libraries of JAX, by their own public functions: flax, optax, equinox, numpyro, diffrax, jax-md, netket,
dynamiqs, pgx, mujoco-mjx, blackjax."""

# pyright: basic

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.corpora.making import Made, of_jax

_source = np.random.default_rng(0)
_GAMES = (
    "2048", "animal_shogi", "backgammon", "chess", "connect_four", "gardner_chess", "go_9x9", "hex", "kuhn_poker",
    "leduc_holdem", "othello", "shogi", "sparrow_mahjong", "tic_tac_toe",
)  # fmt: skip


def _floats(*sizes: int) -> np.ndarray:
    return _source.normal(0, 1, sizes).astype(np.float32)


# -- flax


def _linen(build: Callable[[Any], Any], *arrays: np.ndarray, gradient: bool = True) -> Made:
    """A module of flax.linen: value and gradient of the sum of squares of its result."""
    import flax.linen as nn
    import jax

    module = build(nn)
    variables = module.init(jax.random.PRNGKey(0), *arrays)

    def loss(variables: Any, *arrays: Any) -> Any:
        leaves = jax.tree.leaves(module.apply(variables, *arrays))
        return sum((leaf**2).mean() for leaf in leaves)

    return of_jax(jax.value_and_grad(loss) if gradient else module.apply, variables, *arrays)


def _flax_cnn() -> Made:
    return _linen(
        lambda nn: nn.Sequential([
            nn.Conv(8, (3, 3)), nn.relu, lambda x: nn.avg_pool(x, (2, 2), (2, 2)), nn.Conv(16, (3, 3)), nn.relu,
            lambda x: nn.max_pool(x, (2, 2), (2, 2)), lambda x: x.reshape(x.shape[0], -1), nn.Dense(10), nn.log_softmax,
        ]), _floats(2, 16, 16, 3),
    )  # fmt: skip


def _flax_norms() -> Made:
    return _linen(
        lambda nn: nn.Sequential([nn.LayerNorm(), nn.Dense(24), nn.GroupNorm(4), nn.gelu, nn.RMSNorm(), nn.Dense(4)]),
        _floats(6, 12),
    )


def _flax_lstm() -> Made:
    return _linen(lambda nn: nn.RNN(nn.OptimizedLSTMCell(16)), _floats(3, 7, 5))


def _flax_gru() -> Made:
    return _linen(lambda nn: nn.Bidirectional(nn.RNN(nn.GRUCell(8)), nn.RNN(nn.GRUCell(8))), _floats(3, 7, 5))


def _flax_attention() -> Made:
    return _linen(lambda nn: nn.MultiHeadDotProductAttention(num_heads=4, qkv_features=16), _floats(2, 9, 16))


def _flax_conv_lstm() -> Made:
    return _linen(lambda nn: nn.RNN(nn.ConvLSTMCell(4, (3, 3))), _floats(2, 4, 6, 6, 3))


def _flax_nnx() -> Made:
    import jax
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv = nnx.Conv(3, 8, kernel_size=(3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.dense = nnx.Linear(8, 5, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.dense(nnx.relu(self.norm(self.conv(x))).mean((1, 2)))

    graph, state = nnx.split(Block(nnx.Rngs(0)))

    def loss(state: Any, x: Any) -> Any:
        model = nnx.merge(graph, state)
        return (model(x) ** 2).mean()

    leaves, structure = jax.tree.flatten(state)
    return of_jax(
        jax.value_and_grad(lambda leaves, x: loss(jax.tree.unflatten(structure, leaves), x)), leaves, _floats(4, 8, 8, 3)
    )


# -- optax


def _optax(build: Callable[[Any], Any]) -> Callable[[], Made]:
    """Five steps of an optimiser on Rosenbrock's function of some arrays."""

    def made() -> Made:
        import jax
        import optax

        optimiser = build(optax)
        weights = {"w": _floats(6, 4), "b": _floats(4)}

        def loss(weights: Any) -> Any:
            x, y = weights["w"] * 0.3, weights["b"] * 0.3
            return ((1 - x) ** 2 + 10 * (y - x**2) ** 2).mean()

        def step(_: Any, carry: Any) -> Any:
            weights, state = carry
            value, gradient = jax.value_and_grad(loss)(weights)
            updates, state = optimiser.update(
                gradient, state, weights, value=value, grad=gradient, value_fn=loss
            )
            return optax.apply_updates(weights, updates), state

        def train(weights: Any) -> Any:
            return jax.lax.fori_loop(0, 5, step, (weights, optimiser.init(weights)))[0]

        return of_jax(train, weights)

    return made


def _extra(build: Callable[[Any], Any]) -> Callable[[], Made]:
    return _optax(lambda optax: optax.with_extra_args_support(build(optax)))


# -- equinox and diffrax


def _equinox_mlp() -> Made:
    import equinox as eqx
    import jax

    model = eqx.nn.MLP(4, 3, 16, 2, key=jax.random.PRNGKey(0))
    arrays, static = eqx.partition(model, eqx.is_array)

    def loss(arrays: Any, x: Any) -> Any:
        return (jax.vmap(eqx.combine(arrays, static))(x) ** 2).mean()

    return of_jax(jax.value_and_grad(loss), arrays, _floats(5, 4))


def _diffrax(solver: str, stiff: bool = False, gradient: bool = False) -> Callable[[], Made]:
    def made() -> Made:
        import diffrax
        import jax
        import jax.numpy as jnp

        term = diffrax.ODETerm(
            (lambda t, y, a: jnp.stack([y[1], a * (1 - y[0] ** 2) * y[1] - y[0]])) if stiff
            else (lambda t, y, a: jnp.stack([a * y[0] - y[0] * y[1], y[0] * y[1] - y[1]]))
        )  # fmt: skip

        def solve(y: Any, a: Any) -> Any:
            return diffrax.diffeqsolve(
                term, getattr(diffrax, solver)(), 0.0, 3.0, 0.05, y, a,
                saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 3.0, 7)),
                stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-7), max_steps=4096,
            ).ys  # fmt: skip

        function = jax.grad(lambda y, a: (solve(y, a) ** 2).sum(), argnums=(0, 1)) if gradient else solve
        return of_jax(function, np.array([1.5, 0.5]), np.float64(2.0))

    return made


def _diffrax_sde() -> Made:
    import diffrax
    import jax
    import jax.numpy as jnp

    def path(y: Any, key: Any) -> Any:
        motion = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(2,), key=key)
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, y, _: -y), diffrax.ControlTerm(lambda t, y, _: 0.3 * jnp.eye(2), motion)
        )
        return diffrax.diffeqsolve(terms, diffrax.Euler(), 0.0, 1.0, 0.05, y, saveat=diffrax.SaveAt(t1=True)).ys

    return of_jax(path, _floats(2), jax.random.PRNGKey(1))


# -- numpyro and blackjax


def _numpyro_density(gradient: bool) -> Callable[[], Made]:
    def made() -> Made:
        import jax
        import jax.numpy as jnp
        import numpyro
        import numpyro.distributions as dist
        from numpyro.infer.util import log_density

        def model(x: Any, y: Any) -> None:
            with numpyro.plate("groups", 3):
                weight = numpyro.sample("weight", dist.StudentT(4.0, 0.0, 2.0))
            scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
            rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
            with numpyro.plate("data", x.shape[0]):
                numpyro.sample("y", dist.Normal(x @ weight, scale), obs=y)
                numpyro.sample("n", dist.NegativeBinomial2(rate, 2.0), obs=jnp.round(jnp.abs(y) * 2))

        def density(sites: Any, x: Any, y: Any) -> Any:
            return log_density(model, (x, y), {}, sites)[0]

        sites = {"weight": _floats(3), "scale": np.float32(0.7), "rate": np.float32(1.3)}
        return of_jax(jax.value_and_grad(density) if gradient else density, sites, _floats(20, 3), _floats(20))

    return made


def _numpyro_nuts() -> Made:
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro.infer.hmc import hmc

    def potential(z: Any) -> Any:
        return -dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3) + 0.3).log_prob(z)

    def sample(z: Any, key: Any) -> Any:
        start, kernel = hmc(potential, algo="NUTS")
        state = start(z, num_warmup=2, step_size=0.3, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=3,
                      rng_key=key)  # fmt: skip
        return kernel(state).z

    return of_jax(sample, _floats(3) * 0.3, jax.random.PRNGKey(2))


def _blackjax_hmc() -> Made:
    import blackjax
    import jax
    import jax.numpy as jnp

    algorithm = blackjax.hmc(lambda x: -0.5 * (x**2).sum(), 0.2, jnp.ones(4), 5)

    def chain(x: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            state, _ = algorithm.step(key, state)
            return state, state.position

        return jax.lax.scan(step, algorithm.init(x), jax.random.split(key, 6))[1]

    return of_jax(chain, _floats(4), jax.random.PRNGKey(3))


# -- physics


def _jax_md(kind: str) -> Callable[[], Made]:
    def made() -> Made:
        import jax
        from jax_md import energy, simulate, space

        displacement, shift = space.periodic(6.0)
        places = np.stack(np.meshgrid(*[np.arange(3) * 2.0] * 3), -1).reshape(-1, 3).astype(np.float32)
        places = (places + 0.1 * _floats(27, 3)) % np.float32(6.0)
        total = {
            "lennard_jones": energy.lennard_jones_pair, "soft_sphere": energy.soft_sphere_pair, "morse": energy.morse_pair,
        }[kind.partition(" ")[0]](displacement)  # fmt: skip
        if not kind.endswith("nve"):
            return of_jax(jax.value_and_grad(total), places)
        start, step = simulate.nve(total, shift, 1e-3)

        def run(places: Any, key: Any) -> Any:
            state = start(key, places, kT=0.1)
            return jax.lax.fori_loop(0, 10, lambda _, s: step(s), state).position

        return of_jax(run, places, jax.random.PRNGKey(4))

    return made


def _netket(kind: str) -> Callable[[], Made]:
    def made() -> Made:
        import jax
        import netket as nk

        hilbert = nk.hilbert.Spin(0.5, 8)
        model = {
            "rbm": lambda: nk.models.RBM(alpha=2, param_dtype=complex), "jastrow": nk.models.Jastrow,
            "arnn": lambda: nk.models.ARNNDense(hilbert=hilbert, layers=2, features=6),
            "gcnn": lambda: nk.models.GCNN(
                symmetries=nk.graph.Chain(8), layers=2, features=3, mode="irreps"
            ),
        }[kind]()  # fmt: skip
        spins = np.sign(_floats(6, 8)).astype(np.float64)
        variables = model.init(jax.random.PRNGKey(0), spins)

        def value(variables: Any, spins: Any) -> Any:
            return model.apply(variables, spins).real.sum()

        return of_jax(jax.value_and_grad(value), variables, spins)

    return made


def _netket_ising() -> Made:
    import netket as nk

    hilbert = nk.hilbert.Spin(0.5, 8)
    operator = nk.operator.IsingJax(hilbert, nk.graph.Chain(8), h=1.0)
    return of_jax(lambda x: operator.get_conn_padded(x), np.sign(_floats(6, 8)).astype(np.float64))


def _dynamiqs(kind: str) -> Callable[[], Made]:
    def made() -> Made:
        import dynamiqs as dq
        import jax.numpy as jnp

        dq.set_progress_meter(False)
        size = 8
        a = dq.destroy(size)

        def run(detuning: Any) -> Any:
            hamiltonian = detuning * dq.dag(a) @ a + 0.5 * (a + dq.dag(a))
            state, times = dq.fock(size, 1), jnp.linspace(0.0, 1.0, 5)
            if kind == "sesolve":
                return dq.sesolve(hamiltonian, state, times).states.to_jax()
            return dq.mesolve(hamiltonian, [0.4 * a], state, times).states.to_jax()

        return of_jax(run, np.float32(0.7))

    return made


def _mujoco(steps: int) -> Callable[[], Made]:
    def made() -> Made:
        import jax
        import mujoco
        from mujoco import mjx

        from tests.jax.libraries.scripts.mujoco_step import MODEL

        model = mujoco.MjModel.from_xml_string(MODEL)
        fixed, data = mjx.put_model(model), mjx.put_data(model, mujoco.MjData(model))

        def run(qpos: Any, qvel: Any) -> Any:
            end = jax.lax.fori_loop(0, steps, lambda _, d: mjx.step(fixed, d), data.replace(qpos=qpos, qvel=qvel))
            return end.qpos, end.qvel

        return of_jax(run, data.qpos, data.qvel)

    return made


def _pgx(game: str) -> Callable[[], Made]:
    """A game's start, and eight moves, each the first legal one after a number of its turn."""

    def made() -> Made:
        import jax
        import jax.numpy as jnp
        import pgx

        environment = pgx.make(game)

        def play(key: Any) -> Any:
            def move(state: Any, turn: Any) -> Any:
                legal = state.legal_action_mask
                action = jnp.argmax(jnp.roll(legal, -turn * 7))
                state = environment.step(state, (action + turn * 7) % legal.size, jax.random.fold_in(key, turn))
                return state, (state.observation, state.rewards, state.terminated, state.legal_action_mask)

            return jax.lax.scan(move, environment.init(key), jnp.arange(8))[1]

        return of_jax(play, jax.random.PRNGKey(5))

    return made


PROGRAMS: dict[str, Callable[[], Made]] = {
    "flax cnn": _flax_cnn, "flax norms": _flax_norms, "flax lstm": _flax_lstm, "flax gru": _flax_gru,
    "flax attention": _flax_attention, "flax conv_lstm": _flax_conv_lstm, "flax nnx": _flax_nnx,
    "optax adam": _extra(lambda o: o.adam(0.1)), "optax adamw": _extra(lambda o: o.adamw(0.1)),
    "optax lion": _extra(lambda o: o.lion(0.1)), "optax adafactor": _extra(lambda o: o.adafactor(0.1)),
    "optax shampoo_like": _extra(lambda o: o.chain(o.clip_by_global_norm(1.0), o.scale_by_rms(), o.scale(-0.1))),
    "optax lbfgs": _optax(lambda o: o.lbfgs()), "optax muon": _extra(lambda o: o.contrib.muon(0.1)),
    "equinox mlp": _equinox_mlp,
    "diffrax tsit5": _diffrax("Tsit5"), "diffrax dopri8": _diffrax("Dopri8"),
    "diffrax kvaerno5": _diffrax("Kvaerno5", stiff=True), "diffrax tsit5_gradient": _diffrax("Tsit5", gradient=True),
    "diffrax sde": _diffrax_sde,
    "numpyro density": _numpyro_density(False), "numpyro density_gradient": _numpyro_density(True),
    "numpyro nuts": _numpyro_nuts, "blackjax hmc": _blackjax_hmc,
    "jax-md lennard_jones": _jax_md("lennard_jones"), "jax-md soft_sphere": _jax_md("soft_sphere"),
    "jax-md morse": _jax_md("morse"), "jax-md lennard_jones_nve": _jax_md("lennard_jones nve"),
    "netket rbm": _netket("rbm"), "netket jastrow": _netket("jastrow"), "netket arnn": _netket("arnn"),
    "netket gcnn": _netket("gcnn"), "netket ising": _netket_ising,
    "dynamiqs sesolve": _dynamiqs("sesolve"), "dynamiqs mesolve": _dynamiqs("mesolve"),
    "mujoco-mjx step": _mujoco(1), "mujoco-mjx steps": _mujoco(10),
    **{f"pgx {game}": _pgx(game) for game in _GAMES},
}  # fmt: skip
NAMES = tuple(PROGRAMS)


def packages(name: str) -> tuple[str, ...]:
    return (name.partition(" ")[0], "jax")


def make(name: str) -> Made:
    global _source
    import jax

    library = name.partition(" ")[0]
    if library == "netket":
        importlib.import_module(library)  # which turns 64-bit types on, for whatever else the process makes
    jax.config.update("jax_enable_x64", library in ("diffrax", "netket"))
    _source = np.random.default_rng(0)
    return PROGRAMS[name]()
